"""One self-contained HTML page: opens offline, on a phone, on paper, in the dark."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import numpy as np
from markupsafe import Markup

from fcforge import __version__
from fcforge import text as numbers
from fcforge.errors import DataError
from fcforge.metrics import METRICS
from fcforge.report import words
from fcforge.report.contents import MORE_METRICS, Contents, contents
from fcforge.report.figures import heat, inline, share, ticks
from fcforge.report.tables import as_csv, best_of
from fcforge.stats import COLUMNS
from fcforge.stats.bootstrap import N_DRAWS
from fcforge.types import RunResult
from fcforge.writing import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Section:
    """A section that another part of fcforge adds to the page.

    Attributes
    ----------
    title : str
    body : Markup, str or matplotlib Figure
        Markup goes in as it is (the caller vouches for it), a plain string is escaped, a
        figure becomes inline SVG.
    alt : str
        Alternative text of a figure.
    """

    title: str
    body: Markup | str | Figure
    alt: str = ""

    def html(self) -> Markup:
        """Body as safe HTML."""
        if isinstance(self.body, Markup):
            return self.body
        if isinstance(self.body, str):
            return Markup("<p>{}</p>").format(self.body)
        figure = Markup('<figure role="img" aria-label="{}">{}</figure>')
        return figure.format(self.alt or self.title, inline(self.body))


def templates_of(package: str) -> jinja2.Environment:
    """Jinja with autoescape on: names, labels and ledgers are other people's text."""
    env = jinja2.Environment(
        loader=jinja2.PackageLoader(package, "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(number=numbers.number, memory=numbers.memory, flat=flat_settings)
    return env


def environment_of_templates() -> jinja2.Environment:
    """Templates of the report page."""
    env = templates_of("fcforge.report")
    env.globals.update(heat=heat, share=share, ticks=ticks, isfinite=np.isfinite)
    env.filters.update(duration=numbers.duration, p_value=numbers.p_value)
    env.globals.update(bracket=numbers.bracket)
    return env


def flat_settings(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as (dotted name, text) pairs."""
    found: list[tuple[str, str]] = []
    for key, value in settings.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            found += flat_settings(value, f"{name}.")
        elif isinstance(value, str):
            found.append((name, value))
        else:
            found.append((name, json.dumps(value, default=str, ensure_ascii=False)))
    return found


def _settings_of(results: Sequence[RunResult]) -> dict[str, Any]:
    """Settings shared by all runs, when the caller hands none over."""
    spec = results[0].spec
    learners = {r.spec.learner.title: r.spec.learner for r in results}
    return {
        "dataset": asdict(spec.dataset),
        "training": asdict(spec.training),
        "protocol": spec.protocol,
        "leaks": asdict(spec.leaks),
        "test_fraction": spec.test_fraction,
        "val_fraction": spec.val_fraction,
        "harmonise": spec.harmonise,
        "learners": {k: asdict(v) for k, v in learners.items()},
    }


def _facts(results: Sequence[RunResult], expected: int | None) -> dict[str, Any]:
    first = results[0]
    asked = max(expected or 0, len(results))
    sites = []
    for s in first.sites:
        tested = {i for r in results for i in r.subject_ids[s]}
        sites.append((s, len(first.y[s]), len(tested), float(first.y[s].mean())))
    return {
        "n_learners": len({r.spec.learner.title for r in results}),
        "n_orders": len({r.spec.order for r in results}),
        "n_seeds": len({r.spec.seed for r in results}),
        "n_done": len(results),
        "n_asked": asked,
        "protocol": words.join(sorted({r.spec.protocol for r in results})),
        "datasets": words.join(list(dict.fromkeys(r.spec.dataset.name for r in results))),
        "sites": sites,
    }


def _ordinal(n: int) -> str:
    tail = "th" if 10 < n % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{tail}"


def _panel_columns(n: int) -> int:
    """Columns that leave few holes in a grid of n panels wide enough to read."""
    return n if n <= 4 else 3 if n in (5, 6, 9) else 4


def _majority_at(found: Contents) -> dict[str, float]:
    majority = next(r.learner for r in found.rows if r.is_majority)
    return {site: e.mean for site, e in found.sites[majority].items()}


def _as_section(item: Section | tuple[str, Any]) -> Section:
    return item if isinstance(item, Section) else Section(*item)


def render(
    results: Sequence[RunResult],
    *,
    title: str = "fcforge report",
    keeps: Mapping[str, str] | None = None,
    expected: int | None = None,
    settings: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
    extra_sections: Sequence[Section | tuple[str, Any]] = (),
    n_draws: int = N_DRAWS,
) -> str:
    """The page as text; see `write_report`."""
    if not results:
        raise DataError("there is no finished run to report.", do="Run `fcforge run` first.")
    found = contents(results, keeps=keeps or {}, expected=expected, n_draws=n_draws)
    csv = base64.b64encode(as_csv(found.rows).encode()).decode()
    levels: dict[str, str] = {}
    for f in reversed(found.findings):
        levels[f.learner] = f.level
    return (
        environment_of_templates()
        .get_template("report.html.j2")
        .render(
            title=title,
            c=found,
            columns=COLUMNS,
            more_columns=[(k, METRICS[k].title, METRICS[k].lower_is_better) for k in MORE_METRICS],
            best=best_of(found.rows, but={k for k, v in levels.items() if v == "serious"}),
            panel_columns=_panel_columns(len(found.accuracy_panels)),
            levels=levels,
            has_intransigence=any(np.isfinite(r.intransigence) for r in found.rows),
            facts=_facts(results, expected),
            site_names=[s for s in results[0].sites if any(s in r.spec.order for r in results)],
            stage_names=[f"after {t + 1}" for t in range(len(results[0].sites))],
            position_names=[_ordinal(t + 1) for t in range(len(results[0].sites))],
            majority_at=_majority_at(found),
            headline=words.headline(found.rows, found.against_majority, found.leaks),
            methods=words.methods_paragraphs(results, n_draws),
            bibtex=words.bibtex(),
            settings=settings or _settings_of(results),
            environment=environment or results[0].environment,
            sections=[_as_section(s) for s in extra_sections],
            csv=csv,
            version=__version__,
            now=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        )
    )


def write_report(
    results: Sequence[RunResult],
    out_html: str | Path,
    *,
    title: str = "fcforge report",
    keeps: Mapping[str, str] | None = None,
    expected: int | None = None,
    settings: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
    extra_sections: Sequence[Section | tuple[str, Any]] = (),
    n_draws: int = N_DRAWS,
) -> Path:
    """Write the report page, whole or not at all.

    Parameters
    ----------
    results : sequence of RunResult
        Finished runs; the majority row is added when no majority learner is among them.
    out_html : path
    title : str
    keeps : mapping of learner title to what its method keeps between sites
    expected : int, optional
        Number of runs that were asked for; fewer results are shown as missing.
    settings, environment : mapping, optional
        Shown as they are; by default what the runs themselves say.
    extra_sections : sequence of Section or (title, body)
        Placed before the settings.
    n_draws : int
        Bootstrap draws and permutations.

    Returns
    -------
    Path
        The file written.
    """
    out = Path(out_html)
    page = render(
        results,
        title=title,
        keeps=keeps,
        expected=expected,
        settings=settings,
        environment=environment,
        extra_sections=extra_sections,
        n_draws=n_draws,
    )
    write_text(out, page)
    return out

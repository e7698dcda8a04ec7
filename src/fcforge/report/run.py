"""The page of a run: opens offline, on a phone, on paper, in the dark."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from fcforge.errors import DataError
from fcforge.metrics import METRICS
from fcforge.report import figures
from fcforge.report.contents import MORE_METRICS, Contents, Curve, contents
from fcforge.report.frame import Section, picture, render
from fcforge.report.results import EVERYTHING, as_csv, name_cell, results_table
from fcforge.report.table import Cell, Heading, Table
from fcforge.stats.bootstrap import N_DRAWS
from fcforge.text import number
from fcforge.types import RunResult
from fcforge.writing import write_text


@dataclass(frozen=True)
class About:
    """What the page says besides the results.

    Attributes
    ----------
    title : str
    keeps : mapping of learner title to what its method keeps between sites
    expected : int, optional
        Number of runs that were asked for; fewer results are shown as missing.
    settings, environment : mapping, optional
        Shown as they are; by default what the runs themselves say.
    sections : sequence of Section
        Placed before the settings.
    n_draws : int
        Bootstrap draws and permutations.
    home : str
        Address of the overview this page belongs to; empty without one.
    """

    title: str = "fcforge report"
    keeps: Mapping[str, str] = field(default_factory=dict)
    expected: int | None = None
    settings: Mapping[str, Any] | None = None
    environment: Mapping[str, Any] | None = None
    sections: Sequence[Section] = ()
    n_draws: int = N_DRAWS
    home: str = ""


def write_report(
    results: Sequence[RunResult], out_html: str | Path, about: About | None = None
) -> Path:
    """Write the page of some runs, whole or not at all; returns the file written.

    The majority row is added when no majority learner is among the results.
    """
    out = Path(out_html)
    about = about or About()
    write_text(out, page_of(results, about, numbers_of(results, about)))
    return out


def numbers_of(results: Sequence[RunResult], about: About) -> Contents:
    """The numbers of the page."""
    if not results:
        raise DataError("there is no finished run to report.", do="Run `fcforge run` first.")
    return contents(results, keeps=about.keeps, expected=about.expected, n_draws=about.n_draws)


def page_of(results: Sequence[RunResult], about: About, c: Contents) -> str:
    """The page as text."""
    levels = {f.learner: f.level for f in reversed(c.findings)}
    known = any(np.isfinite(r.intransigence) for r in c.rows)
    shown = (*EVERYTHING, *(["intransigence"] if known else []))
    return render(
        "run.html.j2",
        about=about,
        c=c,
        levels=levels,
        results=results_table(c.rows, shown, levels=levels),
        more=_more_table(c, levels),
        facts=_facts(results, about.expected),
        accuracy=_curve_panels(c.accuracy, c.majority, "accuracy"),
        forgetting=_curve_panels(c.forgetting, c.majority, "forgetting"),
        since=_since_panels(c.since),
        extra=[(f"extra-{k}", s.title) for k, s in enumerate(about.sections, 1)],
        positions=[str(t + 1) for t in range(len(results[0].sites))],
        site_names=[s for s in results[0].sites if any(s in r.spec.order for r in results)],
        honest=[r for r in c.rows if not r.is_majority and r.n_runs and r.learner not in c.leaks],
        first=results[0],
        settings=about.settings or _settings_of(results),
        environment=about.environment or results[0].environment,
        csv=base64.b64encode(as_csv(c.rows).encode()).decode(),
    )


def _more_table(c: Contents, levels: Mapping[str, str]) -> Table:
    heads = [Heading("Learner", words=True)]
    for name in MORE_METRICS:
        low = METRICS[name].lower_is_better
        way = "low is good" if low else "high is good"
        heads.append(Heading(METRICS[name].title, below=way, falling=not low))
    shown = [r for r in c.rows if r.learner in c.more]
    rows = []
    for r in shown:
        found = c.more[r.learner]
        rows.append((name_cell(r.learner, levels), *(_more_cell(found[k]) for k in MORE_METRICS)))
    quiet = frozenset(k for k, r in enumerate(shown) if r.is_majority)
    return Table(tuple(heads), tuple(rows), quiet=quiet, sortable=True)


def _more_cell(m: Mapping[str, float]) -> Cell:
    return Cell(number(m["aaa"]), (f"final {number(m['acc'])}", f"FM {number(m['fm'])}"), m["aaa"])


def _facts(results: Sequence[RunResult], expected: int | None) -> dict[str, Any]:
    first = results[0]
    sites = []
    for s in first.sites:
        tested = {i for r in results for i in r.subject_ids[s]}
        sites.append((s, len(first.y[s]), len(tested), float(first.y[s].mean())))
    specs = [r.spec for r in results]
    return {
        "learners": list(dict.fromkeys(s.learner.title for s in specs)),
        "datasets": list(dict.fromkeys(s.dataset.name for s in specs)),
        "protocols": sorted({s.protocol for s in specs}),
        "leaks": sorted({x for s in specs for x in s.leaks.active()}),
        "n_orders": len({s.order for s in specs}),
        "n_seeds": len({s.seed for s in specs}),
        "n_done": len(results),
        "n_asked": max(expected or 0, len(results)),
        "n_tested": sum(len(y) for y in first.y.values()),
        "sites": sites,
    }


def _settings_of(results: Sequence[RunResult]) -> dict[str, Any]:
    """Settings shared by all runs, when the caller hands none over."""
    spec = asdict(results[0].spec)
    shared = ("dataset", "training", "protocol", "leaks", "test_fraction", "val_fraction", "folds")
    learners = {r.spec.learner.title: asdict(r.spec.learner) for r in results}
    return {**{k: spec[k] for k in (*shared, "harmonise")}, "learners": learners}


Panels = list[tuple[str, Markup]]


def _curve_panels(found: Mapping[str, Curve], majority: str, what: str) -> Panels:
    """A learner with its band, the others faint behind it, the majority class dashed."""
    limits = figures.span([x for c in found.values() for x in c])
    panels = []
    for title, own in found.items():
        if title == majority:
            continue
        stages = [str(t + 1) for t in range(len(own.mean))]
        same = {k: c.mean for k, c in found.items() if k != title and len(c.mean) == len(stages)}
        lines = [
            figures.StageLine(v, figures.FAINT, thin=True) for k, v in same.items() if k != majority
        ]
        if majority in same:
            lines.append(figures.StageLine(same[majority], figures.MUTED, dashed=True))
        lines.append(figures.StageLine(own.mean, band=(own.low, own.high)))
        figure = figures.stage_lines(lines, stages, "sites learned", limits)
        alt = f"{what} of {title} over the stages: {figures.describe(own.mean)}"
        panels.append((title, picture(figure, alt)))
    return panels


def _since_panels(found: Mapping[str, Mapping[str, np.ndarray]]) -> Panels:
    """One panel per learner: each site before and after it was learned, all on one axis."""
    limits = figures.span([v for sites in found.values() for v in sites.values()] or [np.array([])])
    panels = []
    for title, sites in found.items():
        half = len(next(iter(sites.values()))) // 2
        stages = [number(k, 0, sign=True) for k in range(-half, half + 1)]
        title_x = "sites learned since this one"
        figure = figures.stage_lines(figures.named_lines(sites), stages, title_x, limits, half)
        alt = f"{title}: accuracy at each site before and after it was learned"
        panels.append((title, picture(figure, alt)))
    return panels

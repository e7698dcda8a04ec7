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
from fcforge.report.rendering import Section, picture, render
from fcforge.report.results import EVERYTHING, as_csv, name_cell, results_table
from fcforge.report.table import Cell, Heading, Table
from fcforge.stats.resampling import N_DRAWS
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
        raise DataError(
            "there is no finished run to report.", do="Run `fcforge run` first."
        )
    return contents(
        results, keeps=about.keeps, expected=about.expected, n_draws=about.n_draws
    )


def page_of(results: Sequence[RunResult], about: About, c: Contents) -> str:
    """The page as text."""
    levels = {f.learner: f.level for f in reversed(c.findings)}
    known = any(np.isfinite(r.intransigence) for r in c.rows)
    shown = (*EVERYTHING, *(["intransigence"] if known else []))
    first, sites = results[0], []
    for s in first.sites:
        tested = {i for r in results for i in r.subject_ids[s]}
        sites.append((s, len(first.y[s]), len(tested), float(first.y[s].mean())))
    return render(
        "run.html.j2",
        about=about,
        c=c,
        results=results,
        levels=levels,
        shown=results_table(c.rows, shown, levels=levels),
        more=_more_table(c, levels),
        accuracy=_curve_panels(c.accuracy, c.majority, "accuracy"),
        forgetting=_curve_panels(c.forgetting, c.majority, "forgetting"),
        since=_since_panels(c.since),
        sites=sites,
        learned=[s for s in first.sites if any(s in r.spec.order for r in results)],
        settings=about.settings or _settings_of(results),
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
        cells = [name_cell(r.learner, levels)]
        for m in (c.more[r.learner][k] for k in MORE_METRICS):
            below = f"final {number(m['acc'])}", f"FM {number(m['fm'])}"
            cells.append(Cell(number(m["aaa"]), below, m["aaa"]))
        rows.append(tuple(cells))
    quiet = frozenset(k for k, r in enumerate(shown) if r.is_majority)
    return Table(tuple(heads), tuple(rows), quiet=quiet, sortable=True)


def _settings_of(results: Sequence[RunResult]) -> dict[str, Any]:
    """Settings shared by all runs, when the caller hands none over."""
    spec = asdict(results[0].spec)
    shared = (
        "dataset",
        "training",
        "protocol",
        "leaks",
        "test_fraction",
        "val_fraction",
        "folds",
    )
    learners = {r.spec.learner.title: asdict(r.spec.learner) for r in results}
    return {**{k: spec[k] for k in shared}, "learners": learners}


Panels = list[tuple[str, Markup]]


def _curve_panels(found: Mapping[str, Curve], majority: str, what: str) -> Panels:
    """A learner with its band, the others faint behind it, the majority class dashed."""
    limits = figures.span([x for c in found.values() for x in c])
    panels = []
    for title, own in found.items():
        if title == majority:
            continue
        stages = [str(t + 1) for t in range(len(own.mean))]
        same = {
            k: c.mean
            for k, c in found.items()
            if k != title and len(c.mean) == len(stages)
        }
        lines = [
            figures.StageLine(v, figures.FAINT, thin=True)
            for k, v in same.items()
            if k != majority
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
    limits = figures.span(
        [v for sites in found.values() for v in sites.values()] or [np.array([])]
    )
    panels = []
    for title, sites in found.items():
        half = len(next(iter(sites.values()))) // 2
        stages = [number(k, 0, sign=True) for k in range(-half, half + 1)]
        about = stages, "sites learned since this one", limits, half
        figure = figures.stage_lines(figures.named_lines(sites), *about)
        alt = f"{title}: accuracy at each site before and after it was learned"
        panels.append((title, picture(figure, alt)))
    return panels

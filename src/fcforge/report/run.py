"""The page of a run: opens offline, on a phone, on paper, in the dark."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from fcforge.errors import DataError
from fcforge.metrics import METRICS
from fcforge.report import figures
from fcforge.report.contents import Contents, Curve, Difference, contents
from fcforge.report.paper_methods import methods_paragraphs
from fcforge.report.rendering import Section, listed, picture, render
from fcforge.report.results import as_csv, everything, name_cell, results_table
from fcforge.report.table import Cell, Heading, Table
from fcforge.stats.resampling import N_DRAWS
from fcforge.text import bracket, counted, number, with_interval
from fcforge.types import Estimate, Kind, RunResult
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

    The majority rows are added where no majority learner is among the results.
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
    levels = c.levels
    known = any(np.isfinite(row.intransigence) for row in c.rows)
    columns = (*everything(c.rows), *(["intransigence"] if known else []))
    sites = [_site(results, c, name) for name in results[0].sites]
    leaks = [switch for active in c.leaks.values() for switch in active]
    return render(
        "run.html.j2",
        about=about,
        words=c.words,
        leaks={learner: ", ".join(active) for learner, active in c.leaks.items()},
        lead=headline(c),
        tested=_tested(results, sites),
        facts=_facts(results, about),
        contents=_table_of_contents(c, about),
        findings=c.findings,
        levels=levels,
        shown=results_table(c.rows, columns, levels=levels),
        more=_more_table(c, levels),
        csv=base64.b64encode(as_csv(c.rows).encode()).decode(),
        forests=[_forest(c, against) for against in c.forests],
        accuracy=_curve_panels(c.accuracy, c, c.words.metric),
        forgetting=_curve_panels(c.forgetting, c, "forgetting"),
        since=_since_panels(c.since, c.words.metric),
        site_limits=c.site_limits,
        heat_limits=c.heat_limits,
        matrices=c.matrices,
        learned=[s.name for s in sites if any(s.name in r.spec.order for r in results)],
        sites=sites,
        settings=about.settings or _settings_of(results),
        environment=about.environment or results[0].environment,
        methods=methods_paragraphs(results, leaks, about.n_draws),
    )


# -- the head --------------------------------------------------------------------------------------
def headline(c: Contents) -> str:
    """Who is best, how many beat the baseline, and who forgets most."""
    if not c.honest:
        return "No learner has usable scores obtained without test data."
    best = c.honest[0]
    text = (
        f"Highest {c.words.metric} along the way: {best.learner}, {c.words.average} "
        f"{_interval(best.estimates['aaa'])}"
    )
    against = c.against_baseline.get(best.learner)
    if against is not None:
        gap = number(against.difference, sign=True)
        between = bracket(against.low, against.high, sign=True)
        text += f", which is {gap} {between} against {c.words.naive}"
    text += (
        f". {len(c.ahead)} of {counted(len(c.honest), 'learner')} beat that baseline with an "
        "interval above zero and no serious warning."
    )
    worst = max(c.honest, key=lambda row: np.nan_to_num(row.estimates["fm"].value))
    if worst.estimates["fm"].value > 0:
        forgotten = _interval(worst.estimates["fm"])
        text += f" Most is forgotten by {worst.learner}: FM {forgotten}."
    return text


def _interval(e: Estimate) -> str:
    return with_interval(e.value, e.low, e.high)


def _facts(results: Sequence[RunResult], about: About) -> list[tuple[str, Any, str]]:
    specs = [r.spec for r in results]
    asked = max(about.expected or 0, len(results))
    return [
        ("runs finished", len(results), f"of {asked}"),
        ("learners", len({s.learner.title for s in specs}), ""),
        ("sites", len(results[0].sites), ""),
        ("site orders", len({s.order for s in specs}), ""),
        ("seeds", len({s.seed for s in specs}), ""),
        ("protocol", listed(sorted({s.protocol for s in specs})), ""),
    ]


def _table_of_contents(c: Contents, about: About) -> list[tuple[str, str]]:
    """Anchor and title of every section that is there."""
    found = [("warnings", "Warnings"), ("results", "Results")]
    if c.forests:
        found.append(("differences", "Differences"))
    if c.matrices:
        found += [
            ("stages", "Over the stages"),
            ("since", "Each site over time"),
            ("matrices", "Matrices"),
        ]
    found.append(("sites", "Sites"))
    for k, section in enumerate(about.sections, start=1):
        found.append((f"extra-{k}", section.title))
    return [*found, ("settings", "Settings"), ("methods", "Methods"), ("cite", "Cite")]


# -- tables ----------------------------------------------------------------------------------------
class SiteRow(NamedTuple):
    """A learner at one site; `line` is what the baseline scores."""

    learner: str
    found: Estimate
    is_majority: bool
    line: float


class SiteCard(NamedTuple):
    """One site: its name, who was tested, and every learner's final metric there."""

    name: str
    n_test: int
    about: str
    rows: list[SiteRow]


def _site(results: Sequence[RunResult], c: Contents, name: str) -> SiteCard:
    tested = {i for r in results for i in r.subject_ids[name]}
    y = results[0].y[name]
    about = f"{len(y)} test subjects per seed, {len(tested)} over all seeds, {_mix(y, c.kind)}"
    line = c.sites[c.words.own][name].value
    rows = []
    for row in c.rows:
        if row.learner in c.sites:
            found = c.sites[row.learner][name]
            rows.append(SiteRow(row.learner, found, row.is_majority, line))
    return SiteCard(name, len(y), about, rows)


def _mix(y: np.ndarray, kind: Kind) -> str:
    """Share of patients or of the classes, or mean and spread of a number."""
    if kind == "number":
        return f"mean {y.mean():.1f} ± {y.std():.1f}"
    if kind == "two classes":
        return f"{100 * float(y.mean()):.0f} % patients"
    shares = 100 * np.bincount(y) / len(y)
    return f"classes {' / '.join(f'{share:.0f}' for share in shares)} %"


def _tested(results: Sequence[RunResult], sites: Sequence[SiteCard]) -> str:
    datasets = dict.fromkeys(r.spec.dataset.name for r in results)
    each = [f"{site.name} ({site.n_test} test subjects)" for site in sites]
    return f"{listed([*datasets])}: {', '.join(each)}"


class Forest(NamedTuple):
    """Differences from one reference on a common axis."""

    title: str
    note: str
    low: float
    high: float
    with_p: bool
    rows: list[tuple[Difference, str, str]]  # difference, small print, look


FORESTS = {
    "baseline": ("Against {own}", "Is a learner better than {naive}?"),
    "finetune": (
        "Against fine-tuning",
        "What does a method add to plain fine-tuning of the same model (where it was run)?",
    ),
    "best": (
        "Against the highest {average}",
        "The best of many looks better than it is; read the intervals.",
    ),
}


def _forest(c: Contents, against: str) -> Forest:
    title, note = (text.format(**c.words._asdict()) for text in FORESTS[against])
    if against == "best":
        title = f"{title}, {c.forests[against][0].reference}"
    rows = []
    for d in c.forests[against]:
        small = f"vs {d.reference}" if against == "finetune" else ""
        look = "unclear"
        if d.found.low > 0:
            look = "clear-up"
        elif d.found.high < 0:
            look = "clear-down"
        rows.append((d, small, look))
    # the permutation test is conservative against a constant, see fcforge.stats.compare
    with_p = against != "baseline"
    return Forest(title, note, *c.limits(against), with_p, rows)


def _more_table(c: Contents, levels: Mapping[str, str]) -> Table:
    heads = [Heading("Learner", words=True)]
    names = list(next(iter(c.more.values()), ()))
    for name in names:
        low = METRICS[name].lower_is_better
        way = "low is good" if low else "high is good"
        heads.append(Heading(METRICS[name].title, below=way, falling=not low))
    shown = [row for row in c.rows if row.learner in c.more]
    rows = []
    for row in shown:
        cells = [name_cell(row.learner, levels)]
        for metric in names:
            found = c.more[row.learner][metric]
            below = (f"final {number(found['acc'])}", f"FM {number(found['fm'])}")
            cells.append(Cell(number(found["aaa"]), below, found["aaa"]))
        rows.append(tuple(cells))
    quiet = frozenset(k for k, row in enumerate(shown) if row.is_majority)
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
    return {**{key: spec[key] for key in shared}, "learners": learners}


# -- pictures --------------------------------------------------------------------------------------
Panels = list[tuple[str, Markup]]


def _curve_panels(found: Mapping[str, Curve], c: Contents, what: str) -> Panels:
    """A learner with its band, the others faint behind it, the baseline dashed."""
    references = {row.learner for row in c.rows if row.is_majority}
    limits = figures.span([x for curve in found.values() for x in curve])
    panels = []
    for title, own in found.items():
        if title in references:
            continue
        stages = [str(t + 1) for t in range(len(own.mean))]
        lines = []
        for other, curve in found.items():
            same = len(curve.mean) == len(stages)
            if same and other not in (title, *references):
                lines.append(figures.StageLine(curve.mean, figures.FAINT, thin=True))
            if same and other == c.words.own:
                lines.append(figures.StageLine(curve.mean, figures.MUTED, dashed=True))
        lines.append(figures.StageLine(own.mean, band=(own.low, own.high)))
        figure = figures.stage_lines(lines, stages, "sites learned", limits)
        alt = f"{what} of {title} over the stages: {figures.describe(own.mean)}"
        panels.append((title, picture(figure, alt)))
    return panels


def _since_panels(found: Mapping[str, Mapping[str, Curve]], what: str) -> Panels:
    """One panel per learner: each site before and after it was learned, all on one axis."""
    every = [x for sites in found.values() for curve in sites.values() for x in curve]
    limits = figures.span(every or [np.array([])])
    panels = []
    for title, sites in found.items():
        half = len(next(iter(sites.values())).mean) // 2
        stages = [number(k, 0, sign=True) for k in range(-half, half + 1)]
        lines = []
        for k, (site, curve) in enumerate(sites.items()):
            colour = figures.SERIES[k % len(figures.SERIES)]
            band = (curve.low, curve.high)
            lines.append(figures.StageLine(curve.mean, colour, band, site))
        x_title = "sites learned since this one"
        figure = figures.stage_lines(lines, stages, x_title, limits, half)
        alt = f"{title}: {what} at each site before and after it was learned"
        panels.append((title, picture(figure, alt)))
    return panels

"""The page of a run: opens offline, on a phone, on paper, in the dark."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from fcforge import stats
from fcforge.files import write_text
from fcforge.messages import counted, number
from fcforge.metrics.cells import METRICS, PRIMARY
from fcforge.report import figures
from fcforge.report.contents import (
    About,
    Contents,
    Curve,
    as_csv,
    contents,
    curves,
    mean_matrix,
    results_table,
)
from fcforge.report.rendering import listed, picture, render
from fcforge.report.run_words import Finding, headline, leaks_on, methods_paragraphs
from fcforge.report.terminal import Table
from fcforge.runner.collect import collect_some, kept_by
from fcforge.runner.store import Store
from fcforge.stats import Comparison, Row
from fcforge.types import RunResult, RunResults


# -- a run folder ----------------------------------------------------------------------------------
def report_folder(folder: Path, page: Path) -> tuple[list[Row], list[Finding]]:
    """Write the page and table.csv of a run folder; returns the table and its cautions."""
    results, about = read_folder(folder)
    found = contents(results, about)
    write_text(page, page_of(about, found))
    write_text(folder / "table.csv", as_csv(found.rows))
    return found.rows, found.findings


def read_folder(folder: Path, home: str = "") -> tuple[list[RunResult], About]:
    """Results of a run folder and what its page says besides them."""
    store = Store(folder)
    results, expected = collect_some(store)
    stored = store.read_experiment()
    settings = stored["experiment"]
    about = About(settings["title"], kept_by(store), expected, settings, home=home)
    return results, about


# -- the page --------------------------------------------------------------------------------------
def write_report(
    results: RunResults, out_html: str | Path, about: About | None = None
) -> Path:
    """Write the page of some runs, whole or not at all; returns the file written.

    The majority rows are added where no majority learner is among the results.
    """
    out = Path(out_html)
    about = about or About()
    write_text(out, page_of(about, contents(results, about)))
    return out


def page_of(about: About, c: Contents) -> str:
    """The page as text."""
    first = c.results[0]
    return render(
        "run.html.j2",
        about=about,
        c=c,
        leaks=leaks_on(c.results),
        lead=headline(c),
        extent=_extent(c.results, about.expected),
        shown=results_table(c.rows, c.levels),
        more=_more_table(c),
        csv=base64.b64encode(as_csv(c.rows).encode()).decode(),
        forests=[_forest(c, against) for against in FORESTS if c.forests[against]],
        **_over_stages(c, about.n_draws),
        **_at_sites(c),
        settings=about.settings or first.spec.to_json(),
        environment=first.environment,
        methods=methods_paragraphs(c.results, about.n_draws),
    )


def _extent(results: RunResults, expected: int | None) -> str:
    """How much was run, of how much."""
    specs = [r.spec for r in results]
    orders = counted(len({s.order for s in specs}), "site order")
    seeds = counted(len({s.seed for s in specs}), "seed")
    protocol = listed(sorted({s.protocol for s in specs}))
    runs = f"{len(results)} of {max(expected or 0, len(results))} runs"
    return f"{runs}: {orders}, {seeds}, {protocol} protocol."


def _at_sites(c: Contents) -> dict[str, Any]:
    """Estimates at every site on a common axis: shares of 1, or from the lowest R²."""
    first = c.results[0]
    main = PRIMARY[first.kind]
    found = {k: stats.per_site(runs, main) for k, runs in c.groups.items()}
    axis = (0.0, 1.0)
    if first.kind == "number":
        ends = [(e.low, e.high) for sites in found.values() for e in sites.values()]
        axis = figures.span([np.zeros(1), np.array(ends)])
    tested = {site: counted(len(first.y[site]), "test subject") for site in first.sites}
    return {"at_sites": found, "axis_of_sites": axis, "tested": tested}


# -- tables ----------------------------------------------------------------------------------------
class Forest(NamedTuple):
    """Differences from one reference on a common axis."""

    title: str
    note: str
    low: float
    high: float
    with_p: bool
    rows: list[tuple[str, Comparison, str]]  # learner, difference, look


FORESTS = {
    "baseline": ("Against {own}", "Is a learner better than {naive}?"),
    "finetune": (
        "Against fine-tuning",
        "What does a method add to plain fine-tuning of the same model?",
    ),
}


def _forest(c: Contents, against: str) -> Forest:
    title, note = (text.format(**c.words._asdict()) for text in FORESTS[against])
    found = c.forests[against]
    rows = []
    for learner, d in found.items():
        look = "unclear"
        if d.low > 0:
            look = "clear-up"
        elif d.high < 0:
            look = "clear-down"
        rows.append((learner, d, look))
    # the permutation test is conservative against a constant, see fcforge.stats.compare
    with_p = against != "baseline"
    ends = [(d.low, d.high, 0.0) for d in found.values()]
    return Forest(title, note, *figures.span([np.array(ends)]), with_p, rows)


MORE = ("sensitivity", "specificity", "precision", "f1", "brier", "ece")


def _more_table(c: Contents) -> Table:
    """Metrics that the results leave out, averaged over the stages."""
    names = [name for name in MORE if c.results[0].kind in METRICS[name].kinds]
    rows = []
    for learner, runs in c.groups.items():
        means = [stats.means(runs, name, ("aaa",))["aaa"] for name in names]
        rows.append((learner, *map(number, means)))
    heads = ("Learner", *(METRICS[name].title for name in names))
    return Table.of(heads, rows)


# -- pictures --------------------------------------------------------------------------------------
def _over_stages(c: Contents, n_draws: int) -> dict[str, Any]:
    """Curves and matrices of the learners' longest orders."""
    longest = {k: stats.longest(runs) for k, runs in c.groups.items()}
    both = {k: curves(runs, n_draws) for k, runs in longest.items()}
    accuracy = {k: found for k, (found, _) in both.items()}
    forgetting = {k: found for k, (_, found) in both.items()}
    matrices = {row.learner: mean_matrix(longest[row.learner]) for row in c.learners}
    return {
        "accuracy": _curve_panels(accuracy, c, c.words.metric),
        "forgetting": _curve_panels(forgetting, c, "forgetting"),
        "matrices": matrices,
        "heat": figures.span(list(matrices.values())),
    }


def _curve_panels(
    found: Mapping[str, Curve], c: Contents, what: str
) -> list[tuple[str, Markup]]:
    """A learner with its band, the others faint behind it, the baseline dashed."""
    limits = figures.span([x for curve in found.values() for x in curve])
    learners = {row.learner: found[row.learner] for row in c.learners}
    panels = []
    for title, own in learners.items():
        others = [curve.mean for other, curve in learners.items() if other != title]
        baseline = found[c.words.own].mean
        figure = figures.stage_figure(own, others, baseline, limits)
        alt = f"{what} of {title} over the stages: {figures.describe(own.mean)}"
        panels.append((title, picture(figure, alt)))
    return panels

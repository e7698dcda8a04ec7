"""The HTML page of a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from fcforge.core.files import write_text
from fcforge.core.formatting import counted
from fcforge.core.result import RunResult
from fcforge.evaluation.metrics import PRIMARY
from fcforge.evaluation.resampling import per_site
from fcforge.evaluation.tables import Row, longest_orders
from fcforge.experiments.collect import collect, kept_by
from fcforge.experiments.store import Store
from fcforge.report import figures
from fcforge.report.headline import headline
from fcforge.report.html import picture, render
from fcforge.report.methods_text import methods_paragraphs
from fcforge.report.results_table import results_table, rows_csv
from fcforge.report.run_numbers import (
    Curve,
    RunInfo,
    RunNumbers,
    curves,
    mean_matrix,
    run_numbers,
)
from fcforge.report.run_warnings import RunWarning, leaks_on


# -- a run folder ----------------------------------------------------------------------------------
def report_folder(folder: Path, page: Path) -> tuple[list[Row], list[RunWarning]]:
    """Write the page and table.csv of a run folder; returns the table and its cautions."""
    results, about = read_folder(folder)
    found = run_numbers(results, about)
    write_text(page, page_of(about, found))
    write_text(folder / "table.csv", rows_csv(found.rows))
    return found.rows, found.warnings


def read_folder(folder: Path, home: str = "") -> tuple[list[RunResult], RunInfo]:
    """Results of a run folder and what its page says besides them."""
    store = Store(folder)
    results, expected = collect(store)
    stored = store.read_experiment()
    settings = stored["experiment"]
    about = RunInfo(settings["title"], kept_by(store), expected, settings, home=home)
    return results, about


# -- the page --------------------------------------------------------------------------------------
def page_of(about: RunInfo, c: RunNumbers) -> str:
    """The page as text."""
    first = c.results[0]
    main = PRIMARY[first.kind]
    found = {k: per_site(runs, main) for k, runs in c.groups.items()}
    axis = (0.0, 1.0)
    if first.kind == "number":  # from the lowest R²
        ends = [(e.low, e.high) for sites in found.values() for e in sites.values()]
        axis = figures.common_axis([np.zeros(1), np.array(ends)])
    return render(
        "run.html.j2",
        about=about,
        c=c,
        leaks=leaks_on(c.results),
        lead=headline(c),
        shown=results_table(c.rows, c.levels),
        forests=[_forest(c, against) for against in FORESTS if c.forests[against]],
        **_over_stages(c, about.n_draws),
        at_sites=found,
        axis_of_sites=axis,
        tested={
            site: counted(len(first.y[site]), "test subject") for site in first.sites
        },
        environment=first.environment,
        methods=methods_paragraphs(c.results, about.n_draws),
    )


# -- tables ----------------------------------------------------------------------------------------
FORESTS = {
    "baseline": ("Against {own}", "Is a learner better than {naive}?"),
    "finetune": (
        "Against fine-tuning",
        "What does a method add to plain fine-tuning of the same model?",
    ),
}


def _forest(c: RunNumbers, against: str) -> dict[str, Any]:
    """Differences from one reference on a common axis."""
    title, note = (text.format(**c.words._asdict()) for text in FORESTS[against])
    found = c.forests[against]
    rows = []  # learner, difference, look
    for learner, d in found.items():
        look = "unclear"
        if d.low > 0:
            look = "clear-up"
        elif d.high < 0:
            look = "clear-down"
        rows.append((learner, d, look))
    ends = [(d.low, d.high, 0.0) for d in found.values()]
    return {
        "title": title,
        "note": note,
        "ends": figures.common_axis([np.array(ends)]),
        # the permutation test is conservative against a constant, see fcforge.evaluation.comparison
        "with_p": against != "baseline",
        "rows": rows,
    }


# -- pictures --------------------------------------------------------------------------------------
def _over_stages(c: RunNumbers, n_draws: int) -> dict[str, Any]:
    """Curves and matrices of the learners' longest orders."""
    full_orders = {k: longest_orders(runs) for k, runs in c.groups.items()}
    both = {k: curves(runs, n_draws) for k, runs in full_orders.items()}
    accuracy = {k: found for k, (found, _) in both.items()}
    forgetting = {k: found for k, (_, found) in both.items()}
    matrices = {
        row.learner: mean_matrix(full_orders[row.learner]) for row in c.learners
    }
    return {
        "accuracy": _curve_panels(accuracy, c, c.words.metric),
        "forgetting": _curve_panels(forgetting, c, "forgetting"),
        "matrices": matrices,
        "heat": figures.common_axis(list(matrices.values())),
    }


def _curve_panels(
    found: Mapping[str, Curve], c: RunNumbers, what: str
) -> list[tuple[str, Markup]]:
    """A learner with its band, the baseline dashed."""
    limits = figures.common_axis([x for curve in found.values() for x in curve])
    panels = []
    for row in c.learners:
        title = row.learner
        own = found[title]
        baseline = found[c.words.own].mean
        figure = figures.stage_figure(own, baseline, limits)
        alt = f"{what} of {title} over the stages: {figures.describe(own.mean)}"
        panels.append((title, picture(figure, alt)))
    return panels

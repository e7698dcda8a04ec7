"""The HTML page of a run."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from fcforge.core.files import write_text
from fcforge.core.formatting import bracket, counted, number
from fcforge.core.result import RunResult
from fcforge.evaluation.metrics import PRIMARY
from fcforge.evaluation.resampling import per_site
from fcforge.evaluation.tables import Row, longest_orders
from fcforge.experiments.collect import collect, kept_by
from fcforge.experiments.store import Store
from fcforge.report import figures
from fcforge.report.forgetting_sentences import demo_sentences
from fcforge.report.headline import headline
from fcforge.report.html import picture, render
from fcforge.report.methods_text import methods_paragraphs
from fcforge.report.results_table import further_table, results_table, rows_csv
from fcforge.report.run_numbers import (
    Curve,
    RunInfo,
    RunNumbers,
    change_by_site,
    curves,
    learned_sites,
    mean_matrix,
    run_numbers,
    site_curves,
)
from fcforge.report.run_warnings import RunWarning, leaks_on
from fcforge.report.training_curves import curves_of_training, read_logged


# -- a run folder ----------------------------------------------------------------------------------
def report_folder(folder: Path, page: Path) -> tuple[list[Row], list[RunWarning]]:
    """Write the page and table.csv of a run folder.

    Parameters
    ----------
    folder : Path
        Run folder; gets table.csv.
    page : Path
        HTML file to write.

    Returns
    -------
    rows : list of Row
        Rows of the results table.
    warnings : list of RunWarning
    """
    numbers, _ = write_report(folder, page)
    return numbers.rows, numbers.warnings


def write_report(folder: Path, page: Path) -> tuple[RunNumbers, RunInfo]:
    """Write the page and table.csv of a run folder, as `report_folder` does, and return its numbers.

    Parameters
    ----------
    folder, page : Path
        As for `report_folder`.
    """
    results, info = read_folder(folder)
    numbers = run_numbers(results, info)
    write_text(page, page_of(info, numbers))
    write_text(folder / "table.csv", rows_csv(numbers.rows, numbers.further))
    return numbers, info


def read_folder(folder: Path, home: str = "") -> tuple[list[RunResult], RunInfo]:
    """Return the results of a run folder, and the information that its page shows beside them.

    Parameters
    ----------
    folder : Path
    home : str
        Address of the overview that the page belongs to; empty without one.
    """
    store = Store(folder)
    results, expected = collect(store)
    settings = store.read_experiment()["experiment"]
    info = RunInfo(
        settings["title"],
        kept_by(store),
        expected,
        settings,
        home=home,
        logged=read_logged(store),
        sentences=demo_sentences(results, settings),
    )
    return results, info


# -- the page --------------------------------------------------------------------------------------
def page_of(info: RunInfo, numbers: RunNumbers) -> str:
    """Return the HTML page of a run."""
    first = numbers.results[0]
    metric = PRIMARY[first.kind]
    at_sites = {k: per_site(runs, metric) for k, runs in numbers.groups.items()}
    axis = (0.0, 1.0)
    if first.kind == "number":  # from the lowest R²
        ends = [(e.low, e.high) for row in at_sites.values() for e in row.values()]
        axis = figures.common_axis([np.zeros(1), np.array(ends)])
    csv = rows_csv(numbers.rows, numbers.further)
    return render(
        "run.html.j2",
        about=info,
        c=numbers,
        leaks=leaks_on(numbers.results),
        lead=headline(numbers),
        shown=results_table(numbers.rows, numbers.levels),
        more=further_table(numbers.rows, numbers.further),
        csv=base64.b64encode(csv.encode()).decode(),
        forests=[
            _forest(numbers, key, str(info.settings.get("reference", "")))
            for key in FORESTS
            if numbers.forests[key]
        ],
        **_over_stages(numbers, info.n_draws),
        **_by_site(numbers),
        **curves_of_training(info.logged),
        at_sites=at_sites,
        axis_of_sites=axis,
        tested={
            site: counted(len(first.y[site]), "test subject") for site in first.sites
        },
        environment=first.environment,
        methods=methods_paragraphs(numbers.results, info.n_draws),
    )


# -- differences -----------------------------------------------------------------------------------
FORESTS = {
    "baseline": ("Against {own}", "Is a learner better than {naive}?"),
    "finetune": (
        "Against fine-tuning",
        "What does a method add to plain fine-tuning of the same model?",
    ),
    "reference": (
        "Against {reference}",
        "Which learner is better than the one that the config names as reference?",
    ),
}


def _forest(numbers: RunNumbers, against: str, reference: str) -> dict[str, Any]:
    """Return the differences from one reference (a key of `FORESTS`), for the template.

    `reference` is the title of the learner that the config names, or "".
    """
    wording = {**numbers.words._asdict(), "reference": reference}
    title, note = (text.format(**wording) for text in FORESTS[against])
    differences = numbers.forests[against]
    rows = []  # learner, difference, look
    for learner, difference in differences.items():
        look = "unclear"
        if difference.low > 0:
            look = "clear-up"
        elif difference.high < 0:
            look = "clear-down"
        rows.append((learner, difference, look))
    ends = [(d.low, d.high, 0.0) for d in differences.values()]
    return {
        "title": title,
        "note": note,
        "ends": figures.common_axis([np.array(ends)]),
        # the permutation test is conservative against a constant, see fcforge.evaluation.comparison
        "with_p": against != "baseline",
        "rows": rows,
    }


# -- over the stages -------------------------------------------------------------------------------
def _over_stages(numbers: RunNumbers, n_draws: int) -> dict[str, Any]:
    """Return curves and matrices of the learners' longest orders, for the template."""
    full_orders = {k: longest_orders(runs) for k, runs in numbers.groups.items()}
    both_curves = {k: curves(runs, n_draws) for k, runs in full_orders.items()}
    accuracy = {k: curve for k, (curve, _) in both_curves.items()}
    forgetting = {k: curve for k, (_, curve) in both_curves.items()}
    matrices = {
        row.learner: mean_matrix(full_orders[row.learner]) for row in numbers.learners
    }
    return {
        "accuracy": _curve_panels(accuracy, numbers, numbers.words.metric),
        "forgetting": _curve_panels(forgetting, numbers, "forgetting"),
        "matrices": matrices,
        "heat": figures.common_axis(list(matrices.values())),
    }


def _curve_panels(
    by_learner: Mapping[str, Curve], numbers: RunNumbers, quantity: str
) -> list[tuple[str, Markup]]:
    """Return one figure per learner: its curve with a band, and the baseline dashed.

    Parameters
    ----------
    by_learner : mapping of learner title to Curve
        Curves of all learners and of the baseline.
    numbers : RunNumbers
    quantity : str
        Name of what the curves show, for the description of the figure.
    """
    limits = figures.common_axis([x for curve in by_learner.values() for x in curve])
    panels = []
    for row in numbers.learners:
        title = row.learner
        curve = by_learner[title]
        baseline = by_learner[numbers.words.own].mean
        figure = figures.stage_figure(curve, baseline, limits)
        stages = np.arange(len(curve.mean))
        texts = [
            f"after {counted(k + 1, 'site')}: {_value(curve, k)}"
            for k in range(len(stages))
        ]
        points = figures.hover_points(figure.axes[0], stages, curve.mean, texts)
        alt = f"{quantity} of {title} over the stages: {figures.describe(curve.mean)}"
        panels.append((title, picture(figure, alt, points)))
    return panels


def _value(curve: Curve, k: int) -> str:
    """Return the mean and interval of one point of a curve."""
    return f"{number(curve.mean[k])} {bracket(curve.low[k], curve.high[k])}".strip()


# -- hospital by hospital --------------------------------------------------------------------------
def _by_site(numbers: RunNumbers) -> dict[str, Any]:
    """Return curves and changes of every hospital by learner, for the template."""
    full_orders = {
        row.learner: longest_orders(numbers.groups[row.learner])
        for row in numbers.learners
    }
    if not any(len(runs[0].spec.order) > 1 for runs in full_orders.values()):
        return {"by_site": [], "site_colours": [], "learned": [], "largest_loss": 1.0}
    sites = learned_sites([run for runs in full_orders.values() for run in runs])
    all_curves = {k: site_curves(runs) for k, runs in full_orders.items()}
    changes = {k: change_by_site(runs) for k, runs in full_orders.items()}
    losses = [-np.nan_to_num(change) for change in changes.values()]
    limits = figures.common_axis(
        [x for lines in all_curves.values() for curve in lines.values() for x in curve]
    )
    return {
        "by_site": [
            (learner, _site_panel(learner, lines, limits), changes[learner])
            for learner, lines in all_curves.items()
        ],
        "site_colours": [
            (site, f"var(--s{k % len(figures.SERIES)})") for k, site in enumerate(sites)
        ],
        "learned": sites,
        "largest_loss": max(0.05, *(float(loss.max()) for loss in losses)),
    }


def _site_panel(
    learner: str, lines: Mapping[str, Curve], limits: tuple[float, float]
) -> Markup:
    """Return the figure of one learner, with a line for each hospital.

    Parameters
    ----------
    learner : str
        Title of the learner.
    lines : mapping of site to Curve
        The metric at each site before and after it was learned (`run_numbers.site_curves`).
    limits : pair of float
        Limits of the value axis.
    """
    curves_of_sites: Sequence[Curve] = list(lines.values())
    figure = figures.site_figure(curves_of_sites, limits)
    points = []
    for site, curve in lines.items():
        half = len(curve.mean) // 2
        distance = np.arange(-half, half + 1)
        texts = [
            f"{site}, {_since(d)}: {_value(curve, k)}"
            for k, d in enumerate(distance.tolist())
        ]
        points += figures.hover_points(figure.axes[0], distance, curve.mean, texts)
    final = [f"{site} {number(c.mean[-1])}" for site, c in lines.items()]
    alt = f"{learner}: each hospital before and after it was learned; last: {', '.join(final)}"
    return picture(figure, alt, points)


def _since(distance: int) -> str:
    """Return a distance in stages from the learning of a site in words: "2 sites later"."""
    if distance == 0:
        return "just learned"
    stages = counted(abs(int(distance)), "site")
    return f"{stages} later" if distance > 0 else f"{stages} before"

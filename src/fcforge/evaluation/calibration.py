"""Calibration of a stored run's scores, and the benefit of acting on them."""

from pathlib import Path

from fcforge.core.result import RunResults
from fcforge.evaluation.decision_curves import (
    calibration_curve,
    decision_curve,
    treat_everybody,
)
from fcforge.evaluation.metrics import metric_named
from fcforge.evaluation.resampling import per_site
from fcforge.evaluation.study import Study, finite_runs
from fcforge.experiments.collect import collect
from fcforge.experiments.store import Store


def calibration_tables(results: RunResults) -> list[Study]:
    """Return tables of Brier score and ECE per site, and calibration and decision curves of all sites.

    ECE is the expected calibration error. A site's test part is small, and the ECE of a perfectly
    calibrated score is above zero there: compare learners at one site, not sites of different size.

    Parameters
    ----------
    results : sequence of RunResult

    Returns
    -------
    list of Study
        In the order above, learners as rows. The decision curves also have the row "everybody
        treated".
    """
    learners = finite_runs(results)
    tables = []
    for metric in ("brier", "ece"):
        title = f"{metric_named(metric).title} per site after the last stage"
        rows = {k: per_site(runs, metric) for k, runs in learners.items()}
        tables.append(Study(f"{title} (lower is better) [95 %]", rows))
    title = "Calibration: share of patients among people by their P(patient) [95 %]"
    rows = {k: calibration_curve(runs) for k, runs in learners.items()}
    tables.append(Study(title, rows))
    title = "Decision curve: net benefit of treating above a P(patient) [95 %]"
    treated = treat_everybody(next(iter(learners.values())))
    curves = {"everybody treated": treated, **learners}
    rows = {k: decision_curve(runs) for k, runs in curves.items()}
    return [*tables, Study(title, rows)]


def calibration_of(folder: Path) -> list[Study]:
    """Return calibration and decision curves of a run folder's scores."""
    results, _ = collect(Store(folder))
    return calibration_tables(results)

"""Metrics of chosen test subjects, all sites together, after the last stage of a run.

The mean is over orders and seeds, the interval over subjects and trainings
(`fcforge.evaluation.resampling`).
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fcforge.core.estimate import Estimate
from fcforge.core.result import RunResult, RunResults
from fcforge.evaluation.forgetting import Runs
from fcforge.evaluation.metrics import Metric, metric_named, weighted_sums
from fcforge.evaluation.resampling import Weights, estimates, resampled


def select_subjects(
    results: RunResults, keep: Callable[[str, str], bool]
) -> list[RunResult]:
    """Return the runs tested only on subjects for whom ``keep(site, subject id)`` is true."""
    selected = []
    for result in results:
        ids = result.subject_ids
        kept: dict[str, list[int]] = {}
        subject_ids = {}
        for site, people in ids.items():
            kept[site] = [k for k, who in enumerate(people) if keep(site, who)]
            subject_ids[site] = tuple(people[place] for place in kept[site])
        reduced = replace(
            result,
            scores={site: result.scores[site][:, k] for site, k in kept.items()},
            initial={site: result.initial[site][k] for site, k in kept.items()},
            y={site: result.y[site][k] for site, k in kept.items()},
            subject_ids=subject_ids,
        )
        selected.append(reduced)
    return selected


def pooled_estimate(results: RunResults, metric: Metric | str) -> Estimate:
    """Return a metric of all test subjects together after the last stage; NaN without any.

    The metric must be a sum over people: accuracy, sensitivity, specificity, the Brier score, or
    one whose `features` depend on one person alone. (An AUROC compares people, and scores of two
    sites are not comparable.)
    """
    chosen_metric = metric_named(metric) if isinstance(metric, str) else metric

    def value(batch: Runs, weights: Weights | None) -> np.ndarray:
        """Return the metric of each run, (n_runs, 1), or of each run and draw, (n_runs, n_draws, 1)."""
        sums = np.zeros(())  # then (k, n_runs, n_draws), of a metric with k features
        for site, y in batch.runs[0].y.items():
            if len(y):
                last = batch.place[site][:, -1]
                drawn = weights(site) if weights else np.ones((1, len(y)))
                sums = sums + weighted_sums(
                    batch.features(site, chosen_metric)[:, last], drawn
                )
        with np.errstate(divide="ignore", invalid="ignore"):
            values = chosen_metric.combine(sums)  # (n_runs, n_draws), or (n_runs, 1)
        return values[..., None] if weights else values

    if not any(map(len, results[0].y.values())):
        return Estimate(np.nan, np.nan, np.nan)
    return estimates(results, *resampled(results, value), chosen_metric.limits)[0]

r"""What stored scores say of some people, whatever their site: subgroups and curves.

People of all sites are counted together after the last stage of a run; the mean is over orders
and seeds, the interval over subjects and trainings (`fcforge.stats.resampling`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from fcforge.metrics import Runs, metric_named
from fcforge.metrics.cells import Metric, weighted_sums
from fcforge.stats.resampling import N_DRAWS, Weights, estimates, resampled
from fcforge.types import Estimate, RunResult

THRESHOLDS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def among(
    results: Sequence[RunResult], keep: Callable[[str, str], bool]
) -> list[RunResult]:
    """The same runs, tested on those people alone of whom ``keep(site, subject id)`` is true."""
    return [_among(result, keep) for result in results]


def _among(result: RunResult, keep: Callable[[str, str], bool]) -> RunResult:
    mask = {
        site: np.array([keep(site, who) for who in ids], dtype=bool)
        for site, ids in result.subject_ids.items()
    }
    ids = {site: np.array(result.subject_ids[site])[m] for site, m in mask.items()}
    return replace(
        result,
        scores={site: result.scores[site][:, m] for site, m in mask.items()},
        initial={site: result.initial[site][m] for site, m in mask.items()},
        y={site: result.y[site][m] for site, m in mask.items()},
        subject_ids={site: tuple(found.tolist()) for site, found in ids.items()},
    )


def pooled(
    results: Sequence[RunResult], metric: Metric | str, *, n_draws: int = N_DRAWS
) -> Estimate:
    """A metric of all test people together after the last stage; NaN where nobody is left.

    The metric must be a sum over people: accuracy, sensitivity, specificity, the Brier score, or
    one of this file. (An AUROC compares people, and those of two sites were never compared.)
    """
    found = metric_named(metric) if isinstance(metric, str) else metric

    def value(batch: Runs, weights: Weights | None) -> np.ndarray:
        sums = np.zeros(())
        for site, y in batch.runs[0].y.items():
            if len(y):
                last = batch.place[site][:, -1]
                features = batch.features(site, found)[:, last]
                drawn = weights(site) if weights else np.ones((1, len(y)))
                sums = sums + weighted_sums(features, drawn)
        with np.errstate(divide="ignore", invalid="ignore"):
            values = found.combine(sums)  # (runs, draws)
        return values[..., None] if weights else values

    if not any(len(y) for y in results[0].y.values()):
        return Estimate(np.nan, np.nan, np.nan)
    return estimates(results, *resampled(results, value, n_draws))[0]


def observed_share(low: float, high: float) -> Metric:
    """Share of patients among those whose P(patient) is in (low, high]; 0 is in the first bin."""

    def features(p: np.ndarray, y: np.ndarray) -> np.ndarray:
        inside = ((p > low) | (low == 0.0)) & (p <= high)
        return np.stack([inside * (y == 1), inside * np.ones(p.shape)])

    return Metric("observed share of patients", features, lambda s: s[0] / s[1])


def net_benefit(threshold: float) -> Metric:
    r"""Net benefit of treating whoever has P(patient) above a threshold t.

    .. math:: \frac{TP}{n} - \frac{FP}{n} \cdot \frac{t}{1 - t}

    References
    ----------
    Vickers and Elkin, Decision curve analysis, Medical Decision Making 2006.
    """
    odds = threshold / (1 - threshold)

    def features(p: np.ndarray, y: np.ndarray) -> np.ndarray:
        said = p > threshold
        return np.stack([said & (y == 1), said & (y == 0), np.ones(p.shape)])

    def combine(sums: np.ndarray) -> np.ndarray:
        return (sums[0] - odds * sums[1]) / sums[2]

    return Metric("net benefit", features, combine)


def calibration_curve(
    results: Sequence[RunResult], n_draws: int = N_DRAWS
) -> dict[str, Estimate]:
    """Share of patients among people by what they were given: well calibrated, it is in the bin."""
    found = {}
    for low, high in pairwise(BINS):
        share = observed_share(low, high)
        found[f"{low:g} to {high:g}"] = pooled(results, share, n_draws=n_draws)
    return found


def decision_curve(
    results: Sequence[RunResult], n_draws: int = N_DRAWS
) -> dict[str, Estimate]:
    """Net benefit at some thresholds."""
    return {
        f"at {t:g}": pooled(results, net_benefit(t), n_draws=n_draws)
        for t in THRESHOLDS
    }


def everybody_treated(results: Sequence[RunResult]) -> list[RunResult]:
    """The same runs with everybody called a patient: the curve that a score has to beat."""
    return [
        replace(r, scores={site: np.ones_like(p) for site, p in r.scores.items()})
        for r in results
    ]

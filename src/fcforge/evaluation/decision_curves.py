"""Calibration and decision curves of the test subjects of all sites."""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from fcforge.core.estimate import Estimate
from fcforge.core.result import RunResult, RunResults
from fcforge.evaluation.metrics import Metric
from fcforge.evaluation.pooled import pooled_estimate

THRESHOLDS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def observed_share(low: float, high: float) -> Metric:
    """Return the share of patients among those whose P(patient) is in (low, high]; 0 is in the first bin."""

    def features(p: np.ndarray, y: np.ndarray) -> np.ndarray:
        inside = ((p > low) | (low == 0.0)) & (p <= high)
        patients = inside * (y == 1)
        everybody = inside * np.ones(p.shape)
        return np.stack([patients, everybody])

    return Metric("observed share of patients", features, lambda s: s[0] / s[1])


def net_benefit(threshold: float) -> Metric:
    r"""Return net benefit of treating whoever has P(patient) above a threshold t.

    .. math:: \frac{TP}{n} - \frac{FP}{n} \cdot \frac{t}{1 - t}

    References
    ----------
    Vickers and Elkin, Decision curve analysis, Medical Decision Making 2006.
    """
    odds = threshold / (1 - threshold)

    def features(p: np.ndarray, y: np.ndarray) -> np.ndarray:
        said = p > threshold
        found = said & (y == 1)
        alarmed = said & (y == 0)
        return np.stack([found, alarmed, np.ones(p.shape)])

    def combine(sums: np.ndarray) -> np.ndarray:
        return (sums[0] - odds * sums[1]) / sums[2]

    return Metric("net benefit", features, combine)


def calibration_curve(results: RunResults) -> dict[str, Estimate]:
    """Return the share of patients in bins of P(patient); well calibrated, it lies in the bin."""
    return {
        f"{low:g} to {high:g}": pooled_estimate(results, observed_share(low, high))
        for low, high in pairwise(BINS)
    }


def decision_curve(results: RunResults) -> dict[str, Estimate]:
    """Return net benefit at some thresholds."""
    return {f"at {t:g}": pooled_estimate(results, net_benefit(t)) for t in THRESHOLDS}


def treat_everybody(results: RunResults) -> list[RunResult]:
    """Return the runs with everybody called a patient: the curve that a score has to beat."""
    found = []
    for result in results:
        ones = {site: np.ones_like(p) for site, p in result.scores.items()}
        found.append(replace(result, scores=ones))
    return found

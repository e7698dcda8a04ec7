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
    """Make the metric "share of patients among the people whose P(patient) is in (low, high]".

    The first bin, whose `low` is 0, includes 0.
    """

    def features(p: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return, for each person, whether a patient in the bin, and whether in the bin at all."""
        inside = ((p > low) | (low == 0.0)) & (p <= high)
        patients = inside * (y == 1)
        everybody = inside * np.ones(p.shape)
        return np.stack([patients, everybody])

    return Metric("observed share of patients", features, lambda s: s[0] / s[1])


def net_benefit(threshold: float) -> Metric:
    r"""Make the metric "net benefit of treating everybody whose P(patient) is above a threshold t".

    .. math:: \frac{TP}{n} - \frac{FP}{n} \cdot \frac{t}{1 - t}

    References
    ----------
    Vickers and Elkin, Decision curve analysis, Medical Decision Making 2006.
    """
    odds = threshold / (1 - threshold)

    def features(p: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return, for each person, true positive, false positive and 1; their sums are TP, FP and n."""
        treated = p > threshold
        true_positives = treated & (y == 1)
        false_positives = treated & (y == 0)
        return np.stack([true_positives, false_positives, np.ones(p.shape)])

    def combine(sums: np.ndarray) -> np.ndarray:
        """Return the net benefit from TP, FP and n."""
        return (sums[0] - odds * sums[1]) / sums[2]

    return Metric("net benefit", features, combine, limits=(-odds, 1.0))


def calibration_curve(results: RunResults) -> dict[str, Estimate]:
    """Return the share of patients in bins of P(patient); well calibrated, it lies in the bin."""
    return {
        f"{low:g} to {high:g}": pooled_estimate(results, observed_share(low, high))
        for low, high in pairwise(BINS)
    }


def decision_curve(results: RunResults) -> dict[str, Estimate]:
    """Return the net benefit at each threshold of `THRESHOLDS`."""
    return {f"at {t:g}": pooled_estimate(results, net_benefit(t)) for t in THRESHOLDS}


def treat_everybody(results: RunResults) -> list[RunResult]:
    """Return the runs with P(patient) = 1 for everybody, a reference for decision curves."""
    treated = []
    for result in results:
        ones = {site: np.ones_like(p) for site, p in result.scores.items()}
        treated.append(replace(result, scores=ones))
    return treated

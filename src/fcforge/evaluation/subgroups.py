r"""What stored scores say of some people, whatever their site: subgroups and curves.

People of all sites are counted together after the last stage of a run; the mean is over orders
and seeds, the interval over subjects and trainings (`fcforge.evaluation.resampling`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from fcforge.core.estimate import Estimate
from fcforge.core.result import RunResult, RunResults
from fcforge.evaluation.forgetting import Runs
from fcforge.evaluation.metrics import Metric, metric_named, weighted_sums
from fcforge.evaluation.resampling import LEVEL, Weights, estimates, resampled

THRESHOLDS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def among(results: RunResults, keep: Callable[[str, str], bool]) -> list[RunResult]:
    """The same runs, tested on those people alone of whom ``keep(site, subject id)`` is true."""
    found = []
    for result in results:
        ids = result.subject_ids
        kept: dict[str, list[int]] = {}
        subject_ids = {}
        for site, people in ids.items():
            kept[site] = [k for k, who in enumerate(people) if keep(site, who)]
            subject_ids[site] = tuple(people[place] for place in kept[site])
        some = replace(
            result,
            scores={site: result.scores[site][:, k] for site, k in kept.items()},
            initial={site: result.initial[site][k] for site, k in kept.items()},
            y={site: result.y[site][k] for site, k in kept.items()},
            subject_ids=subject_ids,
        )
        found.append(some)
    return found


def pooled(results: RunResults, metric: Metric | str) -> Estimate:
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
                drawn = weights(site) if weights else np.ones((1, len(y)))
                sums = sums + weighted_sums(batch.features(site, found)[:, last], drawn)
        with np.errstate(divide="ignore", invalid="ignore"):
            values = found.combine(sums)  # (runs, draws)
        return values[..., None] if weights else values

    if not any(map(len, results[0].y.values())):
        return Estimate(np.nan, np.nan, np.nan)
    return estimates(results, *resampled(results, value))[0]


def observed_share(low: float, high: float) -> Metric:
    """Share of patients among those whose P(patient) is in (low, high]; 0 is in the first bin."""

    def features(p: np.ndarray, y: np.ndarray) -> np.ndarray:
        inside = ((p > low) | (low == 0.0)) & (p <= high)
        patients = inside * (y == 1)
        everybody = inside * np.ones(p.shape)
        return np.stack([patients, everybody])

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
        found = said & (y == 1)
        alarmed = said & (y == 0)
        return np.stack([found, alarmed, np.ones(p.shape)])

    def combine(sums: np.ndarray) -> np.ndarray:
        return (sums[0] - odds * sums[1]) / sums[2]

    return Metric("net benefit", features, combine)


def calibration_curve(results: RunResults) -> dict[str, Estimate]:
    """Share of patients among people by what they were given: well calibrated, it is in the bin."""
    return {
        f"{low:g} to {high:g}": pooled(results, observed_share(low, high))
        for low, high in pairwise(BINS)
    }


def decision_curve(results: RunResults) -> dict[str, Estimate]:
    """Net benefit at some thresholds."""
    return {f"at {t:g}": pooled(results, net_benefit(t)) for t in THRESHOLDS}


def everybody_treated(results: RunResults) -> list[RunResult]:
    """The same runs with everybody called a patient: the curve that a score has to beat."""
    found = []
    for result in results:
        ones = {site: np.ones_like(p) for site, p in result.scores.items()}
        found.append(replace(result, scores=ones))
    return found


# -- a site that is not among those tested ---------------------------------------------------------
def random_effects(values: Sequence[float], variances: Sequence[float]) -> Estimate:
    r"""Mean over sites and its 95 % interval, within [0, 1]; no interval from one site.

    An interval over subjects speaks of other people of the same sites, this one of a further site.
    With :math:`v_i` the value at site i and :math:`s_i^2` its variance over subjects and
    trainings, the variance :math:`\tau^2` between sites is that of DerSimonian and Laird (1986),
    the weights are :math:`w_i = 1 / (s_i^2 + \tau^2)`, and the interval of the weighted mean is
    that of Hartung and Knapp (2001), with the quantile of Student's t for k - 1 degrees of freedom.

    Parameters
    ----------
    values, variances : sequence of k float
        A share (accuracy, AUROC, ...) at each site, and the variance of its estimate; a variance
        of zero counts as the largest of the others.
    """
    from scipy.special import stdtrit

    v = np.asarray(values, dtype=float)
    s2 = np.asarray(variances, dtype=float)
    # who is always called the same has no variance, which is no reason to weigh for all
    s2 = np.where(s2 > 0, s2, max(s2.max(), 1e-12))
    k = len(v)
    if k < 2:
        return Estimate(float(v.mean()), np.nan, np.nan)
    fixed = 1 / s2
    spread = fixed @ (v - np.average(v, weights=fixed)) ** 2
    scale = fixed.sum() - (fixed**2).sum() / fixed.sum()
    tau2 = max(0.0, (spread - (k - 1)) / scale)
    weights = 1 / (s2 + tau2)
    mean = np.average(v, weights=weights)
    variance = (weights @ (v - mean) ** 2) / ((k - 1) * weights.sum())
    half = stdtrit(k - 1, (1 + LEVEL) / 2) * np.sqrt(variance)
    low, high = np.clip([mean - half, mean + half], 0.0, 1.0)
    return Estimate(float(mean), float(low), float(high))


def new_site(by_site: Mapping[str, Estimate]) -> Estimate:
    """Random-effects mean of values by site, whose intervals tell their variances."""
    known = []
    for estimate in by_site.values():
        numbers = [estimate.value, estimate.low, estimate.high]
        if np.isfinite(numbers).all():
            known.append(estimate)
    if not known:
        return Estimate(np.nan, np.nan, np.nan)
    width = 2 * 1.959964  # of a 95 % interval, in standard errors
    variances = [((e.high - e.low) / width) ** 2 for e in known]
    return random_effects([e.value for e in known], variances)

"""The value to expect at a further site: a random-effects mean over the tested sites."""

from collections.abc import Mapping, Sequence

import numpy as np

from fcforge.core.estimate import Estimate
from fcforge.evaluation.metrics import Limits
from fcforge.evaluation.resampling import LEVEL


def random_effects(
    values: Sequence[float], variances: Sequence[float], limits: Limits = (0.0, 1.0)
) -> Estimate:
    r"""Return the mean over sites and its 95 % interval; no interval from one site.

    An interval over subjects speaks of other people of the same sites, this one of a further site.
    With :math:`v_i` the value at site i and :math:`s_i^2` its variance over subjects and
    trainings, the variance :math:`\tau^2` between sites is that of DerSimonian and Laird (1986),
    the weights are :math:`w_i = 1 / (s_i^2 + \tau^2)`, and the interval of the weighted mean is
    that of Hartung and Knapp (2001), with the quantile of Student's t for k - 1 degrees of freedom.

    Parameters
    ----------
    values, variances : sequence of k float
        A value (accuracy, AUROC, ...) at each site, and the variance of its estimate; a variance
        of zero counts as the largest of the others.
    limits : (float, float)
        Smallest and largest possible value, to which the interval is cut.
    """
    from scipy.special import stdtrit

    v = np.asarray(values, dtype=float)
    s2 = np.asarray(variances, dtype=float)
    # A site at which all draws agree has variance zero; without this it would get all the weight.
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
    low, high = np.clip([mean - half, mean + half], *limits)
    return Estimate(float(mean), float(low), float(high))


def further_site(
    by_site: Mapping[str, Estimate], limits: Limits = (0.0, 1.0)
) -> Estimate:
    """Return the value to expect at a further site, from estimates at the tested sites.

    Each site's variance is computed from the width of its 95 % interval, which must not have been cut
    to the metric's limits. Sites without finite value and interval are left out.

    Parameters
    ----------
    by_site : mapping of str to Estimate
        See `fcforge.evaluation.resampling.per_site` with ``limits=UNLIMITED``.
    limits : (float, float)
        Smallest and largest possible value, to which the result's interval is cut.
    """
    usable = []
    for estimate in by_site.values():
        numbers = [estimate.value, estimate.low, estimate.high]
        if np.isfinite(numbers).all():
            usable.append(estimate)
    if not usable:
        return Estimate(np.nan, np.nan, np.nan)
    standard_errors = 2 * 1.959964  # width of a 95 % interval
    variances = [((e.high - e.low) / standard_errors) ** 2 for e in usable]
    return random_effects([e.value for e in usable], variances, limits)

"""Success of an attack: AUC, true-positive rate (TPR) at a low false-positive rate (FPR), links.

Scores of several worlds (retrainings on other subjects) are held as arrays of shape (K, n): one
row per world, one column per subject; `member` is 1 for those trained on in that world.

Shapes: K worlds, n subjects, B bootstrap draws.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray as Array
from numpy.random import Generator

from fcforge.core.estimate import Estimate

MEMBER = 1
OUTSIDER = 0
UNUSED = -1
LEVEL = 0.95
Draws = tuple[Array, Array]


def auc(inside: Array, outside: Array, p: Array, q: Array) -> Any:
    r"""Return the area under the ROC curve, :math:`P(s_{in} > s_{out}) + \frac12 P(s_{in} = s_{out})`.

    Parameters
    ----------
    inside, outside : ndarray of shape (n_in,), (n_out,)
        Scores of members and of outsiders.
    p, q : ndarray of shape (n_in,), (n_out,), or (B, n_in), (B, n_out)
        Weights of members and of outsiders; B sets of weights give B areas at once.

    Examples
    --------
    >>> float(auc(np.array([3.0, 1.0]), np.array([2.0, 1.0]), np.ones(2), np.ones(2)))
    0.625
    """
    members = inside[:, None]
    wins = (members > outside) + 0.5 * (members == outside)
    won = ((p @ wins) * q).sum(-1)
    return won / (p.sum(-1) * q.sum(-1))


def tpr_at_fpr(
    inside: Array, outside: Array, p: Array, q: Array, fpr: float = 0.01
) -> float:
    """Return the share of members above the lowest threshold that at most `fpr` of the outsiders exceed.

    Thresholds are outsiders' scores, so with fewer than 1 / fpr outsiders no false alarm is
    allowed at all.

    Parameters
    ----------
    inside, outside : ndarray of shape (n_in,), (n_out,)
        Scores of members and of outsiders.
    p, q : ndarray of shape (n_in,), (n_out,)
        Weights of members and of outsiders.
    fpr : float
        Largest false-positive rate.

    Examples
    --------
    >>> inside = np.array([9.0, 5.0, 1.0, 0.0])
    >>> tpr_at_fpr(inside, np.array([4.0, 3.0, 2.0]), np.ones(4), np.ones(3))
    0.5
    """
    order = np.argsort(outside)[::-1]
    values = outside[order]
    share = np.cumsum(q[order]) / q.sum()
    # weight strictly above v: the running sum before the first outsider tied with v
    first = np.searchsorted(-values, -values, side="left")
    above = np.where(first > 0, share[first - 1], 0.0)
    threshold = values[above <= fpr + 1e-12].min()
    return float(p[inside > threshold].sum() / p.sum())


def _weights(rng: Generator, n_draws: int, worlds: int, subjects: int) -> Draws:
    """Draw Bayesian-bootstrap weights of subjects (n_draws, n) and of worlds (n_draws, K).

    A subject has the same weight in all worlds. A single world always has weight 1.
    """
    by_subject = rng.standard_exponential((n_draws, subjects))
    by_world = rng.standard_exponential((n_draws, worlds))
    if worlds == 1:
        by_world = np.ones((n_draws, 1))
    return by_subject, by_world


def _interval(value: float, draws: Array) -> Estimate:
    """Return a value with the percentile interval of its draws, widened to include the value."""
    ends = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    low, high = np.quantile(draws, ends)
    return Estimate(value, float(min(low, value)), float(max(high, value)))


def _share(rate: Callable[[Array], float], inside: Array, draws: Draws) -> Estimate:
    """Return a share of the members, and its bootstrap interval.

    Where the share is 0 or 1 all draws are equal; the interval is then that of Clopper and Pearson.

    Parameters
    ----------
    rate : callable
        Returns the share for weights (K, n) of the subjects in K worlds.
    inside : ndarray of shape (K, n), bool
        Members of each world.
    draws : pair of ndarray
        Weights of subjects and of worlds (`_weights`).
    """
    value = rate(np.ones(inside.shape))
    shares = []
    for by_subject, by_world in zip(*draws, strict=True):
        shares.append(rate(np.outer(by_world, by_subject)))
    bootstrap = _interval(value, np.array(shares))
    members = max(int(inside.any(0).sum()), 1)
    # width of their interval where none, or all, of the members are hit
    margin = 1 - ((1 - LEVEL) / 2) ** (1 / members)
    low = min(bootstrap.low, 1 - margin) if value == 1 else bootstrap.low
    high = max(bootstrap.high, margin) if value == 0 else bootstrap.high
    return Estimate(value, low, high)


def mean_auc(scores: Array, member: Array, by_subject: Array, by_world: Array) -> Array:
    """Return the mean AUC over K worlds in each of B bootstrap draws, (B,).

    Parameters
    ----------
    scores, member : ndarray of shape (K, n)
    by_subject : ndarray of shape (B, n)
        Weights of the subjects.
    by_world : ndarray of shape (B, K)
        Weights of the worlds.
    """
    areas = []
    for s, m in zip(scores, member, strict=True):
        inside = m == MEMBER
        outside = m == OUTSIDER
        weights = (by_subject[:, inside], by_subject[:, outside])
        areas.append(auc(s[inside], s[outside], *weights))
    return (np.stack(areas, 1) * by_world).sum(1) / by_world.sum(1)


def membership(
    scores: Array, member: Array, rng: Generator, *, n_draws: int = 200
) -> tuple[Estimate, Estimate]:
    """Return AUC (mean over worlds) and TPR at 1 % FPR (worlds pooled) of an attack.

    Parameters
    ----------
    scores, member : ndarray of shape (K, n)
        Higher scores mean "was trained on"; member is 1, 0, or -1 (left out).
    rng : numpy Generator
        Randomness of the intervals. Subjects and worlds are reweighted together, so that a
        subject that is in many worlds counts once.
    n_draws : int
        Number of bootstrap draws.

    Returns
    -------
    auc, tpr : Estimate
    """
    inside = member == MEMBER
    outside = member == OUTSIDER

    def tpr(w: Array) -> float:
        """Return the TPR of all worlds together under weights (K, n)."""
        return tpr_at_fpr(scores[inside], scores[outside], w[inside], w[outside])

    worlds, n = scores.shape
    draws = _weights(rng, n_draws, worlds, n)
    plain = mean_auc(scores, member, np.ones((1, n)), np.ones((1, worlds)))
    area = _interval(float(plain[0]), mean_auc(scores, member, *draws))
    return area, _share(tpr, inside, draws)


def identification(
    hits: Array, member: Array, rng: Generator, *, n_draws: int = 200
) -> Estimate:
    """Return the share of members who were identified by an attack, with its bootstrap interval.

    Parameters
    ----------
    hits : ndarray of shape (K, n)
        1 where the attack linked the person to the right record, else 0.
    member : ndarray of shape (K, n)
        1 for people trained on in each of K worlds.
    rng : numpy Generator
        Randomness of the interval.
    n_draws : int
        Number of bootstrap draws.
    """
    inside = member == MEMBER

    def rate(w: Array) -> float:
        """Return the share of identified members under weights (K, n)."""
        return float(np.average(hits[inside], weights=w[inside]))

    return _share(rate, inside, _weights(rng, n_draws, *hits.shape))

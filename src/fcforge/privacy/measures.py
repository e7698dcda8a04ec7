"""How well an attack did: AUC, TPR at a low FPR, identification rate, with intervals.

Scores of several worlds (retrainings on other subjects) are held as arrays of shape (K, n): one
row per world, one column per subject; `member` says who was trained on in that world.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MEMBER, OUTSIDER, UNUSED = 1, 0, -1
LEVEL = 0.95


@dataclass(frozen=True)
class Measured:
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float

    def to_json(self) -> list[float]:
        """Value, low, high, four digits each."""
        return [round(float(v), 4) for v in (self.value, self.low, self.high)]


def auc(
    members: np.ndarray,
    outsiders: np.ndarray,
    member_weight: np.ndarray | None = None,
    outsider_weight: np.ndarray | None = None,
) -> float:
    r"""Area under the ROC curve, :math:`P(s_{in} > s_{out}) + \frac12 P(s_{in} = s_{out})`.

    Examples
    --------
    >>> auc(np.array([3.0, 1.0]), np.array([2.0, 1.0]))
    0.625
    """
    wins = (members[:, None] > outsiders) + 0.5 * (members[:, None] == outsiders)
    p = np.ones(len(members)) if member_weight is None else member_weight
    q = np.ones(len(outsiders)) if outsider_weight is None else outsider_weight
    return float(p @ wins @ q / (p.sum() * q.sum()))


def tpr_at_fpr(
    members: np.ndarray,
    outsiders: np.ndarray,
    fpr: float = 0.01,
    member_weight: np.ndarray | None = None,
    outsider_weight: np.ndarray | None = None,
) -> float:
    """Share of members above the lowest threshold that at most `fpr` of the outsiders exceed.

    Thresholds are outsiders' scores, so with fewer than 1 / fpr outsiders no false alarm is
    allowed at all.

    Examples
    --------
    >>> tpr_at_fpr(np.array([9.0, 5.0, 1.0, 0.0]), np.array([4.0, 3.0, 2.0]))
    0.5
    """
    p = np.ones(len(members)) if member_weight is None else member_weight
    q = np.ones(len(outsiders)) if outsider_weight is None else outsider_weight
    order = np.argsort(outsiders)[::-1]
    values, share = outsiders[order], np.cumsum(q[order]) / q.sum()
    # weight strictly above v: the running sum before the first outsider tied with v
    first = np.searchsorted(-values, -values, side="left")
    above = np.where(first > 0, share[first - 1], 0.0)
    threshold = values[above <= fpr + 1e-12].min()
    return float(p[members > threshold].sum() / p.sum())


def _weights(rng: np.random.Generator, n_draws: int, worlds: int, subjects: int) -> np.ndarray:
    """Bayesian-bootstrap weights (n_draws, K, n): a subject weighs the same in all worlds."""
    by_subject = rng.standard_exponential((n_draws, 1, subjects))
    by_world = rng.standard_exponential((n_draws, worlds, 1))
    return by_subject * (by_world if worlds > 1 else 1.0)


def _interval(value: float, draws: np.ndarray) -> Measured:
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Measured(value, float(min(low, value)), float(max(high, value)))


def _share_interval(value: float, draws: np.ndarray, n: int) -> Measured:
    """Interval of a share; none or all of n people still leaves room (Clopper & Pearson)."""
    found = _interval(value, draws)
    margin = 1 - ((1 - LEVEL) / 2) ** (1 / max(n, 1))
    low = min(found.low, 1 - margin) if value == 1 else found.low
    high = max(found.high, margin) if value == 0 else found.high
    return Measured(value, low, high)


def mean_auc(scores: np.ndarray, member: np.ndarray, weight: np.ndarray) -> float:
    """AUC of each world, averaged with the worlds' total weights."""
    values, total = [], []
    for s, m, w in zip(scores, member, weight, strict=True):
        a, b = m == MEMBER, m == OUTSIDER
        values.append(auc(s[a], s[b], w[a], w[b]))
        total.append(w.mean())
    return float(np.average(values, weights=total))


def membership(
    scores: np.ndarray,
    member: np.ndarray,
    rng: np.random.Generator,
    *,
    fpr: float = 0.01,
    n_draws: int = 200,
) -> tuple[Measured, Measured]:
    """AUC (mean over worlds) and TPR at `fpr` (worlds pooled) of an attack.

    Parameters
    ----------
    scores, member : ndarray of shape (K, n)
        Higher scores mean "was trained on"; member is 1, 0, or -1 (left out).
    rng : numpy Generator
        Intervals: subjects and worlds are reweighted together, so that a subject seen in many
        worlds counts once.

    Returns
    -------
    auc, tpr : Measured
    """
    one = np.ones_like(scores)
    inside, outside = member == MEMBER, member == OUTSIDER

    def tpr(w: np.ndarray) -> float:
        return tpr_at_fpr(scores[inside], scores[outside], fpr, w[inside], w[outside])

    draws = _weights(rng, n_draws, *scores.shape)
    areas = np.array([mean_auc(scores, member, w) for w in draws])
    area = _interval(mean_auc(scores, member, one), areas)
    n_people = int(inside.any(0).sum())
    rate = _share_interval(tpr(one), np.array([tpr(w) for w in draws]), n_people)
    return area, rate


def identification(
    hits: np.ndarray, member: np.ndarray, rng: np.random.Generator, *, n_draws: int = 200
) -> Measured:
    """Share of members who were identified; `hits` (K, n) is 1 where a link was right."""
    inside = member == MEMBER

    def rate(w: np.ndarray) -> float:
        return float(np.average(hits[inside], weights=w[inside]))

    draws = _weights(rng, n_draws, *hits.shape)
    values = np.array([rate(w) for w in draws])
    return _share_interval(rate(np.ones(hits.shape)), values, int(inside.any(0).sum()))

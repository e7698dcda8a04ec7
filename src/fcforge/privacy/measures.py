"""How well an attack did: AUC, TPR at a low FPR, identification rate, with intervals.

Scores of several worlds (retrainings on other subjects) are held as arrays of shape (K, n): one
row per world, one column per subject; `member` says who was trained on in that world.
"""

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


def _weights(
    rng: np.random.Generator, n_draws: int, worlds: int, subjects: int
) -> tuple[np.ndarray, np.ndarray]:
    """Bayesian-bootstrap weights of subjects (n_draws, n), the same in all worlds, and of worlds.

    One world weighs one: then subjects alone are drawn.
    """
    by_subject = rng.standard_exponential((n_draws, subjects))
    by_world = rng.standard_exponential((n_draws, worlds))
    return by_subject, by_world if worlds > 1 else np.ones((n_draws, 1))


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


def mean_auc(
    scores: np.ndarray, member: np.ndarray, by_subject: np.ndarray, by_world: np.ndarray
) -> np.ndarray:
    """Weighted mean over worlds of each world's AUC; (B,) for weights (B, n) and (B, K)."""
    areas = []
    for s, m in zip(scores, member, strict=True):
        a, b = m == MEMBER, m == OUTSIDER
        wins = (s[a][:, None] > s[b]) + 0.5 * (s[a][:, None] == s[b])
        p, q = by_subject[:, a], by_subject[:, b]
        areas.append(((p @ wins) * q).sum(1) / (p.sum(1) * q.sum(1)))
    return (np.stack(areas, 1) * by_world).sum(1) / by_world.sum(1)


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
    worlds, n = scores.shape
    inside, outside = member == MEMBER, member == OUTSIDER

    def tpr(by_subject: np.ndarray, by_world: np.ndarray) -> float:
        w = by_world[:, None] * by_subject
        return tpr_at_fpr(scores[inside], scores[outside], fpr, w[inside], w[outside])

    draws = _weights(rng, n_draws, worlds, n)
    plain = float(mean_auc(scores, member, np.ones((1, n)), np.ones((1, worlds)))[0])
    area = _interval(plain, mean_auc(scores, member, *draws))
    rates = np.array([tpr(*pair) for pair in zip(*draws, strict=True)])
    rate = _share_interval(tpr(np.ones(n), np.ones(worlds)), rates, int(inside.any(0).sum()))
    return area, rate


def identification(
    hits: np.ndarray, member: np.ndarray, rng: np.random.Generator, *, n_draws: int = 200
) -> Measured:
    """Share of members who were identified; `hits` (K, n) is 1 where a link was right."""
    inside = member == MEMBER

    def rate(w: np.ndarray) -> float:
        return float(np.average(hits[inside], weights=w[inside]))

    weights = [np.outer(v, s) for s, v in zip(*_weights(rng, n_draws, *hits.shape), strict=True)]
    values = np.array([rate(w) for w in weights])
    return _share_interval(rate(np.ones(hits.shape)), values, int(inside.any(0).sum()))

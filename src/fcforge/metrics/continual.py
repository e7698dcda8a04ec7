r"""Summaries of an accuracy matrix: what was learned, what was kept, what was forgotten.

``a[t, i]`` is the accuracy on the i-th site of the order after learning the t-th, columns in
order of arrival; the upper triangle holds the zero-shot values of sites not yet learned. All
functions take ``(..., T, T)`` and return ``(...)``, so orders, seeds and bootstrap draws are
summarised together.

"Forgetting" has several incompatible definitions; each has its own name here. A column that is
NaN in every row (the metric is undefined at that site) is left out of the means; any other NaN
makes the result NaN.

References
----------
Chen and Yu 2026 (AAA, FOR); Chaudhry et al. 2018 (FM); Lopez-Paz and Ranzato 2017 (BWT, FWT).
"""

from collections.abc import Callable

import numpy as np


def _column_mean(x: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Mean over the last axis of the entries whose column is `known`; NaN where none is."""
    if not x.shape[-1]:
        return np.full(x.shape[:-1], np.nan)
    if known.all():
        return x.mean(-1)
    total = np.where(known, x, 0.0).sum(-1)
    count = np.broadcast_to(known, x.shape).sum(-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _known(a: np.ndarray) -> np.ndarray:
    if not np.isnan(a).any():  # the usual case, and the cheap one
        return np.ones(a.shape[-1:], dtype=bool)
    return ~np.isnan(a).all(-2)


def acc(a: np.ndarray) -> np.ndarray:
    r"""Final mean: :math:`\frac1T \sum_i a_{T,i}`."""
    return _column_mean(a[..., -1, :], _known(a))


def accuracy_curve(a: np.ndarray) -> np.ndarray:
    r"""Mean over sites learned so far: :math:`A_t = \frac1t \sum_{i\le t} a_{t,i}`. (..., T)."""
    lower = np.tri(a.shape[-1], dtype=bool)
    return _column_mean(a, lower & _known(a)[..., None, :])


def aaa(a: np.ndarray) -> np.ndarray:
    r"""Average accuracy along the way: :math:`\frac1T \sum_t A_t`."""
    n = a.shape[-1]
    if not np.isnan(a).any():  # the usual case as one product
        stage = np.arange(1, n + 1)[:, None]
        weight = np.tri(n) / stage / n
        return np.einsum("...ti,ti->...", a, weight.astype(a.dtype))
    curve = accuracy_curve(a)
    # A stage whose only site is undefined says nothing; a diverged run must stay NaN.
    undefined = np.cumsum(_known(a), axis=-1) == 0
    return _column_mean(curve, ~undefined)


def for_literal(a: np.ndarray) -> np.ndarray:
    r"""FOR as the paper writes it, with the zero-shot values its last term needs.

    :math:`\frac1T \sum_{i=1}^T (\max_{t<T} a_{t,i} - a_{T,i})`. The term i = T compares models
    that never saw site T with the one that did, so it is usually negative.
    """
    if a.shape[-1] < 2:
        return np.full(a.shape[:-2], np.nan)
    best = a[..., :-1, :].max(-2)
    final = a[..., -1, :]
    return _column_mean(best - final, _known(a))


def _drops(a: np.ndarray) -> np.ndarray:
    """Best value from learning a site to the last but one stage, minus the final. (..., T-1)."""
    return _learned(a).max(-2) - a[..., -1, :-1]


def _learned(a: np.ndarray) -> np.ndarray:
    """Values at sites learned so far, before the last stage, else -inf. (..., T-1, T-1)."""
    before = a[..., :-1, :-1]
    lower = np.tri(before.shape[-1], dtype=bool)
    return np.where(lower, before, -np.inf)


def for_triangular(a: np.ndarray) -> np.ndarray:
    r"""FOR on the lower triangle alone (term i = T is 0): :math:`\frac{T-1}{T}` FM."""
    if a.shape[-1] < 2:
        return np.full(a.shape[:-2], np.nan)
    last = np.zeros((*a.shape[:-2], 1))
    drops = np.concatenate([_drops(a), last], axis=-1)
    return _column_mean(drops, _known(a))


def fm(a: np.ndarray) -> np.ndarray:
    r"""Forgetting: :math:`\frac1{T-1}\sum_{i<T} (\max_{i\le l<T} a_{l,i} - a_{T,i})`."""
    if a.shape[-1] < 2:
        return np.full(a.shape[:-2], np.nan)
    return _column_mean(_drops(a), _known(a)[..., :-1])


def fm_split(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    r"""FM whose best stage is chosen on `a` and measured on `b`, accuracies of other subjects.

    :math:`\frac1{T-1}\sum_{i<T} (b_{l_i,i} - b_{T,i})` with :math:`l_i = \arg\max_{i\le l<T}
    a_{l,i}` (the first of equals). FM takes the maximum of noisy numbers: a learner that neither
    learns nor forgets has an FM above 0. This one's expectation is 0 then, and for any learner
    the true drop from the stage that was chosen.
    """
    if a.shape[-1] < 2:
        return np.full(a.shape[:-2], np.nan)
    best = _learned(a).argmax(-2)[..., None, :]
    at_best = np.take_along_axis(b[..., :-1], best, axis=-2)[..., 0, :]
    final = b[..., -1, :-1]
    return _column_mean(at_best - final, _known(b)[..., :-1])


def forgetting_curve(a: np.ndarray) -> np.ndarray:
    """FM after every stage, as if the order ended there; NaN at the first. (..., T)."""
    n = a.shape[-1]
    first = np.full((*a.shape[:-2], 1), np.nan)
    learned = np.tri(n, dtype=bool)[:-1]
    before = np.where(learned, a[..., :-1, :], -np.inf)
    best = np.maximum.accumulate(before, axis=-2)
    drops = np.where(learned, best - a[..., 1:, :], 0.0)
    counted = learned & _known(a)[..., None, :]
    return np.concatenate([first, _column_mean(drops, counted)], -1)


def bwt(a: np.ndarray) -> np.ndarray:
    r"""Backward transfer: :math:`\frac1{T-1}\sum_{i<T} (a_{T,i} - a_{i,i})`."""
    when_learned = np.diagonal(a, axis1=-2, axis2=-1)
    change = a[..., -1, :] - when_learned
    return _column_mean(change[..., :-1], _known(a)[..., :-1])


def fwt(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    r"""Forward transfer: :math:`\frac1{T-1}\sum_{i\ge 2} (a_{i-1,i} - b_i)`.

    Parameters
    ----------
    a : ndarray of shape (..., T, T)
    b : ndarray of shape (..., T)
        Baseline per site: the untrained network, or the site's majority class.
    """
    before = np.diagonal(a, offset=1, axis1=-2, axis2=-1)
    return _column_mean(before - b[..., 1:], _known(a)[..., 1:])


def intransigence(a: np.ndarray, a_star: np.ndarray) -> np.ndarray:
    r"""Cost of learning in turn, when learning: :math:`\frac1T\sum_k (a^*_k - a_{k,k})`.

    Parameters
    ----------
    a : ndarray of shape (..., T, T)
    a_star : ndarray of shape (..., T)
        The same cells of a reference that sees all data so far (cumulative or joint).
    """
    when_learned = np.diagonal(a, axis1=-2, axis2=-1)
    return _column_mean(a_star - when_learned, _known(a))


SUMMARIES: tuple[str, ...] = (
    "acc",
    "aaa",
    "for_literal",
    "for_triangular",
    "fm",
    "bwt",
    "fwt",
)

_OF_MATRIX: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    f.__name__: f for f in (acc, aaa, for_literal, for_triangular, fm, bwt)
}
_LEVELS = ("acc", "aaa")


def summaries_of(
    full: np.ndarray,
    *,
    lower_is_better: bool = False,
    names: tuple[str, ...] = SUMMARIES,
) -> dict[str, np.ndarray]:
    """Summaries of matrices that carry the baseline as their row 0.

    Parameters
    ----------
    full : ndarray of shape (..., T + 1, T)
        Row 0 is the baseline b, rows 1..T are the matrix a.
    lower_is_better : bool
        Then forgetting, FOR, BWT and FWT are computed on ``-a``: positive forgetting still
        means "got worse" and positive transfer "got better". `acc` and `aaa` keep their unit.
    names : tuple of str
        Which summaries.

    Returns
    -------
    dict of str to ndarray of shape (...)
    """
    better = -full if lower_is_better else full
    a = better[..., 1:, :]
    b = better[..., 0, :]
    found = {}
    for name in names:
        value = fwt(a, b) if name == "fwt" else _OF_MATRIX[name](a)
        if name in _LEVELS and lower_is_better:
            value = -value
        found[name] = value
    return found

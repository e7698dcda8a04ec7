r"""Score matrices of runs, and measures of what was learned, kept and forgotten.

A run learns T sites one after another; after each site (a stage) it is tested at all sites. In
its score matrix, ``a[t, i]`` is the accuracy on the i-th site of the order after learning the
t-th, columns in order of arrival; the upper triangle holds the zero-shot values of sites not yet
learned. AAA is the average over stages of the mean accuracy at the sites learned so far. All
measures take ``(..., T, T)`` and return ``(...)``, so orders, seeds and bootstrap draws are
summarised together.

"Forgetting" has several incompatible definitions; each has its own name here. A column that is
NaN in every row (the metric is undefined at that site) is left out of the means; any other NaN
makes the result NaN.

References
----------
Chen and Yu 2026 (AAA, FOR); Chaudhry et al. 2018 (FM); Lopez-Paz and Ranzato 2017 (BWT, FWT).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fcforge.core.errors import DataError
from fcforge.core.result import RunResult
from fcforge.evaluation.metrics import (
    Limits,
    Metric,
    combine_features,
    features_of,
    metric_named,
    predicted_and_true,
)


def _column_mean(x: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return the mean over the last axis of the entries whose column is `known`; NaN where none is."""
    total = np.where(known, x, 0.0).sum(-1)
    count = np.broadcast_to(known, x.shape).sum(-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _known(a: np.ndarray) -> np.ndarray:
    """Return which columns have a value in at least one row, shape (..., T)."""
    return ~np.isnan(a).all(-2)


def acc(a: np.ndarray) -> np.ndarray:
    r"""Return the final mean: :math:`\frac1T \sum_i a_{T,i}`."""
    return _column_mean(a[..., -1, :], _known(a))


def accuracy_curve(a: np.ndarray) -> np.ndarray:
    r"""Return the mean over the sites learned so far after each stage, shape (..., T).

    :math:`A_t = \frac1t \sum_{i\le t} a_{t,i}`.
    """
    lower = np.tri(a.shape[-1], dtype=bool)
    return _column_mean(a, lower & _known(a)[..., None, :])


def aaa(a: np.ndarray) -> np.ndarray:
    r"""Return AAA, the mean of `accuracy_curve` over all stages: :math:`\frac1T \sum_t A_t`."""
    n = a.shape[-1]
    if not np.isnan(a).any():  # the usual case as one product
        stage = np.arange(1, n + 1)[:, None]
        weight = np.tri(n) / stage / n
        return np.einsum("...ti,ti->...", a, weight.astype(a.dtype))
    curve = accuracy_curve(a)
    # A stage at which no site is defined is left out of the mean; a diverged run must stay NaN.
    undefined = np.cumsum(_known(a), axis=-1) == 0
    return _column_mean(curve, ~undefined)


def for_literal(a: np.ndarray) -> np.ndarray:
    r"""Return FOR as the paper writes it, with the zero-shot values its last term needs.

    :math:`\frac1T \sum_{i=1}^T (\max_{t<T} a_{t,i} - a_{T,i})`. The term i = T compares models
    that never saw site T with the one that did, so it is usually negative.
    """
    if a.shape[-1] < 2:
        return np.full(a.shape[:-2], np.nan)
    best = a[..., :-1, :].max(-2)
    final = a[..., -1, :]
    return _column_mean(best - final, _known(a))


def _drops(a: np.ndarray) -> np.ndarray:
    """Return how far each site but the last fell from its best stage to the last one, shape (..., T-1).

    The best stage is sought from the learning of the site to the last stage but one.
    """
    return _learned(a).max(-2, initial=-np.inf) - a[..., -1, :-1]


def _learned(a: np.ndarray) -> np.ndarray:
    """Return the matrix without its last row and column, -inf where a site is not learned yet.

    Shape (..., T-1, T-1).
    """
    before = a[..., :-1, :-1]
    lower = np.tri(before.shape[-1], dtype=bool)
    return np.where(lower, before, -np.inf)


def for_triangular(a: np.ndarray) -> np.ndarray:
    r"""Return FOR on the lower triangle alone (term i = T is 0): :math:`\frac{T-1}{T}` FM."""
    if a.shape[-1] < 2:
        return np.full(a.shape[:-2], np.nan)
    last = np.zeros((*a.shape[:-2], 1))
    drops = np.concatenate([_drops(a), last], axis=-1)
    return _column_mean(drops, _known(a))


def fm(a: np.ndarray) -> np.ndarray:
    r"""Return the forgetting measure FM, the mean drop from a site's best stage to the last stage.

    :math:`\frac1{T-1}\sum_{i<T} (\max_{i\le l<T} a_{l,i} - a_{T,i})`.
    """
    return _column_mean(_drops(a), _known(a)[..., :-1])


def fm_split(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    r"""Return FM whose best stage is chosen on `a` and measured on `b`, accuracies of other subjects.

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
    """Return the forgetting measure FM after every stage, as if the order ended there.

    Parameters
    ----------
    a : ndarray of shape (..., T, T)
        Score matrices.

    Returns
    -------
    ndarray of shape (..., T)
        NaN at the first stage, where nothing can be forgotten.
    """
    n = a.shape[-1]
    first = np.full((*a.shape[:-2], 1), np.nan)
    learned = np.tri(n, dtype=bool)[:-1]
    before = np.where(learned, a[..., :-1, :], -np.inf)
    best = np.maximum.accumulate(before, axis=-2)
    drops = np.where(learned, best - a[..., 1:, :], 0.0)
    counted = learned & _known(a)[..., None, :]
    return np.concatenate([first, _column_mean(drops, counted)], -1)


def bwt(a: np.ndarray) -> np.ndarray:
    r"""Return the backward transfer: :math:`\frac1{T-1}\sum_{i<T} (a_{T,i} - a_{i,i})`."""
    when_learned = np.diagonal(a, axis1=-2, axis2=-1)
    change = a[..., -1, :] - when_learned
    return _column_mean(change[..., :-1], _known(a)[..., :-1])


def fwt(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    r"""Return the forward transfer: :math:`\frac1{T-1}\sum_{i\ge 2} (a_{i-1,i} - b_i)`.

    Parameters
    ----------
    a : ndarray of shape (..., T, T)
    b : ndarray of shape (..., T)
        Baseline per site: the untrained network, or the site's majority class.
    """
    before = np.diagonal(a, offset=1, axis1=-2, axis2=-1)
    return _column_mean(before - b[..., 1:], _known(a)[..., 1:])


def intransigence(a: np.ndarray, a_star: np.ndarray) -> np.ndarray:
    r"""Return how much worse a learner is at a site it has just learned than one with all data.

    :math:`\frac1T\sum_k (a^*_k - a_{k,k})`.

    Parameters
    ----------
    a : ndarray of shape (..., T, T)
    a_star : ndarray of shape (..., T)
        Diagonal of the matrix of a reference that sees all data so far (cumulative or joint).
    """
    when_learned = np.diagonal(a, axis1=-2, axis2=-1)
    return _column_mean(a_star - when_learned, _known(a))


_OF_MATRIX: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    f.__name__: f for f in (acc, aaa, for_literal, for_triangular, fm, bwt)
}
SUMMARIES = (*_OF_MATRIX, "fwt")
_LEVELS = ("acc", "aaa")  # means of the metric itself, not differences


def limits_of(metric: str, summary: str) -> Limits:
    """Return the smallest and largest possible value of a summary of a metric.

    Parameters
    ----------
    metric : str
    summary : str
        A name of `SUMMARIES`, or ``fm_split``. AAA and the final mean have the metric's own limits;
        forgetting and transfer are differences.
    """
    m = metric_named(metric)
    return m.limits if summary in _LEVELS else m.limits_of_differences


def summaries_of(
    full: np.ndarray, metric: str = "accuracy", names: tuple[str, ...] = SUMMARIES
) -> dict[str, np.ndarray]:
    """Return continual-learning summaries of score matrices whose row 0 is the untrained network.

    If lower values of the metric are better (Brier, ECE, MAE), forgetting (FM, FOR) and transfer (BWT, FWT)
    are computed on ``-a``. So positive forgetting always means "got worse", positive transfer "got better".

    Parameters
    ----------
    full : ndarray of shape (..., T + 1, T)
        Row 0 is the baseline b, rows 1..T are the matrix a.
    metric : str
    names : tuple of str
        Summaries to compute, of `SUMMARIES`.

    Returns
    -------
    dict of str to ndarray of shape (...)
    """
    lower = metric_named(metric).lower_is_better
    better = -full if lower else full
    a = better[..., 1:, :]
    b = better[..., 0, :]
    values = {}
    for name in names:
        value = fwt(a, b) if name == "fwt" else _OF_MATRIX[name](a)
        values[name] = -value if lower and name in _LEVELS else value
    return values


# -- the matrices of runs ------------------------------------------------------------------------
@dataclass(frozen=True)
class Runs:
    """Runs tested on the same subjects, with orders of one length T.

    Runs whose orders begin with the same sites have equal scores at these stages, and a method
    that ignores the order has equal scores in all orders. Equal scores are held once, and their
    metrics are computed once.

    Attributes
    ----------
    runs : list of RunResult
    scores : dict of site to ndarray of shape (m, n_test)
        The m distinct score vectors of the site's test subjects.
    place : dict of site to ndarray of shape (n_runs, T + 1)
        Row of `scores` that a run gave before learning and after every stage.
    """

    runs: list[RunResult]
    scores: dict[str, np.ndarray]
    place: dict[str, np.ndarray]
    _known: dict[tuple[str, object], np.ndarray] = field(
        default_factory=dict, repr=False
    )

    @classmethod
    def of(cls, runs: Sequence[RunResult]) -> "Runs":
        """Collect runs that have equal sites, equal test subjects and orders of one length."""
        scores = {}
        place = {}
        for site in runs[0].sites:
            rows = []
            for run in runs:
                rows += [run.initial[site], *run.scores[site]]
            row_of_scores: dict[bytes, int] = {}  # number of each distinct row
            row_numbers = [
                row_of_scores.setdefault(row.tobytes(), len(row_of_scores))
                for row in rows
            ]
            indices = np.array(row_numbers)
            _, first = np.unique(indices, return_index=True)
            scores[site] = np.stack([rows[k] for k in first])
            place[site] = indices.reshape(len(runs), -1)
        return cls(list(runs), scores, place)

    def beside(self, other: "Runs") -> "Runs":
        """Return these runs, each paired with the run of `other` at the same position.

        The `scores` (m, 2) of the result are not scores but distinct pairs of row numbers, into
        the scores of these runs and into those of `other`.
        """
        scores = {}
        place = {}
        for site, theirs in other.scores.items():
            # one number for each pair of a row here and a row there, which divmod takes apart
            pairs = self.place[site] * len(theirs) + other.place[site]
            distinct, indices = np.unique(pairs, return_inverse=True)
            ours_and_theirs = np.divmod(distinct, len(theirs))
            scores[site] = np.stack(ours_and_theirs, axis=1)
            place[site] = indices.reshape(pairs.shape)
        return Runs(self.runs, scores, place)

    def features(self, site: str, metric: Metric) -> np.ndarray:
        """Return the k features that a metric sums over subjects, shape (k, m, n_test).

        See `fcforge.evaluation.metrics.features_of`. They are computed once per site.
        """
        key = site, metric.features
        first = self.runs[0]
        if first.kind not in metric.kinds:
            targets = " or ".join(metric.kinds)
            raise DataError(
                f"{metric.title} is for {targets}; these runs have {first.kind}.",
                do="Choose another metric.",
            )
        if key not in self._known:
            truth = first.truth(site)
            self._known[key] = features_of(self.scores[site], truth, metric)
        return self._known[key]

    def values(
        self, metric: str, weights: Callable[[str], np.ndarray] | None = None
    ) -> np.ndarray:
        """Compute the score matrices of all runs.

        Parameters
        ----------
        metric : str
        weights : callable, optional
            Returns bootstrap weights (n_draws, n_test) of a site's test subjects; there is then
            one matrix per run and draw.

        Returns
        -------
        ndarray of shape (n_runs, T + 1, T) or (n_runs, n_draws, T + 1, T)
        """
        m = metric_named(metric)

        def cells(site: str, _: np.ndarray) -> np.ndarray:
            """Return the metric of each distinct score vector at a site, (m,) or (m, n_draws)."""
            drawn = weights(site) if weights else None
            return combine_features(self.features(site, m), m, drawn)

        return self.stack(cells)

    def stack(self, cells: Callable[[str, np.ndarray], np.ndarray]) -> np.ndarray:
        """Compute the entries of the score matrices of all runs and arrange them.

        Many runs have the same scores at a site after a stage (shared prefixes), so an entry is computed once
        for each distinct vector of scores (`self.scores`), then put where it belongs (`self.place`).

        Parameters
        ----------
        cells : callable
            Takes a site and its m distinct score vectors (m, n_test); returns an entry for each (m, ...).

        Returns
        -------
        ndarray of shape (n_runs, ..., T + 1, T)
            Row 0 is the baseline, rows 1 to T are the stages; columns are sites in each run's order.
        """
        orders = np.array([[*r.spec.order] for r in self.runs])
        full = np.empty(0)
        for site, scores in self.scores.items():
            values = cells(site, scores)
            run, column = np.nonzero(orders == site)
            if not full.size:
                stages = orders.shape[1] + 1
                shape = (*orders.shape, stages, *values.shape[1:])
                full = np.empty(shape, dtype=values.dtype)
            full[run, column] = values[self.place[site][run]]
        return np.moveaxis(full, (1, 2), (-1, -2))


def score_matrix(result: RunResult, metric: str = "accuracy") -> np.ndarray:
    """Return the score matrix ``a[t, i]`` (T, T) of one run, zero-shot entries included.

    Columns are in order of arrival.
    """
    return Runs.of([result]).values(metric)[0, 1:]


def summary(result: RunResult, metric: str = "accuracy") -> dict[str, float]:
    """Return every continual-learning summary of one run.

    Parameters
    ----------
    result : RunResult
    metric : str
        A name of `fcforge.evaluation.metrics.METRICS`.
    """
    values = summaries_of(Runs.of([result]).values(metric)[0], metric)
    return {name: float(value) for name, value in values.items()}


def finite(result: RunResult) -> bool:
    """Return whether all scores of a run are finite; otherwise the run diverged."""
    return all(bool(np.isfinite(s).all()) for s in result.scores.values())


def constant_predictor(result: RunResult) -> np.ndarray:
    """Return at which site and stage all subjects are predicted to be of one class though several exist.

    Returns
    -------
    ndarray of shape (T, T), bool
        Rows are stages, columns sites in order of arrival.
    """

    def cells(site: str, p: np.ndarray) -> np.ndarray:
        """Return whether this is so, (m,), for each of m score vectors at a site."""
        predicted, true = predicted_and_true(p, result.truth(site))
        several = result.kind != "number" and len(np.unique(true)) > 1
        return (predicted == predicted[:, :1]).all(-1) & several

    return Runs.of([result]).stack(cells)[0, 1:]

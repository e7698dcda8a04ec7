r"""Metrics: how good the scores of one site's test subjects are.

Every metric is written as ``combine(sum_i w_i * features_i)``: k numbers per subject i (its
features), summed with weights w, then combined. In the functions below, s are these sums. With
unit weights that is the metric itself; with bootstrap weights it is a matrix product, so a
thousand draws of all runs cost a few of them.
Shapes: n subjects, K classes, k features, and leading axes (...) for runs and stages.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fcforge.core.names import look_up
from fcforge.core.target import Kind

Limits = tuple[float, float]
UNLIMITED: Limits = (-math.inf, math.inf)
THRESHOLD = 0.5
"""A subject is called a patient when P(patient) > 0.5 (a tie goes to control, as argmax does)."""

N_BINS = 10


@dataclass(frozen=True)
class Metric:
    """A metric as weighted sums.

    Attributes
    ----------
    title : str
        Name in tables and figures.
    features : callable
        ``(p (..., n), y (n,)) -> (k, ..., n)``; of more than two classes p is (..., n, K) and y
        0 or 1 for each class (n, K).
    combine : callable
        ``(k, ...) -> (...)``; 0/0 gives NaN (undefined) unless the metric says otherwise.
    lower_is_better : bool
        True for Brier, ECE and MAE: the continual-learning summaries then turn the sign.
    kinds : tuple of Kind
        Targets that it is defined for.
    limits : (float, float)
        Smallest and largest possible value.
    """

    title: str
    features: Callable[[np.ndarray, np.ndarray], np.ndarray]
    combine: Callable[[np.ndarray], np.ndarray]
    lower_is_better: bool = False
    kinds: tuple[Kind, ...] = ("two classes",)
    limits: Limits = (0.0, 1.0)

    @property
    def limits_of_differences(self) -> Limits:
        """Smallest and largest possible difference of two values."""
        low, high = self.limits
        return low - high, high - low


def average_ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks along the last axis, ties averaged.

    As ``scipy.stats.rankdata``, whose import alone takes most of a second of every command.

    Examples
    --------
    >>> average_ranks(np.array([0.3, 0.1, 0.3]))
    array([2.5, 1. , 2.5])
    """
    if values.size == 0:
        return np.zeros(values.shape)
    order = np.argsort(values, axis=-1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=-1)
    before, after = ordered[..., :-1], ordered[..., 1:]
    tied = (before == after) | (np.isnan(before) & np.isnan(after))
    begins = np.concatenate([np.ones((*values.shape[:-1], 1), bool), ~tied], axis=-1)
    first = np.flatnonzero(begins)  # of each group of ties, counted over all rows
    counts = np.diff(first, append=values.size)
    of_group = first % values.shape[-1] + (counts + 1) / 2
    ranks = np.empty(values.shape)
    in_order = np.repeat(of_group, counts).reshape(values.shape)
    np.put_along_axis(ranks, order, in_order, axis=-1)
    return ranks


def _auroc_features(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return DeLong's placements: AUROC as a mean over patients plus a mean over controls.

    ``V10_i`` is the share of controls scored below patient i, ``V01_j`` the share of patients
    scored above control j (ties count half); both average to the AUROC A. With features
    ``V - A/2`` unit weights give A exactly and other weights its first-order change, whose
    variance is DeLong's (1988).

    Returns
    -------
    ndarray of shape (4, ..., n), or (4 K, ..., n) for more than two classes
        For a class against the rest: feature and 1 of its members (0 for others), then feature and 1 of
        the others (0 for members).
    """
    if y.ndim == 2:  # one class against the rest, each in turn
        pairs = zip(np.moveaxis(p, -1, 0), y.T, strict=True)
        return np.concatenate(
            [_auroc_features(predicted, member) for predicted, member in pairs]
        )
    patient = y == 1
    control = y == 0
    ranks = average_ranks(p)
    placement = np.zeros(p.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        n_patients = np.float64(patient.sum())
        n_controls = np.float64(control.sum())
        above = ranks[..., patient] - average_ranks(p[..., patient])
        below = ranks[..., control] - average_ranks(p[..., control])
        placement[..., patient] = above / n_controls
        placement[..., control] = 1 - below / n_patients
        half = placement[..., patient].sum(-1, keepdims=True) / n_patients / 2
    value = placement - half
    one = np.ones(p.shape)
    return np.stack([value * patient, one * patient, value * control, one * control])


def predicted_and_true(p: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return predicted classes (..., n) and true classes (n,).

    Parameters
    ----------
    p : ndarray of shape (..., n) or (..., n, K)
        P(patient), or P of each class.
    y : ndarray of shape (n,) or (n, K)
        1 for patients, or membership of each class.
    """
    if y.ndim == 2:
        return p.argmax(-1), y.argmax(-1)
    return (p > THRESHOLD).astype(int), y


def _confusion(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return correct members of each class, then wrong members of each class, (2 K, ..., n) bool.

    Class 0 is the controls, class 1 the patients.
    """
    predicted, true = predicted_and_true(p, y)
    n_classes = y.shape[1] if y.ndim == 2 else 2
    members = [true == k for k in range(n_classes)]
    right = predicted == true
    hits = [right & m for m in members]
    misses = [~right & m for m in members]
    return np.stack(hits + misses)


def _brier(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return squared errors and ones, whose sums make the Brier score."""
    return np.stack([(p - y) ** 2, np.ones(p.shape)])


def _ece(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the gap p - y in the bin of p and 0 in the other bins, then ones: (N_BINS + 1, ..., n)."""
    own_bin = np.ceil(np.nan_to_num(p) * N_BINS) - 1
    own_bin = np.clip(own_bin, 0, N_BINS - 1)
    bins = np.arange(N_BINS).reshape(-1, *[1] * p.ndim)
    gaps = np.where(own_bin == bins, p - y, 0.0)
    return np.concatenate([gaps, np.ones((1, *p.shape))])


def _mean_gap(s: np.ndarray) -> np.ndarray:
    """Return the ECE from sums of `_ece`: the mean absolute gap over bins, weighted by their size."""
    return np.abs(s[:-1]).sum(0) / s[-1]


def _ratio(s: np.ndarray) -> np.ndarray:
    """Return the first sum divided by the second."""
    return s[0] / s[1]


def _accuracy(s: np.ndarray) -> np.ndarray:
    """Return the accuracy from sums of `_confusion`."""
    return s[: len(s) // 2].sum(0) / s.sum(0)


def _recalls(s: np.ndarray) -> np.ndarray:
    """Return the recall of each class from sums of `_confusion`: specificity, sensitivity, ..."""
    right, wrong = np.split(s, 2)
    return right / (right + wrong)


def _precision(s: np.ndarray) -> np.ndarray:
    """Return the precision of two classes from sums of `_confusion`; 0 if nobody is called a patient."""
    called_patient = s[1] + s[2]
    none_called = called_patient == 0
    return np.where(none_called, 0.0, s[1] / np.where(none_called, 1.0, called_patient))


def _f1(s: np.ndarray) -> np.ndarray:
    """Return the F1 score of two classes from sums of `_confusion`."""
    twice_true_positives = 2 * s[1]
    return twice_true_positives / (twice_true_positives + s[2] + s[3])


def _macro_auroc(s: np.ndarray) -> np.ndarray:
    """Return the AUROC from sums of `_auroc_features`, averaged over classes."""
    by_class = s.reshape(-1, 4, *s.shape[1:])
    above, patients, below, controls = np.moveaxis(by_class, 1, 0)
    return (above / patients + below / controls).mean(0)


def _r2_features(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return squared errors, centred targets, their squares and ones, whose sums make R²."""
    # Centring keeps the digits of targets with a large mean (years, test scores).
    centred = np.broadcast_to(y - y.mean(), p.shape)
    return np.stack([(p - y) ** 2, centred, centred**2, np.ones(p.shape)])


def _r2(s: np.ndarray) -> np.ndarray:
    """Return R² from sums of `_r2_features`: 1 - squared error / variance about the weighted mean."""
    return 1 - s[0] / (s[2] - s[1] ** 2 / s[3])


def _mae(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return absolute errors and ones, whose sums make the mean absolute error."""
    return np.stack([np.abs(p - y), np.ones(p.shape)])


def _rank_features(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return centred ranks a of p and b of y, then a², b², ab and ones, whose sums make Spearman's rho."""
    middle = (len(y) + 1) / 2
    a = average_ranks(p) - middle
    b = np.broadcast_to(average_ranks(y) - middle, p.shape)
    return np.stack([a, b, a * a, b * b, a * b, np.ones(p.shape)])


def _correlation(s: np.ndarray) -> np.ndarray:
    """Return the correlation from sums of `_rank_features`."""
    a, b, aa, bb, ab, n = s
    covariance = ab - a * b / n
    variance_a = aa - a * a / n
    variance_b = bb - b * b / n
    return covariance / np.sqrt(variance_a * variance_b)


CLASSES: tuple[Kind, ...] = ("two classes", "more classes")
NUMBER: tuple[Kind, ...] = ("number",)
PRIMARY: dict[Kind, str] = {
    "two classes": "accuracy",
    "more classes": "accuracy",
    "number": "r2",
}
"""The metric, for each kind of target, that AAA averages and whose loss is forgetting."""
METRICS: dict[str, Metric] = {
    "accuracy": Metric("accuracy", _confusion, _accuracy, kinds=CLASSES),
    "balanced_accuracy": Metric(
        "balanced accuracy", _confusion, lambda s: _recalls(s).mean(0), kinds=CLASSES
    ),
    "auroc": Metric("AUROC", _auroc_features, _macro_auroc, kinds=CLASSES),
    "sensitivity": Metric("sensitivity", _confusion, lambda s: _recalls(s)[1]),
    "specificity": Metric("specificity", _confusion, lambda s: _recalls(s)[0]),
    "f1": Metric("F1", _confusion, _f1),
    "precision": Metric("precision", _confusion, _precision),
    "brier": Metric("Brier score", _brier, _ratio, lower_is_better=True),
    "ece": Metric("ECE", _ece, _mean_gap, lower_is_better=True),
    "r2": Metric("R²", _r2_features, _r2, kinds=NUMBER, limits=(-math.inf, 1.0)),
    "mae": Metric("MAE", _mae, _ratio, True, NUMBER, limits=(0.0, math.inf)),
    "spearman": Metric(
        "Spearman", _rank_features, _correlation, kinds=NUMBER, limits=(-1.0, 1.0)
    ),
}
"""All metrics by name. `precision` is 0 where nobody is called a patient (as scikit-learn's
``zero_division=0``); `ece` bins P(patient) into ten equal widths. Metrics that need all classes
are NaN at a site whose test part lacks one. `auroc` of more classes is the mean of one against the
rest. `r2` is against the mean of the tested people of a site, who differ in fewer years than the
people of all sites do; under bootstrap weights `spearman` keeps its ranks."""


def metric_named(name: str) -> Metric:
    """Return the metric of a name, or raise an error that lists the known ones."""
    return look_up("metric", name, METRICS)


def features_of(p: np.ndarray, y: np.ndarray, metric: Metric) -> np.ndarray:
    """Return the features (k, ..., n) that a metric sums over subjects, NaN where a score is not finite.

    Parameters
    ----------
    p : ndarray of shape (..., n) or (..., n, K)
        Scores of n subjects.
    y : ndarray of shape (n,) or (n, K)
        Labels, as in `cell_values`.
    metric : Metric
    """
    p = np.asarray(p, dtype=np.float64)
    y = np.asarray(y)
    known = np.isfinite(p)
    if y.ndim == 2:
        known = known.all(-1)
    # Without this, a comparison with the threshold would count a NaN score as "control".
    return np.where(known, metric.features(p, y), np.nan)


def cell_values(
    p: np.ndarray, y: np.ndarray, metric: str, weights: np.ndarray | None = None
) -> np.ndarray:
    """Return the metric of scores `p` against labels `y`, optionally under many weightings.

    Each value is a cell of a score matrix: the metric of one site's test subjects after one stage.

    Parameters
    ----------
    p : ndarray of shape (..., n) or (..., n, K)
        P(patient), P of each of more than two classes, or a predicted number.
    y : ndarray of shape (n,) or (n, K)
        0 = control, 1 = patient; membership of each class; or the number.
    metric : str
        A name of `METRICS`.
    weights : ndarray of shape (n_draws, n), optional
        Non-negative weights of the subjects, one row per draw.

    Returns
    -------
    ndarray of shape (...) or (..., n_draws)
        NaN where a score is not finite or the metric is undefined.
    """
    m = metric_named(metric)
    return combine_features(features_of(p, y, m), m, weights)


def combine_features(
    features: np.ndarray, metric: Metric, weights: np.ndarray | None
) -> np.ndarray:
    """Sum features (k, ..., n) over the n subjects and combine the sums into the metric.

    Parameters
    ----------
    features : ndarray of shape (k, ..., n)
        Result of `features_of`.
    metric : Metric
    weights : ndarray of shape (n_draws, n) or None

    Returns
    -------
    ndarray of shape (...), or (..., n_draws) under weights
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        sums = features.sum(-1) if weights is None else weighted_sums(features, weights)
        return metric.combine(sums)


def weighted_sums(features: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return features (..., n) summed under weights (n_draws, n): (..., n_draws).

    In double precision: CPUs add in different orders, which must not show in a table's digits.
    """
    flat = features.reshape(-1, features.shape[-1]).astype(np.float64, copy=False)
    sums = flat @ weights.T.astype(np.float64)
    return sums.reshape(*features.shape[:-1], len(weights))


def swapped_values(
    a: np.ndarray, b: np.ndarray, metric: Metric, swap: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the metric of two learners after exchanging the scores of some subjects between them.

    Parameters
    ----------
    a, b : ndarray of shape (k, ..., n)
        `features_of` the two learners' scores.
    metric : Metric
    swap : ndarray of shape (n_draws, n), bool
        Which subjects are exchanged in which draw.

    Returns
    -------
    pair of ndarray of shape (..., n_draws)
        Exact for all metrics but AUROC, which is exchanged to first order (its placements).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        change = weighted_sums(b - a, swap)
        sum_a = a.sum(-1)[..., None]
        sum_b = b.sum(-1)[..., None]
        return metric.combine(sum_a + change), metric.combine(sum_b - change)

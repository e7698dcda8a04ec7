r"""People as numbers: features of a scan, targets of a diagnosis, probabilities of a score.

Features are the whole matrix logarithm of an FC as a vector, in numpy: the same numbers as
`fcforge.graphs.log_features`, which needs torch and has a gradient. A hospital that only gives
releases needs neither. Targets are what a head is fitted to, of length 1 at most.
"""

from contextlib import AbstractContextManager

import numpy as np

from fcforge.errors import DataError
from fcforge.types import LOG_SCALE, SHRINK

Array = np.ndarray
SMALLEST = 1e-6  # eigenvalue that a shrunk FC has at least
STEPS = 50  # of Newton's method
LARGEST = 30.0  # log odds; those of a probability of 1 are infinite


# -- features --------------------------------------------------------------------------------------
def one_blas_thread() -> AbstractContextManager[object]:
    """Keep BLAS to one thread.

    Threads only wait for each other on many matrices as small as an FC. On two busy cores the
    logarithms of NYU's 184 scans took 34 s with two threads and 3 s with one.
    """
    from threadpoolctl import threadpool_limits  # scikit-learn brings it

    return threadpool_limits(1, user_api="blas")


def n_rois_of_features(n_features: int) -> int:
    """Number R of ROIs whose logarithm has `n_features` = R (R + 1) / 2 entries.

    Examples
    --------
    >>> n_rois_of_features(6786)
    116
    """
    rois = int(((1 + 8 * n_features) ** 0.5 - 1) / 2)
    if rois * (rois + 1) // 2 != n_features:
        raise DataError(
            f"{n_features} features are not R (R + 1) / 2 for any number of ROIs R.",
            do="Give the upper triangle of the matrix logarithm with its diagonal.",
        )
    return rois


def log_features(fc: Array, shrink: float = SHRINK) -> Array:
    r"""Whole matrix logarithm of the shrunk FC, (n, R, R) -> (n, R (R + 1) / 2), float64.

    .. math:: \log\big((1 - a) C + a I\big)

    Edges first, row by row, then the diagonal divided by :math:`\sqrt 2`, so that distances are
    log-Euclidean distances of whole matrices (up to one factor); scaled to roughly unit spread.
    A matrix that holds NaN or infinity has features NaN.
    """
    rois = fc.shape[-1]
    fc = np.asarray(fc, dtype=np.float64)
    with one_blas_thread():
        value, vector = _eigen((1 - shrink) * fc + shrink * np.eye(rois))
        scaled = vector * np.log(np.maximum(value, SMALLEST))[..., None, :]
        log = scaled @ _turned(vector) / LOG_SCALE
    rows, columns = np.triu_indices(rois, 1)
    diagonal = np.diagonal(log, axis1=-2, axis2=-1) / 2**0.5
    return np.concatenate([log[..., rows, columns], diagonal], axis=-1)


def from_log_features(
    features: Array, shrink: float = SHRINK, unit: bool = True
) -> Array:
    """FC (n, R, R) of features (n, R (R + 1) / 2): the inverse of `log_features`.

    Parameters
    ----------
    features : ndarray of shape (n, R (R + 1) / 2)
    shrink : float
        As in `log_features`.
    unit : bool
        Raise negative eigenvalues to zero and scale to a unit diagonal: a correlation matrix by
        construction. Without it the result has exactly these features again, and a diagonal
        near one.
    """
    rois = n_rois_of_features(features.shape[-1])
    n_edges = rois * (rois - 1) // 2
    rows, columns = np.triu_indices(rois, 1)
    every = np.arange(rois)
    log = np.zeros((*features.shape[:-1], rois, rois))
    log[..., rows, columns] = features[..., :n_edges]
    log = log + _turned(log)
    log[..., every, every] = features[..., n_edges:] * 2**0.5
    value, vector = _eigen(log * LOG_SCALE)
    grown = (np.exp(value) - shrink) / (1 - shrink)
    if unit:
        grown = np.maximum(grown, 0.0)
    fc = (vector * grown[..., None, :]) @ _turned(vector)
    fc = (fc + _turned(fc)) / 2
    if not unit:
        return fc
    variance = np.diagonal(fc, axis1=-2, axis2=-1)
    size = np.maximum(variance, 1e-12) ** -0.5
    fc = size[..., :, None] * fc * size[..., None, :]
    fc = np.clip(fc, -1.0, 1.0)
    fc[..., every, every] = 1.0
    return fc


def _eigen(matrices: Array) -> tuple[Array, Array]:
    """Eigenvalues and -vectors of (..., R, R); NaN where a matrix holds NaN or infinity."""
    whole = np.isfinite(matrices).all(axis=(-2, -1), keepdims=True)
    usable = np.where(whole, matrices, np.eye(matrices.shape[-1]))
    value, vector = np.linalg.eigh(usable)
    return np.where(whole[..., 0], value, np.nan), vector


def _turned(matrices: Array) -> Array:
    return np.swapaxes(matrices, -1, -2)


# -- targets and scores ----------------------------------------------------------------------------
def vertices(n_classes: int) -> Array:
    """Corners (K, K - 1) of a regular simplex, each of length 1: -1 and +1 for two classes.

    No class is nearer to another than the rest are, and no class is the one that others are held
    against (simplex coding, Mroueh et al. 2012).

    Examples
    --------
    >>> vertices(3).round(3).tolist()
    [[-0.866, -0.5], [0.866, -0.5], [0.0, 1.0]]
    """
    corners = np.zeros((n_classes, n_classes - 1))
    for k in range(1, n_classes):
        size = np.sqrt(n_classes / (n_classes - 1) / (k * (k + 1)))
        corners[:k, k - 1] = -size
        corners[k, k - 1] = k * size
    return corners


def targets(y: Array, columns: int = 1) -> Array:
    """What a head is fitted to, of length 1 at most whatever y is.

    (n,): diagnoses at -1 and +1, or a number cut to these limits; (n, c): corners of classes.
    """
    if y.dtype.kind == "f":
        return np.clip(y, -1.0, 1.0)
    return 2.0 * y - 1.0 if columns == 1 else vertices(columns + 1)[y]


def class_logits(score: Array) -> Array:
    """Logits (n, K) of scores (n, c), which softmax makes probabilities once calibrated."""
    return score @ vertices(score.shape[1] + 1).T / 2


def fit_temperature(score: Array, y: Array) -> float:
    """T that makes the logits of score (n, c) / T probabilities: logistic regression on one number.

    The loss is convex in 1 / T: its slope is bisected, over the logarithm of 1 / T.
    """
    low = -6.0
    high = 6.0
    logits = class_logits(score)
    ahead = logits - np.take_along_axis(logits, y[:, None], 1)
    for _ in range(60):
        middle = (low + high) / 2
        scaled = 2.0**middle * ahead
        share = np.exp(scaled - scaled.max(1, keepdims=True))
        expected = (share * ahead).sum(1) / share.sum(1)
        slope = expected.sum()
        if slope < 0:
            low = middle
        else:
            high = middle
    return 2.0 ** -((low + high) / 2)


def fit_line(z: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Intercept and slope by penalised logistic regression of diagnoses y (n,) on log odds z.

    The slope is held at 1 and the intercept at 0 by a prior worth about four people, so that few
    people move them little; the penalised loss is strictly convex.
    """
    x = np.stack([np.ones(len(z)), z], axis=1)
    middle = np.array([0.0, 1.0])
    theta = middle
    for _ in range(STEPS):
        odds = np.clip(x @ theta, -LARGEST, LARGEST)
        p = 1 / (1 + np.exp(-odds))
        gradient = x.T @ (p - y) + (theta - middle)
        weight = p * (1 - p)
        curvature = (x.T * weight) @ x + np.eye(2)
        theta = theta - np.linalg.solve(curvature, gradient)
    return float(theta[0]), float(theta[1])

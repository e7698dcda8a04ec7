"""Matrix-logarithm features of FC in numpy, and their inverse."""

from contextlib import AbstractContextManager

import numpy as np
from numpy import ndarray as Array

from fcforge.core.constants import LOG_SCALE, SHRINK

SMALLEST = 1e-6  # smaller eigenvalues of a shrunk FC are raised to it


def one_blas_thread() -> AbstractContextManager[object]:
    """Limit BLAS to one thread.

    Several threads slow down operations on many matrices as small as an FC: on two busy cores
    the logarithms of 184 scans took 34 s with two threads and 3 s with one.
    """
    from threadpoolctl import threadpool_limits  # scikit-learn brings it

    return threadpool_limits(1, user_api="blas")


def log_features(fc: Array, shrink: float = SHRINK) -> Array:
    r"""Return the matrix logarithms of FC matrices C, shrunk toward the identity I, as features.

    .. math:: \log\big((1 - a) C + a I\big)

    The features are the edges, row by row, then the diagonal divided by :math:`\sqrt 2`, so that
    distances between them are log-Euclidean distances of the matrices (up to one factor). They are
    divided by `LOG_SCALE`, which gives them roughly unit spread. The features of a matrix that holds
    NaN or infinity are NaN.

    Parameters
    ----------
    fc : ndarray of shape (n, R, R)
        FC of n subjects with R ROIs.
    shrink : float
        The share a of the identity.

    Returns
    -------
    ndarray of shape (n, R (R + 1) / 2), float64
    """
    rois = fc.shape[-1]
    fc = np.asarray(fc, dtype=np.float64)
    with one_blas_thread():
        value, vector = _eigen((1 - shrink) * fc + shrink * np.eye(rois))
        scaled = vector * np.log(np.maximum(value, SMALLEST))[..., None, :]
        log = scaled @ vector.mT / LOG_SCALE
    rows, columns = np.triu_indices(rois, 1)
    diagonal = np.diagonal(log, axis1=-2, axis2=-1) / 2**0.5
    return np.concatenate([log[..., rows, columns], diagonal], axis=-1)


def from_log_features(
    features: Array, shrink: float = SHRINK, unit: bool = True
) -> Array:
    """Return the FC matrices that have the given features: the inverse of `log_features`.

    Parameters
    ----------
    features : ndarray of shape (n, R (R + 1) / 2)
    shrink : float
        As in `log_features`.
    unit : bool
        Whether the result is made a correlation matrix: negative eigenvalues are raised to zero and
        the diagonal is scaled to one. Otherwise `log_features` returns the same features for it,
        and its diagonal is only near one.

    Returns
    -------
    ndarray of shape (n, R, R)
    """
    rois = int(((1 + 8 * features.shape[-1]) ** 0.5 - 1) / 2)
    n_edges = rois * (rois - 1) // 2
    rows, columns = np.triu_indices(rois, 1)
    diagonal = np.arange(rois)
    log = np.zeros((*features.shape[:-1], rois, rois))
    log[..., rows, columns] = features[..., :n_edges]
    log = log + log.mT
    log[..., diagonal, diagonal] = features[..., n_edges:] * 2**0.5
    log_value, vector = _eigen(log * LOG_SCALE)
    value = (np.exp(log_value) - shrink) / (1 - shrink)  # eigenvalues of FC
    if unit:
        value = np.maximum(value, 0.0)
    fc = (vector * value[..., None, :]) @ vector.mT
    fc = (fc + fc.mT) / 2
    if not unit:
        return fc
    variance = np.diagonal(fc, axis1=-2, axis2=-1)
    to_unit = np.maximum(variance, 1e-12) ** -0.5
    fc = to_unit[..., :, None] * fc * to_unit[..., None, :]
    fc = np.clip(fc, -1.0, 1.0)
    fc[..., diagonal, diagonal] = 1.0
    return fc


def _eigen(matrices: Array) -> tuple[Array, Array]:
    """Return eigenvalues (..., R) and eigenvectors (..., R, R) of symmetric matrices (..., R, R).

    A matrix that holds NaN or infinity has eigenvalues NaN instead of stopping all the others.
    """
    finite = np.isfinite(matrices).all(axis=(-2, -1), keepdims=True)
    usable = np.where(finite, matrices, np.eye(matrices.shape[-1]))
    value, vector = np.linalg.eigh(usable)
    return np.where(finite[..., 0], value, np.nan), vector

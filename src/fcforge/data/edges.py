"""Edges of FC matrices: the upper triangle without the diagonal, and back."""

import math

import numpy as np

from fcforge.core.errors import DataError


def rois_of(n_edges: int) -> int:
    """Return the number of ROIs that have `n_edges` pairs; raise `DataError` if no number has."""
    n_rois = (1 + math.isqrt(1 + 8 * n_edges)) // 2
    if n_edges < 1 or n_rois * (n_rois - 1) // 2 != n_edges:
        message = f"{n_edges} edges are not the triangle of a square matrix."
        raise DataError(message, do="Is a column missing, or one too many?")
    return n_rois


def fc_from_upper(
    upper: np.ndarray, diagonal: float = 1.0, dtype: type = np.float64
) -> np.ndarray:
    """Return symmetric matrices made from their upper triangles.

    Parameters
    ----------
    upper : ndarray of shape (n, R (R - 1) / 2)
        Edges of n matrices with R ROIs, in the order of ``np.triu_indices(R, 1)``.
    diagonal : float
        Value on the diagonal.
    dtype : type
        Number type of the result.

    Returns
    -------
    ndarray of shape (n, R, R)
    """
    n, n_edges = upper.shape
    n_rois = rois_of(n_edges)
    rows, columns = np.triu_indices(n_rois, 1)
    fc: np.ndarray = np.full((n, n_rois, n_rois), diagonal, dtype)
    fc[:, rows, columns] = upper
    fc[:, columns, rows] = upper
    return fc


def upper_from_fc(fc: np.ndarray) -> np.ndarray:
    """Return the upper triangles of FC (n, R, R) without diagonal, shape (n, R (R - 1) / 2)."""
    rows, cols = np.triu_indices(fc.shape[-1], 1)
    return fc[:, rows, cols]

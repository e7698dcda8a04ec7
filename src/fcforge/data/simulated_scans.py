"""Random matrices that every simulated world shares: noise, and the scan of a subject."""

import numpy as np


def symmetric_normal(rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw a symmetric (n, n) matrix with standard normal entries."""
    upper = np.triu(rng.standard_normal((n, n)))
    return upper + np.triu(upper, 1).T


def observe(matrix: np.ndarray, samples: int, rng: np.random.Generator) -> np.ndarray:
    """Return the correlation of `samples` normal draws from each near-correlation matrix.

    Eigenvalues are lifted to 1e-3; the symmetric root V sqrt(w) V^T times white noise has the
    wanted covariance. The symmetric root is unique; V sqrt(w) would depend on the signs of
    eigenvectors, which differ between machines. No rescaling to a unit diagonal is needed in
    between, as the correlation of the draws does not depend on their scale.

    Parameters
    ----------
    matrix : ndarray of shape (n, R, R), float32
        Nearly correlation matrices. Changed in place: the diagonal is set to 1.
    samples : int
        Draws per matrix.
    rng : numpy Generator

    Returns
    -------
    ndarray of shape (n, R, R), float32
        Correlation matrices.
    """
    n, n_rois, _ = matrix.shape
    matrix[:, np.arange(n_rois), np.arange(n_rois)] = 1.0
    values, vectors = np.linalg.eigh(matrix)
    deviations = np.sqrt(np.maximum(values, 1e-3))
    scaled = vectors * deviations[:, None, :]
    root = scaled @ vectors.transpose(0, 2, 1)
    noise = rng.standard_normal((n, n_rois, samples), dtype=np.float32)
    draws = root @ noise
    draws /= np.linalg.norm(draws, axis=2, keepdims=True)
    fc = draws @ draws.transpose(0, 2, 1)
    fc = (fc + fc.transpose(0, 2, 1)) / 2
    fc = np.clip(fc, -1.0, 1.0)
    fc[:, np.arange(n_rois), np.arange(n_rois)] = 1.0
    return fc

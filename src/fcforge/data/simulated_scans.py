"""Random matrices that every simulated world shares: noise, and the scan of a subject."""

import numpy as np


def symmetric_normal(rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw a symmetric (n, n) matrix with standard normal entries."""
    upper = np.triu(rng.standard_normal((n, n)))
    return upper + np.triu(upper, 1).T


def observe(matrix: np.ndarray, samples: int, rng: np.random.Generator) -> np.ndarray:
    """Return the FC that scans of finite length have: correlations of random draws.

    From each subject's true matrix `samples` normal vectors are drawn, and their correlation is
    returned. The draws are white noise times the symmetric root V sqrt(w) V^T of the matrix with
    eigenvectors V and eigenvalues w, which are raised to 1e-3 at least. The symmetric root is
    unique, whereas V sqrt(w) depends on the signs of eigenvectors, which differ between machines.
    The correlation does not depend on the scale of the draws, so the diagonal need not be exactly 1.

    Parameters
    ----------
    matrix : ndarray of shape (n, R, R), float32
        True matrices of n subjects with R ROIs, nearly correlation matrices. They are changed in
        place: the diagonal is set to 1.
    samples : int
        Draws per matrix, like independent volumes of a scan.
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

"""ROI time series -> FC: Pearson correlation, with ROIs without signal set aside by name."""

from __future__ import annotations

import numpy as np

from fcforge.errors import DataError


def empty_rois(series: np.ndarray) -> np.ndarray:
    """Boolean mask of columns that hold no signal: not finite everywhere, or constant.

    Parameters
    ----------
    series : ndarray of shape (n_volumes, n_rois)
    """
    finite = np.isfinite(series).all(axis=0)
    spread = np.ptp(np.where(finite, series, 0.0), axis=0)
    scale = np.abs(np.where(finite, series, 0.0)).max(axis=0)
    return ~finite | (spread <= 1e-10 * np.maximum(scale, 1e-300))


def pearson_fc(series: np.ndarray) -> np.ndarray:
    r"""FC of one subject.

    .. math:: r_{ij} = \frac{\sum_t (x_{ti}-\bar x_i)(x_{tj}-\bar x_j)}{(T-1) s_i s_j}

    Parameters
    ----------
    series : ndarray of shape (n_volumes, n_rois)

    Returns
    -------
    ndarray of shape (n_rois, n_rois), float64
        Symmetric, unit diagonal. An ROI without signal (see `empty_rois`) has FC 0 with all
        others, the convention of the shared ABIDE matrices; who calls must report it.
    """
    series = np.asarray(series, dtype=float)
    if series.ndim != 2 or series.shape[0] < 3:
        raise DataError(f"a time series of shape {series.shape} gives no FC.")
    good = np.flatnonzero(~empty_rois(series))
    fc = np.zeros((series.shape[1], series.shape[1]))
    if len(good):
        x = series[:, good] - series[:, good].mean(axis=0)
        x /= np.linalg.norm(x, axis=0)
        fc[np.ix_(good, good)] = np.clip(x.T @ x, -1.0, 1.0)
    np.fill_diagonal(fc, 1.0)
    return (fc + fc.T) / 2


def join_runs(runs: list[np.ndarray]) -> np.ndarray:
    """One series of several runs, each z-scored by itself first so that runs weigh alike.

    Parameters
    ----------
    runs : list of ndarray of shape (n_volumes, n_rois)
        An ROI without signal in any run is without signal (NaN) in the whole.
    """
    if len(runs) == 1:
        return runs[0]
    empty = np.any([empty_rois(run) for run in runs], axis=0)
    parts = []
    for run in runs:
        safe = np.where(empty, 0.0, run)
        spread = safe.std(axis=0)
        z = (safe - safe.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        parts.append(np.where(empty, np.nan, z))
    return np.concatenate(parts)

"""ROI time series -> FC: Pearson correlation, one convention for ROIs without signal.

An ROI without signal (flat, or missing in every volume) has FC 0 with all others: the convention
of the shared ABIDE matrices; `fcforge.sites.check` warns of it by subject and ROI. An ROI that is
missing in some volumes only is damage, and an error.
"""

from collections.abc import Sequence

import numpy as np

from fcforge.errors import DataError


def empty_rois(series: np.ndarray) -> np.ndarray:
    """Boolean mask of columns that hold no signal: not finite somewhere, or constant.

    Parameters
    ----------
    series : ndarray of shape (n_volumes, n_rois)
    """
    finite = np.isfinite(series).all(axis=0)
    spread = np.ptp(np.where(finite, series, 0.0), axis=0)
    scale = np.abs(np.where(finite, series, 0.0)).max(axis=0)
    return ~finite | (spread <= 1e-10 * np.maximum(scale, 1e-300))


def refuse_gaps(series: np.ndarray, names: Sequence[str] = (), where: str = "") -> None:
    """Raise `DataError` for ROIs that are NaN or infinite in some volumes but not in all.

    Parameters
    ----------
    series : ndarray of shape (n_volumes, n_rois)
    names : sequence of str, optional
        ROI names for the error; their numbers, counted from 1, without.
    where : str
        File or subject named in the error.
    """
    bad = ~np.isfinite(series)
    holes = np.flatnonzero(bad.any(axis=0) & ~bad.all(axis=0))
    if holes.size:
        known = len(names) == series.shape[1]
        shown = ", ".join(names[i] if known else f"ROI {i + 1}" for i in holes[:3].tolist())
        more = f" and {holes.size - 3} more" if holes.size > 3 else ""
        volumes = int(bad[:, holes].any(axis=1).sum())
        what = f"{shown}{more}: NaN or infinite in {volumes} of {len(series)} volumes."
        do = "Leave out censored volumes; an ROI without signal is missing in all of them."
        raise DataError(what, where=where, do=do)


def pearson_fc(series: np.ndarray, names: Sequence[str] = (), where: str = "") -> np.ndarray:
    r"""FC of one subject.

    .. math:: r_{ij} = \frac{\sum_t (x_{ti}-\bar x_i)(x_{tj}-\bar x_j)}{(T-1) s_i s_j}

    Parameters
    ----------
    series : ndarray of shape (n_volumes, n_rois)
    names : sequence of str, optional
        ROI names for errors.
    where : str
        File or subject named in errors.

    Returns
    -------
    ndarray of shape (n_rois, n_rois), float64
        Symmetric, unit diagonal. An ROI without signal (see `empty_rois`) has FC 0 with all
        others.

    Raises
    ------
    DataError
        No series, an ROI with gaps (`refuse_gaps`), or fewer than two ROIs with a signal.
    """
    series = np.asarray(series, dtype=float)
    if series.ndim != 2 or series.shape[0] < 3:
        raise DataError(f"a time series of shape {series.shape} gives no FC.", where=where)
    refuse_gaps(series, names, where)
    good = np.flatnonzero(~empty_rois(series))
    if len(good) < 2:
        raise DataError(f"{len(good)} of {series.shape[1]} ROIs have a signal.", where=where)
    # Scaling by powers of two keeps the squares of very large or small signals in range.
    x = series[:, good]
    x = np.ldexp(x, -np.frexp(np.abs(x).max(axis=0))[1])
    x -= x.mean(axis=0)
    x /= np.linalg.norm(x, axis=0)
    fc = np.zeros((series.shape[1], series.shape[1]))
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

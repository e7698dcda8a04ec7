"""Slice-timing correction: every slice's series moved to one moment by a cubic spline."""

from __future__ import annotations

import numpy as np

from fcforge.errors import DataError, unknown_name

ORDERS = ("ascending", "descending", "interleaved", "interleaved_even")


def slice_times(order: str, n_slices: int, tr: float) -> np.ndarray:
    """Acquisition time of each slice within a volume, seconds.

    Parameters
    ----------
    order : {"ascending", "descending", "interleaved", "interleaved_even"}
        ``interleaved`` takes slices 0, 2, 4, ... first (Siemens with an odd count, Philips);
        ``interleaved_even`` takes 1, 3, 5, ... first (Siemens with an even count).
    n_slices : int
    tr : float
        Seconds.

    Examples
    --------
    >>> slice_times("interleaved", 4, 2.0).tolist()
    [0.0, 1.0, 0.5, 1.5]
    """
    index = np.arange(n_slices)
    if order == "ascending":
        sequence = index
    elif order == "descending":
        sequence = index[::-1]
    elif order in ("interleaved", "interleaved_even"):
        first = int(order == "interleaved_even")
        sequence = np.concatenate([index[first::2], index[1 - first :: 2]])
    else:
        raise unknown_name("slice order", order, ORDERS)
    times = np.empty(n_slices)
    times[sequence] = np.arange(n_slices) * tr / n_slices
    return times


def correct_slice_timing(
    data: np.ndarray, times: np.ndarray, tr: float, reference: float | None = None
) -> np.ndarray:
    """Signal each slice would have had at the reference moment of every volume.

    Parameters
    ----------
    data : ndarray of shape (x, y, n_slices, n_volumes)
    times : ndarray of shape (n_slices,)
        Seconds after the start of a volume.
    tr : float
        Seconds.
    reference : float, optional
        Moment within a volume; the middle of the acquisition by default.

    Returns
    -------
    ndarray like `data`, float32
        At the two ends, where a spline would have to extrapolate, the nearest value is kept.

    Raises
    ------
    DataError
        Times that do not fit the scan.
    """
    times = np.asarray(times, dtype=float)
    if times.shape != (data.shape[2],) or times.min() < 0 or times.max() >= tr:
        raise DataError(
            f"{len(times)} slice times from {times.min():g} to {times.max():g} s do not fit "
            f"{data.shape[2]} slices and a TR of {tr:g} s.",
            do="Check SliceTiming in the sidecar (seconds, not milliseconds).",
        )
    from scipy.interpolate import CubicSpline

    reference = float(times.max() / 2) if reference is None else reference
    volume = np.arange(data.shape[3]) * tr
    out = np.empty(data.shape, dtype=np.float32)
    for k, offset in enumerate(times):  # one slice at a time keeps the spline small
        spline = CubicSpline(volume + offset, data[:, :, k].astype(np.float64), axis=-1)
        ask = np.clip(volume + reference, volume[0] + offset, volume[-1] + offset)
        out[:, :, k] = spline(ask)
    return out

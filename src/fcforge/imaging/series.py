"""ROI time series of other tools (.1D, .tsv, .csv, .txt, .mat, .npy, .npz, CIFTI), and their FC.

FC is Pearson's correlation. A ROI without signal, which is constant or missing in every volume, has FC 0 with
all others, as in the shared ABIDE matrices; `fcforge.data.datasets` warns of it by subject and ROI. A ROI that
is missing in some volumes only is an error. An empty ROI is one without signal.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fcforge.core.errors import DataError
from fcforge.core.formatting import abbreviated
from fcforge.imaging import cifti
from fcforge.imaging.atlas import AAL_VERSIONS, Atlas
from fcforge.imaging.matrix_files import read_matrix_file

Series = tuple[np.ndarray, tuple[str, ...]]  # (n_volumes, n_columns), names of columns


def read_series(path: Path, variable: str | None = None) -> Series:
    """Read time series from a file; volumes are rows, ROIs are columns.

    Parameters
    ----------
    path : Path
        Text may be separated by tab, comma or blanks, with or without one header line (names, or
        ``#2001<TAB>#2002`` as AFNI writes it). A .mat or .npz file needs one 2D array, or one named
        ``ROISignals``. A ``*.ptseries.nii`` has names of parcels.
    variable : str, optional
        Name of the array of a .mat or .npz file.

    Returns
    -------
    values : ndarray of shape (n_volumes, n_columns), float64
        NaN where the tool wrote none.
    names : tuple of str
        Column names in the file, empty when it has none.

    Raises
    ------
    DataError
        If the file is missing, empty or not numeric, or its rows differ in length.
    """
    if cifti.ending_of(path):
        return cifti.read_parcel_series(path)
    of_arrays = path.suffix.lower() in (".mat", ".npz")
    return read_matrix_file(path, variable if of_arrays else None, ("ROISignals",))


def match_atlas(series: Series, atlas: Atlas) -> np.ndarray:
    """Return time series with their columns in the order of an atlas.

    Columns are matched by the atlas' names, abbreviations or codes where the header has them. Columns without
    names, or with numbered ones (``ROI_1``), are matched by position, which needs exactly as many columns as
    the atlas has ROIs. Nothing is guessed and no column is dropped.

    Parameters
    ----------
    series : (ndarray of shape (n_volumes, n_columns), tuple of str)
        Values and names of columns, from `read_series`.
    atlas : Atlas

    Returns
    -------
    ndarray of shape (n_volumes, n_rois)
        NaN for a ROI that the file lacks.

    Raises
    ------
    DataError
        If the names are those of another atlas, or the number of columns is not that of the ROIs.
    """
    values, names = series
    places = roi_places(names, values.shape[1], atlas)
    out = np.full((len(values), atlas.n_rois), np.nan)
    out[:, places] = values
    return out


def match_matrix(series: Series, atlas: Atlas) -> np.ndarray:
    """Return a connectivity matrix with its rows and columns in the order of an atlas.

    Parameters
    ----------
    series : (ndarray of shape (n_columns, n_columns), tuple of str)
        The matrix and its names of columns.
    atlas : Atlas

    Returns
    -------
    ndarray of shape (n_rois, n_rois)
        NaN for a ROI that the file lacks.

    Raises
    ------
    DataError
        As for `match_atlas`.
    """
    values, names = series
    places = roi_places(names, values.shape[1], atlas)
    out = np.full((atlas.n_rois, atlas.n_rois), np.nan)
    out[np.ix_(places, places)] = values
    return out


def _plain(name: str) -> str:
    """Return the letters and digits of a name, in lower case."""
    return "".join(c for c in name.casefold() if c.isalnum())


def is_named(names: Sequence[str]) -> bool:
    """Return whether columns have names that tell ROIs apart by more than a number.

    Examples
    --------
    >>> is_named(["ROI_1", "ROI_2"]), is_named(["Hippocampus_L", "Amygdala_L"]), is_named([])
    (False, True, False)
    """
    stems = {re.sub(r"\d+$", "", name.strip()) for name in names}
    return len(names) > 0 and len(stems) > 1


def roi_places(names: Sequence[str], n: int, atlas: Atlas) -> np.ndarray:
    """Return the number of the ROI of each column, matched by name if possible, else by position.

    Parameters
    ----------
    names : sequence of str
        Names of the columns; empty if there are none.
    n : int
        Number of columns.
    atlas : Atlas

    Returns
    -------
    ndarray of shape (n,)
        Positions in the atlas, counted from 0.

    Raises
    ------
    DataError
        If the names are those of another atlas, or the number of columns is not that of the ROIs.
    """
    places = _named_places(names, atlas)
    if _are_all(places):
        return np.array(places)
    if n != atlas.n_rois:
        aal = atlas.name == "AAL116" and n in AAL_VERSIONS
        version = f" ({n} is {AAL_VERSIONS[n]})" if aal else ""
        raise DataError(
            f"{n} ROIs, but atlas {atlas.name} has {atlas.n_rois}{version}.",
            do="Name the right --atlas, or choose columns: --columns 1-116.",
        )
    # Position is taken for columns without names of their own, unless some of them do name ROIs.
    some_match = set(places) - {-1}
    if is_named(names) or (is_named(atlas.roi_names) and some_match):
        strange = abbreviated(
            [name for name, i in zip(names, places, strict=True) if i < 0], 3
        )
        problem = f"its ROIs {strange} are not in atlas {atlas.name}"
        if -1 not in places:
            problem = "its header names a ROI twice"
        raise DataError(
            f"{problem} ({abbreviated(atlas.roi_names, 3)}).",
            do="Name the atlas of this file: --atlas NAME, with --atlas-lut FILE for your own names.",
        )
    return np.arange(n)


def are_matched(names: Sequence[str], atlas: Atlas) -> bool:
    """Return whether columns of these names are ROIs of the atlas, each once."""
    return _are_all(_named_places(names, atlas))


def _are_all(places: Sequence[int]) -> bool:
    """Return whether every column has a ROI and no two have the same.

    A column outside the atlas means that the file is of another atlas, not that it has one column more.
    """
    return bool(places) and -1 not in places and len(set(places)) == len(places)


def _named_places(names: Sequence[str], atlas: Atlas) -> list[int]:
    """Return the number of the ROI that each name belongs to, counted from 0; -1 for none."""
    # Where spellings clash, full names count before abbreviations, and these before codes.
    place_of = {str(code): i for i, code in enumerate(atlas.codes)}
    for spelling in (atlas.abbreviations, atlas.roi_names):
        plain = list(map(_plain, spelling))
        if len(set(plain)) == len(plain):
            place_of |= {name: i for i, name in enumerate(plain)}
        else:  # names that differ in punctuation alone
            place_of |= {name: i for i, name in enumerate(spelling)}
    return [place_of.get(name, place_of.get(_plain(name), -1)) for name in names]


def parse_columns(text: str | None) -> slice:
    """Parse ``"1-116"`` (counted from 1, both ends included) to a slice; all columns for None."""
    if text is None:
        return slice(None)
    match = re.fullmatch(r"(\d+)-(\d+)", text.strip())
    if not match or not 1 <= int(match[1]) < int(match[2]):
        raise DataError(f"columns '{text}' is not FIRST-LAST, e.g. 1-116.")
    return slice(int(match[1]) - 1, int(match[2]))


def checked_matrix(
    fc: np.ndarray, names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Check a correlation matrix that another tool made and set the FC of empty ROIs to 0.

    Parameters
    ----------
    fc : ndarray of shape (n_rois, n_rois)
        NaN or 0 in the rows and columns of ROIs without signal.
    names : sequence of str
        ROI names for errors.

    Returns
    -------
    fc : ndarray of shape (n_rois, n_rois)
        Symmetric with unit diagonal.
    empty : ndarray of bool, shape (n_rois,)
        Whether each ROI is without signal.

    Raises
    ------
    DataError
        If the matrix is not symmetric, has values beyond 1 (Fisher z), or a ROI is NaN with some others only.
    """
    off_diagonal = ~np.eye(len(fc), dtype=bool)
    missing = ~np.isfinite(fc)
    empty = np.array(
        [
            missing[i][others].all() or not np.nan_to_num(fc[i][others]).any()
            for i, others in enumerate(off_diagonal)
        ]
    )
    kept = np.ix_(~empty, ~empty)
    inner = np.where(off_diagonal, fc, 1.0)[kept]
    if np.isnan(inner).any():
        rois = [names[i] for i in np.flatnonzero(~empty)[np.isnan(inner).any(axis=1)]]
        raise DataError(
            f"FC of ROI {abbreviated(rois, 3)} is missing with some ROIs only.",
            do="Make it again; a ROI without signal must be missing with all others.",
        )
    if np.abs(inner).max(initial=0) > 1 + 1e-3:
        raise DataError(
            f"the matrix holds {np.abs(inner).max():.3g}, which is no correlation; is it Fisher z?",
            do="Give correlations, or the time series.",
        )
    if np.abs(inner - inner.T).max(initial=0) > 1e-4:
        raise DataError(
            "the matrix is not symmetric.", do="Give a matrix of correlations."
        )
    out = np.eye(len(fc))
    out[kept] = np.clip((inner + inner.T) / 2, -1, 1)
    return out, empty


def empty_rois(series: np.ndarray) -> np.ndarray:
    """Return which ROIs have no signal: their column is constant, or not finite in some volume.

    Parameters
    ----------
    series : ndarray of shape (n_volumes, n_rois)

    Returns
    -------
    ndarray of bool, shape (n_rois,)
    """
    finite = np.isfinite(series).all(axis=0)
    safe = np.where(finite, series, 0.0)
    spread = np.ptp(safe, axis=0)
    scale = np.abs(safe).max(axis=0)
    return ~finite | (spread <= 1e-10 * np.maximum(scale, 1e-300))


def refuse_matrix(values: np.ndarray) -> None:
    """Raise `DataError` for a symmetric matrix: it holds FC, and FC of FC means nothing."""
    square = values.ndim == 2 and len(values) == values.shape[1] > 2
    if square and np.allclose(values, values.T, rtol=1e-6, equal_nan=True):
        raise DataError(
            f"is a symmetric matrix of {len(values)} rows, no time series.",
            do="FC that is made already is read by `fcforge check` and `fcforge run` as it is.",
        )


def refuse_gaps(series: np.ndarray, names: Sequence[str] = ()) -> None:
    """Raise `DataError` for ROIs that are NaN or infinite in some volumes but not in all.

    Parameters
    ----------
    series : ndarray of shape (n_volumes, n_rois)
    names : sequence of str, optional
        ROI names for the error; without them, ROIs are numbered from 1.
    """
    missing = ~np.isfinite(series)
    affected = np.flatnonzero(missing.any(axis=0) & ~missing.all(axis=0))
    if affected.size:
        n_rois = series.shape[1]
        labels = names if len(names) == n_rois else range(1, n_rois + 1)
        shown = abbreviated((labels[i] for i in affected), 3)
        volumes = int(missing[:, affected].any(axis=1).sum())
        raise DataError(
            f"ROI {shown}: NaN or infinite in {volumes} of {len(series)} volumes.",
            do="Leave out censored volumes; a ROI without signal must be missing in all of them.",
        )


def pearson_fc(series: np.ndarray, names: Sequence[str] = ()) -> np.ndarray:
    r"""Compute the FC of one subject, Pearson's correlation of the series of every two ROIs.

    .. math:: r_{ij} = \frac{\sum_t (x_{ti}-\bar x_i)(x_{tj}-\bar x_j)}{(T-1) s_i s_j}

    for ROIs i and j, with means and standard deviations s over T volumes t.

    Parameters
    ----------
    series : ndarray of shape (n_volumes, n_rois)
    names : sequence of str, optional
        ROI names for errors.

    Returns
    -------
    ndarray of shape (n_rois, n_rois), float64
        Symmetric with unit diagonal. A ROI without signal (`empty_rois`) has FC 0 with all others.

    Raises
    ------
    DataError
        If there are fewer than three volumes, a ROI has gaps (`refuse_gaps`), or fewer than two ROIs have a
        signal.
    """
    series = np.asarray(series, dtype=float)
    if series.ndim != 2 or series.shape[0] < 3:
        raise DataError(f"a time series of shape {series.shape} gives no FC.")
    refuse_gaps(series, names)
    good = np.flatnonzero(~empty_rois(series))
    if len(good) < 2:
        raise DataError(
            f"only {len(good)} of {series.shape[1]} ROIs have a signal; FC needs at least two."
        )
    # Scaling by powers of two keeps the squares of very large or small signals in range.
    x = series[:, good]
    _, exponent = np.frexp(np.abs(x).max(axis=0))
    x = np.ldexp(x, -exponent)
    x -= x.mean(axis=0)
    x /= np.linalg.norm(x, axis=0)
    fc = np.zeros((series.shape[1], series.shape[1]))
    fc[np.ix_(good, good)] = np.clip(x.T @ x, -1.0, 1.0)
    np.fill_diagonal(fc, 1.0)
    return (fc + fc.T) / 2


def join_runs(runs: list[np.ndarray]) -> np.ndarray:
    """Join several runs to one series.

    Each run is z-scored by itself first, so that all volumes have the same weight. A ROI without signal in any
    run is NaN in all.

    Parameters
    ----------
    runs : list of ndarray of shape (n_volumes, n_rois)

    Returns
    -------
    ndarray of shape (sum of n_volumes, n_rois)
        A single run is returned as it is.
    """
    if len(runs) == 1:
        return runs[0]
    empty = np.any([empty_rois(run) for run in runs], axis=0)
    parts = []
    for run in runs:
        signal = np.where(empty, np.nan, run)
        parts.append((signal - signal.mean(axis=0)) / signal.std(axis=0))
    return np.concatenate(parts)

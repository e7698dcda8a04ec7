"""ROI time series of other tools (.1D, .tsv, .csv, .txt, .mat, .npy, .npz, CIFTI), and their FC.

FC is Pearson's correlation, with one convention for ROIs without signal: an ROI that is flat, or
missing in every volume, has FC 0 with all others, as in the shared ABIDE matrices;
`fcforge.data.datasets` warns of it by subject and ROI. An ROI that is missing in some volumes only
is damage, and an error.
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
        Text may be separated by tab, comma or blanks, with or without one header line
        (``#2001<TAB>#2002`` of AFNI and the PCP, or names); of a .mat or .npz file the only 2D
        array is taken, or ``ROISignals``; a ``*.ptseries.nii`` names its parcels.
    variable : str, optional
        Array of a .mat or .npz file.

    Returns
    -------
    values : ndarray of shape (n_volumes, n_columns), float64
        NaN where the tool wrote none.
    names : tuple of str
        Column names in the file, empty when it has none.

    Raises
    ------
    DataError
        Missing, empty, ragged, or not numbers.
    """
    if cifti.ending_of(path):
        return cifti.read_parcel_series(path)
    of_arrays = path.suffix.lower() in (".mat", ".npz")
    return read_matrix_file(path, variable if of_arrays else None, ("ROISignals",))


def match_atlas(series: Series, atlas: Atlas) -> np.ndarray:
    """Return the columns in the atlas' order, (n_volumes, n_rois); NaN for a ROI that the file lacks.

    Columns are matched by the atlas' names, abbreviations or codes where the header has them.
    Columns without names, or with numbered ones (``ROI_1``), are matched by position, which needs
    exactly the atlas' number of columns.

    Raises
    ------
    DataError
        Names of another atlas, or a column count that is not the atlas'. Never a guess, never a
        dropped column.
    """
    values, names = series
    places = roi_places(names, values.shape[1], atlas)
    out = np.full((len(values), atlas.n_rois), np.nan)
    out[:, places] = values
    return out


def match_matrix(series: Series, atlas: Atlas) -> np.ndarray:
    """Return a connectivity matrix in the atlas' order; NaN for a ROI that the file lacks.

    Raises
    ------
    DataError
        See `match_atlas`.
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
    """Return the ROI of each of `n` columns, by name where `names` tell, else by position.

    Raises
    ------
    DataError
        Names of another atlas, or a column count that is not the atlas'.
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
    if is_named(names) or (is_named(atlas.roi_names) and set(places) - {-1}):
        strange = abbreviated(
            [name for name, i in zip(names, places, strict=True) if i < 0], 3
        )
        problem = f"its ROIs {strange} are not in atlas {atlas.name}"
        if -1 not in places:
            problem = "its header names a ROI twice"
        raise DataError(
            f"{problem} ({abbreviated(atlas.roi_names, 3)}).",
            do="Name the atlas that the file is of: --atlas NAME, with --atlas-lut FILE for own names.",
        )
    return np.arange(n)


def are_matched(names: Sequence[str], atlas: Atlas) -> bool:
    """Return whether columns of these names are ROIs of the atlas, each once."""
    return _are_all(_named_places(names, atlas))


def _are_all(places: Sequence[int]) -> bool:
    # A file with a column outside the atlas is another atlas, not ours with extras.
    return bool(places) and -1 not in places and len(set(places)) == len(places)


def _named_places(names: Sequence[str], atlas: Atlas) -> list[int]:
    """Return the ROI that each name means, -1 for none."""
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
    """Return a correlation matrix that another tool made with FC 0 of empty ROIs, and their mask.

    Parameters
    ----------
    fc : ndarray of shape (n_rois, n_rois)
        NaN in the rows and columns of ROIs without signal.
    names : sequence of str
        ROI names for errors.

    Raises
    ------
    DataError
        Not symmetric, values beyond 1 (Fisher z), or an ROI that is NaN with some others only.
    """
    off = ~np.eye(len(fc), dtype=bool)
    missing = ~np.isfinite(fc)
    empty = np.array(
        [
            missing[i][off[i]].all() or not np.nan_to_num(fc[i][off[i]]).any()
            for i in range(len(fc))
        ]
    )
    kept = np.ix_(~empty, ~empty)
    inner = np.where(off, fc, 1.0)[kept]
    if np.isnan(inner).any():
        rois = [names[i] for i in np.flatnonzero(~empty)[np.isnan(inner).any(axis=1)]]
        raise DataError(
            f"FC of ROI {abbreviated(rois, 3)} is missing with some ROIs only.",
            do="Make it again; an ROI without signal has no FC with any.",
        )
    if np.abs(inner).max(initial=0) > 1 + 1e-3:
        raise DataError(
            f"holds {np.abs(inner).max():.3g}, which is no correlation; is it Fisher z?",
            do="Give correlations, or the time series.",
        )
    if np.abs(inner - inner.T).max(initial=0) > 1e-4:
        raise DataError("is not symmetric.", do="Give a matrix of correlations.")
    out = np.eye(len(fc))
    out[kept] = np.clip((inner + inner.T) / 2, -1, 1)
    return out, empty


def empty_rois(series: np.ndarray) -> np.ndarray:
    """Return the boolean mask of columns that hold no signal: not finite somewhere, or constant.

    Parameters
    ----------
    series : ndarray of shape (n_volumes, n_rois)
    """
    finite = np.isfinite(series).all(axis=0)
    safe = np.where(finite, series, 0.0)
    spread = np.ptp(safe, axis=0)
    scale = np.abs(safe).max(axis=0)
    return ~finite | (spread <= 1e-10 * np.maximum(scale, 1e-300))


def refuse_gaps(series: np.ndarray, names: Sequence[str] = ()) -> None:
    """Raise `DataError` for ROIs that are NaN or infinite in some volumes but not in all.

    Parameters
    ----------
    series : ndarray of shape (n_volumes, n_rois)
    names : sequence of str, optional
        ROI names for the error; their numbers, counted from 1, without.
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
            do="Leave out censored volumes; an ROI without signal is missing in all of them.",
        )


def pearson_fc(series: np.ndarray, names: Sequence[str] = ()) -> np.ndarray:
    r"""Compute the FC of one subject.

    .. math:: r_{ij} = \frac{\sum_t (x_{ti}-\bar x_i)(x_{tj}-\bar x_j)}{(T-1) s_i s_j}

    Parameters
    ----------
    series : ndarray of shape (n_volumes, n_rois)
    names : sequence of str, optional
        ROI names for errors.

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
        raise DataError(f"a time series of shape {series.shape} gives no FC.")
    refuse_gaps(series, names)
    good = np.flatnonzero(~empty_rois(series))
    if len(good) < 2:
        raise DataError(f"{len(good)} of {series.shape[1]} ROIs have a signal.")
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
    """Join several runs to one series, each z-scored by itself first so that runs weigh alike.

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
        signal = np.where(empty, np.nan, run)
        parts.append((signal - signal.mean(axis=0)) / signal.std(axis=0))
    return np.concatenate(parts)

"""ROI time series made by other tools: .1D, .tsv, .csv, .txt, .mat, .npy, .npz."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fcforge.errors import DataError
from fcforge.imaging.atlas import AAL_VERSIONS, Atlas
from fcforge.imaging.matrix_files import read_matrix_file


@dataclass(frozen=True)
class Series:
    """ROI time series of one run.

    Attributes
    ----------
    values : ndarray of shape (n_volumes, n_columns), float64
        NaN where the tool wrote none.
    names : tuple of str
        Column names in the file, empty when it has none.
    """

    values: np.ndarray
    names: tuple[str, ...] = ()


def read_series(path: Path, *, variable: str | None = None) -> Series:
    """Time series from a file; volumes are rows, ROIs are columns.

    Parameters
    ----------
    path : Path
        Text may be separated by tab, comma or blanks, with or without one header line
        (``#2001<TAB>#2002`` of AFNI and the PCP, or names).
    variable : str, optional
        Name inside a .mat or .npz file; without it the only 2D array, or ``ROISignals``.

    Raises
    ------
    DataError
        Missing, empty, ragged, or not numbers.
    """
    series = Series(*read_matrix_file(path, variable, customary=("ROISignals",)))
    n_volumes, n_columns = series.values.shape
    if n_volumes < 3 or n_columns < 2:
        raise DataError(
            f"{n_volumes} volumes x {n_columns} columns is too little for FC.", where=str(path)
        )
    return series


def match_atlas(series: Series, atlas: Atlas, path: Path, columns: slice | None = None) -> Series:
    """Bring columns into the atlas' order; a ROI the file lacks becomes a NaN column.

    Columns are matched by the atlas' names or codes where the header has them, else by position,
    which needs exactly the atlas' number of columns.

    Raises
    ------
    DataError
        A column count that is not the atlas'. Never a guess, never a dropped column.
    """
    values, names = series.values, series.names
    if columns is not None:
        values, names = values[:, columns], names[columns] if names else ()
    place = _places(names, atlas)
    if place:
        out = np.full((len(values), atlas.n_rois), np.nan)
        for column, roi in place.items():
            out[:, roi] = values[:, column]
        return Series(out, atlas.roi_names)
    if values.shape[1] != atlas.n_rois:
        raise DataError(_wrong_count(values.shape[1], atlas), where=str(path), do=_HOW_TO_CHOOSE)
    return Series(values, atlas.roi_names)


_HOW_TO_CHOOSE = "Name the right --atlas, or choose columns: --columns 1-116."


def parse_columns(text: str | None) -> slice | None:
    """``"1-116"`` (counted from 1, both ends included) to a slice."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)-(\d+)", text.strip())
    if not match or not 1 <= int(match[1]) < int(match[2]):
        raise DataError(f"columns '{text}' is not FIRST-LAST, e.g. 1-116.")
    return slice(int(match[1]) - 1, int(match[2]))


def _places(names: tuple[str, ...], atlas: Atlas) -> dict[int, int]:
    """Column in the file to ROI in the atlas, where every column is a known ROI."""
    if not names:
        return {}
    roi = {name.lower(): i for i, name in enumerate(atlas.roi_names)}
    roi |= {str(code): i for i, code in enumerate(atlas.codes)}
    # A file with a column outside the atlas is another atlas, not ours with extras.
    found = [roi.get(name.strip().lower().lstrip("#").strip()) for name in names]
    if any(i is None for i in found) or len(set(found)) < len(found):
        return {}
    return {column: i for column, i in enumerate(found) if i is not None}


def _wrong_count(n: int, atlas: Atlas) -> str:
    text = f"{n} ROIs, but atlas {atlas.name} has {atlas.n_rois}"
    if atlas.name == "AAL116" and AAL_VERSIONS.get(n, "AAL") != "AAL":
        text += f" ({n} is {AAL_VERSIONS[n]})"
    return text + "."

"""ROI time series made by other tools: .1D, .tsv, .csv, .txt, .mat, .npy, .npz."""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fcforge.errors import DataError
from fcforge.imaging.atlas import AAL_VERSIONS, Atlas
from fcforge.imaging.matlab import OtherMatVersion, parse_mat

SUFFIXES = (".1D", ".tsv", ".csv", ".txt", ".mat", ".npy", ".npz")
_TEXT = (".1d", ".tsv", ".csv", ".txt")
_MISSING = {"n/a", "nan", "na", ""}


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
    if not path.exists():
        raise DataError("no such file.", where=str(path))
    suffix = path.suffix.lower()
    if suffix in _TEXT:
        series = _read_text(path)
    elif suffix == ".mat":
        series = Series(_only_matrix(_read_mat(path), variable, path))
    elif suffix in (".npy", ".npz"):
        series = Series(_only_matrix(_read_numpy(path), variable, path))
    else:
        raise DataError(
            f"'{path.suffix}' is not a time series file.",
            where=str(path),
            do=f"Known: {', '.join(SUFFIXES)}.",
        )
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


def _read_text(path: Path) -> Series:
    try:
        lines = [line for line in path.read_text().splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise DataError("is not text.", where=str(path)) from None
    if not lines:
        raise DataError("is empty.", where=str(path))
    split = _splitter(next((line for line in lines if not line.startswith("#")), lines[0]))
    names: tuple[str, ...] = ()
    comments = [line for line in lines if line.startswith("#")]
    body = [line for line in lines if not line.startswith("#")]
    if comments:  # the last comment before the numbers is the header (AFNI, C-PAC)
        cells = split(comments[-1].lstrip("# ")) if body else []
        names = tuple(cell.strip().lstrip("#").strip() for cell in cells)
    if body and not _is_numbers(split(body[0])):
        names, body = tuple(cell.strip().strip('"') for cell in split(body[0])), body[1:]
    rows = [[_number(cell, path) for cell in split(line)] for line in body]
    if not rows or len({len(row) for row in rows}) > 1:
        widths = sorted({len(row) for row in rows})
        raise DataError(f"rows of different length {widths[:4]}: truncated?", where=str(path))
    values = np.array(rows, dtype=float)
    return Series(values, names if len(names) == values.shape[1] else ())


def _splitter(line: str) -> Callable[[str], list[str]]:
    mark = "\t" if "\t" in line else "," if "," in line else None
    return lambda text: text.strip("\n\r").split(mark)


def _is_numbers(cells: list[str]) -> bool:
    return all(_parse(cell) is not None for cell in cells)


def _parse(cell: str) -> float | None:
    text = cell.strip().lower()
    if text in _MISSING:
        return float("nan")
    try:
        return float(text)
    except ValueError:
        return None


def _number(cell: str, path: Path) -> float:
    value = _parse(cell)
    if value is None:
        raise DataError(f"'{cell.strip()[:30]}' is not a number.", where=str(path))
    return value


def _read_mat(path: Path) -> dict[str, np.ndarray]:
    try:
        return parse_mat(path.read_bytes())
    except OtherMatVersion as error:
        raise DataError(
            f"is a {error} file.", where=str(path), do="Save it again with save(..., '-v7')."
        ) from None
    except (ValueError, OSError, TypeError, KeyError, struct.error, zlib.error) as error:
        raise DataError(f"not a readable .mat file ({error}).", where=str(path)) from None


def _read_numpy(path: Path) -> dict[str, np.ndarray]:
    try:
        data = np.load(path, allow_pickle=False)
        return dict(data) if isinstance(data, np.lib.npyio.NpzFile) else {"array": data}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"not a readable numpy file ({error}).", where=str(path)) from None


def _only_matrix(arrays: dict[str, np.ndarray], variable: str | None, path: Path) -> np.ndarray:
    if variable is not None and variable not in arrays:
        raise DataError(
            f"no variable '{variable}'.", where=str(path), do=f"It has: {', '.join(arrays)}."
        )
    matrices = {
        k: v for k, v in arrays.items() if v.ndim == 2 and v.dtype.kind in "fiu" and min(v.shape)
    }
    name = variable or ("ROISignals" if "ROISignals" in matrices else None)
    if name is None and len(matrices) == 1:
        name = next(iter(matrices))
    if name is None or name not in matrices:
        raise DataError(
            f"{len(matrices)} numeric matrices ({', '.join(matrices) or 'none'}); one is needed.",
            where=str(path),
            do="Name it: --variable NAME.",
        )
    return matrices[name].astype(float)

"""One subject's matrix from a file: .npy, .npz, .csv, .tsv, .txt, .1D or .mat.

A damaged file gives one `DataError` that names it, whatever the reading library raises.
"""

from __future__ import annotations

import io
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fcforge.errors import DataError
from fcforge.imaging.matlab import OtherMatVersion, parse_mat
from fcforge.sites.text_matrix import parse_text

TEXT = {".csv": ",", ".tsv": "\t", ".txt": None, ".1d": None}
SUFFIXES = (*TEXT, ".npy", ".npz", ".mat")
# Names under which toolboxes store one subject's matrix, tried in this order.
VARIABLES = ("fc", "FC", "ROISignals", "ROICorrelation", "connectivity", "timeseries", "data")

# All that numpy, zipfile and zlib were seen to raise on damaged bytes.
DAMAGED = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    IndexError,
    TypeError,
    OverflowError,
    MemoryError,
    RuntimeError,
    AttributeError,
    SyntaxError,
    UserWarning,
    struct.error,
    tokenize.TokenError,
    zlib.error,
    zipfile.BadZipFile,
)

Kind = Literal["auto", "fc", "timeseries"]


def read_matrix(path: str | Path, variable: str | None = None) -> np.ndarray:
    """Read a numeric matrix from a file.

    Text files may have comment lines (``#`` or ``%``), a header row, row names and missing
    values (``nan``, ``n/a``, empty: they become NaN). Of an .npz or .mat with several arrays
    the one named `variable` is taken, else one with a customary name (`VARIABLES`).

    Parameters
    ----------
    path : str or Path
    variable : str, optional
        Array inside an .npz or .mat file.

    Returns
    -------
    ndarray of shape (rows, columns), float64

    Raises
    ------
    DataError
        When the file is missing, truncated, not numeric or holds no matrix.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError("no such file.", where=str(path), do="Check the name and the folder.")
    suffix = path.suffix.lower()
    if suffix in TEXT:
        matrix = parse_text(_decoded(path), TEXT[suffix], str(path))
    elif suffix == ".npy":
        matrix = _read_npy(path)
    elif suffix == ".npz":
        matrix = _pick(read_npz(path), path, variable)
    elif suffix == ".mat":
        matrix = _pick(_read_mat(path), path, variable)
    else:
        raise DataError(
            f"unknown file type '{path.suffix}'.", where=str(path), do=f"Known: {_list(SUFFIXES)}."
        )
    return _as_matrix(matrix, path)


def read_npz(path: str | Path) -> dict[str, np.ndarray]:
    """All arrays of an .npz file; pickled objects are refused."""
    path = Path(path)
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except DAMAGED as error:
        raise _damaged(path, error) from error


def pearson_fc(series: np.ndarray) -> np.ndarray:
    """Pearson correlation of ROI time series.

    ``r_ij = cov(x_i, x_j) / (sd(x_i) sd(x_j))``; an ROI without variance has r = 0 with every
    other ROI and 1 with itself; NaN in a series makes its row and column NaN.

    Parameters
    ----------
    series : ndarray of shape (T, R)

    Returns
    -------
    ndarray of shape (R, R), float32
    """
    x = np.where(np.isfinite(series), np.asarray(series, dtype=np.float64), np.nan)
    scale = np.abs(x).max(axis=0, initial=0.0)
    # Scaling first keeps the squares of very large or small signals in range.
    x = x / np.where(scale > 0, scale, 1.0)
    x = x - x.mean(axis=0)
    norm = np.linalg.norm(x, axis=0)
    flat = norm <= 1e-10 * np.sqrt(len(x))
    x = np.where(flat, 0.0, x / np.where(flat, 1.0, norm))
    fc = np.clip(x.T @ x, -1.0, 1.0)
    finite = np.isfinite(norm)
    fc[np.diag_indices_from(fc)] = np.where(finite, 1.0, np.nan)
    return fc.astype(np.float32)


def to_fc(matrix: np.ndarray, kind: Kind = "auto", where: str = "") -> np.ndarray:
    """FC (R, R) of a matrix that is FC already or a time series (T, R).

    With ``kind="auto"`` a square matrix that is symmetric or has a unit diagonal is FC (with
    an error in `check_cohort` when it is not both), anything else a time series.
    """
    if kind == "auto":
        kind = "fc" if looks_like_fc(matrix) else "timeseries"
    rows, columns = matrix.shape
    if kind == "fc":
        if rows != columns or rows < 2:
            raise DataError(
                f"FC is {rows} x {columns}, not square with two ROIs or more.",
                where=where,
                do="Is the file cut off, or a time series (kind='timeseries')?",
            )
        return matrix.astype(np.float32)
    if _cut_off_fc(matrix):
        raise DataError(
            f"looks like the first {rows} rows of an FC matrix of {columns} ROIs.",
            where=where,
            do="The file is cut off; make it again.",
        )
    if rows < 5 or columns < 2:
        raise DataError(
            f"a time series of {rows} volumes x {columns} ROIs is too short.",
            where=where,
            do="Rows are volumes, columns are ROIs.",
        )
    return pearson_fc(matrix)


def looks_like_fc(matrix: np.ndarray) -> bool:
    """Whether a matrix is meant as FC: square, and symmetric or with a unit diagonal."""
    if matrix.shape[0] != matrix.shape[1]:
        return False
    unit = np.allclose(np.diagonal(matrix), 1.0, atol=1e-3)
    return bool(unit or np.allclose(matrix, matrix.T, atol=1e-3, equal_nan=True))


def _cut_off_fc(matrix: np.ndarray) -> bool:
    rows, columns = matrix.shape
    if not 1 < rows < columns:
        return False
    head = matrix[:, :rows]
    unit = np.allclose(np.diagonal(head), 1.0, atol=1e-3)
    return bool(unit and np.allclose(head, head.T, atol=1e-3, equal_nan=True))


def _decoded(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise _damaged(path, error) from error


def _read_npy(path: Path) -> np.ndarray:
    try:
        return np.lib.format.read_array(io.BytesIO(path.read_bytes()), allow_pickle=False)
    except DAMAGED as error:
        raise _damaged(path, error) from error


def _read_mat(path: Path) -> dict[str, np.ndarray]:
    try:
        return parse_mat(path.read_bytes())
    except OtherMatVersion as error:
        raise DataError(
            f"is a {error} file, which is not read.",
            where=str(path),
            do="Save it again with `save(..., '-v7')`.",
        ) from error
    except DAMAGED as error:
        raise _damaged(path, error) from error


def _pick(arrays: dict[str, np.ndarray], path: Path, variable: str | None) -> np.ndarray:
    """The array named `variable`, or the only matrix, or the one with a customary name."""
    if variable is not None and variable in arrays:
        return arrays[variable]
    matrices = {k: v for k, v in arrays.items() if v.ndim == 2 and v.dtype.kind in "fiu"}
    if variable is None and len(matrices) == 1:
        return next(iter(matrices.values()))
    named = [k for k in VARIABLES if k in matrices]
    if variable is None and named:
        return matrices[named[0]]
    if not arrays:
        raise DataError("holds nothing.", where=str(path), do="The file is cut off; make it again.")
    wanted = f"no array '{variable}'" if variable else "no single matrix"
    raise DataError(
        f"holds {wanted}.",
        where=str(path),
        do=f"It has: {_list(arrays)}; name one with variable='...'.",
    )


def _as_matrix(values: np.ndarray, path: Path) -> np.ndarray:
    if values.ndim != 2 or values.dtype.kind not in "fiub" or values.size == 0:
        raise DataError(
            f"holds an array of shape {values.shape} and type {values.dtype}, not a matrix.",
            where=str(path),
            do="Give ROIs x ROIs (FC) or volumes x ROIs (time series).",
        )
    return values.astype(np.float64)


def _list(names: Any) -> str:
    return ", ".join(sorted(map(str, names)))


def _damaged(path: Path, error: BaseException) -> DataError:
    reason = str(error).strip().splitlines()
    pickled = any("allow_pickle" in line for line in reason)
    return DataError(
        "holds pickled objects, which are not read (they can run code)."
        if pickled
        else f"cannot be read ({reason[0] if reason else type(error).__name__}).",
        where=str(path),
        do="Save plain arrays." if pickled else "The file is damaged or cut off; make it again.",
    )

"""Numbers out of files: .npy, .npz, .csv, .tsv, .txt, .1D or .mat.

A damaged file gives one `DataError` that names it, whatever the reading library raises.
"""

from __future__ import annotations

import io
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from fcforge.errors import DataError
from fcforge.imaging.matlab import OtherMatVersion, parse_mat
from fcforge.imaging.text_matrix import parse_text

TEXT = {".csv": ",", ".tsv": "\t", ".txt": None, ".1d": None}
SUFFIXES = (*TEXT, ".npy", ".npz", ".mat")

# All that numpy, torch, zipfile and zlib were seen to raise on damaged bytes.
DAMAGED = (
    OSError,
    ValueError,
    EOFError,
    LookupError,
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


def read_matrix_file(
    path: str | Path, variable: str | None = None, customary: Sequence[str] = ()
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Read a numeric matrix from a file.

    Text files may have comment lines (``#`` or ``%``), a header row, row names and missing
    values (``nan``, ``n/a``, empty: they become NaN).

    Parameters
    ----------
    path : str or Path
    variable : str, optional
        Array inside an .npz or .mat file; without it the only matrix is taken.
    customary : sequence of str
        Names that are taken, in this order, where a file has several matrices.

    Returns
    -------
    values : ndarray of shape (rows, columns), float64
        NaN where a value is missing.
    names : tuple of str
        Column names in the file, empty when it has none.

    Raises
    ------
    DataError
        When the file is missing, truncated, not numeric or holds no matrix.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError("no such file.", where=str(path), do="Check the name and the folder.")
    suffix = path.suffix.lower()
    names: tuple[str, ...] = ()
    if suffix in TEXT:
        values, names = parse_text(_decoded(path), TEXT[suffix], str(path))
    elif suffix == ".npy":
        values = _read_npy(path)
    elif suffix in (".npz", ".mat"):
        arrays = read_npz(path) if suffix == ".npz" else _read_mat(path)
        values = _pick(arrays, path, variable, customary)
        names = _names(arrays, values)
    else:
        raise DataError(
            f"unknown file type '{path.suffix}'.", where=str(path), do=f"Known: {_list(SUFFIXES)}."
        )
    return _as_matrix(values, path), names


def read_npz(path: str | Path) -> dict[str, np.ndarray]:
    """All arrays of an .npz file; pickled objects are refused."""
    path = Path(path)
    try:
        with path.open("rb") as stream:
            if stream.read(2) != b"PK":  # numpy would call anything unknown a pickle
                raise ValueError("it is no .npz archive")
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
    except DAMAGED as error:
        raise _damaged(path, error) from error


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


def _pick(
    arrays: Mapping[str, np.ndarray], path: Path, variable: str | None, customary: Sequence[str]
) -> np.ndarray:
    """The array named `variable`, or the only matrix, or the first with a customary name."""
    if variable is not None and variable in arrays:
        return arrays[variable]
    matrices = {k: v for k, v in arrays.items() if v.ndim == 2 and v.dtype.kind in "fiu"}
    if variable is None and len(matrices) == 1:
        return next(iter(matrices.values()))
    named = [k for k in customary if k in matrices]
    if variable is None and named:
        return matrices[named[0]]
    if not arrays:
        raise DataError("holds nothing.", where=str(path), do="The file is cut off; make it again.")
    wanted = f"no array '{variable}'" if variable else f"{len(matrices) or 'no'} matrices, not one"
    raise DataError(
        f"holds {wanted}.", where=str(path), do=f"It has: {_list(arrays)}; name one as variable."
    )


def _names(arrays: Mapping[str, np.ndarray], values: np.ndarray) -> tuple[str, ...]:
    """Column names beside a matrix: ``roi_names``, or CONN's ``names`` (and ``names2``)."""
    for key in ("roi_names", "names2", "names"):
        found = arrays.get(key, np.empty(0))
        if found.dtype.kind == "U" and values.ndim == 2 and found.size == values.shape[1]:
            return tuple(found.ravel().tolist())
    return ()


def _as_matrix(values: np.ndarray, path: Path) -> np.ndarray:
    if values.ndim != 2 or values.dtype.kind not in "fiub" or values.size == 0:
        raise DataError(
            f"holds an array of shape {values.shape} and type {values.dtype}, not a matrix.",
            where=str(path),
            do="Give ROIs x ROIs (FC) or volumes x ROIs (time series).",
        )
    return values.astype(np.float64)


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


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

"""Reading of matrices from files: .npy, .npz, .csv, .tsv, .txt, .1D or .mat.

A damaged file gives one `DataError` that names it, whatever the reading library raises. A file that would
take too much memory is refused by the sizes in its headers, before anything is unpacked (`MemoryBudget`).
"""

import math
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from fcforge.core.errors import ConfigError, DataError, FCForgeError, at
from fcforge.core.formatting import memory
from fcforge.imaging.parsers import decoded, parse_mat, parse_table, parse_text

TEXT = (".csv", ".tsv", ".txt", ".1d")
SUFFIXES = (*TEXT, ".npy", ".npz", ".mat")
# Names under which toolboxes store one subject's matrix, tried in this order.
VARIABLES = (
    "fc",
    "FC",
    "ROISignals",
    "ROICorrelation",
    "connectivity",
    "timeseries",
    "Z",
    "data",
)
T = TypeVar("T")
MOST_GB = 4.0
MOST_GB_SETTING = "FCFORGE_MAX_GB"
CELL_BYTES = 110  # memory of a cell and of a line of parsed text, measured
LINE_BYTES = 250
SEPARATORS = [c for c in map(chr, range(0x3001)) if c.isspace() or c in ",;"]


class MemoryBudget:
    """Memory that one file may take: `MOST_GB`, or the value of FCFORGE_MAX_GB in the environment.

    A few megabytes of zeros can unpack to many gigabytes. So readers call `take` with the size that a header
    states, before they allocate it.

    Parameters
    ----------
    path : path
        The file, for error messages.
    """

    def __init__(self, path: str | Path) -> None:
        setting = os.environ.get(MOST_GB_SETTING, str(MOST_GB))
        try:
            self.path = path
            self.taken = 0
            self.most = float(setting) * 1e9
        except ValueError:
            raise ConfigError(
                f"{MOST_GB_SETTING} = '{setting}' is not a number."
            ) from None

    def take(self, n_bytes: int) -> None:
        """Charge `n_bytes`; raise `DataError` if the file then takes more than the limit."""
        self.taken += abs(n_bytes)
        if not self.taken <= self.most:
            most = memory(self.most)
            setting = f"{MOST_GB_SETTING}={math.ceil(self.taken / 1e9)}"
            problem = f"would take {memory(self.taken)} of memory or more; the limit is {most} for one"
            hint = f"Is it the right file? If it is, raise the limit: {setting} in the environment."
            raise DataError(f"{problem} file.", where=self.path, do=hint)

    def take_npy(self, stream: IO[bytes]) -> None:
        """Charge the array size that the header of an .npy file states.

        numpy would allocate it before it reads the values.
        """
        npy = np.lib.format
        # version 3.0 differs from 2.0 only in the encoding of names
        old = npy.read_magic(stream) == (1, 0)
        read = npy.read_array_header_1_0 if old else npy.read_array_header_2_0
        shape, _, dtype = read(stream)
        self.take(math.prod(shape) * dtype.itemsize)


def read_matrix_file(
    path: str | Path, variable: str | None = None, customary: Sequence[str] = VARIABLES
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Read a numeric matrix from a file.

    Text files may have comment lines (``#`` or ``%``), a header row, row names and missing
    values (``nan``, ``n/a``, empty: they become NaN).

    Parameters
    ----------
    path : str or Path
    variable : str, optional
        Array inside an .npz or .mat file; by default the only matrix.
    customary : sequence of str
        Names to look for, in this order, where a file has several matrices.

    Returns
    -------
    values : ndarray of shape (rows, columns), float64
        NaN where a value is missing.
    names : tuple of str
        Column names in the file, empty when it has none.

    Raises
    ------
    DataError
        If the file is missing, truncated, too large, not numeric, or holds no matrix.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    names: tuple[str, ...] = ()
    if suffix in TEXT:
        values, names = read_text(path, parse_text)
    elif suffix == ".npy":
        values = _read(path, _parse_npy)
    elif suffix in (".npz", ".mat"):
        variables = read_npz(path) if suffix == ".npz" else read_mat(path)
        # fields of struct arrays are lists
        arrays = {k: v for k, v in variables.items() if isinstance(v, np.ndarray)}
        values = _pick(arrays, path, variable, customary)
        names = roi_names_in(arrays, values.shape[1] if values.ndim == 2 else 0)
    else:
        hint = f"Known: {', '.join(sorted(SUFFIXES))}."
        raise DataError(f"unknown file type '{path.suffix}'.", where=path, do=hint)
    if values.ndim != 2 or values.dtype.kind not in "fiub" or values.size == 0:
        problem = f"holds an array of shape {values.shape} and type {values.dtype}, not a matrix."
        hint = "Give ROIs x ROIs (FC) or volumes x ROIs (time series)."
        raise DataError(problem, where=path, do=hint)
    return values.astype(np.float64), names


def read_text(path: Path, parse: Callable[[str], T]) -> T:
    """Return what `parse` makes of the text of a file; raise `DataError` if it cannot be read."""
    return _read(path, lambda *file: parse(_text(*file)))


def read_table(path: Path) -> list[dict[str, str]]:
    """Read the rows of a .tsv or .csv, see `parse_table`."""
    return read_text(path, parse_table)


def column_of(header: Sequence[str], accepted: Sequence[str]) -> str:
    """Return the column of a header that has the first possible of some accepted names.

    Upper and lower case are equal.

    Parameters
    ----------
    header : sequence of str
        Columns of a table.
    accepted : sequence of str
        Names in lower case, preferred first.

    Returns
    -------
    str
        The column as the header has it; "" if it has none of the names.
    """
    # Reversed: of two columns that differ in case alone the first counts.
    lower = {name.lower(): name for name in reversed(header)}
    return next((lower[name] for name in accepted if name in lower), "")


def read_npz(path: str | Path) -> dict[str, np.ndarray]:
    """Read all arrays of an .npz file; pickled objects are refused."""
    return _read(Path(path), _parse_npz)


def read_mat(path: str | Path) -> dict[str, Any]:
    """Read the variables of a .mat file, see `parse_mat`."""
    return _read(
        Path(path), lambda file, budget: parse_mat(_bytes(file, budget), budget.take)
    )


def _read(path: Path, parse: Callable[[IO[bytes], MemoryBudget], Any]) -> Any:
    """Read a file with `parse` and turn every exception into one `DataError`.

    Parameters
    ----------
    path : Path
    parse : callable
        Takes the opened file and its memory budget.

    Returns
    -------
    The result of `parse`.
    """
    if not path.is_file():
        raise DataError(
            "no such file.", where=path, do="Check the name and the folder."
        )
    try:
        with path.open("rb") as stream, at(path):
            return parse(stream, MemoryBudget(path))
    except FCForgeError:
        raise
    except Exception as error:
        reason = str(error).strip() or type(error).__name__
        problem = f"cannot be read ({reason.splitlines()[0]})."
        hint = "The file is damaged or cut off; make it again."
        if "allow_pickle" in reason:
            problem = "the file holds pickled objects, which are not read (they can run code)."
            hint = "Save plain arrays."
        raise DataError(problem, where=path, do=hint) from error


def _bytes(stream: IO[bytes], budget: MemoryBudget) -> bytes:
    """Read all bytes of a file within the memory budget."""
    budget.take(os.fstat(stream.fileno()).st_size)
    return stream.read()


def _text(stream: IO[bytes], budget: MemoryBudget) -> str:
    """Read the text of a file within the memory budget.

    Parsed cells take many times their bytes in the file, so the number of cells is charged.
    """
    text = decoded(_bytes(stream, budget))
    cells = sum(map(text.count, SEPARATORS))
    budget.take(CELL_BYTES * cells + LINE_BYTES * text.count("\n"))
    return text


def _parse_npy(stream: IO[bytes], budget: MemoryBudget) -> np.ndarray:
    """Return the array of an .npy file."""
    budget.take_npy(stream)
    stream.seek(0)
    return np.lib.format.read_array(stream, allow_pickle=False)


def _parse_npz(stream: IO[bytes], budget: MemoryBudget) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file by name."""
    with zipfile.ZipFile(stream) as archive:
        for name in archive.namelist():
            with archive.open(name) as member:
                budget.take_npy(member)
    stream.seek(0)
    with np.load(stream, allow_pickle=False) as arrays:
        return {name: _as_words(arrays[name]) for name in arrays.files}


def _as_words(array: np.ndarray) -> np.ndarray:
    """Decode an array of bytes, in which MATLAB and HDF5 store words; return other arrays as they are."""
    if array.dtype.kind != "S":
        return array
    return np.char.decode(array, "utf-8", "replace")


def _pick(
    arrays: Mapping[str, np.ndarray],
    path: Path,
    variable: str | None,
    customary: Sequence[str],
) -> np.ndarray:
    """Return the array named `variable`; without it the only matrix, or the first with a customary name.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        Arrays of the file.
    path : Path
        The file, for error messages.
    variable : str or None
    customary : sequence of str
        Names to look for where there are several matrices.

    Raises
    ------
    DataError
        If there is no such array, no matrix, or several without a customary name.
    """
    if variable:
        matrices = {name: arrays[name] for name in arrays if name == variable}
    else:
        matrices = {
            name: array
            for name, array in arrays.items()
            if array.ndim == 2 and array.dtype.kind in "fiu"
        }
    names = list(matrices) if len(matrices) == 1 else customary
    for name in names:
        if name in matrices:
            return matrices[name]
    problem = f"{len(matrices) or 'no'} matrices, where one is expected"
    if variable:
        problem = f"no array '{variable}'"
    raise DataError(
        f"holds {problem}.",
        where=path,
        do=f"It has: {', '.join(sorted(arrays))}; name one: --variable NAME (of a dataset: variable).",
    )


def roi_names_in(arrays: Mapping[str, Any], n_rois: int) -> tuple[str, ...]:
    """Return the ROI names that a file has beside its matrix; empty if it has none.

    Parameters
    ----------
    arrays : mapping of str to array
        Arrays of the file. CONN names those of the rows ``names``, those of the columns ``names2``.
    n_rois : int
        Number of names that is required.
    """
    for key in ("roi_names", "roi_ids", "names2", "names"):
        candidate = np.asarray(arrays.get(key, ()))
        if candidate.dtype.kind in "UOiu" and candidate.size == n_rois:
            return tuple(map(str, candidate.ravel().tolist()))
    return ()

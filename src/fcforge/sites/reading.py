"""FC out of files: one subject's matrix or time series, and new scans to be judged.

New scans are found in files and folders, with what is known about each. A file holds one scan (FC
or ROI time series) or a dataset (.npz of many). What cannot be used is named in its place and does
not stop the others. Nobody needs a diagnosis.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fcforge.imaging.matrix_files import (
    SUFFIXES,
    read_matrix_file,
    read_npz,
    roi_names_in,
)
from fcforge.imaging.people import read_people
from fcforge.imaging.series import pearson_fc
from fcforge.messages import DataError, at
from fcforge.requests import Kind
from fcforge.sites import participants
from fcforge.sites.check import not_correlations
from fcforge.sites.cohort import fc_from_upper
from fcforge.sites.vectors import rows_as_fc

ARRAYS = ("label", "site", "subject_id")  # of an .npz, beside FC
Where = str | Path | Sequence[str | Path]
Person = Mapping[str, str]


def read_fc(
    path: Path, kind: Kind = "auto", variable: str | None = None
) -> participants.Reading:
    """FC of the one scan in a file (matrix, time series or row of edges) and its ROI names."""
    matrix, names = read_matrix_file(path, variable)
    with at(path):
        if 1 in matrix.shape and matrix.size > 2 and kind != "timeseries":
            row = matrix.reshape(1, -1)
            edges = np.tanh(row) if kind == "fisher_z" else row
            made, names = rows_as_fc(edges, names)
            return participants.Reading(made[0], roi_names=names)
        fc = to_fc(matrix, kind)
        return participants.Reading(fc, roi_names=names[: len(fc)])


def to_fc(matrix: np.ndarray, kind: Kind = "auto") -> np.ndarray:
    """FC (R, R) of a matrix that is FC already or a time series (T, R).

    With ``kind="auto"`` a square matrix that is symmetric or has a unit diagonal is FC (with
    an error in `check_cohort` when it is not both), anything else a time series, which is
    refused when it looks transposed. CONN's matrices (Fisher z without a diagonal) are known by
    their diagonal; of more columns than rows (sources by sources and further targets) the first
    square is taken, and r = tanh z with a diagonal of 1.
    """
    rows, columns = matrix.shape
    if kind == "auto" and (kind := _kind_of(matrix)) == "timeseries":
        refuse_transposed(matrix)
    if kind == "fisher_z":
        if not 2 <= rows <= columns:
            raise DataError(f"Fisher z of shape {rows} x {columns} is not square.")
        fc = np.tanh(matrix[:, :rows]).astype(np.float32)
        np.fill_diagonal(fc, 1.0)
        return fc
    if kind == "fc":
        if rows != columns or rows < 2:
            what = f"FC is {rows} x {columns}, not square with two ROIs or more."
            do = "Is the file cut off, or a time series (kind='timeseries')?"
            raise DataError(what, do=do)
        return matrix.astype(np.float32)
    if 1 < rows < columns and all(_unit_and_symmetric(matrix[:, :rows])):
        what = f"looks like the first {rows} rows of an FC matrix of {columns} ROIs."
        raise DataError(what, do="The file is cut off; make it again.")
    if rows < 5 or columns < 2:
        what = f"a time series of {rows} volumes x {columns} ROIs is too short."
        raise DataError(what, do="Rows are volumes, columns are ROIs.")
    return pearson_fc(matrix).astype(np.float32)


def _kind_of(matrix: np.ndarray) -> Kind:
    square = matrix[:, : len(matrix)]
    if len(square) > 1 and square.shape == (len(square),) * 2:
        off = square[~np.eye(len(square), dtype=bool)]
        diagonal = np.diagonal(square)
        if not np.isfinite(diagonal).any() and np.isfinite(off).all():
            if np.isinf(diagonal).all() or np.abs(off).max() > 1:
                return "fisher_z"
            raise DataError(
                "has no diagonal and no value beyond 1: correlations or Fisher z?",
                do="kind='fisher_z' for Fisher z, as CONN writes; for correlations set it to 1.",
            )
    return "fc" if looks_like_fc(matrix) else "timeseries"


def looks_like_fc(matrix: np.ndarray) -> bool:
    """Whether a matrix is meant as FC: square, and symmetric or with a unit diagonal."""
    return matrix.shape[0] == matrix.shape[1] and any(_unit_and_symmetric(matrix))


def _unit_and_symmetric(square: np.ndarray) -> tuple[bool, bool]:
    unit = np.allclose(np.diagonal(square), 1.0, atol=1e-3)
    return unit, np.allclose(square, square.T, atol=1e-3, equal_nan=True)


def refuse_transposed(series: np.ndarray) -> None:
    """Raise `DataError` for a time series (T, R) that seems to have its volumes in columns."""
    if reason := looks_transposed(series):
        shape = f"{len(series)} x {series.shape[1]}"
        do = "Rows are volumes, columns are ROIs: transpose it. If it is right: kind='timeseries'."
        raise DataError(
            f"{shape} looks like a transposed time series: {reason}.", do=do
        )


def looks_transposed(series: np.ndarray) -> str:
    """Why a time series (T, R) seems to have its volumes in columns; "" where it does not.

    A signal keeps to its own level and is smooth in time. Over 28 series of ABIDE the mean
    correlation of neighbouring volumes exceeds that of neighbouring ROIs by 0.12 to 0.6; of the
    same series transposed it is 0.15 to 0.6 lower.
    """
    x = series[:, np.isfinite(series).all(axis=0)]
    if x.size < 3000 or min(x.shape) < 5:  # chance alone could tell otherwise
        return ""
    down = _level(x)
    across = _level(x.T)
    if across > 3 * max(down, 1.0):
        return "every row keeps its own level, as an ROI does"
    spread = x.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    z = (x - x.mean(axis=0)) / scale
    if down < 3 and _lag_one(z.T) - _lag_one(z) > 0.12:
        return "signals are smoother along the rows than down the columns"
    return ""


def _level(x: np.ndarray) -> float:
    """How far the means of columns lie apart, in units of their own spread."""
    spread = float(np.median(x.std(axis=0)))
    return float(x.mean(axis=0).std()) / spread if spread > 0 else 0.0


def _lag_one(x: np.ndarray) -> float:
    """Mean correlation of each column with itself one row later, 0 for noise of any length."""
    x = x - x.mean(axis=0)
    norm = (x**2).sum(axis=0)
    together = (x[1:] * x[:-1]).sum(axis=0)
    found = together / np.where(norm > 0, norm, 1.0)
    return float(found.mean()) + 1 / len(x)


# -- new scans -------------------------------------------------------------------------------------
class Scan(NamedTuple):
    """One scan.

    Attributes
    ----------
    subject : str
        File name, or the subject's id in a dataset file or in the table of `fcforge fc`.
    fc : ndarray of shape (R, R), float32, or None
        None where the scan cannot be used.
    problem : str
        Why not.
    covariates : mapping of name to float
        Numbers from the dataset file, or from participants.tsv beside the scan.
    roi_names : tuple of str
        As the file has them; empty where it has none.
    site : str
        As a dataset file has it; empty where it says none.
    """

    subject: str
    fc: np.ndarray | None
    problem: str = ""
    covariates: Mapping[str, float] = {}
    roi_names: tuple[str, ...] = ()
    site: str = ""


def find_scans(where: Where, kind: Kind, n_rois: int) -> list[Scan]:
    """Every scan of a file, several files or folders (also of a folder that `fcforge fc` wrote).

    Parameters
    ----------
    where : path or sequence of paths
    kind : {"auto", "fc", "timeseries"}
    n_rois : int
        ROIs that a scan must have.
    """
    found = []
    for name, path, person in _files(where):
        try:
            many = _dataset(path, kind)
            if many is None:
                fc, _, names = read_fc(path, kind)
                many = [Scan(name, fc, "", _numbers(person), names)]
            found += [_checked(scan, n_rois) for scan in many]
        except DataError as error:
            found.append(Scan(name, None, error.what))
    return found


def _checked(scan: Scan, n_rois: int) -> Scan:
    """The scan, or why it cannot be used."""
    fc = np.asarray(scan.fc, dtype=np.float32)
    if fc.shape != (n_rois, n_rois):
        return Scan(scan.subject, None, f"has {fc.shape[0]} ROIs, the model {n_rois}.")
    for problem, _ in not_correlations(fc):
        return Scan(scan.subject, None, f"is not a correlation matrix: {problem}")
    return scan._replace(fc=fc)


def _files(where: Where) -> list[tuple[str, Path, Person]]:
    """Name, path and row of the participants table of every file."""
    if isinstance(where, (str, Path)):
        where = [where]
    paths = [Path(p) for p in where]
    found: list[tuple[str, Path, Person]] = []
    for path in paths:
        if path.is_dir():
            found += _in_folder(path)
        elif path.exists():
            found.append((path.name, path, _row_of(path, _people(path.parent))))
        else:
            raise DataError("no such file or folder.", where=path, do="Check the path.")
    if not found:
        raise DataError(
            "holds no scan.", where=paths[0], do=f"Known types: {', '.join(SUFFIXES)}."
        )
    return found


def _in_folder(folder: Path) -> Iterator[tuple[str, Path, Person]]:
    """Scans that the table of a folder lists (as `fcforge fc` writes it), else all below."""
    people = _people(folder)
    if any("file" in row for row in people.values()):
        for who, row in people.items():
            if row["file"] != "n/a":
                yield f"sub-{who}", folder / row["file"], row
        return
    for path in scan_files(folder):
        yield path.relative_to(folder).as_posix(), path, _row_of(path, people)


def scan_files(folder: Path, pattern: str = "**/*") -> list[Path]:
    """Files below a folder that may hold FC or a series: not the table of the people."""
    found = []
    for path in sorted(folder.glob(pattern)):
        known = path.suffix.lower() in SUFFIXES and path.is_file()
        if known and not path.name.startswith("participants"):
            found.append(path)
    return found


def _people(folder: Path) -> Mapping[str, Person]:
    table = participants.table_in(folder)
    return read_people(table).rows if table else {}


def _row_of(path: Path, people: Mapping[str, Person]) -> Person:
    """Row of the one person whose id the file name starts with; empty where there is none."""
    owners = [who for who in people if participants.owns_file(path.name, who)]
    return people[max(owners, key=len)] if owners else {}


def _numbers(person: Person) -> dict[str, float]:
    """Columns of a row that are numbers, under their customary names."""
    found = {}
    for name, values in participants.as_covariates([person]).items():
        if values.dtype.kind == "f" and np.isfinite(values[0]):
            found[name] = float(values[0])
    return found


def npz_fc(arrays: Mapping[str, np.ndarray], kind: Kind = "auto") -> np.ndarray:
    """FC (n, R, R) in an .npz: ``fc``, or its upper triangles ``fc_upper``.

    Raises
    ------
    DataError
        Neither is there, it has another shape or type, or something else was asked for.
    """
    if kind not in ("auto", "fc"):
        raise DataError(
            f"holds FC of many people, not '{kind}' (--kind).", do="Leave --kind out."
        )
    name = "fc" if "fc" in arrays and "fc_upper" not in arrays else "fc_upper"
    if name not in arrays:
        has = ", ".join(sorted(arrays)) or "nothing"
        raise DataError(
            f"array '{name}' is missing.", do=f"It has: {has}. Call it fc or fc_upper."
        )
    values = arrays[name]
    square = name == "fc_upper" or values.shape[1:2] == values.shape[2:]
    n_axes = 3 if name == "fc" else 2
    if values.ndim != n_axes or values.dtype.kind not in "fiu" or not square:
        raise DataError(
            f"'{name}' has shape {values.shape} and type {values.dtype}.",
            do="fc is (subjects, ROIs, ROIs), fc_upper (subjects, edges); both numbers.",
        )
    if name == "fc":
        return values.astype(np.float32)
    return fc_from_upper(values, dtype=np.float32)


def npz_rows(
    arrays: Mapping[str, np.ndarray], kind: Kind = "auto"
) -> tuple[list[dict[str, str]], participants.Read]:
    """People of an .npz as rows of a table, numbered in its column ``file``, and their FC.

    Arrays with one value per subject are the columns.
    """
    fc = npz_fc(arrays, kind)
    for name in ARRAYS:
        if name in arrays and arrays[name].shape != (len(fc),):
            raise DataError(
                f"'{name}' has shape {arrays[name].shape}, but there are {len(fc)} subjects.",
                do="Every array needs one row per subject.",
            )
    columns = {k: v for k, v in arrays.items() if v.shape == (len(fc),)}
    columns["file"] = np.arange(len(fc))
    rows = []
    for i in range(len(fc)):
        rows.append({name: str(values[i]) for name, values in columns.items()})
    names = roi_names_in(arrays, fc.shape[-1])

    def read(person: participants.Participant) -> participants.Reading:
        return participants.Reading(fc[int(person.file)], roi_names=names)

    return rows, read


def _dataset(path: Path, kind: Kind) -> list[Scan] | None:
    """Scans of an .npz dataset; None when the file is one scan."""
    arrays = read_npz(path) if path.suffix.lower() == ".npz" else {}
    several = "fc" in arrays and arrays["fc"].ndim == 3
    if not several and "fc_upper" not in arrays:
        return None
    rows, read = npz_rows(arrays, kind)
    scans = []
    for one in participants.people_of(rows, {}, needed=()).people:
        fc, _, names = read(one)
        who = one.subject_id or one.file
        scans.append(Scan(who, fc, "", _numbers(one.extra), names, one.site))
    return scans

"""New scans to predict: from a file, several files, or folders.

Nobody needs a diagnosis here. A scan that cannot be used is returned with its problem and does not
stop the others.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fcforge.core.errors import DataError
from fcforge.core.options import Kind
from fcforge.data import participants
from fcforge.data.checks import matrix_faults
from fcforge.data.folder import npz_rows, read_fc, scan_files
from fcforge.imaging.matrix_files import SUFFIXES, read_npz
from fcforge.imaging.people import read_people, table_in

Paths = str | Path | Sequence[str | Path]
Row = Mapping[str, str]  # row of a table of people, by column


class Scan(NamedTuple):
    """One scan to predict.

    Attributes
    ----------
    subject : str
        Name of the file. The subject's id if the scan comes from a dataset file (an .npz of many
        people) or from a folder that ``fcforge fc`` wrote.
    fc : ndarray of shape (R, R), float32, or None
        FC of R ROIs; None if the scan cannot be used.
    problem : str
        Reason why it cannot be used; else "".
    covariates : mapping of str to float
        Numbers from the dataset file, or from participants.tsv in the scan's folder.
    roi_names : tuple of str
        Names in the file; empty if there are none.
    site : str
        Site in the dataset file; empty if there is none.
    """

    subject: str
    fc: np.ndarray | None
    problem: str = ""
    covariates: Mapping[str, float] = {}
    roi_names: tuple[str, ...] = ()
    site: str = ""


def find_scans(where: Paths, kind: Kind, n_rois: int) -> list[Scan]:
    """Read every scan of a file, of several files, or of folders.

    Parameters
    ----------
    where : path or sequence of paths
        Files or folders. A folder may be one that ``fcforge fc`` wrote.
    kind : {"auto", "fc", "fisher_z", "timeseries"}
        Content of the files.
    n_rois : int
        Number of ROIs that a scan must have.

    Returns
    -------
    list of Scan

    Raises
    ------
    DataError
        When a path does not exist or there is no scan at all.
    """
    paths = [where] if isinstance(where, (str, Path)) else where
    scans = []
    for path in paths:
        for name, file, row in _files(Path(path)):
            try:
                in_file = _scans(name, file, row, kind)
                scans += [_checked(scan, n_rois) for scan in in_file]
            except DataError as error:
                scans.append(Scan(name, None, error.what))
    if not scans:
        hint = f"Known types: {', '.join(SUFFIXES)}."
        raise DataError("holds no scan.", where=paths[0], do=hint)
    return scans


def _checked(scan: Scan, n_rois: int) -> Scan:
    """Return the scan, or one without FC but with its problem if it cannot be used."""
    fc = np.asarray(scan.fc, dtype=np.float32)
    if fc.shape != (n_rois, n_rois):
        return Scan(scan.subject, None, f"has {fc.shape[0]} ROIs, the model {n_rois}.")
    for problem, _ in matrix_faults(fc):  # the first one is enough
        return Scan(scan.subject, None, f"is not a correlation matrix: {problem}")
    return scan._replace(fc=fc)


def _files(path: Path) -> Iterator[tuple[str, Path, Row]]:
    """Yield the name and path of every scan file, and its subject's row in the table of people.

    The row is empty without a table. In a folder whose table names files (as ``fcforge fc`` writes
    it), only those files are scans.
    """
    if not path.exists():
        raise DataError("no such file or folder.", where=path, do="Check the path.")
    folder = path if path.is_dir() else path.parent
    table = table_in(folder)
    people = read_people(table) if table else {}
    if path.is_dir() and any("file" in row for row in people.values()):
        for subject, row in people.items():
            if row["file"] != "n/a":
                yield f"sub-{subject}", folder / row["file"], row
        return
    for file in scan_files(folder) if path.is_dir() else [path]:
        owners = [
            subject for subject in people if participants.owns_file(file.name, subject)
        ]
        owner = max(owners, key=len, default="")  # s1_2 rather than s1
        yield file.relative_to(folder).as_posix(), file, people.get(owner, {})


def _scans(name: str, path: Path, row: Row, kind: Kind) -> list[Scan]:
    """Return the scan in a file, or all scans in an .npz of many people.

    Parameters
    ----------
    name : str
        Name of the scan if the file has only one.
    path : Path
    row : mapping of column to cell
        The subject's row in the table of people, for covariates.
    kind : {"auto", "fc", "fisher_z", "timeseries"}
    """
    arrays = read_npz(path) if path.suffix.lower() == ".npz" else {}
    of_many_people = "fc_upper" in arrays or np.ndim(arrays.get("fc", 0)) == 3
    if not of_many_people:
        fc, _, names, _ = read_fc(path, kind)
        return [Scan(name, fc, "", _numbers(row), names)]
    rows, matrices, names = npz_rows(arrays, kind)
    people = participants.people_of(rows, {}, needed=()).people
    scans = []
    for k, person in enumerate(people):
        subject = person.subject_id or str(k)
        covariates = _numbers(person.extra)
        scans.append(Scan(subject, matrices[k], "", covariates, names, person.site))
    return scans


def _numbers(row: Row) -> dict[str, float]:
    """Return the columns of a row that hold numbers, under their usual names."""
    numbers = {}
    for name, values in participants.as_covariates([row]).items():
        if values.dtype.kind == "f" and np.isfinite(values[0]):
            numbers[name] = float(values[0])
    return numbers

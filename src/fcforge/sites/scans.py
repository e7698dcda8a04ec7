"""New scans to be judged: found in files and folders, with what is known about each.

A file holds one scan (FC or ROI time series) or a dataset (.npz of many). What cannot be used is
named in its place and does not stop the others. Nobody needs a diagnosis.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fcforge.errors import DataError
from fcforge.imaging.matrix_files import SUFFIXES, read_matrix_file, read_npz
from fcforge.imaging.people import read_people
from fcforge.sites import participants
from fcforge.sites.check import not_correlations
from fcforge.sites.cohort import as_text, fc_from_upper
from fcforge.sites.reading import Kind, to_fc

Where = str | Path | Sequence[str | Path]
Person = Mapping[str, str]


@dataclass(frozen=True)
class Scan:
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
    covariates: Mapping[str, float] = field(default_factory=dict)
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
    found: list[Scan] = []
    for name, path, person in _files(where):
        try:
            many = _dataset(path)
            if many is None:
                matrix, names = read_matrix_file(path)
                many = [Scan(name, to_fc(matrix, kind, str(path)), "", _numbers(person), names)]
            found += [_checked(scan, n_rois) for scan in many]
        except DataError as error:
            found.append(Scan(name, None, error.what))
    return found


def _checked(scan: Scan, n_rois: int) -> Scan:
    """The scan, or why it cannot be used."""
    fc = np.asarray(scan.fc, dtype=np.float32)
    if fc.shape != (n_rois, n_rois):
        return Scan(scan.subject, None, f"has {fc.shape[0]} ROIs, the capsule {n_rois}.")
    for problem, _ in not_correlations(fc):
        return Scan(scan.subject, None, f"is not a correlation matrix: {problem}")
    return replace(scan, fc=fc)


def _files(where: Where) -> list[tuple[str, Path, Person]]:
    """Name, path and row of the participants table of every file."""
    paths = [Path(where)] if isinstance(where, (str, Path)) else [Path(p) for p in where]
    found: list[tuple[str, Path, Person]] = []
    for path in paths:
        if path.is_dir():
            found += _in_folder(path)
        elif path.exists():
            found.append((path.name, path, _row_of(path, _people(path.parent))))
        else:
            raise DataError("no such file or folder.", where=path, do="Check the path.")
    if not found:
        do = f"Known types: {', '.join(SUFFIXES)}."
        raise DataError("holds no scan.", where=paths[0], do=do)
    return found


def _in_folder(folder: Path) -> Iterator[tuple[str, Path, Person]]:
    """Scans in a folder; else those its table lists (as `fcforge fc` writes it), else all below."""

    def scans(paths: Iterable[Path]) -> list[Path]:
        known = (p for p in sorted(paths) if p.suffix.lower() in SUFFIXES and p.is_file())
        return [p for p in known if not p.name.startswith("participants")]

    inside, people = scans(folder.iterdir()), _people(folder)
    listed = {who: row["file"] for who, row in people.items() if row.get("file", "n/a") != "n/a"}
    if listed and not inside:
        yield from ((f"sub-{who}", folder / file, people[who]) for who, file in listed.items())
        return
    for path in inside or scans(folder.rglob("*")):
        yield path.relative_to(folder).as_posix(), path, _row_of(path, people)


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
    for name, text in person.items():
        known = participants.ALIASES.get(name.lower(), name.lower())
        value = participants.as_covariate(known, [text])
        if value.dtype.kind == "f" and text not in participants.MISSING:
            found[known] = float(value[0])
    return found


def _dataset(path: Path) -> list[Scan] | None:
    """Scans of an .npz dataset; None when the file is one scan."""
    arrays = read_npz(path) if path.suffix.lower() == ".npz" else {}
    if "fc_upper" in arrays and arrays["fc_upper"].ndim == 2:
        fc = fc_from_upper(arrays["fc_upper"], str(path))
    elif "fc" in arrays and arrays["fc"].ndim == 3:
        fc = arrays["fc"]
    else:
        return None
    n = len(fc)
    ids = as_text(arrays.pop("subject_id", np.arange(n)))
    if len(ids) != n:
        raise DataError(f"has {n} matrices but {len(ids)} subject ids.", where=path)
    site = as_text(arrays.get("site", []))
    sites = site.tolist() if site.shape == (n,) else [""] * n
    values = participants.covariates_of(arrays, n)
    numbers = {k: v.tolist() for k, v in values.items() if v.dtype.kind == "f"}
    names = participants.roi_names_of(arrays, fc.shape[-1])
    return [
        Scan(who, fc[i], "", {k: v[i] for k, v in numbers.items()}, names, sites[i])
        for i, who in enumerate(ids.tolist())
    ]

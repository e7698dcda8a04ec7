"""A user's own files: people to learn from, and new scans to be judged, with or without a table.

FC or time series are in one file for all, or in one per subject. B-SNIP, which has no public layout
(access is by application), is such a folder. A new scan that cannot be used is named in its place
and does not stop the others; nobody there needs a diagnosis.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fcforge.core.errors import ConfigError, DataError, at
from fcforge.core.formatting import counted, some
from fcforge.core.options import Kind
from fcforge.core.target import Target
from fcforge.data import participants
from fcforge.data.checks import matrix_faults
from fcforge.data.cohort import Cohort, as_text
from fcforge.data.edges import fc_from_upper
from fcforge.data.faults import Fault
from fcforge.data.matrices import rows_as_fc, to_fc
from fcforge.data.participants import (
    CONTROLS,
    DISORDERS,
    Listed,
    Participant,
    Read,
    Reading,
    Words,
    columns_of,
    groups_of,
)
from fcforge.imaging.matrix_files import (
    SUFFIXES,
    TEXT,
    read_matrix_file,
    read_npz,
    read_table,
    roi_names_in,
)
from fcforge.imaging.parsers import as_numbers
from fcforge.imaging.people import read_people, table_in, under_ids_of

ARRAYS = ("label", "site", "subject_id")  # of an .npz, beside FC
Where = str | Path | Sequence[str | Path]
Person = Mapping[str, str]
Rows = list[dict[str, str]]
Named = Mapping[str, str]  # column of a role
EDGE = re.compile(r".+~.+|edge_?\d+", re.IGNORECASE)  # its column in a table


def load_folder(
    path: str | Path,
    kind: Kind = "auto",
    sites: Sequence[str] | None = None,
    merge: Mapping[str, Sequence[str]] | None = None,
    pattern: str = "**/*",
    variable: str | None = None,
    covariates: str | Path | None = None,
    positive: Words = None,
    negative: Words = None,
    columns: Mapping[str, str] | str = "",
    drop_unlabelled: bool = False,
    classes: tuple[str, ...] = (),
    target: str = "diagnosis",
    partial: bool = False,
) -> Cohort:
    """Load a dataset from one file or from a folder.

    *One .npz*: arrays ``fc_upper`` (n, R (R - 1) / 2) or ``fc`` (n, R, R), ``label``, ``site``,
    ``subject_id``; every other array with one row per subject becomes a covariate. Nothing
    pickled is read.

    *One table* (.tsv, .csv): a row per subject with id, site, diagnosis and its edges, in columns
    ``Hip_L~Hip_R`` or ``edge_1``, ``edge_2``, ... (`fcforge.data.matrices`).

    *A folder*: ``participants.tsv`` (or .csv) with columns for id, site and diagnosis, and one
    file per subject, anywhere below, whose name starts with the id. Trouble with one subject
    (no file, a damaged one, an unknown diagnosis) does not stop the loading: it becomes a
    fault of the cohort, and `require_valid` refuses to train.

    Parameters
    ----------
    path : str or Path
    kind : {"auto", "fc", "fisher_z", "timeseries"}
        What the files of a folder hold; see `to_fc`.
    sites : sequence of str, optional
        Keep these sites (after merging), in this order.
    merge : mapping of str to sequence of str, optional
        Sites to merge, e.g. ``{"UM": ["UM_1", "UM_2"]}``.
    pattern : str
        Files of the folder that are looked at, e.g. ``"**/*_relmat.tsv"``; needed when a subject
        has several files.
    variable : str, optional
        Array to take from each .npz or .mat file.
    covariates : str or Path, optional
        Another .npz (with ``subject_id``) or table, e.g. ABIDE's phenotypes, with further
        covariates of these subjects such as head motion. Ids may lack their leading zeros; a
        subject that is not in it has none.
    positive, negative : str or sequence of str, optional
        The patients' and the controls' diagnoses as the data write them, e.g. ``"ASD"``; with
        one of them, the only other diagnosis is the other group. Needed where they are neither 0
        and 1 nor words that say it, or where there are more than two. Others are left out.
    columns : mapping of role to column, or str
        Columns (arrays) without a usual name, e.g. ``{"site": "scanner_site", "label": "dx"}`` or
        ``"site=scanner_site,label=dx"``; roles are id, site, label and file.
    drop_unlabelled : bool
        Leave people without a diagnosis out instead of refusing them.
    classes : tuple of str
        Three or more groups, controls first, e.g. ``("HC", "SZ", "BP")``; several diagnoses in
        one of them are joined by commas, others are left out.
    target : str
        What is learned; where it is a covariate, diagnoses are neither needed nor looked at.
    partial : bool
        Some of `classes` need not be there: a hospital has not every disorder.

    Returns
    -------
    Cohort
    """
    path = Path(path).expanduser()
    with at(table_in(path) or path):
        named = columns_of(columns) if isinstance(columns, str) else columns
        listed, read = _open(path, named, pattern, kind, variable)
        if target == "diagnosis":
            if listed.people and not listed.label_column:
                raise participants.no_column("label", [*listed.people[0].extra])
            said = [person.diagnosis for person in listed.people]
            groups = groups_of(said, positive, negative, classes, partial)
            listed = participants.labelled(listed, groups, drop_unlabelled)
        elif positive or negative or classes or drop_unlabelled:
            what = f"target = '{target}' is a number, and groups are of a diagnosis."
            do = "Leave out positive, negative, classes and drop_unlabelled."
            raise ConfigError(what, do=do)
    cohort = participants.assemble("folder", listed, read, path)
    if classes:
        names = tuple("/".join(map(str.strip, group.split(","))) for group in classes)
        cohort = replace(cohort, target=Target(classes=names))
    if covariates is not None:
        with at(covariates):
            cohort = with_covariates(cohort, Path(covariates).expanduser())
    return cohort.merge_sites(merge or {}).select_sites(sites)


def load_bsnip(
    path: str | Path,
    *,
    sites: Sequence[str] | None = None,
    classes: tuple[str, ...] = (),
) -> Cohort:
    """B-SNIP subjects as FC: schizophrenia against controls, as in the paper.

    The folder may hold FC, ROI time series, or the output of ``fcforge fc``. Schizoaffective and
    bipolar probands and relatives are left out, unless `classes` lists them.

    Parameters
    ----------
    path : path
        Folder with ``participants.tsv`` (participant_id, site, diagnosis) and one file per
        subject. What needs more settings is loaded as a `folder`.
    sites : sequence of str, optional
        Site names as in the table; never taken for numbers.
    classes : tuple of str
        Three or more groups instead, e.g. ``("HC", "SZ", "SZA", "BP")``.

    Returns
    -------
    Cohort
        Label 1 = schizophrenia, or the place in `classes`.
    """
    groups: dict[str, Any] = {"classes": classes}
    if not classes:
        groups = {"positive": DISORDERS["SZ"], "negative": CONTROLS}
    cohort = load_folder(path, sites=sites, **groups)
    return replace(cohort, name="bsnip")


def with_covariates(cohort: Cohort, path: Path) -> Cohort:
    """Return the cohort with the covariates of another file, joined by subject id.

    Parameters
    ----------
    cohort : Cohort
        Its own covariates win over those of the file.
    path : Path
        An .npz with ``subject_id``, or a table with a column for the id. Leading zeros of ids do
        not matter unless two ids differ in them alone.
    """
    columns = read_npz(path) if path.suffix.lower() == ".npz" else _table_columns(path)
    ids = as_text(columns.get("subject_id", ())).tolist()
    twice = [who for who, times in Counter(ids).items() if times > 1]
    if twice:
        what = f"names a subject twice: {some(twice)}."
        raise DataError(what, do="Keep one row each.")
    own = cohort.subject_id.tolist()
    exact = {who: row for row, who in enumerate(ids)}
    rows = under_ids_of(own, exact)
    places = np.array([rows.get(who, -1) for who in own])
    if (places < 0).all():
        raise DataError(
            "holds none of these subjects.",
            do="It needs their ids: array 'subject_id', or a column such as participant_id.",
        )
    added = {}
    for name, values in columns.items():
        numbers = values.shape == (len(ids),) and values.dtype.kind in "fiu"
        if numbers and name not in ARRAYS:
            added[name] = np.where(places < 0, np.nan, values[places].astype(float))
    if not added:
        do = "Covariates are columns of numbers."
        raise DataError("holds no covariate of these subjects.", do=do)
    return replace(cohort, covariates={**added, **cohort.covariates})


def _table_columns(path: Path) -> dict[str, np.ndarray]:
    """Return the columns of a table of people as arrays, as an .npz would hold them."""
    people = participants.people_of(read_table(path), {}, needed=("id",)).people
    ids = as_text([person.subject_id for person in people])
    extra = [person.extra for person in people]
    return {"subject_id": ids, **participants.as_covariates(extra)}


def _open(
    path: Path, named: Named, pattern: str, kind: Kind, variable: str | None
) -> tuple[Listed, Read]:
    """People of a folder with a table, of a table of edges, or of an .npz; how to read one."""
    if not path.exists():
        raise DataError("no such file or folder.", do="Check the path.")
    if table := table_in(path):
        there = scan_files(path, pattern)
        listed = participants.people_of(read_table(table), named)
        faults = [*listed.faults, *_of_nobody(listed, there)]
        return listed._replace(faults=faults), lambda person: read_fc(
            _file_of(person, path, there), kind, variable
        )
    if path.suffix.lower() in TEXT:
        rows, fc, names = _edge_rows(read_table(path), kind)
    elif path.suffix.lower() == ".npz":
        rows, fc, names = _npz_rows(read_npz(path), kind)
    else:
        do = "Write one with columns participant_id, site, diagnosis (tab-separated)."
        raise DataError("is no .npz, and has no participants.tsv in it.", do=do)
    numbered = [{**row, "file": str(k)} for k, row in enumerate(rows)]
    return participants.people_of(numbered, named), lambda person: Reading(
        fc[int(person.file)], roi_names=names
    )


def _edge_rows(rows: Rows, kind: Kind) -> tuple[Rows, np.ndarray, tuple[str, ...]]:
    """Rows of a table without their edges, FC of these, and the names of ROIs."""
    names = [name for name in rows[0] if EDGE.fullmatch(name)]
    if not names:
        do = "Name edges by two ROIs (Hip_L~Hip_R) or number them (edge_1, edge_2, ..)."
        raise DataError("has no columns of edges.", do=do)
    cells = [[row.pop(name) for name in names] for row in rows]
    edges = as_numbers(cells, range(2, len(rows) + 2))  # as a spreadsheet counts
    fc, rois = rows_as_fc(np.tanh(edges) if kind == "fisher_z" else edges, names)
    return rows, fc, rois


# -- one file per subject --------------------------------------------------------------------------
def _file_of(person: Participant, folder: Path, there: Sequence[Path]) -> Path:
    """The one file of a subject; an error when there is none or more than one."""
    if person.file not in ("", "n/a"):
        return folder / person.file
    who = person.subject_id
    found = [path for path in there if participants.owns_file(path.name, who)]
    if not found:
        do = f"A file name starts with the id and ends in {', '.join(SUFFIXES)}."
        raise DataError("is listed, but has no file.", do=do)
    if len(found) > 1:
        told = some(path.name for path in found)
        do = "Say which: --set 'dataset.pattern=**/*_relmat.tsv', for example."
        raise DataError(f"has {len(found)} files ({told}).", do=do)
    return found[0]


def _of_nobody(listed: Listed, there: Sequence[Path]) -> Iterator[Fault]:
    """A warning that lists the files that belong to nobody in the table."""
    known = [person.subject_id for person in listed.people]
    others = {path.name for path in there}
    for who in [*known, *(fault.subject for fault in listed.faults)]:
        others -= {name for name in others if participants.owns_file(name, who)}
    if others and not any(person.file for person in listed.people):
        what = f"{counted(len(others), 'file')} of nobody in the table: {some(sorted(others))}."
        yield Fault("warning", what, "Not loaded; add rows, or take the files away.")


def read_fc(path: Path, kind: Kind = "auto", variable: str | None = None) -> Reading:
    """FC of the one scan in a file (matrix, time series or row of edges) and its ROI names."""
    matrix, names = read_matrix_file(path, variable)
    with at(path):
        if 1 in matrix.shape and matrix.size > 2 and kind != "timeseries":
            row = matrix.reshape(1, -1)
            edges = np.tanh(row) if kind == "fisher_z" else row
            made, names = rows_as_fc(edges, names)
            return Reading(made[0], roi_names=names)
        fc = to_fc(matrix, kind)
        return Reading(fc, roi_names=names[: len(fc)])


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
        That a scan must have.
    """
    paths = [where] if isinstance(where, (str, Path)) else where
    found = []
    for name, path, known in (one for place in paths for one in _files(Path(place))):
        try:
            scans = _scans(name, path, known, kind)
            found += [_checked(scan, n_rois) for scan in scans]
        except DataError as error:
            found.append(Scan(name, None, error.what))
    if not found:
        do = f"Known types: {', '.join(SUFFIXES)}."
        raise DataError("holds no scan.", where=paths[0], do=do)
    return found


def _checked(scan: Scan, n_rois: int) -> Scan:
    """The scan, or why it cannot be used."""
    fc = np.asarray(scan.fc, dtype=np.float32)
    if fc.shape != (n_rois, n_rois):
        return Scan(scan.subject, None, f"has {fc.shape[0]} ROIs, the model {n_rois}.")
    for problem, _ in matrix_faults(fc):
        return Scan(scan.subject, None, f"is not a correlation matrix: {problem}")
    return scan._replace(fc=fc)


def _files(path: Path) -> Iterator[tuple[str, Path, Person]]:
    """Name and path of every scan, and what a table of people beside it says of whose it is.

    In a folder whose table names files (as `fcforge fc` writes it), those alone.
    """
    if not path.exists():
        raise DataError("no such file or folder.", where=path, do="Check the path.")
    folder = path if path.is_dir() else path.parent
    table = table_in(folder)
    people = read_people(table) if table else {}
    if path.is_dir() and any("file" in row for row in people.values()):
        for who, row in people.items():
            if row["file"] != "n/a":
                yield f"sub-{who}", folder / row["file"], row
        return
    for file in scan_files(folder) if path.is_dir() else [path]:
        owners = [who for who in people if participants.owns_file(file.name, who)]
        own = max(owners, key=len, default="")
        yield file.relative_to(folder).as_posix(), file, people.get(own, {})


def scan_files(folder: Path, pattern: str = "**/*") -> list[Path]:
    """Files below a folder that may hold FC or a series: not the table of the people."""
    found = []
    for path in sorted(folder.glob(pattern)):
        known = path.suffix.lower() in SUFFIXES and path.is_file()
        if known and not path.name.startswith("participants"):
            found.append(path)
    return found


def _numbers(person: Person) -> dict[str, float]:
    """Columns of a row that are numbers, under their customary names."""
    found = {}
    for name, values in participants.as_covariates([person]).items():
        if values.dtype.kind == "f" and np.isfinite(values[0]):
            found[name] = float(values[0])
    return found


def npz_fc(arrays: Mapping[str, np.ndarray], kind: Kind = "auto") -> np.ndarray:
    """FC (n, R, R) in an .npz: ``fc``, or its upper triangles ``fc_upper``."""
    if kind not in ("auto", "fc"):
        raise DataError(
            f"holds FC of many people, not '{kind}' (--kind).", do="Leave --kind out."
        )
    name = "fc_upper" if "fc_upper" in arrays else "fc"
    if name not in arrays:
        has = ", ".join(sorted(arrays)) or "nothing"
        do = f"It has: {has}. Call it fc or fc_upper."
        raise DataError("array 'fc_upper' is missing.", do=do)
    values = arrays[name]
    n_axes = 3 if name == "fc" else 2
    square = len(set(values.shape[1:])) == 1
    if values.ndim != n_axes or values.dtype.kind not in "fiu" or not square:
        raise DataError(
            f"'{name}' has shape {values.shape} and type {values.dtype}.",
            do="fc is (subjects, ROIs, ROIs), fc_upper (subjects, edges); both numbers.",
        )
    if name == "fc":
        return values.astype(np.float32)
    return fc_from_upper(values, dtype=np.float32)


def _npz_rows(
    arrays: Mapping[str, np.ndarray], kind: Kind
) -> tuple[Rows, np.ndarray, tuple[str, ...]]:
    """People of an .npz as rows of a table, their FC, and the names of ROIs.

    Arrays with one value per subject are the columns.
    """
    fc = npz_fc(arrays, kind)
    for name in ARRAYS:
        if name in arrays and arrays[name].shape != (len(fc),):
            raise DataError(
                f"'{name}' has shape {arrays[name].shape}, but there are {len(fc)} subjects.",
                do="Every array needs one row per subject.",
            )
    columns = {k: as_text(v) for k, v in arrays.items() if v.shape == (len(fc),)}
    rows = [{k: str(v[i]) for k, v in columns.items()} for i in range(len(fc))]
    return rows, fc, roi_names_in(arrays, fc.shape[-1])


def _scans(name: str, path: Path, known: Person, kind: Kind) -> list[Scan]:
    """The one scan of a file, or those of an .npz of many people."""
    arrays = read_npz(path) if path.suffix.lower() == ".npz" else {}
    if "fc_upper" not in arrays and np.ndim(arrays.get("fc", 0)) != 3:
        fc, _, names = read_fc(path, kind)
        return [Scan(name, fc, "", _numbers(known), names)]
    rows, fc, names = _npz_rows(arrays, kind)
    people = participants.people_of(rows, {}, needed=()).people
    scans = []
    for k, one in enumerate(people):
        who = one.subject_id or str(k)
        scans.append(Scan(who, fc[k], "", _numbers(one.extra), names, one.site))
    return scans

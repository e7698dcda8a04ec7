"""A user's own dataset: FC or time series, in one file for all or in one file per subject.

B-SNIP has no public layout (access is by application); it is loaded from such a folder.

Shapes: n subjects, R ROIs.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fcforge.core.errors import ConfigError, DataError, at
from fcforge.core.formatting import abbreviated, counted
from fcforge.core.labels import is_missing
from fcforge.core.names import folded
from fcforge.core.options import Kind
from fcforge.core.settings import Validated
from fcforge.core.target import Target
from fcforge.data import participants
from fcforge.data.cohort import Cohort, as_text
from fcforge.data.edges import fc_from_upper
from fcforge.data.faults import Fault
from fcforge.data.label_codes import coding_fault, is_number
from fcforge.data.matrices import rows_as_fc, to_fc, undo_fisher_z
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
from fcforge.imaging.people import table_in, under_ids_of

ARRAYS = ("label", "site", "subject_id")  # that an .npz needs in addition to FC
Rows = list[dict[str, str]]  # rows of a table, by column
Named = Mapping[str, str]  # column by role: {"site": "scanner_site"}
SITE_BEFORE_ID = (
    "Put the site before the id, in the table and in the names of the files (sub-NYU01), or give the "
    "table a column `file`."
)
SAY_WHAT = f"say what each code means: {participants.NAME_THEM}"
EDGE = re.compile(r".+~.+|edge_?\d+", re.IGNORECASE)  # name of an edge's column


@dataclass(frozen=True)
class Folder(Validated):
    """Settings of a dataset in one file or in a folder, for n subjects with R ROIs.

    *One .npz*: arrays ``fc_upper`` (n, R (R - 1) / 2) or ``fc`` (n, R, R), ``label``, ``site``,
    ``subject_id``; every other array with one row per subject becomes a covariate. Nothing
    pickled is read.

    *One table* (.tsv, .csv): a row per subject with id, site, diagnosis and its edges, in columns
    ``Hip_L~Hip_R`` or ``edge_1``, ``edge_2``, ... (`fcforge.data.matrices`).

    *A folder*: ``participants.tsv`` (or .csv) with columns for id, site and diagnosis, and one
    file per subject, anywhere below, whose name starts with the id.

    Attributes
    ----------
    path : str or Path
    kind : {"auto", "fc", "fisher_z", "timeseries"}
        Content of the files of a folder; see `fcforge.data.matrices.to_fc`.
    sites : sequence of str, optional
        Keep these sites (after merging), in this order.
    merge : mapping of str to sequence of str, optional
        Sites to merge, e.g. ``{"UM": ["UM_1", "UM_2"]}``.
    pattern : str
        Files of the folder that are considered, e.g. ``"**/*_relmat.tsv"``. Needed when a subject
        has several files.
    variable : str, optional
        Array to read from each .npz or .mat file.
    covariates : str or Path, optional
        Another .npz (with ``subject_id``) or table, e.g. ABIDE's phenotypes, with further
        covariates of these subjects such as head motion. Its ids may lack leading zeros. Subjects
        that are not in it have missing values.
    positive, negative : str or sequence of str, optional
        The patients' and the controls' diagnoses as the data write them, e.g. ``"ASD"``. With one
        of them, the only other diagnosis is the other group. Needed if the diagnoses are neither
        0 and 1 nor known words, or if there are more than two. People with other diagnoses are
        left out.
    columns : mapping of role to column, or str
        Columns (arrays) without a usual name, e.g. ``{"site": "scanner_site", "label": "dx"}`` or
        ``"site=scanner_site,label=dx"``. Roles are id, site, label and file.
    drop_unlabelled : bool
        Leave people without a diagnosis out instead of refusing them.
    classes : tuple of str
        Three or more groups, controls first, e.g. ``("HC", "SZ", "BP")``. Several diagnoses in one
        group are joined by commas; people with others are left out.
    target : str
        Target of the predictions. If it is a covariate, diagnoses are neither needed nor read.
    partial : bool
        Allow that some of `classes` are missing, since a hospital may not have every disorder.
    """

    path: str | Path
    kind: Kind = "auto"
    sites: Sequence[str] | None = None
    merge: Mapping[str, Sequence[str]] | None = None
    pattern: str = "**/*"
    variable: str | None = None
    covariates: str | Path | None = None
    positive: Words = None
    negative: Words = None
    columns: Mapping[str, str] | str = ""
    drop_unlabelled: bool = False
    classes: tuple[str, ...] = ()
    target: str = "diagnosis"
    partial: bool = False

    @classmethod
    def where(cls) -> str:
        """Return the name of the settings for error messages."""
        return "dataset 'folder'"

    def load(self) -> Cohort:
        """Load the subjects as FC.

        A subject without a file, with a damaged file or with an unknown diagnosis does not stop the
        loading. It becomes a fault of the cohort, and `require_valid` refuses to train.
        """
        path = Path(self.path).expanduser()
        with at(table_in(path) or path):
            columns = self.columns
            named = columns_of(columns) if isinstance(columns, str) else columns
            listed, read = self._open(path, named)
            listed = self._labelled(listed)
        cohort = participants.assemble("folder", listed, read, path)
        if self.classes:
            groups = [group.split(",") for group in self.classes]
            names = tuple("/".join(map(str.strip, words)) for words in groups)
            cohort = replace(cohort, target=Target(classes=names))
        if self.covariates is not None:
            with at(self.covariates):
                file = Path(self.covariates).expanduser()
                cohort = with_covariates(cohort, file)
        return cohort.merge_sites(self.merge or {}).select_sites(self.sites)

    def _open(self, path: Path, named: Named) -> tuple[Listed, Read]:
        """Return the people of a file or folder, and the function that reads a person's FC.

        Parameters
        ----------
        path : Path
        named : mapping of role to column
            Columns without a usual name.
        """
        if not path.exists():
            raise DataError("no such file or folder.", do="Check the path.")
        if table := table_in(path):
            files = scan_files(path, self.pattern)
            listed = participants.people_of(read_table(table), named)
            faults = [*listed.faults, *_files_without_row(listed, files)]
            sites_of = _sites_by_id(listed)
            return listed._replace(faults=faults), lambda person: read_fc(
                _file_of(person, path, files, sites_of), self.kind, self.variable
            )
        if table_in(path.parent) == path and not _has_edges(read_table(path)):
            message = "is the table of people of a folder, without their FC."
            raise DataError(message, do=f"Give the folder: {path.parent}")
        if path.suffix.lower() in TEXT:
            rows, fc, names = _edge_rows(read_table(path), self.kind)
        elif path.suffix.lower() == ".npz":
            rows, fc, names = npz_rows(read_npz(path), self.kind)
        else:
            hint = "Write one with columns participant_id, site, diagnosis (tab-separated)."
            raise DataError("is no .npz, and has no participants.tsv in it.", do=hint)
        # All FC is in one array: the row in it takes the place of a file name.
        numbered = [{**row, "file": str(k)} for k, row in enumerate(rows)]
        return participants.people_of(numbered, named), lambda person: Reading(
            fc[int(person.file)], roi_names=names
        )

    def _labelled(self, listed: Listed) -> Listed:
        """Return the people with their class, or unchanged if the target is a number."""
        groups = (self.positive, self.negative, self.classes)
        if self.target == "diagnosis":
            if listed.people and not listed.label_column:
                raise participants.no_column("label", [*listed.people[0].extra])
            diagnoses = [person.diagnosis for person in listed.people]
            meaning = groups_of(diagnoses, *groups, self.partial)
            doubts = self._check_coding(listed, meaning)
            listed = listed._replace(faults=[*listed.faults, *doubts])
            return participants.labelled(listed, meaning, self.drop_unlabelled)
        if any(groups) or self.drop_unlabelled:
            raise ConfigError(
                f"target = '{self.target}' is a number, but groups are of a diagnosis.",
                do="Leave out positive, negative, classes and drop_unlabelled.",
            )
        return listed

    def _check_coding(self, listed: Listed, groups: Mapping[str, int]) -> list[Fault]:
        """Return warnings of sites that may write other codes for their diagnoses.

        Codes that `positive` or `negative` names have the meaning that the user gives them. Words
        without named groups are known ones, so that only numbers are compared.

        Parameters
        ----------
        listed : Listed
        groups : mapping of str to int
            As `groups_of` returns it.

        Raises
        ------
        DataError
            If sites write other codes, or if the table holds two codes for controls, 0 and ABIDE's 2.
        """
        if groups and not self.classes:
            return []
        merged = {
            part: new for new, parts in (self.merge or {}).items() for part in parts
        }
        people: dict[str, Counter[str]] = {}
        for person in listed.people:
            word = person.diagnosis
            used = (
                self.sites is None or merged.get(person.site, person.site) in self.sites
            )
            if not used or is_missing(word):
                continue
            if not groups and is_number(word):
                people.setdefault(person.site, Counter())[word.strip()] += 1
            if groups and (k := participants.meaning_of(word, groups)) is not None:
                people.setdefault(person.site, Counter())[self.classes[k]] += 1
        controls = self.classes[0] if self.classes else None
        fault = coding_fault(people, controls=controls, listed=bool(self.classes))
        if self.classes:
            if fault and fault.severity == "error":
                raise DataError(fault.what, do=fault.do)
            return [fault] if fault else []
        if fault:
            raise DataError(fault.what, do=f"{fault.do} Or {SAY_WHAT}")
        if listed.label_column.lower() in participants.CONTROLS_OF_COLUMN:
            _refuse_two_controls(people, listed.label_column)
        return []


def _refuse_two_controls(people: Mapping[str, Mapping[str, int]], column: str) -> None:
    """Raise `DataError` if a column has two numbers for controls, such as 0 and 2 in DX_GROUP.

    Parameters
    ----------
    people : mapping of site to mapping of code to int
        Numbers of people.
    column : str
        Name of the diagnosis's column.
    """
    two = ["0", *participants.CONTROLS_OF_COLUMN[column.lower()]]
    texts = []
    for code in two:
        sites = [site for site, codes in people.items() if code in codes]
        n = sum(people[site][code] for site in sites)
        texts.append(f"{code} for {counted(n, 'row')} ({abbreviated(sites, 3)})")
        if not sites:
            return
    raise DataError(
        f"{column} holds {' and '.join(texts)}; both would be read as controls.",
        do=f"Correct mistyped rows, or recode the sites. Or {SAY_WHAT}",
    )


def load_folder(path: str | Path, **settings: Any) -> Cohort:
    """Load a dataset from one file or from a folder.

    Parameters
    ----------
    path : str or Path
        An .npz, a table of edges, or a folder with ``participants.tsv``.
    **settings
        Fields of `Folder`.
    """
    return Folder(path, **settings).load()


def load_bsnip(
    path: str | Path,
    *,
    sites: Sequence[str] | None = None,
    classes: tuple[str, ...] = (),
) -> Cohort:
    """Load B-SNIP subjects as FC: schizophrenia against controls, as in the paper.

    The folder may hold FC, ROI time series, or the output of ``fcforge fc``. Schizoaffective and
    bipolar probands and relatives are left out unless `classes` lists them.

    Parameters
    ----------
    path : path
        Folder with ``participants.tsv`` (participant_id, site, diagnosis) and one file per
        subject. Load it as `Folder` for more settings.
    sites : sequence of str, optional
        Names of sites as in the table.
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
        Where it has a covariate of the same name, the file's is ignored.
    path : Path
        An .npz with ``subject_id``, or a table with a column for the id. Leading zeros of ids do
        not matter unless two ids differ in them alone.

    Raises
    ------
    DataError
        If the file names a subject twice, or has none of the subjects or no column of numbers.
    """
    columns = read_npz(path) if path.suffix.lower() == ".npz" else _table_columns(path)
    ids = as_text(columns.get("subject_id", ())).tolist()
    twice = [subject for subject, times in Counter(ids).items() if times > 1]
    if twice:
        message = f"names a subject twice: {abbreviated(twice)}."
        raise DataError(message, do="Keep one row each.")
    subjects = cohort.subject_id.tolist()
    row_of_id = {subject: row for row, subject in enumerate(ids)}
    # Ids of the file get the leading zeros that the cohort's have.
    row_of_subject = under_ids_of(subjects, row_of_id)
    places = np.array([row_of_subject.get(subject, -1) for subject in subjects])
    if (places < 0).all():  # -1: not in the file
        raise DataError(
            "holds none of these subjects.",
            do="It needs their ids: array 'subject_id', or a column such as participant_id.",
        )
    added = {}
    for name, values in columns.items():
        is_number = values.shape == (len(ids),) and values.dtype.kind in "fiu"
        if is_number and name not in ARRAYS:
            known = participants.with_gaps(values[places])
            added[name] = np.where(places < 0, np.nan, known)
    if not added:
        hint = "Covariates are columns of numbers."
        raise DataError("holds no covariate of these subjects.", do=hint)
    return replace(cohort, covariates={**added, **cohort.covariates})


def _table_columns(path: Path) -> dict[str, np.ndarray]:
    """Return the columns of a table of people as arrays, as an .npz would hold them."""
    people = participants.people_of(read_table(path), {}, needed=("id",)).people
    ids = as_text([person.subject_id for person in people])
    extra = [person.extra for person in people]
    return {"subject_id": ids, **participants.as_covariates(extra)}


def _has_edges(rows: Rows) -> bool:
    """Return whether a table has columns of edges."""
    return any(EDGE.fullmatch(name) for name in rows[0])


def _edge_rows(rows: Rows, kind: Kind) -> tuple[Rows, np.ndarray, tuple[str, ...]]:
    """Return the rows of a table without their edges, the FC of the edges, and the ROI names.

    The edges' cells are removed from `rows` in place. FC has the shape (rows, R, R). The edges are Fisher z
    if `kind` says so, else correlations.
    """
    names = [name for name in rows[0] if EDGE.fullmatch(name)]
    if not _has_edges(rows):
        hint = (
            "Name edges by two ROIs (Hip_L~Hip_R) or number them (edge_1, edge_2, ..)."
        )
        raise DataError("has no columns of edges.", do=hint)
    cells = [[row.pop(name) for name in names] for row in rows]
    # Errors name the row as a spreadsheet counts it: 1 is the header.
    edges = as_numbers(cells, range(2, len(rows) + 2))
    edges = undo_fisher_z(edges) if kind == "fisher_z" else edges
    fc, rois = rows_as_fc(edges, names)
    return rows, fc, rois


# -- one file per subject --------------------------------------------------------------------------
def _sites_by_id(listed: Listed) -> dict[str, list[str]]:
    """Return the sites of each id in a table, in the order of its rows."""
    sites_of: dict[str, list[str]] = {}
    for person in listed.people:
        sites = sites_of.setdefault(person.subject_id, [])
        if person.site not in sites:
            sites.append(person.site)
    return sites_of


def _file_of(
    person: Participant,
    folder: Path,
    files: Sequence[Path],
    sites_of: Mapping[str, Sequence[str]],
) -> Path:
    """Return the file of a subject: the one that the table names, or whose name begins with the id.

    Parameters
    ----------
    person : Participant
    folder : Path
        Folder that file names of the table are relative to.
    files : sequence of Path
        All files that may be a scan.
    sites_of : mapping of str to sequence of str
        Sites of each id of the table.

    Raises
    ------
    DataError
        If there is no such file, or more than one.
    """
    if person.file not in ("", "n/a"):
        return folder / person.file
    owned = [
        path for path in files if participants.owns_file(path.name, person.subject_id)
    ]
    if not owned:
        hint = f"A file name starts with the id and ends in {', '.join(SUFFIXES)}."
        raise DataError("is listed, but has no file.", do=hint)
    if len(owned) > 1:
        if sites := _sharing_sites(person, folder, owned, sites_of):
            shared = f"{len(sites)} sites share ids ({abbreviated(sites)})."
            raise DataError(shared, do=SITE_BEFORE_ID)
        names = abbreviated(path.name for path in owned)
        hint = "Choose one by its name, e.g. --set 'dataset.pattern=**/*_relmat.tsv'."
        raise DataError(f"has {len(owned)} files ({names}).", do=hint)
    return owned[0]


def _sharing_sites(
    person: Participant,
    folder: Path,
    owned: Sequence[Path],
    sites_of: Mapping[str, Sequence[str]],
) -> list[str]:
    """Return the sites that share a person's id, if its files lie in folders of different sites; else none.

    Parameters
    ----------
    person, folder, sites_of
        As in `_file_of`.
    owned : sequence of Path
        Files whose name begins with the id.
    """
    folders = [path.relative_to(folder).parts[:-1] for path in owned]
    sites = sites_of[person.subject_id]
    if len(sites) > 1 and len(set(folders)) > 1:
        return list(sites)
    # The table may have one row of an id that several sites have.
    known = {folded(site): site for of_id in sites_of.values() for site in of_id}
    named = [
        known[folded(part)]
        for parts in folders
        for part in parts
        if folded(part) in known
    ]
    named = list(dict.fromkeys(named))
    return named if len(named) > 1 else []


def _files_without_row(listed: Listed, files: Sequence[Path]) -> Iterator[Fault]:
    """Yield a warning that lists the files whose subjects are not in the table, if there are any.

    A table that names files needs no warning: other files are then left out on purpose.
    """
    subjects = [person.subject_id for person in listed.people]
    names = {path.name for path in files}
    # Rows that cannot be used are faults; their files have a row all the same.
    for subject in [*subjects, *(fault.subject for fault in listed.faults)]:
        names -= {name for name in names if participants.owns_file(name, subject)}
    if names and not any(person.file for person in listed.people):
        files_have = "1 file has" if len(names) == 1 else f"{len(names)} files have"
        message = f"{files_have} no row in the table: {abbreviated(sorted(names))}."
        yield Fault("warning", message, "Not loaded; add rows, or take the files away.")


def read_fc(path: Path, kind: Kind = "auto", variable: str | None = None) -> Reading:
    """Return FC and ROI names of the one scan in a file.

    Parameters
    ----------
    path : Path
        File with a matrix, a time series or a row of edges.
    kind : {"auto", "fc", "fisher_z", "timeseries"}
        Content of the file.
    variable : str, optional
        Array to read from an .npz or .mat file.
    """
    matrix, names = read_matrix_file(path, variable)
    with at(path):
        # One row or column of numbers is a row of edges; two numbers could be a matrix cut off.
        if 1 in matrix.shape and matrix.size > 2 and kind != "timeseries":
            row = matrix.reshape(1, -1)
            edges = undo_fisher_z(row) if kind == "fisher_z" else row
            matrices, names = rows_as_fc(edges, names)
            return Reading(matrices[0], roi_names=names, file=str(path))
        fc = to_fc(matrix, kind)
        return Reading(fc, roi_names=names[: len(fc)], file=str(path))


def scan_files(folder: Path, pattern: str = "**/*") -> list[Path]:
    """Return the files below a folder that may hold FC or a time series, without tables of people.

    Parameters
    ----------
    folder : Path
    pattern : str
        Glob pattern of the files that are considered.
    """
    files = []
    for path in sorted(folder.glob(pattern)):
        known = path.suffix.lower() in SUFFIXES and path.is_file()
        if known and not path.name.startswith("participants"):
            files.append(path)
    return files


def npz_fc(arrays: Mapping[str, np.ndarray], kind: Kind = "auto") -> np.ndarray:
    """Return the FC in an .npz that has ``fc`` or upper triangles ``fc_upper``.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        Arrays of the file.
    kind : {"auto", "fc"}
        Any other kind is an error: the file would have to hold one scan.

    Returns
    -------
    ndarray of shape (n, R, R), float32
    """
    if kind not in ("auto", "fc"):
        raise DataError(
            f"holds FC of many people, not '{kind}' (--kind).", do="Leave --kind out."
        )
    name = "fc_upper" if "fc_upper" in arrays else "fc"
    if name not in arrays:
        present = ", ".join(sorted(arrays)) or "nothing"
        hint = f"It has: {present}. Call it fc or fc_upper."
        raise DataError("array 'fc_upper' is missing.", do=hint)
    values = arrays[name]
    n_axes = 3 if name == "fc" else 2
    square = len(set(values.shape[1:])) == 1  # `fc_upper` has one such length
    if values.ndim != n_axes or values.dtype.kind not in "fiu" or not square:
        raise DataError(
            f"'{name}' has shape {values.shape} and type {values.dtype}.",
            do="fc is (subjects, ROIs, ROIs), fc_upper (subjects, edges); both numbers.",
        )
    if name == "fc":
        return values.astype(np.float32)
    return fc_from_upper(values, dtype=np.float32)


def npz_rows(
    arrays: Mapping[str, np.ndarray], kind: Kind
) -> tuple[Rows, np.ndarray, tuple[str, ...]]:
    """Return the people of an .npz as rows of a table, their FC, and the ROI names.

    The columns of the rows are the arrays with one value per subject.
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

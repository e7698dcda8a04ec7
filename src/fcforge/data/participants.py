"""Participants of a dataset: from the rows of a table to a cohort with FC and classes.

A table has a row per person, with columns for the *roles* id, site, label (the diagnosis) and file.
A diagnosis is a word such as ASD or HC. It is translated to a class: 0 for controls, 1 for patients.
Known words need no setting. If the table has a second disorder or other words, the user names the
groups: ``positive`` and ``negative``, or ``classes`` if there are more than two.
"""

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mode
from typing import Any, NamedTuple

import numpy as np

from fcforge.core.errors import DataError, at
from fcforge.core.formatting import abbreviated, counted, listed, whole
from fcforge.core.labels import is_missing, plain_word
from fcforge.core.names import check_names, two_spellings
from fcforge.core.target import Target
from fcforge.data.cohort import Cohort, as_text
from fcforge.data.faults import Fault
from fcforge.imaging import people as tables
from fcforge.imaging.matrix_files import column_of
from fcforge.imaging.parsers import as_number

Words = (
    str | Sequence[str] | None
)  # diagnoses of one group; a text joins them by commas
# Words of disorders as tables of ABIDE, ADHD-200, REST-meta-MDD and B-SNIP write them.
DISORDERS = {
    "": "1, true, patient, patients, case",
    "ASD": "asd, autism, autistic, asperger, asperger's, aspergers, pdd-nos",
    "ADHD": "adhd, adhd-c, adhd-i, adhd-h, adhd-combined, adhd-inattentive, adhd-hyperactive",
    "MDD": "mdd, depression, major depressive disorder",
    "SZ": "sz, scz, szp, schizophrenia, schizophrenia proband",
    "SZA": "sza, sadp, schizoaffective, schizoaffective disorder",
    "BD": "bd, bp, bpp, bipolar, bipolar disorder, bipolar proband",
}
# Words for patients, and the disorder that each names ("" where it names none).
PATIENTS = {
    word: disorder for disorder, words in DISORDERS.items() for word in listed(words)
}
# Words of subtypes of one disorder, which can be classes of their own.
SUBTYPES = {
    word: words
    for words in (
        "autism, autistic",
        "asperger, asperger's, aspergers",
        "pdd-nos",
        "adhd-c, adhd-combined",
        "adhd-i, adhd-inattentive",
        "adhd-h, adhd-hyperactive",
    )
    for word in listed(words)
}
CONTROLS = listed(
    "0, false, tc, td, tdc, hc, nc, cn, con, ctrl, control, controls, healthy, healthy control, "
    "healthy controls, normal control, typically developing, typical, neurotypical, nt, hv, normal, "
    "comparison"
)
# ABIDE's DX_GROUP counts 1 = autism, 2 = control; elsewhere a 2 could mean anything.
CONTROLS_OF_COLUMN = {"dx_group": ("2",)}
MISSING_NUMBERS = (-999.0, -9999.0)  # that stand for a missing value
NAME_THEM = (
    "Name both groups: --positive VALUE --negative VALUE (for a base model or in a config: "
    "--set dataset.positive=VALUE and so on); others are left out."
)
SEVERAL = 'More than two groups: --set \'dataset.classes=["HC", "SZ", "BP"]\', controls first.'
# Usual names of columns, by role.
ROLES = {
    "id": tables.ID_COLUMNS,
    "site": ("site", "site_id", "center", "centre", "hospital", "site_name"),
    "label": ("diagnosis", "dx", "dx_group", "group", "label", "y"),
    "file": ("file", "filename", "file_name", "path"),
}
# Covariates by other usual names.
ALIASES = {
    "func_mean_fd": "mean_fd",
    "fd": "mean_fd",
    "age_at_scan": "age",
    "gender": "sex",
}
SEX = {"m": 1.0, "male": 1.0, "f": 2.0, "female": 2.0}  # as ABIDE counts


# -- meaning of diagnoses --------------------------------------------------------------------------
def label_of(value: str, column: str = "") -> int:
    """Return the class of a known word for a diagnosis: 0 for controls, 1 for patients.

    Parameters
    ----------
    value : str
        Diagnosis as the table writes it.
    column : str
        Name of its column: in ``DX_GROUP``, 2 means control.

    Raises
    ------
    DataError
        For another word; the message lists known ones.

    Examples
    --------
    >>> label_of("ASD"), label_of("HC"), label_of("2", column="DX_GROUP")
    (1, 0, 0)
    """
    word = plain_word(value)
    if word in PATIENTS:
        return 1
    if word in (*CONTROLS, *CONTROLS_OF_COLUMN.get(column.lower(), ())):
        return 0
    patients = ", ".join(listed(words)[0] for words in DISORDERS.values())
    controls = ", ".join(CONTROLS[:8])
    known = (
        f"Known for patients: {patients}; for controls: {controls}; and similar words."
    )
    near = difflib.get_close_matches(word, [*PATIENTS, *CONTROLS], n=1, cutoff=0.8)
    meant = f"Did you mean '{near[0]}'? " if near else ""
    hint = f"{meant}{known} {NAME_THEM} {SEVERAL}"
    raise DataError(f"unknown diagnosis '{value.strip()}'.", do=hint)


def groups_of(
    values: Iterable[str],
    positive: Words = None,
    negative: Words = None,
    classes: Sequence[str] = (),
    partial: bool = False,
) -> dict[str, int]:
    """Return the class of each diagnosis that the user's groups name.

    Parameters
    ----------
    values : iterable of str
        Diagnoses of all people as the data write them.
    positive, negative, classes, partial
        As in `fcforge.data.folder.Folder`. Several diagnoses of a group may be joined by commas.

    Returns
    -------
    dict of str to int
        By diagnosis, in the form of `plain_word`: 0 for controls, 1 for patients, or the place among
        `classes`. Empty if no groups are named and known words suffice (`label_of`).

    Raises
    ------
    DataError
        For two disorders without named groups, a diagnosis in two groups, or groups that are not
        in the data.
    """
    counts = Counter(v.strip() for v in values if not is_missing(v))
    present = {plain_word(value) for value in counts}
    counted_values = ", ".join(f"{value} ({n})" for value, n in sorted(counts.items()))
    # The place of a group is its class: controls first.
    groups = [_listed(group) for group in classes or (negative, positive)]
    if classes and (positive or negative or len(classes) < 3 or not all(groups)):
        message = (
            f"classes = {list(classes)} must list three groups or more, and excludes positive "
            "and negative."
        )
        raise DataError(message, do=NAME_THEM)
    # A word twice in one group does no harm, one in two groups does.
    named = [word for group in groups for word in set(group)]
    if not named:
        _refuse_two_disorders(present, counted_values)
        return {}
    if not all(groups):  # one of two is named: the only other diagnosis is the other
        rest = present - {*named}
        if len(rest) != 1:
            message = (
                f"one group is named, and the other could be several: {counted_values}."
            )
            raise DataError(message, do=NAME_THEM)
        groups[groups.index(())] = tuple(rest)
    for word, times in Counter(named).items():
        if times > 1:
            message = f"the diagnosis '{word}' is named in {times} groups."
            raise DataError(message, do="Name each diagnosis in one group only.")
    # With `partial` some groups may be absent, but not all.
    absent = [", ".join(group) for group in groups if present.isdisjoint(group)]
    all_absent = len(absent) == len(groups) and bool(present)
    if all_absent or (absent and not partial):
        shown = "' or '".join(absent if all_absent else absent[:1])
        message = f"nobody has the diagnosis '{shown}'; there are: {counted_values}."
        raise DataError(message, do="Name the diagnoses as the data write them.")
    return {word: k for k, group in enumerate(groups) for word in group}


def meaning_of(value: str, groups: Mapping[str, int], column: str = "") -> int | None:
    """Return the class of a person's diagnosis, or None if it is in none of the user's groups.

    Parameters
    ----------
    value : str
        Diagnosis as the table writes it.
    groups : mapping of str to int
        As `groups_of` returns it; if empty, `label_of` decides.
    column : str
        Name of the diagnosis's column.

    Raises
    ------
    DataError
        When the diagnosis is missing or, without groups, no known word.
    """
    if is_missing(value):
        hint = (
            "Fill it in, or leave such people out: --drop-unlabelled (for a base model or in a "
            "config: --set dataset.drop_unlabelled=true)."
        )
        raise DataError("has no diagnosis.", do=hint)
    return groups.get(plain_word(value)) if groups else label_of(value, column)


def _listed(words: Words) -> tuple[str, ...]:
    """Return the diagnoses of one group in the form of `plain_word`; empty for None."""
    several = listed(words) if isinstance(words, str) else words or ()
    return tuple(plain_word(str(word)) for word in several)


def _refuse_two_disorders(present: set[str], counted_values: str) -> None:
    """Raise `DataError` if known words name more than one disorder.

    Parameters
    ----------
    present : set of str
        Diagnoses of the data in the form of `plain_word`.
    counted_values : str
        The same with their counts, for the message.
    """
    if len({PATIENTS[word] for word in present if word in PATIENTS}) > 1:
        message = f"more than two diagnoses: {counted_values}; two groups are compared."
        hint = (
            f"{NAME_THEM} Several diagnoses in one group: joined by commas. {SEVERAL}"
        )
        raise DataError(message, do=hint)


# -- people ----------------------------------------------------------------------------------------
class Participant(NamedTuple):
    """One subject before the FC is read.

    Attributes
    ----------
    subject_id, site : str
    y : int
        Class of the diagnosis; -1 before it is interpreted.
    file : str
        File in the table, or whatever tells the reading function where the FC is; may be empty.
    diagnosis : str
        Diagnosis as the data write it.
    extra : mapping
        Further columns of the table, text or numbers.
    """

    subject_id: str
    site: str
    y: int = -1
    file: str = ""
    diagnosis: str = ""
    extra: Mapping[str, Any] = {}


class Reading(NamedTuple):
    """Content of a subject's file.

    Attributes
    ----------
    fc : ndarray of shape (R, R)
    more : mapping
        Covariates that the file tells, e.g. the number of volumes.
    roi_names : tuple of str
        Names of the R ROIs; empty if the file has none.
    file : str
        Path of a file that holds this subject alone; else empty.
    """

    fc: np.ndarray
    more: Mapping[str, Any] = {}
    roi_names: tuple[str, ...] = ()
    file: str = ""


class Listed(NamedTuple):
    """People of a table.

    Attributes
    ----------
    people : sequence of Participant
    faults : sequence of Fault
        Faults of rows that cannot be used.
    label_column : str
        Column of the diagnosis; empty if there is none.
    """

    people: Sequence[Participant]
    faults: Sequence[Fault] = ()
    label_column: str = ""


Loaded = tuple[Participant, Reading]
Read = Callable[[Participant], Reading]


def assemble(name: str, listed: Listed, read: Read, path: Path) -> Cohort:
    """Return the cohort of all people whose FC can be read, with a fault for every other.

    Parameters
    ----------
    name : str
        Name of the dataset.
    listed : Listed
    read : callable
        Returns the `Reading` of a participant, or raises `DataError`.
    path : Path
        Place of the data, for errors.
    """
    loaded: list[Loaded] = []
    unread: list[Fault] = []
    for person in listed.people:
        try:
            loaded.append((person, read(person)))
        except DataError as error:
            unread.append(Fault.of(error, person.subject_id, person.site))
    kept, roi_faults = _same_rois(loaded)
    n_rois = len(kept[0][1].fc) if kept else 0
    fc = np.array([reading.fc for _, reading in kept], dtype=np.float32)
    y = np.array([person.y for person, _ in kept], dtype=np.int64)
    names = [reading.roi_names for _, reading in kept if reading.roi_names]
    classes = class_names([person.diagnosis for person, _ in kept], y)
    rows = [{**person.extra, **reading.more} for person, reading in kept]
    with at(path):
        covariates = as_covariates(rows)
    return Cohort(
        name,
        fc.reshape(len(kept), n_rois, n_rois),
        y,
        as_text([person.site for person, _ in kept]),
        as_text([person.subject_id for person, _ in kept]),
        names[0] if names else (),
        covariates,
        path=str(path),
        faults=(*listed.faults, *unread, *roi_faults),
        target=Target(classes=classes),
        file_of={
            person.subject_id: str(_below(Path(reading.file), path))
            for person, reading in kept
            if reading.file
        },
    )


def _below(file: Path, folder: Path) -> Path:
    """Return the path of a file relative to a folder, or as it is if it lies elsewhere."""
    return file.relative_to(folder) if file.is_relative_to(folder) else file


def as_covariates(rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Return the columns of a table's n rows as covariates (n,), by their usual names.

    A covariate holds numbers if every value is a number or missing (NaN), otherwise text. Words for
    the sex become numbers: 1 male, 2 female. Of a table that ``fcforge fc`` has written, columns that it
    measured count, such as ``mean_fd``, and not the user's columns of the same meaning.

    Raises
    ------
    DataError
        If two columns have one meaning, such as ``age`` and ``age_at_scan``, and other values.

    Examples
    --------
    >>> as_covariates([{"Sex": "M", "age": "12"}, {"Sex": "female", "age": "n/a"}])
    {'sex': array([1., 2.]), 'age': array([12., nan])}
    """
    covariates: dict[str, np.ndarray] = {}
    column_of_name: dict[str, str] = {}
    columns = list(rows[0]) if rows else []
    measured = set(tables.FROM_SIDECAR) if "n_empty_rois" in columns else set()
    for column in columns:
        name = ALIASES.get(column.lower(), column.lower())
        if name in measured & {*columns} and column != name:
            continue
        words = SEX if name == "sex" else {}
        texts = [str(row[column]).strip() for row in rows]
        numbers = [
            np.nan if is_missing(text) else words.get(text.lower()) or as_number(text)
            for text in texts
        ]
        is_numeric = None not in numbers
        values = (
            with_gaps(np.array(numbers, dtype=np.float64))
            if is_numeric
            else as_text(texts)
        )
        first = column_of_name.setdefault(name, column)
        if first != column:
            _require_equal(name, (first, column), covariates[name], values)
        covariates[name] = values
    return covariates


def _require_equal(
    name: str, columns: tuple[str, str], values: np.ndarray, others: np.ndarray
) -> None:
    """Raise `DataError` if two columns of one meaning, arrays of shape (n,), have other values.

    Parameters
    ----------
    name : str
        Covariate that both columns stand for.
    columns : pair of str
        Names of the columns in the table.
    values, others : ndarray of shape (n,)
    """
    differ = values.astype(str) != others.astype(str)
    if differ.any():
        n = int(differ.sum())
        people = "1 person" if n == 1 else f"{n} people"
        message = (
            f"has the columns '{columns[0]}' and '{columns[1]}', which both stand for {name} and "
            f"differ for {people}."
        )
        hint = "Which one counts? Rename or remove the other."
        raise DataError(message, do=hint)


def with_gaps(values: np.ndarray) -> np.ndarray:
    """Return numbers as float64, with NaN for those that stand for a missing value.

    Examples
    --------
    >>> with_gaps(np.array([12, -9999]))
    array([12., nan])
    """
    numbers = values.astype(np.float64)
    return np.where(np.isin(numbers, MISSING_NUMBERS), np.nan, numbers)


def _same_rois(loaded: Sequence[Loaded]) -> tuple[list[Loaded], list[Fault]]:
    """Return the subjects with the most common ROIs, and a fault for every other."""
    if not loaded:
        return [], []
    n_rois = mode(len(reading.fc) for _, reading in loaded)
    all_names = [
        reading.roi_names
        for _, reading in loaded
        if len(reading.fc) == n_rois and reading.roi_names
    ]
    names = mode(all_names) if all_names else ()
    kept: list[Loaded] = []
    faults: list[Fault] = []
    for person, reading in loaded:
        if len(reading.fc) != n_rois:
            message = f"has {len(reading.fc)} ROIs, most subjects have {n_rois}."
            hint = "Is it the same atlas, with volumes in rows and ROIs in columns?"
        elif reading.roi_names not in ((), names):
            pairs = enumerate(zip(reading.roi_names, names, strict=True), 1)
            number, name, usual = next(  # the first ROI with another name
                (i, own, other) for i, (own, other) in pairs if own != other
            )
            message = f"ROI {number} is '{name}', with most subjects '{usual}'."
            hint = "All subjects need the same ROIs in the same order; make the file again."
        else:
            kept.append((person, reading))
            continue
        faults.append(Fault("error", message, hint, person.subject_id, person.site))
    return kept, faults + _missing_names(kept)


def _missing_names(loaded: Sequence[Loaded]) -> list[Fault]:
    """Return one warning if some files have ROI names and others have none; else nothing."""
    nameless = [
        person.subject_id for person, reading in loaded if not reading.roi_names
    ]
    if not nameless or len(nameless) == len(loaded):
        return []
    files = counted(len(nameless), "file")
    message = f"{files} without ROI names, others have them ({abbreviated(nameless)})."
    hint = "They are taken to have the same ROIs in the same order."
    return [Fault("warning", message, hint)]


def owns_file(file_name: str, subject: str) -> bool:
    """Return whether a file is a subject's: whether its name starts with the whole id.

    ``s1`` does not own ``s10.csv``. The prefix ``sub-`` does not matter. A number in the file name
    may begin with zeros that the id lacks.
    """
    bare_id = subject.removeprefix("sub-")
    padding = "0*" if bare_id.isdigit() else ""
    # After the id comes no letter or digit.
    pattern = rf"(sub-)?{padding}{re.escape(bare_id)}(?![^\W_])"
    return re.match(pattern, file_name) is not None


def labelled(
    listed: Listed, groups: Mapping[str, int], drop_unlabelled: bool = False
) -> Listed:
    """Return the people whose diagnosis belongs to a group, with their class.

    A person whose diagnosis is missing or unknown becomes a fault. One warning counts the people who
    are left out: those whose diagnosis is in none of the groups and, with `drop_unlabelled`, those
    without a diagnosis.

    Parameters
    ----------
    listed : Listed
    groups : mapping of str to int
        As `groups_of` returns it.
    drop_unlabelled : bool
        Leave people without a diagnosis out instead of reporting a fault.
    """
    kept: list[Participant] = []
    faults = list(listed.faults)
    left_out: Counter[str] = Counter()
    for person in listed.people:
        word = person.diagnosis
        missing = is_missing(word)
        try:
            skip = missing and drop_unlabelled
            y = None if skip else meaning_of(word, groups, listed.label_column)
        except DataError as error:
            faults.append(Fault.of(error, person.subject_id, person.site))
            continue
        if y is None:
            left_out["no diagnosis" if missing else word] += 1
        else:
            kept.append(person._replace(y=y))
    if left_out:
        reasons = ", ".join(f"{reason}: {n}" for reason, n in sorted(left_out.items()))
        subjects = counted(left_out.total(), "subject")
        faults.append(Fault("warning", f"{subjects} left out ({reasons})."))
    return listed._replace(people=kept, faults=faults)


def class_names(diagnoses: Sequence[str], y: np.ndarray) -> tuple[str, ...]:
    """Return the names of controls and patients for tables and plots.

    A class is called by its diagnoses, joined by slashes. The names are "0" and "1" if a class is
    empty, if diagnoses are missing, or if they are False and True.

    Parameters
    ----------
    diagnoses : sequence of str
        Diagnosis of each person as the data write it.
    y : ndarray of shape (n,)
        Class of each person, 0 or 1.
    """
    words = as_text(diagnoses)
    names = tuple("/".join(np.unique(words[y == label])) for label in (0, 1))
    meaningful = all(names) and names != ("False", "True")
    return names if meaningful else ("0", "1")


def columns_of(text: str) -> dict[str, str]:
    """Return the columns by role that a text such as ``"site=scanner_site,label=dx"`` names.

    Examples
    --------
    >>> columns_of("site=scanner_site, label=dx")
    {'site': 'scanner_site', 'label': 'dx'}
    """
    pairs = [part.partition("=") for part in listed(text)]
    return {role.strip(): column.strip() for role, _, column in pairs}


def find_columns(header: Sequence[str], named: Mapping[str, str]) -> dict[str, str]:
    """Return the column of each role: the named one, else one with a usual name, else "".

    Parameters
    ----------
    header : sequence of str
        Names of the table's columns.
    named : mapping of role to column
        Columns that the user names.

    Raises
    ------
    ConfigError
        For an unknown role.
    DataError
        For a named column that does not exist.
    """
    check_names("role of a column", named, ROLES)
    columns = {}
    for role, usual in ROLES.items():
        candidates = [named[role].lower()] if role in named else usual
        columns[role] = column_of(header, candidates)
        if role in named and not columns[role]:
            shown = ", ".join(header[:8])
            message = f"has no column '{named[role]}' (columns: {shown})."
            hint = f"Name the column of the {role} as the table does."
            raise DataError(message, do=hint)
    return columns


def no_column(role: str, header: Sequence[str]) -> DataError:
    """Return the error for a table without a column for a role."""
    option = (
        f"--columns {role}=NAME (for a base model or in a config: "
        f"--set dataset.columns.{role}=NAME)"
    )
    usual = (*ROLES[role], f"or name it: {option}")
    error = tables.no_column(role, header, usual)
    if "n_empty_rois" in header:  # written by `fcforge fc`
        again = "fcforge fc made this table: if it had none of people, run it again with --participants FILE."
        return DataError(error.what, do=f"{again} {error.do}")
    return error


def people_of(
    rows: Sequence[Mapping[str, str]],
    named: Mapping[str, str],
    needed: Sequence[str] = ("id", "site"),
) -> Listed:
    """Return the rows of a table as people, with a fault for each that cannot be used.

    Parameters
    ----------
    rows : sequence of mapping of column to cell
    named : mapping of role to column
        Columns without a usual name.
    needed : sequence of str
        Roles that must have a column, and a value in each row.

    Raises
    ------
    DataError
        When there is no column for a role that is `needed`, or two columns differ in case alone.
    """
    columns = find_columns(list(rows[0]), named)
    for role in (role for role in needed if not columns[role]):
        raise no_column(role, list(rows[0]))
    if both := two_spellings(rows[0]):
        hint = "Which one counts? Rename or remove the other."
        raise DataError(f"has the columns {both}.", do=hint)
    people: list[Participant] = []
    faults: list[Fault] = []
    for number, row in enumerate(rows, 2):  # as a spreadsheet counts: 1 is the header
        # `whole` undoes a spreadsheet's 50952.0.
        cells = {role: whole(row.get(column, "")) for role, column in columns.items()}
        subject, site = cells["id"], cells["site"]
        empty = [
            role
            for role in needed
            if is_missing(cells[role]) or cells[role].casefold() == "none"
        ]
        if empty:
            message = f"no {empty[0]} in row {number} of the table."
            faults.append(Fault("error", message, "Fill it in.", subject, site))
            continue
        used = columns.values()
        extra = {k.lower(): v for k, v in row.items() if k and k not in used}
        people.append(
            Participant(
                subject,
                site,
                file=cells["file"],
                diagnosis=cells["label"].strip(),
                extra=extra,
            )
        )
    return Listed(people, faults, columns["label"])

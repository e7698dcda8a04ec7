"""Participants: id, site, meaning of the diagnosis, and the cohort of those with a file.

Two groups are compared, or the groups that are listed. Known words need no setting. For a table with
a second disorder or with other words, name the groups: ``positive`` and ``negative``, or ``classes``
if there are more than two.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mode
from typing import Any, NamedTuple

import numpy as np

from fcforge.core.errors import DataError
from fcforge.core.formatting import counted, listed, some, whole
from fcforge.core.names import check_names, two_spellings
from fcforge.core.target import Target
from fcforge.data.cohort import Cohort, as_text
from fcforge.data.faults import Fault
from fcforge.imaging import people as tables
from fcforge.imaging.matrix_files import column_of
from fcforge.imaging.parsers import as_number

Words = str | Sequence[str] | None
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
CONTROLS = listed(
    "0, false, tc, td, tdc, hc, nc, cn, con, ctrl, control, controls, healthy, healthy control, "
    "healthy controls, normal control, typically developing"
)
# ABIDE's DX_GROUP counts 1 = autism, 2 = control; elsewhere a 2 could mean anything.
CONTROLS_OF_COLUMN = {"dx_group": ("2",)}
MISSING = ("", *listed("., n/a, #n/a, #nv, na, nan, null, -999, -9999, -9999.0"))
NAME_THEM = (
    "Name both groups: --positive VALUE --negative VALUE (of a start or a config: "
    "--set dataset.positive=VALUE and so on); others are left out."
)
SEVERAL = 'More than two groups: --set \'dataset.classes=["HC", "SZ", "BP"]\', controls first.'
# Names of columns by role.
ROLES = {
    "id": tables.ID_COLUMNS,
    "site": ("site", "site_id", "center", "centre", "hospital", "site_name"),
    "label": ("diagnosis", "dx", "dx_group", "group", "label", "y"),
    "file": ("file", "filename", "file_name", "path"),
}
ALIASES = {
    "func_mean_fd": "mean_fd",
    "fd": "mean_fd",
    "age_at_scan": "age",
    "gender": "sex",
}
SEX = {"m": 1.0, "male": 1.0, "f": 2.0, "female": 2.0}  # as ABIDE counts


# -- meaning of diagnoses --------------------------------------------------------------------------
def is_missing(value: str) -> bool:
    """Return whether a cell is a missing value."""
    return _plain(value) in MISSING


def _plain(word: str) -> str:
    """Return a word in the form that is compared: lower case, plain spaces, narrow letters."""
    return unicodedata.normalize("NFKC", word).strip().casefold()


def label_of(value: str, column: str = "") -> int:
    """Return 0 or 1 for a known word; raise `DataError`, which lists known words, for others.

    Examples
    --------
    >>> label_of("ASD"), label_of("HC"), label_of("2", column="DX_GROUP")
    (1, 0, 0)
    """
    word = _plain(value)
    if word in PATIENTS:
        return 1
    if word in (*CONTROLS, *CONTROLS_OF_COLUMN.get(column.lower(), ())):
        return 0
    patients = ", ".join(listed(words)[0] for words in DISORDERS.values())
    controls = ", ".join(CONTROLS[:8])
    known = f"Known for patients: {patients}; for controls: {controls}; and their like."
    do = f"{known} {NAME_THEM} {SEVERAL}"
    raise DataError(f"unknown diagnosis '{value.strip()}'.", do=do)


def groups_of(
    values: Iterable[str],
    positive: Words = None,
    negative: Words = None,
    classes: Sequence[str] = (),
    partial: bool = False,
) -> dict[str, int]:
    """Return the place of each diagnosis's group, controls first; empty if known words suffice.

    Parameters
    ----------
    values : iterable of str
        Diagnoses as the data write them.
    positive, negative, classes, partial
        As in `fcforge.data.folder.Folder`. Several diagnoses of a group may be joined by commas.

    Raises
    ------
    DataError
        For two disorders without named groups, a diagnosis in two groups, or groups that are not
        in the data.
    """
    counts = Counter(v.strip() for v in values if not is_missing(v))
    known = {_plain(value) for value in counts}
    counted_values = ", ".join(f"{value} ({n})" for value, n in sorted(counts.items()))
    words = [_listed(group) for group in classes or (negative, positive)]
    if classes and (positive or negative or len(classes) < 3 or not all(words)):
        message = f"classes = {list(classes)} lists three groups or more, and nothing else does."
        raise DataError(message, do=NAME_THEM)
    named = [word for group in words for word in set(group)]
    if not named:
        _refuse_two_disorders(known, counted_values)
        return {}
    if not all(words):
        rest = known - {*named}
        if len(rest) != 1:
            message = (
                f"one group is named, and the other could be several: {counted_values}."
            )
            raise DataError(message, do=NAME_THEM)
        words[words.index(())] = tuple(rest)
    for word, times in Counter(named).items():
        if times > 1:
            message = f"the diagnosis '{word}' is named in {times} groups."
            raise DataError(message, do="Name each diagnosis in one group only.")
    absent = [", ".join(group) for group in words if known.isdisjoint(group)]
    everything = len(absent) == len(words) and bool(known)
    if everything or (absent and not partial):
        lost = "' or '".join(absent if everything else absent[:1])
        message = f"nobody has the diagnosis '{lost}'; there are: {counted_values}."
        raise DataError(message, do="Name the diagnoses as the data write them.")
    return {word: k for k, group in enumerate(words) for word in group}


def meaning_of(value: str, groups: Mapping[str, int], column: str = "") -> int | None:
    """Return 0 for a control, 1 for a patient, or the place of the group; None for another.

    Raises
    ------
    DataError
        When the diagnosis is missing or is no known word.
    """
    if is_missing(value):
        do = (
            "Fill it in, or leave such people out: --drop-unlabelled (of a start or a config: "
            "--set dataset.drop_unlabelled=true)."
        )
        raise DataError("has no diagnosis.", do=do)
    return groups.get(_plain(value)) if groups else label_of(value, column)


def _listed(words: Words) -> tuple[str, ...]:
    several = listed(words) if isinstance(words, str) else words or ()
    return tuple(_plain(str(word)) for word in several)


def _refuse_two_disorders(known: set[str], told: str) -> None:
    if len({PATIENTS[word] for word in known if word in PATIENTS}) > 1:
        message = f"more than two diagnoses: {told}; two groups are compared."
        do = f"{NAME_THEM} Several diagnoses in one group: joined by commas. {SEVERAL}"
        raise DataError(message, do=do)


# -- people ----------------------------------------------------------------------------------------
class Participant(NamedTuple):
    """One subject before the FC is read.

    `diagnosis` is as the data write it, `y` its class; `extra` holds further columns, text or
    numbers.
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
        Further covariates, e.g. the number of volumes.
    roi_names : tuple of str
        Names in the file; empty if it has none.
    """

    fc: np.ndarray
    more: Mapping[str, Any] = {}
    roi_names: tuple[str, ...] = ()


class Listed(NamedTuple):
    """People of a table before their diagnosis is interpreted, and faults of the others."""

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
    kept, odd = _same_rois(loaded)
    n = len(kept[0][1].fc) if kept else 0
    fc = np.array([reading.fc for _, reading in kept], dtype=np.float32)
    y = np.array([person.y for person, _ in kept], dtype=np.int64)
    names = [reading.roi_names for _, reading in kept if reading.roi_names]
    classes = class_names([person.diagnosis for person, _ in kept], y)
    return Cohort(
        name,
        fc.reshape(len(kept), n, n),
        y,
        as_text([person.site for person, _ in kept]),
        as_text([person.subject_id for person, _ in kept]),
        names[0] if names else (),
        as_covariates([{**who.extra, **reading.more} for who, reading in kept]),
        path=str(path),
        faults=(*listed.faults, *unread, *odd),
        target=Target(classes=classes),
    )


def as_covariates(rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Return the covariates of rows of a table, by their usual names.

    A covariate is an array (n,) of numbers if every value is a number or missing (NaN), otherwise
    of text. Words for the sex become numbers.

    Examples
    --------
    >>> as_covariates([{"Sex": "M", "age": "12"}, {"Sex": "female", "age": "n/a"}])
    {'sex': array([1., 2.]), 'age': array([12., nan])}
    """
    covariates = {}
    for column in rows[0] if rows else ():
        name = ALIASES.get(column.lower(), column.lower())
        words = SEX if name == "sex" else {}
        texts = [str(row[column]).strip() for row in rows]
        numbers = [
            np.nan if is_missing(text) else words.get(text.lower()) or as_number(text)
            for text in texts
        ]
        known = None not in numbers
        covariates[name] = (
            np.array(numbers, dtype=np.float64) if known else as_text(texts)
        )
    return covariates


def _same_rois(loaded: Sequence[Loaded]) -> tuple[list[Loaded], list[Fault]]:
    """Return the subjects with the most common ROIs, and a fault for every other."""
    if not loaded:
        return [], []
    common = mode(len(r.fc) for _, r in loaded)
    sized = [r.roi_names for _, r in loaded if len(r.fc) == common and r.roi_names]
    names = mode(sized) if sized else ()
    kept: list[Loaded] = []
    faults: list[Fault] = []
    for person, reading in loaded:
        if len(reading.fc) != common:
            message = f"has {len(reading.fc)} ROIs, most subjects have {common}."
            do = "Is it the same atlas, with volumes in rows and ROIs in columns?"
        elif reading.roi_names not in ((), names):
            own = reading.roi_names
            place = next(i for i, name in enumerate(own) if name != names[i])
            usual = f"with most subjects '{names[place]}'"
            message = f"ROI {place + 1} is '{own[place]}', {usual}."
            do = "All subjects need the same ROIs in the same order; make the file again."
        else:
            kept.append((person, reading))
            continue
        faults.append(Fault("error", message, do, person.subject_id, person.site))
    return kept, faults + _unnamed(kept)


def _unnamed(kept: Sequence[Loaded]) -> list[Fault]:
    """Return a warning if some files have ROI names and others have none."""
    without = [person.subject_id for person, reading in kept if not reading.roi_names]
    if not without or len(without) == len(kept):
        return []
    files = counted(len(without), "file")
    message = f"{files} without ROI names, others have them ({some(without)})."
    return [Fault("warning", message, "They are taken to have the same ROIs in order.")]


def owns_file(file_name: str, subject: str) -> bool:
    """Return whether a file name starts with a whole id (``s1`` does not own ``s10.csv``).

    A number in the file name may begin with zeros that the id lacks.
    """
    who = subject.removeprefix("sub-")
    padding = "0*" if who.isdigit() else ""
    return (
        re.match(rf"(sub-)?{padding}{re.escape(who)}(?![^\W_])", file_name) is not None
    )


def labelled(
    listed: Listed, groups: Mapping[str, int], drop_unlabelled: bool = False
) -> Listed:
    """Return the people with their class; each other one has a fault or is counted as left out.

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
    left: Counter[str] = Counter()
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
            left["no diagnosis" if missing else word] += 1
        else:
            kept.append(person._replace(y=y))
    if left:
        reasons = ", ".join(f"{message}: {n}" for message, n in sorted(left.items()))
        who = counted(left.total(), "subject")
        faults.append(Fault("warning", f"{who} left out ({reasons})."))
    return listed._replace(people=kept, faults=faults)


def class_names(diagnoses: Sequence[str], y: np.ndarray) -> tuple[str, ...]:
    """Return the names of controls and patients: their diagnoses, or "0" and "1" without words."""
    words = as_text(diagnoses)
    names = tuple("/".join(np.unique(words[y == label])) for label in (0, 1))
    named = all(names) and names != ("False", "True")
    return names if named else ("0", "1")


def columns_of(text: str) -> dict[str, str]:
    """Return ``"site=scanner_site,label=dx"`` as a mapping of roles to columns.

    Examples
    --------
    >>> columns_of("site=scanner_site, label=dx")
    {'site': 'scanner_site', 'label': 'dx'}
    """
    pairs = [part.partition("=") for part in listed(text)]
    return {role.strip(): column.strip() for role, _, column in pairs}


def find_columns(header: Sequence[str], named: Mapping[str, str]) -> dict[str, str]:
    """Return the column of each role: the named one, else one with a usual name, else "".

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
        asked = [named[role].lower()] if role in named else usual
        columns[role] = column_of(header, asked)
        if role in named and not columns[role]:
            shown = ", ".join(header[:8])
            message = f"has no column '{named[role]}' (columns: {shown})."
            raise DataError(
                message, do=f"Name the one for the {role} as the table does."
            )
    return columns


def no_column(role: str, header: Sequence[str]) -> DataError:
    """Return the error for a table without a column of a role."""
    say = f"--columns {role}=NAME (of a start or a config: --set dataset.columns.{role}=NAME)"
    usual = (*ROLES[role], f"or say which it is: {say}")
    return tables.no_column(role, header, usual)


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
    needed : sequence of str
        Roles that must have a column and a value.

    Raises
    ------
    DataError
        When there is no column for what is `needed`.
    """
    columns = find_columns(list(rows[0]), named)
    for role in (role for role in needed if not columns[role]):
        raise no_column(role, list(rows[0]))
    if both := two_spellings(rows[0]):
        do = "Which one counts? Rename or remove the other."
        raise DataError(f"has the columns {both}.", do=do)
    people: list[Participant] = []
    faults: list[Fault] = []
    for number, row in enumerate(rows, 2):  # as a spreadsheet counts
        own = {role: whole(row.get(column, "")) for role, column in columns.items()}
        lost = [r for r in needed if own[r] in ("", "n/a")]
        if lost:
            message = f"no {lost[0]} in row {number} of the table."
            faults.append(
                Fault("error", message, "Fill it in.", own["id"], own["site"])
            )
            continue
        used = columns.values()
        extra = {k.lower(): v for k, v in row.items() if k and k not in used}
        who = (own["id"], own["site"])
        people.append(Participant(*who, -1, own["file"], own["label"].strip(), extra))
    return Listed(people, faults, columns["label"])

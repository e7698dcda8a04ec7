"""Who took part: id, site, diagnosis and further columns, and the cohort of those with a file."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fcforge.errors import ConfigError, DataError
from fcforge.imaging import people as tables
from fcforge.sites.cohort import NUMBERED, Cohort, Fault, as_text

COLUMNS = {
    "subject": tables.ID_COLUMNS,
    "site": tables.SITE_COLUMNS,
    "diagnosis": tables.DIAGNOSIS_COLUMNS,
    "file": ("file", "filename", "file_name", "path"),
}
PATIENT = (
    "1",
    "asd",
    "mdd",
    "sz",
    "scz",
    "adhd",
    "bd",
    "patient",
    "patients",
    "case",
    "autism",
)
CONTROL = (
    "0",
    "tc",
    "td",
    "hc",
    "nc",
    "cn",
    "control",
    "controls",
    "healthy",
    "ctrl",
    "con",
)
# ABIDE's DX_GROUP counts 1 = autism, 2 = control; elsewhere a 2 could mean anything.
CONTROL_OF_COLUMN = {"dx_group": ("2",)}
MISSING = ("", "n/a", "NA", "-9999", "-9999.0")
ALIASES = {
    "func_mean_fd": "mean_fd",
    "fd": "mean_fd",
    "age_at_scan": "age",
    "gender": "sex",
}
SEX = {"m": 1.0, "male": 1.0, "f": 2.0, "female": 2.0}  # as ABIDE counts


class Participant(NamedTuple):
    """One subject before the FC is read; `extra` holds further columns, text or numbers."""

    subject_id: str
    site: str
    y: int
    file: str = ""
    diagnosis: str = ""
    extra: Mapping[str, Any] = {}


class Reading(NamedTuple):
    """What a subject's file holds.

    Attributes
    ----------
    fc : ndarray of shape (R, R)
    more : mapping
        Further covariates, e.g. the number of volumes.
    roi_names : tuple of str
        As the file has them; empty where it has none.
    """

    fc: np.ndarray
    more: Mapping[str, Any] = {}
    roi_names: tuple[str, ...] = ()


Loaded = tuple[Participant, Reading]
Read = Callable[[Participant], Reading]
Faults = Sequence[Fault]
Words = Mapping[str, str]


def assemble(
    name: str,
    people: list[Participant],
    read: Read,
    faults: Faults = (),
    n_rois: int | None = None,
) -> Cohort:
    """Cohort of all people whose FC can be read; a fault for every other.

    Parameters
    ----------
    name : str
        Of the dataset.
    people : list of Participant
    read : callable
        The file of a participant, or a `DataError`.
    faults : sequence of Fault
        Found before.
    n_rois : int, optional
        Expected ROI count; by default the most frequent one.
    """
    loaded = list[Loaded]()
    found = list(faults)
    for person in people:
        try:
            loaded.append((person, read(person)))
        except DataError as error:
            found.append(Fault.of(error, person.subject_id, person.site))
    kept, n, names, odd = _same_rois(loaded, n_rois)
    y = np.array([p.y for p, _ in kept], dtype=np.int64)
    extra = [{**p.extra, **r.more} for p, r in kept]
    columns = {
        name: [row[name] for row in extra] for name in (extra[0] if extra else ())
    }
    fc = np.array([r.fc for _, r in kept], dtype=np.float32).reshape(len(kept), n, n)
    site = as_text([p.site for p, _ in kept])
    ids = as_text([p.subject_id for p, _ in kept])
    classes = class_names([p.diagnosis for p, _ in kept], y)
    more = covariates_of(columns, len(y))
    return Cohort(
        name, fc, y, site, ids, names, more, faults=(*found, *odd), classes=classes
    )


def _same_rois(
    loaded: list[Loaded], asked: int | None
) -> tuple[list[Loaded], int, tuple[str, ...], list[Fault]]:
    """Subjects with the common count and names of ROIs, both, and a fault for every other."""
    common = (
        asked or Counter([len(r.fc) for _, r in loaded] or [0]).most_common(1)[0][0]
    )
    kept = [item for item in loaded if len(item[1].fc) == common]
    names = Counter([r.roi_names for _, r in kept if r.roi_names] or [()]).most_common(
        1
    )[0][0]
    wanted = f"{common} were expected." if asked else f"most subjects have {common}."
    faults = list[Fault]()
    for person, reading in loaded:
        pairs = enumerate(zip(reading.roi_names, names, strict=False), 1)
        other = next((place for place in pairs if len(set(place[1])) > 1), None)
        if len(reading.fc) != common:
            do = "Is it the same atlas, with volumes in rows and ROIs in columns?"
            what = f"has {len(reading.fc)} ROIs, {wanted}"
        elif other:
            i, (own, usual) = other
            what = f"ROI {i} is '{own}', with most subjects '{usual}'."
            do = "All subjects need the same ROIs in the same order; make the file again."
        else:
            continue
        faults.append(Fault("error", what, do, person.subject_id, person.site))
    if unnamed := [p.subject_id for p, r in kept if names and not r.roi_names]:
        what = f"{len(unnamed)} files have no ROI names, others do (e.g. subject '{unnamed[0]}')."
        faults.append(
            Fault("warning", what, "They are taken to have the same ROIs in order.")
        )
    return (
        [item for item in kept if item[1].roi_names in ((), names)],
        common,
        names,
        faults,
    )


def covariates_of(arrays: Mapping[str, Any], n: int) -> dict[str, np.ndarray]:
    """Arrays with one value for each of n subjects, under their customary names."""
    own = {
        ALIASES.get(k.lower(), k): v for k, v in arrays.items() if np.shape(v) == (n,)
    }
    return {name: as_covariate(name, values) for name, values in own.items()}


def as_covariate(name: str, values: Sequence[Any] | np.ndarray) -> np.ndarray:
    """Numbers (n,) where every value is a number or missing (NaN), else text; sex in words counts.

    Examples
    --------
    >>> as_covariate("sex", ["M", "female"]), as_covariate("age", ["12", "n/a"])
    (array([1., 2.]), array([12., nan]))
    """
    texts = [str(v).strip() for v in values]
    words = SEX if name == "sex" else {}
    try:
        numbers = [
            np.nan if t in MISSING else words.get(t.lower()) or float(t) for t in texts
        ]
    except ValueError:
        return as_text(values)
    return np.array(numbers, dtype=np.float64)


def roi_names_of(arrays: Mapping[str, np.ndarray], n_rois: int) -> tuple[str, ...]:
    """ROI names in an .npz; empty where it has none."""
    found = [arrays[k] for k in ("roi_names", "roi_ids") if k in arrays]
    fitting = [names for names in found if names.shape == (n_rois,)]
    return tuple(as_text(fitting[0]).tolist()) if fitting else ()


def owns_file(file_name: str, subject: str) -> bool:
    """Whether a file name starts with an id that ends there (``s1`` does not own ``s10.csv``)."""
    return re.match(rf"(sub-)?{re.escape(subject)}(?![^\W_])", file_name) is not None


def label_of(
    value: str, column: str = "", labels: Mapping[str, int] | None = None
) -> int:
    """0 or 1 for a diagnosis value; an error that lists the known values for any other.

    Examples
    --------
    >>> label_of("ASD"), label_of("HC"), label_of("2", column="DX_GROUP")
    (1, 0, 0)
    """
    text = value.strip()
    own = {str(k).lower(): int(v) for k, v in (labels or {}).items()}
    if any(v not in (0, 1) for v in own.values()):
        raise ConfigError("labels map to 0 (control) or 1 (patient) only.")
    controls = (*CONTROL, *CONTROL_OF_COLUMN.get(column.lower(), ()))
    known = {**dict.fromkeys(PATIENT, 1), **dict.fromkeys(controls, 0), **own}
    if text.lower() in known:
        return known[text.lower()]
    what = f"unknown diagnosis '{text}'." if text else "has no diagnosis."
    do = (
        f"Known for patients: {', '.join(PATIENT)}; for controls: {', '.join(CONTROL)};"
    )
    raise DataError(
        what, do=f"{do} for others say which value means patient: --positive VALUE."
    )


def labels_by_positive(values: Iterable[Any], positive: str | None) -> dict[str, int]:
    """What diagnoses mean where `positive` is the patients and the only other value the controls.

    Nothing for None.

    Examples
    --------
    >>> labels_by_positive(["TC", "ASD", "ASD"], "ASD")
    {'ASD': 1, 'TC': 0}
    """
    if positive is None:
        return {}
    found = sorted({str(v).strip() for v in values} - set(MISSING))
    if positive not in found or len(found) != 2:
        what = f"positive = '{positive}' needs two diagnoses, one of them that; there are: "
        do = "Name the patients' value as the data write it."
        raise DataError(f"{what}{', '.join(found[:8])}.", do=do)
    return {value: int(value == positive) for value in found}


def class_names(diagnoses: Sequence[str], y: np.ndarray) -> tuple[str, str]:
    """What controls and patients are called: every value of each, numbers 0 and 1 by themselves."""
    pairs = sorted(set(zip(diagnoses, y.tolist(), strict=True)))
    controls, patients = (
        "/".join(d for d, label in pairs if label == k) for k in (0, 1)
    )
    words = controls and patients and (controls, patients) != ("False", "True")
    return (controls, patients) if words else NUMBERED


def read_participants(
    path: Path, labels: Mapping[str, int] | None = None, positive: str | None = None
) -> tuple[list[Participant], list[Fault]]:
    """Rows of a participants table, and a fault for each row that cannot be used.

    Raises
    ------
    DataError
        When the table cannot be read or has no column for id, site or diagnosis.
    """
    header, rows = tables.read_table(path)
    columns = {
        role: tables.column_of(header, accepted) for role, accepted in COLUMNS.items()
    }
    for role, accepted in COLUMNS.items():
        if not columns[role] and role != "file":
            raise tables.no_column(role, header, accepted, path)
    place = header.index(columns["diagnosis"])
    values = [cells[place] for _, cells in rows if len(cells) > place]
    known = {**(labels or {}), **labels_by_positive(values, positive)}
    people = list[Participant]()
    faults = list[Fault]()
    for number, cells in rows:
        row = dict(zip(header, cells, strict=False))
        try:
            if len(cells) != len(header):
                what = f"{len(cells)} values for {len(header)} columns."
                raise DataError(what, do="The table is cut off or mixed.")
            people.append(_participant(row, columns, known))
        except DataError as error:
            subject, site = (row.get(columns[role], "") for role in ("subject", "site"))
            what = f"{path.name}, row {number}: {error.what}"
            faults.append(Fault("error", what, error.do, subject, site))
    return people, faults


def table_in(folder: Path) -> Path | None:
    """participants.tsv or .csv of a folder."""
    tables = (folder / f"participants.{ending}" for ending in ("tsv", "csv"))
    return next((table for table in tables if table.is_file()), None)


def _participant(row: Words, columns: Words, labels: Mapping[str, int]) -> Participant:
    subject, site, said = (
        row[columns[role]] for role in ("subject", "site", "diagnosis")
    )
    if not subject or not site:
        raise DataError(
            f"no {'participant id' if not subject else 'site'}.", do="Fill it in."
        )
    y = label_of(said, columns["diagnosis"], labels)
    file = row.get(columns["file"], "")
    extra = {k.lower(): v for k, v in row.items() if k and k not in columns.values()}
    return Participant(subject, site, y, file, said.strip(), extra)

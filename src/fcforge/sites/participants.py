"""Who took part: participants.tsv with id, site and diagnosis, in the spellings people use."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fcforge.errors import ConfigError, DataError
from fcforge.imaging.people import DIAGNOSIS_COLUMNS, ID_COLUMNS, SITE_COLUMNS
from fcforge.sites.cohort import Finding

COLUMNS: dict[str, tuple[str, ...]] = {
    "subject": ID_COLUMNS,
    "site": SITE_COLUMNS,
    "diagnosis": DIAGNOSIS_COLUMNS,
    "file": ("file", "filename", "file_name", "path"),
}
PATIENT = ("1", "asd", "mdd", "sz", "scz", "adhd", "bd", "patient", "patients", "case", "autism")
CONTROL = ("0", "tc", "td", "hc", "nc", "cn", "control", "controls", "healthy", "ctrl", "con")
# ABIDE's DX_GROUP counts 1 = autism, 2 = control; elsewhere a 2 could mean anything.
CONTROL_OF_COLUMN = {"dx_group": ("2",)}


@dataclass(frozen=True)
class Participant:
    """One row of participants.tsv."""

    subject_id: str
    site: str
    label: int
    file: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)


def label_of(value: str, column: str = "", labels: Mapping[str, int] | None = None) -> int:
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
    if text.lower() in own:
        return own[text.lower()]
    if text.lower() in CONTROL + CONTROL_OF_COLUMN.get(column.lower(), ()):
        return 0
    if text.lower() in PATIENT:
        return 1
    raise DataError(
        f"unknown diagnosis '{text}'." if text else "has no diagnosis.",
        do=f"Known for patients: {', '.join(PATIENT)}; for controls: {', '.join(CONTROL)}; "
        "others by labels={'value': 0 or 1}.",
    )


def read_participants(
    path: Path, labels: Mapping[str, int] | None = None
) -> tuple[list[Participant], list[Finding]]:
    """Rows of a participants table, and a finding for each row that cannot be used.

    Raises
    ------
    DataError
        When the table cannot be read or has no column for id, site or diagnosis.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read ({error}).", where=str(path), do="Is it text?") from error
    lines = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not lines:
        raise DataError("is empty.", where=str(path), do="List the participants in it.")
    delimiter = "\t" if "\t" in lines[0] else ","
    try:
        header, *rows = list(csv.reader(lines, delimiter=delimiter))
    except csv.Error as error:
        raise DataError(f"cannot be read ({error}).", where=str(path)) from error
    header = [name.strip() for name in header]
    columns = {role: _column(role, header, path) for role in COLUMNS}
    people: list[Participant] = []
    findings: list[Finding] = []
    for number, row in enumerate(rows, 2):
        try:
            people.append(_participant(row, header, columns, labels))
        except DataError as error:
            subject, site = (_cell(row, columns[role]) for role in ("subject", "site"))
            what = f"{path.name}, row {number}: {error.what}"
            findings.append(Finding("error", what, error.do, subject, site))
    return people, findings


def _column(role: str, header: list[str], path: Path) -> int | None:
    """Index of the column of a role, by the first accepted name that occurs."""
    lower = [name.lower() for name in header]
    for name in COLUMNS[role]:
        if name in lower:
            return lower.index(name)
    if role == "file":
        return None
    raise DataError(
        f"has no column for the {role} (columns: {', '.join(header)}).",
        where=str(path),
        do=f"Name it one of: {', '.join(COLUMNS[role])}.",
    )


def _cell(row: list[str], index: int | None) -> str:
    return row[index].strip() if index is not None and index < len(row) else ""


def _participant(
    row: list[str],
    header: list[str],
    columns: Mapping[str, int | None],
    labels: Mapping[str, int] | None,
) -> Participant:
    if len(row) != len(header):
        raise DataError(
            f"{len(row)} values for {len(header)} columns.", do="The table is cut off or mixed."
        )
    subject, site = _cell(row, columns["subject"]), _cell(row, columns["site"])
    if not subject or not site:
        raise DataError(f"no {'participant id' if not subject else 'site'}.", do="Fill it in.")
    diagnosis = columns["diagnosis"]
    return Participant(
        subject_id=subject,
        site=site,
        label=label_of(_cell(row, diagnosis), header[diagnosis or 0], labels),
        file=_cell(row, columns["file"]),
        extra={
            name.lower(): row[i].strip()
            for i, name in enumerate(header)
            if name and i not in columns.values()
        },
    )

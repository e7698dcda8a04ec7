"""Who was scanned: the table beside the data, the walk over subjects, and the group's own table.

One scan is in memory at a time, and what is done is not done again. One subject's trouble is one
line; the others finish; the caller learns how many failed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from fcforge.imaging.layouts import read_json, sidecar_of
from fcforge.imaging.matrix_files import column_of, read_table
from fcforge.messages import DataError, FCForgeError, at, some, whole
from fcforge.progress import progress_of, say

if TYPE_CHECKING:
    import pandas as pd

ID_COLUMNS = ("participant_id", "subject_id", "subject", "sub_id", "file_id", "id")
SITE_COLUMNS = ("site", "site_id", "center", "centre", "hospital", "site_name")
DIAGNOSIS_COLUMNS = ("diagnosis", "dx", "dx_group", "group", "label", "y")
Row = Mapping[str, Any]
NAMES = ("participants.tsv", "participants.csv", "phenotypes.csv")
# Columns of participants.tsv that sidecars of FC files say.
FROM_SIDECAR = {
    "mean_fd": "MeanFD",
    "n_volumes": "Volumes",
    "dof": "DegreesOfFreedom",
    "tr": "RepetitionTime",
    "mean_fc": "MeanFC",
    "n_empty_rois": "EmptyROIs",
    "min_coverage": "MinCoverage",
}
# What numpy, scipy, nilearn and the disk may throw at one subject's odd data: that subject fails
# with the type named, the others go on. Anything else is a bug of ours and stops the program.
SURPRISES = (
    ValueError,
    OSError,
    RuntimeError,
    LookupError,
    ArithmeticError,
    MemoryError,
)


class ParticipantTable(NamedTuple):
    """The table, keyed by subject id without ``sub-``.

    Attributes
    ----------
    rows : mapping of subject to mapping of column to text
    site, diagnosis : str
        Names of those columns, "" where the table has none.
    path : Path or None
    """

    rows: Mapping[str, Mapping[str, str]]
    site: str = ""
    diagnosis: str = ""
    path: Path | None = None

    def of(self, subject: str) -> dict[str, str]:
        """Row of a subject for participants.tsv: site, diagnosis and all other columns.

        The diagnosis column keeps the name ``dx_group``, since 2 means control under that name
        alone.
        """
        name = "dx_group" if self.diagnosis.lower() == "dx_group" else "diagnosis"
        roles = {self.site: "site", self.diagnosis: name}
        out = {"site": "n/a", name: "n/a"}
        for column, cell in self.rows.get(subject, {}).items():
            if column.lower() not in {*ID_COLUMNS, "file"}:
                out[roles.get(column, column.lower())] = cell
        return out

    def under_ids_of(self, subjects: Iterable[str]) -> Self:
        """The same rows under the ids that the files have: 50952 is sub-0050952."""
        own = same_ids(self.rows, subjects)
        rows = {own.get(who, who): row for who, row in self.rows.items()}
        return self._replace(rows=rows)


def same_ids(listed: Iterable[str], found: Iterable[str]) -> dict[str, str]:
    """Id of the files for every listed id that is one but for leading zeros and ``sub-``.

    Examples
    --------
    >>> same_ids(["50952", "7", "a1"], ["0050952", "7", "007", "sub-a1"])
    {'50952': '0050952', '7': '7', 'a1': 'sub-a1'}
    """
    alike: dict[str, list[str]] = {}
    exact = set(found)
    for subject in sorted(exact):
        alike.setdefault(_plain_id(subject), []).append(subject)
    same = {}
    for who in listed:
        candidates = [who] if who in exact else alike.get(_plain_id(who), [])
        if len(candidates) == 1:
            same[who] = candidates[0]
    return same


def _plain_id(subject: str) -> str:
    text = subject.removeprefix("sub-")
    return text.lstrip("0") if text.isdigit() else text


def find_people(root: Path, given: Path | None = None) -> ParticipantTable:
    """Table named by the user, else participants.tsv in `root` or the folder above it."""
    folders = (root, root.resolve().parent, root.resolve().parent.parent)
    there = (folder / name for folder in folders for name in NAMES)
    found = given or next((path for path in there if path.is_file()), None)
    return read_people(found) if found else ParticipantTable({})


def read_people(path: Path) -> ParticipantTable:
    """Participants table; ids lose ``sub-``, leading zeros stay.

    Raises
    ------
    DataError
        Not readable (`read_table`), no id column, or an id listed twice.
    """
    table = read_table(path)
    header = list(table[0])
    key = column_of(header, ID_COLUMNS)
    rows = {}
    with at(path):
        if not key:
            raise no_column("subject id", header, ID_COLUMNS)
        for row in table:
            subject = whole(row[key].removeprefix("sub-"))
            if subject in rows:
                what = f"lists '{subject}' twice."
                raise DataError(what, do="Give everybody one row.")
            rows[subject] = {name: cell or "n/a" for name, cell in row.items()}
    site = column_of(header, SITE_COLUMNS)
    diagnosis = column_of(header, DIAGNOSIS_COLUMNS)
    return ParticipantTable(rows, site, diagnosis, path)


def no_column(role: str, header: Sequence[str], accepted: Sequence[str]) -> DataError:
    """Error for a table without a column that is needed."""
    return DataError(
        f"has no column for the {role} (columns: {', '.join(header[:8])}).",
        do=f"Name it one of: {', '.join(accepted)}.",
    )


class Outcome(NamedTuple):
    """What a walk over subjects came to.

    Attributes
    ----------
    made, kept : tuple of str
        Subjects made now, and found finished from an earlier run.
    failed : tuple of (subject, reason)
    """

    made: tuple[str, ...]
    kept: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]

    @property
    def code(self) -> int:
        """Exit code: 0 all subjects done, 1 some failed, 2 all of them failed."""
        return 0 if not self.failed else 1 if self.made or self.kept else 2

    def tell(self, out: Path, what: str) -> None:
        """Say who failed and why, and how many are done."""
        for line in by_reason(self.failed):
            say(f"failed: {line}")
        made = len(self.made)
        kept = len(self.kept)
        done = f"{made + kept} of {made + kept + len(self.failed)} subjects {what}"
        say(f"{done} in {out} ({made} made now, {kept} from before)")


def by_reason(failed: Iterable[tuple[str, str]]) -> list[str]:
    """Who failed and why, the same reason once.

    Examples
    --------
    >>> by_reason([("sub-1", "no scan."), ("sub-2", "no TR."), ("sub-3", "no scan.")])
    ['sub-1, sub-3: no scan.', 'sub-2: no TR.']
    """
    who: dict[str, list[str]] = {}
    for subject, why in failed:
        who.setdefault(why, []).append(subject)
    return [f"{some(subjects)}: {why}" for why, subjects in who.items()]


def walk(subjects: Sequence[str], make: Callable[[str], bool]) -> Outcome:
    """Call ``make(subject)`` for each; it returns False for one that was made before."""
    made = list[str]()
    kept = list[str]()
    failed = list[tuple[str, str]]()
    for subject in progress_of(subjects, len(subjects)):
        try:
            (made if make(subject) else kept).append(subject)
        except (FCForgeError, *SURPRISES) as error:
            why = " ".join(str(error).split())
            if not isinstance(error, FCForgeError):
                why = f"{type(error).__name__}: {why[:200]}"
            failed.append((f"sub-{subject}", why))
    return Outcome(tuple(made), tuple(kept), tuple(failed))


def wanted(labels: Iterable[str], *known: Iterable[str]) -> list[str]:
    """Subjects to make: those named, else all that are listed or found."""
    named = {label.removeprefix("sub-") for label in labels}
    return sorted(named or {subject for source in known for subject in source})


def participant_table(
    out: Path, files: Mapping[str, Path], people: ParticipantTable
) -> "pd.DataFrame":
    """Participants.tsv: the user's columns, and what the sidecars of FC files say.

    Parameters
    ----------
    out : Path
        Output folder.
    files : mapping of subject to FC file
        Subjects whose FC has no sidecar are not finished and left out.
    people : ParticipantTable
    """
    import pandas as pd  # not for whoever reads a table

    rows = []
    for subject, path in files.items():
        side = read_json(sidecar_of(path))
        if not side:
            continue
        known = people.of(subject)
        for column, key in FROM_SIDECAR.items():
            value = _said(side[key])
            if value != "n/a" or column not in known:
                known[column] = value
        file = path.relative_to(out)
        who = {"participant_id": file.parts[0], "original_id": subject}
        rows.append({**who, **known, "file": str(file)})
    return pd.DataFrame(rows, dtype=str).fillna("n/a")


def _said(value: Any) -> str:
    if isinstance(value, list):
        return str(len(value))
    if isinstance(value, float):
        return f"{value:.4g}"
    return "n/a" if value is None else str(value)

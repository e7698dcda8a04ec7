"""Participants: the table beside the data, the loop over subjects, and the table of the output.

One scan is in memory at a time, and finished subjects are skipped. A subject that fails is reported
in one line while the others go on; `Outcome` lists the failures. PCP is the Preprocessed Connectomes Project,
which shares ABIDE with a table of its own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from fcforge.core.console import say
from fcforge.core.errors import DataError, FCForgeError, at
from fcforge.core.formatting import abbreviated, counted, whole
from fcforge.core.names import check_names
from fcforge.imaging.layouts import read_json, sidecar_of
from fcforge.imaging.matrix_files import column_of, read_table

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
FEW = 5  # ids without a partner up to which a slip of the keyboard is looked for
ID_COLUMNS = ("participant_id", "subject_id", "subject", "sub_id", "file_id", "id")
SITE_COLUMNS = ("site", "site_id")
# Names that columns get in participants.tsv where --columns names them, by role.
ROLE_COLUMNS = {"id": "participant_id", "site": "site", "label": "diagnosis"}
NO_FILE = "no_filename"  # the PCP's FILE_ID of people without series
PCP_TABLE = "Phenotypic_V1_0b*.csv"
Row = Mapping[str, Any]
People = Mapping[str, Row]  # by subject, without ``sub-``
# Columns of participants.tsv, and the keys of the FC sidecars whose values they get.
FROM_SIDECAR = {
    "mean_fd": "MeanFD",
    "n_volumes": "Volumes",
    "dof": "DegreesOfFreedom",
    "tr": "RepetitionTime",
    "n_empty_rois": "EmptyROIs",
}
# Exceptions that numpy, scipy, nilearn and the disk raise for one subject's damaged data. That subject fails,
# with the type in its message, and the others go on. Any other exception is a bug and stops the program.
SURPRISES = (
    ValueError,
    OSError,
    RuntimeError,
    LookupError,
    ArithmeticError,
    MemoryError,
)


def table_in(*folders: Path) -> Path | None:
    """Return participants.tsv or .csv of the first folder that has one; None if none has."""
    for folder in folders:
        for path in (folder / "participants.tsv", folder / "participants.csv"):
            if path.is_file():
                return path
    return None


def find_table(root: Path) -> Path | None:
    """Find the table of participants in `root` or the two folders above it, else the PCP's of ABIDE."""
    folders = (root, *root.resolve().parents[:2])
    of_pcp = (path for folder in folders for path in sorted(folder.glob(PCP_TABLE)))
    return table_in(*folders) or next(of_pcp, None)


def read_people(
    path: Path,
    subjects: Iterable[str] = (),
    columns: Mapping[str, str] = MappingProxyType({}),
) -> People:
    """Read the rows of a table of participants by id.

    Parameters
    ----------
    path : Path
    subjects : iterable of str, optional
        Ids in the names of the files. If the table has several columns of ids (the PCP's has ``SUB_ID`` and
        ``FILE_ID``), the one with most of these is used.
    columns : mapping of role to column, optional
        Columns without a usual name, by role: ``id``, ``site`` or ``label``. They are renamed to
        ``participant_id``, ``site`` and ``diagnosis``.

    Returns
    -------
    mapping of id to mapping of column to cell
        Ids are without ``sub-`` and keep leading zeros. Empty cells are "n/a".

    Raises
    ------
    ConfigError
        If a role is unknown.
    DataError
        If the table cannot be read, has no column of ids, lacks a column of `columns`, or lists an id twice.
    """
    check_names("role of a column", columns, ROLE_COLUMNS, where="--columns")
    table = read_table(path)
    with at(path):
        table = _renamed(table, columns)
        header = list(table[0])
        lower = {name.lower(): name for name in reversed(header)}
        candidates = [lower[name] for name in ID_COLUMNS if name in lower]
        if not candidates:
            raise no_column("subject id", header, ID_COLUMNS)
        if "id" in columns:
            candidates = [ROLE_COLUMNS["id"]]
        known = set(subjects)
        # How many of the files' ids each column has.
        matches = [
            len(known & under_ids_of(known, dict.fromkeys(_ids(table, name))).keys())
            for name in candidates
        ]
        key = candidates[matches.index(max(matches))]
        rows = {}
        for row in table:
            subject = _id_of(row[key])
            if subject == NO_FILE:
                continue
            if subject in rows:
                message = f"the table lists '{subject}' twice."
                raise DataError(message, do="Give every subject one row.")
            rows[subject] = {k: cell or "n/a" for k, cell in row.items() if k}
    return rows


def _id_of(cell: str) -> str:
    """Return the id in a cell, without ``sub-`` and without the ``.0`` of a whole number."""
    return whole(cell.removeprefix("sub-"))


def _ids(table: Sequence[Mapping[str, str]], column: str) -> list[str]:
    """Return the ids in a column of a table."""
    return [_id_of(row[column]) for row in table]


def _renamed(
    table: Sequence[dict[str, str]], columns: Mapping[str, str]
) -> list[dict[str, str]]:
    """Rename columns to the usual names of their roles.

    Another column that has such a name gets the ending ``_original``.

    Parameters
    ----------
    table : sequence of dict
        Rows, cells by column.
    columns : mapping of role to column

    Raises
    ------
    DataError
        If the table lacks one of the columns.
    """
    header = {name.lower(): name for name in reversed(list(table[0]))}
    roles = {}  # by column, its new name
    for role, name in columns.items():
        if name.lower() not in header:
            raise DataError(
                f"the table has no column '{name}' (columns: {', '.join(list(table[0])[:8])}).",
                do=f"Correct --columns {role}={name}.",
            )
        roles[header[name.lower()]] = ROLE_COLUMNS[role]
    taken = set(roles.values())
    new_names = {}
    for name in table[0]:
        kept_name = f"{name}_original" if name.lower() in taken else name
        new_names[name] = roles.get(name, kept_name)
    return [{new_names[name]: cell for name, cell in row.items()} for row in table]


def under_ids_of(found: Iterable[str], people: Mapping[str, T]) -> dict[str, T]:
    """Return the rows of a table under the ids of the files, which may have more leading zeros.

    An id is changed only if exactly one file differs from it in leading zeros alone.

    Parameters
    ----------
    found : iterable of str
        Ids in the names of the files.
    people : mapping of id to row

    Examples
    --------
    >>> list(under_ids_of(["0050952", "7", "007"], {"50952": {}, "7": {}, "a1": {}}))
    ['0050952', '7', 'a1']
    """
    file_ids = set(found)
    by_digits: dict[str, list[str]] = {}
    for subject in file_ids:
        by_digits.setdefault(subject.lstrip("0"), []).append(subject)
    rows = {}
    for listed, row in people.items():
        padded = by_digits.get(listed.lstrip("0"), [])
        rename = listed not in file_ids and listed.isdigit() and len(padded) == 1
        rename = rename and padded[0] not in people
        rows[padded[0] if rename else listed] = row
    return rows


def no_column(role: str, header: Sequence[str], accepted: Sequence[str]) -> DataError:
    """Return the error for a table without a required column.

    Parameters
    ----------
    role : str
        Content of the column, for the message.
    header : sequence of str
        Columns of the table.
    accepted : sequence of str
        Names that the column may have.
    """
    return DataError(
        f"the table has no column for the {role} (columns: {', '.join(header[:8])}).",
        do=f"Name it one of: {', '.join(accepted)}.",
    )


NO_SCAN = "is listed, but there is no scan and no time series of it."


class Exclusion(DataError):
    """Error of a subject that a criterion excludes.

    Attributes
    ----------
    criterion : {"no_data", "empty_rois", "too_few_dof"}
        No input, too many ROIs without signal, or too few degrees of freedom.
    """

    criterion = "no_data"


class Failure(NamedTuple):
    """Subject without a result.

    Attributes
    ----------
    subject : str
        With the prefix ``sub-``.
    reason : str
        Message for the user.
    criterion : str
        `Exclusion.criterion`, or "error" for files that could not be processed.
    """

    subject: str
    reason: str
    criterion: str = "error"


class Outcome(NamedTuple):
    """Result of a loop over subjects.

    Attributes
    ----------
    made : tuple of str
        Subjects processed now.
    kept : tuple of str
        Subjects that an earlier call had finished.
    failed : tuple of Failure
    """

    made: tuple[str, ...]
    kept: tuple[str, ...]
    failed: tuple[Failure, ...]

    @property
    def code(self) -> int:
        """Exit code: 0 if all subjects are done, 1 if some failed, 2 if all failed."""
        return 0 if not self.failed else 1 if self.made or self.kept else 2

    def print_summary(self, out: Path, state: str, then: str = "") -> None:
        """Print which subjects failed and why, and how many are done.

        Parameters
        ----------
        out : Path
            Output folder, for the message.
        state : str
            End of "n of m subjects ...", such as "have FC".
        then : str
            The next command, which is printed if some subject is done.
        """
        absent = [f.subject for f in self.failed if f.reason == NO_SCAN]
        others = [f for f in self.failed if f.reason != NO_SCAN]
        for line in by_reason(others):
            say(f"failed: {line}")
        if absent:
            missing = counted(len(absent), "listed subject")
            say(f"{missing} without a scan or time series here: {abbreviated(absent)}")
        made = len(self.made)
        kept = len(self.kept)
        count = f"{made + kept} of {made + kept + len(self.failed)} subjects {state}"
        ending = f"; {then}" if then and made + kept else ""
        say(f"{count} in {out} ({made} made now, {kept} from before){ending}")


def by_reason(failed: Iterable[Sequence[str]]) -> list[str]:
    """Return one line per reason, with the subjects that it concerns.

    Parameters
    ----------
    failed : iterable of Failure, or of (subject, reason)

    Examples
    --------
    >>> by_reason([("sub-1", "no scan."), ("sub-2", "no TR."), ("sub-3", "no scan.")])
    ['sub-1, sub-3: no scan.', 'sub-2: no TR.']
    """
    subjects_by_reason: dict[str, list[str]] = {}
    for subject, reason, *_ in failed:
        subjects_by_reason.setdefault(reason, []).append(subject)
    return [
        f"{abbreviated(dict.fromkeys(subjects))}: {reason}"
        for reason, subjects in subjects_by_reason.items()
    ]


def attempt(make: Callable[[str], bool], subject: str) -> bool | Failure:
    """Return the result of ``make(subject)``, or a `Failure` if it raises an error.

    Exceptions that are neither errors of fcforge nor in `SURPRISES` are not caught.
    """
    try:
        return make(subject)
    except (FCForgeError, *SURPRISES) as error:
        reason = " ".join(str(error).split())
        if not isinstance(error, FCForgeError):
            reason = f"{type(error).__name__}: {reason[:200]}"
        criterion = error.criterion if isinstance(error, Exclusion) else "error"
        return Failure(f"sub-{subject}", reason, criterion)


def walk(
    subjects: Sequence[str],
    make: Callable[[str], bool],
    attempts: Iterator[bool | Failure] | None = None,
) -> Outcome:
    """Call ``make(subject)`` for every subject and show the progress.

    Parameters
    ----------
    subjects : sequence of str
    make : callable
        Returns whether it made the subject's files; False if they were there already.
    attempts : iterator of bool or Failure, optional
        Results of `attempt` in the order of the subjects, computed by other processes; `make` is not called.
    """
    from rich.console import Console
    from rich.progress import track

    made = list[str]()
    kept = list[str]()
    failed = list[Failure]()
    console = Console(stderr=True)
    bar = track(subjects, "subjects", console=console, transient=True)
    for number, subject in enumerate(bar, start=1):
        if not console.is_terminal:
            say(f"subject {number} of {len(subjects)}: {subject}")
        result = attempt(make, subject) if attempts is None else next(attempts)
        if isinstance(result, Failure):
            failed.append(result)
        else:
            (made if result else kept).append(subject)
    return Outcome(tuple(made), tuple(kept), tuple(failed))


def wanted(labels: Iterable[str], *known: Iterable[str]) -> list[str]:
    """Return the subjects to process: the requested ones, or all known ones if none is requested.

    Parameters
    ----------
    labels : iterable of str
        Requested subjects, with or without ``sub-``: an id, or its letters and digits alone.
    *known : iterable of str
        Ids in the table of participants, and in the names of the files.

    Returns
    -------
    list of str
        Ids, sorted.

    Raises
    ------
    ConfigError
        If a requested subject is unknown; the message suggests the nearest id.
    """
    all_known = {subject for source in known for subject in source}
    by_label = {"".join(filter(str.isalnum, subject)): subject for subject in all_known}
    requested = [label.removeprefix("sub-") for label in labels]
    chosen = {
        by_label.get(label, label) if label not in all_known else label
        for label in requested
    }
    check_names("participant label", sorted(chosen), all_known)
    return sorted(chosen or all_known)


def likely_typos(
    subjects: Sequence[str], listed: Sequence[str]
) -> list[tuple[str, str]]:
    """Return pairs of a subject and the only listed id that one slip of the keyboard makes of it.

    Nothing is returned where more than `FEW` ids have no partner: their numbers may be near one another.

    Parameters
    ----------
    subjects : sequence of str
        Ids of files that are not listed.
    listed : sequence of str
        Listed ids without files.

    Examples
    --------
    >>> likely_typos(["03"], ["33"]), likely_typos(["03"], ["33", "04"])
    ([('03', '33')], [])
    """
    if max(len(subjects), len(listed)) > FEW:
        return []
    pairs = []
    for subject in subjects:
        near = [each for each in listed if _is_one_slip(subject, each)]
        if len(near) == 1:
            pairs.append((subject, near[0]))
    return pairs


def _is_one_slip(a: str, b: str) -> bool:
    """Return whether two ids differ by one character, one more character or two swapped neighbours."""
    if len(a) == len(b):
        places = [
            k for k, pair in enumerate(zip(a, b, strict=True)) if len({*pair}) > 1
        ]
        if len(places) == 2 and places[1] == places[0] + 1:
            k = places[0]
            return a[k : k + 2] == b[k : k + 2][::-1]
        return len(places) == 1
    shorter, longer = sorted((a, b), key=len)
    return any(longer[:k] + longer[k + 1 :] == shorter for k in range(len(longer)))


def participant_table(
    out: Path, files: Mapping[str, Path], people: People
) -> "pd.DataFrame":
    """Return the rows of participants.tsv: the user's columns and values of the FC sidecars.

    Parameters
    ----------
    out : Path
        Output folder.
    files : mapping of subject to Path
        FC file of each subject. Subjects whose file has no sidecar are not finished and are left out.
    people : mapping of subject to row
        The user's table of participants.
    """
    import pandas as pd  # slow to import, and not needed to read a table

    rows = []
    for subject, path in files.items():
        if sidecar := read_json(sidecar_of(path)):
            file = path.relative_to(out)
            row = {"participant_id": file.parts[0], "original_id": subject}
            for column, cell in people.get(subject, {}).items():
                if column.lower() not in {*ID_COLUMNS, "file"}:
                    row[column.lower()] = cell
            for column, key in FROM_SIDECAR.items():
                if sidecar[key] is not None:
                    row[column] = _cell_text(sidecar[key])
            rows.append({**row, "file": str(file)})
    return pd.DataFrame(rows, dtype=str).fillna("n/a")


def mixed_trs(people: "pd.DataFrame") -> list[str]:
    """Return a message for every site whose subjects have different repetition times.

    Parameters
    ----------
    people : DataFrame
        From `participant_table`.
    """
    site = column_of(list(people.columns), SITE_COLUMNS)
    if not site or "tr" not in people:
        return []
    messages = []
    for name, rows in people.groupby(site):
        times = sorted({tr for tr in rows["tr"] if tr != "n/a"}, key=float)
        if len(times) > 1:
            messages.append(
                f"site {name} mixes repetition times ({', '.join(times)} s): its subjects were "
                "not scanned alike."
            )
    return messages


def _cell_text(value: Any) -> str:
    """Return a value of a sidecar as text; of a list its length."""
    if isinstance(value, list):
        return str(len(value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)

"""Who was scanned: the participants table beside the derivatives, row by row, values untouched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fcforge.errors import DataError

ID_COLUMNS = ("participant_id", "subject_id", "subject", "sub_id", "file_id", "id")
SITE_COLUMNS = ("site", "site_id", "center", "centre", "hospital", "site_name")
DIAGNOSIS_COLUMNS = ("diagnosis", "dx", "dx_group", "group", "label", "y")
NAMES = ("participants.tsv", "participants.csv", "phenotypes.csv")


@dataclass(frozen=True)
class People:
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
        row = self.rows.get(subject, {})
        name = "dx_group" if self.diagnosis.lower() == "dx_group" else "diagnosis"
        out = {"site": row.get(self.site, "n/a"), name: row.get(self.diagnosis, "n/a")}
        used = {self.site, self.diagnosis}
        rest = {k.lower(): v for k, v in row.items() if k not in used}
        return {**out, **{k: v for k, v in rest.items() if k not in {*ID_COLUMNS, "file"}}}


def find_people(root: Path, given: Path | None = None) -> People:
    """Table named by the user, else participants.tsv in `root` or the folder above it."""
    if given is not None:
        if not given.exists():
            raise DataError("no such participants table.", where=str(given))
        return read_people(given)
    for folder in (root, root.resolve().parent, root.resolve().parent.parent):
        for name in NAMES:
            if (folder / name).is_file():
                return read_people(folder / name)
    return People({})


def read_people(path: Path) -> People:
    """Participants table; ids lose ``sub-``, leading zeros stay.

    Raises
    ------
    DataError
        Not readable, no id column, or an id listed twice.
    """
    import pandas as pd

    try:
        table = pd.read_csv(path, sep=None, engine="python", dtype=str, keep_default_na=False)
    except (OSError, ValueError, UnicodeDecodeError, pd.errors.ParserError) as error:
        raise DataError(f"cannot read the participants table ({error}).", where=str(path)) from None
    columns = [str(c).strip() for c in table.columns]
    table.columns = pd.Index(columns)
    key = _column(columns, ID_COLUMNS)
    if not key:
        raise DataError(
            f"no column with the subject id (columns: {', '.join(columns[:8])}).",
            where=str(path),
            do=f"Name it one of: {', '.join(ID_COLUMNS)}.",
        )
    ids = table[key].str.strip().str.removeprefix("sub-")
    if ids.duplicated().any():
        raise DataError(f"lists '{ids[ids.duplicated()].iloc[0]}' twice.", where=str(path))
    rows = {
        subject: {str(k): str(v).strip() or "n/a" for k, v in row.items()}
        for subject, row in zip(ids, table.to_dict("records"), strict=True)
    }
    site, diagnosis = _column(columns, SITE_COLUMNS), _column(columns, DIAGNOSIS_COLUMNS)
    return People(rows, site, diagnosis, path)


def _column(columns: list[str], accepted: tuple[str, ...]) -> str:
    lower = {c.lower(): c for c in columns}
    return next((lower[name] for name in accepted if name in lower), "")

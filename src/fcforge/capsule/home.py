"""What stays at home: whom a site learned or released, what each has spent, the site's threshold.

A ledger line or a release holds a salted hash of the learned people, their scans and diagnoses,
in the order learned (the commitment). It tells nobody anything without the salt, which stays at
home in the receipt, as does the list. An audit must be of the same people, or it would find
nothing and look reassuring. The file never travels.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fcforge.capsule import ledger
from fcforge.errors import DataError, FCForgeError
from fcforge.settings import Checked, read_json
from fcforge.writing import write_bytes

Person = tuple[str, str, str]  # id, SHA-256 of the FC, diagnosis
People = tuple[Person, ...]


def fingerprints(fc: np.ndarray, ids: Sequence[str], y: np.ndarray) -> People:
    """(id, SHA-256 of the FC, diagnosis) of every scan, in order."""
    scans = np.ascontiguousarray(fc, dtype="<f4")
    return tuple(
        (str(i), hashlib.sha256(scan).hexdigest(), str(int(diagnosis)))
        for i, scan, diagnosis in zip(ids, scans, y, strict=True)
    )


@dataclass(frozen=True)
class Receipt(Checked):
    """Who was learned at a site, or is in one of its releases.

    Attributes
    ----------
    site : str
    people : tuple of (id, FC hash, diagnosis)
        In the order learned; ids are empty where none were known.
    wave : int
        Of a release; 0 for the link of a chain.
    epsilon : float or None
        What each person spends; None where nothing was promised.
    salt : str
        128 random bits.
    """

    site: str
    people: People
    wave: int = 0
    epsilon: float | None = None
    salt: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def commitment(self) -> str:
        """What a ledger line or release says of them: nothing without the salt."""
        return ledger.sha256(
            ledger.canonical([self.salt, [list(p) for p in self.people]])
        )

    def places(self, people: People) -> np.ndarray:
        """Where the people of the receipt are among these; else `DataError` by name."""
        key = (
            0 if any(who for who, *_ in self.people) else 1
        )  # without ids, by the scan
        place = {person[key]: k for k, person in enumerate(people)}
        gone = [who for who in self.people if who[key] not in place]
        pairs = [
            (who, people[place[who[key]]]) for who in self.people if who[key] in place
        ]
        differ = {
            "are not in the data": gone,
            "have another scan": [who for who, mine in pairs if mine[1] != who[1]],
            "have another diagnosis": [
                a for a, b in pairs if a[1] == b[1] and a[2] != b[2]
            ],
        }
        said = [
            f"{len(who)} {what} (first: {who[0][0]})"
            for what, who in differ.items()
            if who
        ]
        if said:
            raise DataError(
                f"these are not the {len(self.people)} people that were learned: "
                f"{' and '.join(said)}.",
                where=f"site '{self.site}'",
                do="Give exactly the data that `fcforge learn` was given: the same scans under "
                "the same ids with the same diagnoses.",
            )
        return np.array([place[person[key]] for person in self.people])


@dataclass(frozen=True)
class Threshold(Checked):
    """A hospital's own threshold: log odds = intercept + slope * consortium's log odds.

    It was fitted on `people` of `site` and the state `capsule` of the consortium.
    """

    intercept: float
    slope: float
    people: int
    capsule: str
    site: str = ""

    def odds(self, consortium: np.ndarray) -> np.ndarray:
        """The hospital's own log odds from the consortium's."""
        return self.intercept + self.slope * consortium

    def require_site(self, sites: Iterable[str]) -> None:
        """Raise `DataError` where people say that they are of another site than the threshold."""
        others = sorted(
            {name for name in sites if name and self.site not in ("", name)}
        )
        if others:
            raise DataError(
                f"the threshold in the home file is of site '{self.site}', these people are of "
                f"{', '.join(others)}.",
                do="Name the home file of their own hospital with --local, or leave --local out.",
            )

    def stale(self, capsule: str) -> list[str]:
        """What to say where it was fitted on another state of the consortium."""
        said = "The threshold was fitted with another state of the consortium; "
        again = "`fcforge threshold` fits it again at home, at no cost."
        return [] if self.capsule == capsule else [said + again]


@dataclass(frozen=True)
class Home:
    """Receipts of one hospital and its threshold."""

    form: ClassVar[str] = "home"
    receipts: tuple[Receipt, ...] = ()
    threshold: Threshold | None = None

    def seen(self, people: Sequence[Person]) -> dict[Person, float | None]:
        """Those among `people` (by id or scan) who are in earlier releases, and what they spent.

        None: somebody in a release without noise, whose budget is already unlimited.
        """
        found: dict[Person, float | None] = {}
        for receipt in self.receipts:
            ids, scans, _ = (set(part) for part in zip(*receipt.people, strict=True))
            for person in people:
                if person[0] in ids or person[1] in scans:
                    before = found.get(person, 0.0)
                    both = before is not None and receipt.epsilon is not None
                    found[person] = (
                        (before or 0.0) + (receipt.epsilon or 0.0) if both else None
                    )
        return found

    def receipt_for(self, commitment: str, what: str) -> Receipt:
        """The receipt that a ledger line or release commits to; else `DataError`."""
        for receipt in self.receipts:
            if receipt.commitment == commitment:
                return receipt
        raise DataError(
            f"there is no receipt for {what}, so that nobody can tell whether these are the people "
            "it learned.",
            do="Give the file that `fcforge learn` wrote when it learned them: --local FILE.",
        )


def receipt_of(out: str | Path) -> Path:
    """Where the home file of a chained capsule is written: beside it."""
    return Path(f"{out}.receipt.json")


def write_own(thing: Any, path: str | Path) -> Path:
    """Write a `Home` or a keyring as JSON, whole or not at all, readable by its owner only."""
    data = {"format": f"fcforge-{thing.form}", **asdict(thing)}
    try:
        write_bytes(path, json.dumps(data, indent=1).encode(), private=True)
    except OSError as error:
        do = "Make room and do it again: without this file nobody can audit what was learned."
        what = f"cannot be written ({error.strerror})."
        raise DataError(what, where=path, do=do) from error
    return Path(path)


def read_own(kind: Any, path: str | Path, *, must_exist: bool = False) -> Any:
    """What `write_own` wrote, or an empty one where there is none yet; else `DataError`."""
    if not Path(path).exists() and not must_exist:
        return kind()
    try:
        data = json.loads(Path(path).read_bytes())
        if data.pop("format") != f"fcforge-{kind.form}":
            raise ValueError("another format")
        if lost := [f.name for f in fields(kind) if f.name not in data]:
            raise ValueError(f"no {lost[0]}")
        return read_json(kind, data)
    except (
        FCForgeError,
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
    ) as error:
        raise DataError(
            f"is not a {kind.form} file of fcforge ({error}).",
            where=path,
            do="Name the file that fcforge wrote; a damaged one is not taken for an empty one.",
        ) from error


def read_home(path: str | Path, *, must_exist: bool = False) -> Home:
    """Home of a file; an empty one where there is none yet."""
    return read_own(Home, path, must_exist=must_exist)

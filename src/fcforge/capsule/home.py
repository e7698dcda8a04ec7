"""What stays at home: whom a site learned or released, what each has spent, the own threshold.

A ledger line or a release holds a salted hash of the learned people, their scans and diagnoses,
in the order learned (the commitment). It tells nobody anything without the salt, which stays at
home in the receipt, as does the list. An audit must be of the same people, or it would find
nothing and look reassuring. The file never travels.
"""

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fcforge.capsule import ledger
from fcforge.errors import DataError
from fcforge.writing import write_bytes

FORMAT = "fcforge-home"
Person = tuple[str, str, str]  # id, SHA-256 of the FC, diagnosis
People = tuple[Person, ...]
T = TypeVar("T")


def fingerprints(fc: np.ndarray, ids: Sequence[str], y: np.ndarray) -> People:
    """(id, SHA-256 of the FC, diagnosis) of every scan, in order."""
    scans = np.ascontiguousarray(fc, dtype="<f4")
    return tuple(
        (str(i), hashlib.sha256(scan).hexdigest(), str(int(diagnosis)))
        for i, scan, diagnosis in zip(ids, scans, y, strict=True)
    )


@dataclass(frozen=True)
class Receipt:
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
        return ledger.sha256(ledger.canonical([self.salt, [list(p) for p in self.people]]))

    def places(self, people: People) -> np.ndarray:
        """Where the people of the receipt are among these; else `DataError` by name."""
        key = 0 if any(who for who, *_ in self.people) else 1  # without ids, by the scan
        place = {person[key]: k for k, person in enumerate(people)}
        differ: dict[str, list[str]] = {}
        for person in self.people:
            mine = people[place[person[key]]] if person[key] in place else None
            if mine is None:
                differ.setdefault("are not in the data", []).append(person[0])
            elif mine[1:] != person[1:]:
                what = "diagnosis" if mine[1] == person[1] else "scan"
                differ.setdefault(f"have another {what}", []).append(person[0])
        if differ:
            said = [f"{len(ids)} {what} (first: {ids[0]})" for what, ids in differ.items()]
            raise DataError(
                f"these are not the {len(self.people)} people that were learned: "
                f"{' and '.join(said)}.",
                where=f"site '{self.site}'",
                do="Give exactly the data that `fcforge learn` was given: the same scans under "
                "the same ids with the same diagnoses.",
            )
        return np.array([place[person[key]] for person in self.people])


@dataclass(frozen=True)
class Threshold:
    """A hospital's own threshold: log odds = intercept + slope * consortium's log odds."""

    intercept: float
    slope: float
    people: int
    capsule: str

    def stale(self, capsule: str) -> list[str]:
        """What to say where it was fitted on another state of the consortium."""
        said = "The own threshold was fitted with another state of the consortium; "
        again = "`fcforge threshold` fits it again at home, at no cost."
        return [] if self.capsule == capsule else [said + again]


@dataclass(frozen=True)
class Home:
    """Receipts of one hospital and its threshold."""

    receipts: tuple[Receipt, ...] = ()
    threshold: Threshold | None = None

    def waves(self, site: str) -> int:
        """How many releases the site has made."""
        return max((r.wave for r in self.receipts if r.site == site), default=0)

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
                    found[person] = (before or 0.0) + (receipt.epsilon or 0.0) if both else None
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


def write_own(thing: Any, path: str | Path, form: str) -> Path:
    """Write a dataclass as JSON, whole or not at all, readable by its owner only."""
    data = {"format": form, **asdict(thing)}
    try:
        write_bytes(path, json.dumps(data, indent=1).encode(), private=True)
    except OSError as error:
        do = "Make room and do it again: without this file nobody can audit what was learned."
        what = f"cannot be written ({error.strerror})."
        raise DataError(what, where=str(path), do=do) from error
    return Path(path)


def read_own(path: str | Path, form: str, make: Callable[[Mapping[str, Any]], T]) -> T:
    """What `make` makes of a file that `write_own` wrote; else `DataError`."""
    try:
        data = json.loads(Path(path).read_bytes())
        if data.pop("format") != form:
            raise ValueError("another format")
        return make(data)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"is not a {form.replace('fcforge-', '')} file of fcforge ({error}).",
            where=str(path),
            do="Name the file that fcforge wrote; a damaged one is not taken for an empty one.",
        ) from error


def write_home(home: Home, path: str | Path) -> Path:
    """Write the home file."""
    return write_own(home, path, FORMAT)


def read_home(path: str | Path, *, must_exist: bool = False) -> Home:
    """Home of a file; an empty one where there is none yet."""
    if not Path(path).exists() and not must_exist:
        return Home()
    return read_own(path, FORMAT, _home)


def _home(data: Mapping[str, Any]) -> Home:
    receipts = []
    for said in data["receipts"]:
        people = tuple((str(who), str(scan), str(y)) for who, scan, y in said["people"])
        receipts.append(Receipt(**{**said, "people": people}))
    known = data["threshold"]
    return Home(tuple(receipts), Threshold(**known) if known else None)

"""What stays at home: who was in each release, what each has spent, and the own threshold.

A receipt proves later that an audit used the same people: the release holds a salted hash of
them (the commitment), the receipt the salt and the list. The file never travels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fcforge.capsule.receipts import People, Person, commitment, read_people
from fcforge.consortium.records import Release
from fcforge.errors import DataError
from fcforge.writing import write_bytes

FORMAT = "fcforge-home"


@dataclass(frozen=True)
class Receipt:
    """Who was in one release.

    Attributes
    ----------
    site, wave, start, epsilon
        As in the release; epsilon is None where nothing was promised.
    salt : str
    people : tuple of (id, FC hash, diagnosis)
        In the order learned.
    release : str
        Digest of the release.
    """

    site: str
    wave: int
    start: str
    epsilon: float | None
    salt: str
    people: People
    release: str = ""

    @property
    def commitment(self) -> str:
        """What the release says of them."""
        return commitment(self.salt, self.people)


@dataclass(frozen=True)
class Threshold:
    """A hospital's own threshold: log odds = intercept + slope * consortium's log odds."""

    intercept: float
    slope: float
    people: int
    capsule: str

    def stale(self, capsule: str) -> list[str]:
        """What to say where it was fitted on another state of the consortium."""
        if self.capsule == capsule:
            return []
        return [
            "The own threshold was fitted with another state of the consortium; "
            "`fcforge threshold` fits it again at home, at no cost."
        ]


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

    def receipt_of(self, release: Release) -> Receipt:
        """The receipt of a release, its commitment checked; else `DataError`."""
        for receipt in self.receipts:
            if receipt.release == release.digest:
                if receipt.commitment != release.commitment:
                    break
                return receipt
        raise DataError(
            f"there is no receipt for release {release.wave} of site '{release.site}'.",
            where="home file",
            do="Use the home file that was written when this site made its release.",
        )

    def with_receipt(self, receipt: Receipt) -> Home:
        """One receipt more."""
        return replace(self, receipts=(*self.receipts, receipt))


def write_home(home: Home, path: str | Path) -> Path:
    """Write the home file, whole or not at all, readable by its owner only."""
    data = {"format": FORMAT, **asdict(home)}
    write_bytes(path, json.dumps(data, indent=1).encode(), private=True)
    return Path(path)


def read_home(path: str | Path, *, must_exist: bool = False) -> Home:
    """Home of a file; an empty one where there is none yet."""
    path = Path(path)
    if not path.exists() and not must_exist:
        return Home()
    try:
        data = json.loads(path.read_bytes())
        if data.pop("format") != FORMAT:
            raise ValueError("another format")
        return Home(tuple(_receipt(r) for r in data["receipts"]), _threshold(data["threshold"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"is not a home file of fcforge ({error}).",
            where=str(path),
            do="Name the file that `fcforge learn --local` wrote.",
        ) from error


def _receipt(data: Mapping[str, Any]) -> Receipt:
    return Receipt(**{**data, "people": read_people(data["people"])})


def _threshold(data: Mapping[str, Any] | None) -> Threshold | None:
    return Threshold(**data) if data else None

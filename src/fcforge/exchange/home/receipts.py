"""Receipts: who is behind a record, by id and by scan, and a hospital's own threshold.

A record that travels holds a salted hash of the people behind it, their scans and diagnoses (the
commitment). It tells nobody anything without the salt, which stays at home in the receipt, as does
the list. An audit must be of the same people, or it would find nothing and look reassuring.
"""

import secrets
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field

from fcforge.errors import DataError
from fcforge.exchange import schema
from fcforge.exchange.home.sketches import Sketch, same_scans, sketches_of
from fcforge.exchange.schema import (
    Budget,
    Closed,
    Name,
    Number,
    Sha256,
    Share,
    SiteName,
    Text,
    matching,
)


class Person(Closed):
    """Somebody who was given: id, SHA-256 and sketch of the scan, diagnosis."""

    id: Text
    scan: Sha256
    diagnosis: Literal["0", "1"]
    sketch: Sketch


People = tuple[Person, ...]


def people_of(fc: np.ndarray, ids: Sequence[str], y: np.ndarray) -> People:
    """People by id, scan and diagnosis, in order; `fc` is (n, R, R)."""
    scans = np.ascontiguousarray(fc, dtype="<f4")
    found = []
    for who, scan, sketch, label in zip(ids, scans, sketches_of(fc), y, strict=True):
        digest = schema.sha256(scan.tobytes())
        diagnosis: Literal["0", "1"] = "1" if int(label) else "0"
        person = Person(id=str(who), scan=digest, diagnosis=diagnosis, sketch=sketch)
        found.append(person)
    return tuple(found)


def same_people(people: People, others: People) -> np.ndarray:
    """(n,): which of `people` are among `others`, by id or by scan."""
    ids = {person.id for person in others} - {""}
    named = np.array([person.id in ids for person in people], dtype=bool)
    known = same_scans([p.sketch for p in people], [p.sketch for p in others])
    return named | known.any(axis=1)


class Receipt(Closed):
    """Who is behind a record, and what it cost each of them.

    Attributes
    ----------
    site : str
    number : int
        Of the site's records of this kind.
    people : tuple of Person
        In the order learned; ids are empty where none were known.
    epsilon : float or None
        What each person spends; None where nothing was promised.
    delta : float
    round : str
        Of keepers; empty for what was published at once.
    salt : str
        128 random bits.
    seen : tuple of str
        Ids of the records that the exchange held when this one joined, with its own.
    """

    kind: Literal["receipt"] = "receipt"
    site: SiteName
    number: Annotated[int, Field(ge=0, le=100_000)]
    people: People
    epsilon: Budget | None
    delta: Share
    round: Name | Literal[""] = ""
    salt: Annotated[str, matching("[0-9a-f]{32}", "a salt")] = Field(
        default_factory=lambda: secrets.token_hex(16)
    )
    seen: tuple[Sha256, ...] = ()

    @cached_property
    def commitment(self) -> str:
        """What a record says of its people: nothing without the salt."""
        people = [[p.id, p.scan, p.diagnosis] for p in self.people]
        return schema.sha256(schema.canonical([self.salt, people]))

    def having_seen(self, ids: Iterable[str]) -> Self:
        """The receipt with the records that the exchange holds now."""
        return self.model_copy(update={"seen": tuple(sorted(ids))})

    def places(self, people: People) -> np.ndarray:
        """Where the people of the receipt are among these; else `DataError` by name."""
        key = "id" if any(person.id for person in self.people) else "scan"
        place = {getattr(person, key): k for k, person in enumerate(people)}
        found = [place.get(getattr(person, key), -1) for person in self.people]
        differ: dict[str, list[str]] = {}
        for person, k in zip(self.people, found, strict=True):
            if k < 0:
                differ.setdefault("are not in the data", []).append(person.id)
            elif people[k].scan != person.scan:
                differ.setdefault("have another scan", []).append(person.id)
            elif people[k].diagnosis != person.diagnosis:
                differ.setdefault("have another diagnosis", []).append(person.id)
        said = [f"{len(who)} {what} (first: {who[0]})" for what, who in differ.items()]
        if said:
            raise DataError(
                f"these are not the {len(self.people)} people that were learned: "
                f"{' and '.join(said)}.",
                where=f"site '{self.site}'",
                do="Give exactly the data that `fcforge learn` was given: the same scans under "
                "the same ids with the same diagnoses.",
            )
        return np.array(found)


class Threshold(Closed):
    """A hospital's own threshold: log odds = intercept + slope * the exchange's log odds.

    It was fitted on `people` of `site` and the state `exchange` (an id).
    """

    kind: Literal["threshold"] = "threshold"
    intercept: Number
    slope: Number
    people: Annotated[int, Field(ge=1)]
    exchange: Sha256
    site: SiteName

    def odds(self, shared: np.ndarray) -> np.ndarray:
        """The hospital's own log odds from those of the exchange."""
        return self.intercept + self.slope * shared

    def require_site(self, sites: Iterable[str]) -> None:
        """Raise `DataError` where people say that they are of another site."""
        others = sorted({name for name in sites if name not in ("", self.site)})
        if others:
            raise DataError(
                f"the threshold is of site '{self.site}', these people are of "
                f"{', '.join(others)}.",
                do="Name the private record of their own hospital with --register.",
            )

    def stale(self, exchange: str) -> list[str]:
        """What to say where it was fitted on another state of the exchange."""
        if self.exchange == exchange:
            return []
        said = "The threshold was fitted with another state of the exchange; "
        return [said + "`fcforge threshold` fits it again at home, at no cost."]

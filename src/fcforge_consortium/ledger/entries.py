"""Receipts: the people behind a record, their salted commitment, and what it cost them."""

import secrets
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
from numpy import ndarray as Array
from pydantic import Field

from fcforge.core.errors import DataError
from fcforge_consortium.records.canonical import canonical, sha256
from fcforge_consortium.records.fields import (
    Budget,
    Closed,
    Count,
    Name,
    Sha256,
    Share,
    SiteName,
)

if TYPE_CHECKING:
    from fcforge_consortium.records.exchange import Exchange
from fcforge_consortium.ledger.people import People


class LedgerEntry(Closed):
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
        Of aggregators; empty for what was published at once.
    salt : str
        128 random bits.
    seen : tuple of str
        Ids of the records that the exchange held when this one joined, with its own.
    """

    kind: Literal["receipt"] = "receipt"
    site: SiteName
    number: Count
    people: People
    epsilon: Budget | None
    delta: Share
    round: Name | Literal[""] = ""
    salt: str = Field(
        pattern="^[0-9a-f]{32}$", default_factory=lambda: secrets.token_hex(16)
    )
    seen: tuple[Sha256, ...] = ()

    def said(self, spent: "Spent") -> dict[str, Any]:
        """What a record says of people and budget; the most that one of them has spent."""
        return {
            "mechanism": "none" if self.epsilon is None else "gaussian",
            "epsilon": self.epsilon or 0.0,
            "delta": self.delta,
            "spent_epsilon": spent.epsilon,
            "spent_delta": spent.delta,
            "commitment": self.commitment,
        }

    @cached_property
    def commitment(self) -> str:
        """What a record says of its people: nothing without the salt."""
        people = [[p.id, p.scan, p.diagnosis] for p in self.people]
        return sha256(canonical([self.salt, people]))

    def having_seen(self, exchange: "Exchange") -> Self:
        """The receipt with the records that the exchange holds now."""
        ids = sorted(record.id for record in exchange.everything)
        return self.model_copy(update={"seen": tuple(ids)})

    def places(self, people: People) -> Array:
        """Where the people of the receipt are among these; else `DataError` by name."""
        key = "id" if any(person.id for person in self.people) else "scan"
        place = {getattr(person, key): k for k, person in enumerate(people)}
        found = [place.get(getattr(person, key), -1) for person in self.people]
        differ: dict[str, list[str]] = {}
        for person, k in zip(self.people, found, strict=True):
            if k < 0:
                what = "are not in the data"
            elif people[k].scan != person.scan:
                what = "have another scan"
            elif people[k].diagnosis != person.diagnosis:
                what = "have another diagnosis"
            else:
                continue
            differ.setdefault(what, []).append(person.id)
        said = [f"{len(who)} {what} (first: {who[0]})" for what, who in differ.items()]
        if said:
            raise DataError(
                f"these are not the {len(self.people)} people that were learned: "
                f"{' and '.join(said)}.",
                where=f"site '{self.site}'",
                do="Give exactly the data that `fcforge consortium contribute` was given: the same scans under "
                "the same ids with the same diagnoses.",
            )
        return np.array(found)


# -- the file -------------------------------------------------------------------------------------
class Spent(NamedTuple):
    """What somebody has spent; epsilon is infinite where something was given without noise."""

    epsilon: float = 0.0
    delta: float = 0.0

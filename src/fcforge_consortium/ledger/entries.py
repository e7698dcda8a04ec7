"""Ledger entries: the people behind a record, their commitment and their budget.

The commitment is a salted hash of the people. The record that leaves the hospital holds the hash, the
entry holds people and salt.
"""

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
    """The people behind a record, and the budget that it spends of each of them.

    Attributes
    ----------
    site : str
        The hospital.
    number : int
        Number of the record among the site's contributions and notices, or the place of a chain's step.
    people : tuple of Person
        In the order of the data; ids are empty if unknown.
    epsilon : float or None
        Budget spent by each person; None without noise.
    delta : float
    round : str
        Name of the round for a notice; empty for a contribution with noise of its own and for a step.
    salt : str
        128 random bits.
    seen : tuple of str
        Ids of all records of the file after this record joined it, so that a later file can be
        compared with it.
    """

    kind: Literal["entry"] = "entry"
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

    def budget_fields(self, spent: "Spent") -> dict[str, Any]:
        """Return the fields with which the record of this entry states its budget and commitment.

        Parameters
        ----------
        spent : Spent
            Budget spent in all, including this entry.

        Returns
        -------
        dict
            Fields of `fcforge_consortium.records.kinds.Charged`.
        """
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
        """Return the salted hash of the people; it reveals nothing without the salt."""
        people = [[p.id, p.scan, p.diagnosis] for p in self.people]
        return sha256(canonical([self.salt, people]))

    def having_seen(self, exchange: "Exchange") -> Self:
        """Return the entry with the ids of the records that an exchange holds.

        Parameters
        ----------
        exchange : Exchange

        Returns
        -------
        LedgerEntry
        """
        ids = sorted(record.id for record in exchange.everything)
        return self.model_copy(update={"seen": tuple(ids)})

    def places(self, people: People) -> Array:
        """Return the index of each person of the entry among the people of some data.

        People are found by id, or by scan if the entry has no ids.

        Parameters
        ----------
        people : tuple of Person
            People of the data.

        Returns
        -------
        ndarray of int, shape (n,)
            One index for each of the n people of the entry.

        Raises
        ------
        DataError
            If people are missing, or have another scan or diagnosis.
        """
        key = "id" if any(person.id for person in self.people) else "scan"
        place_of = {getattr(person, key): k for k, person in enumerate(people)}
        indices = [place_of.get(getattr(person, key), -1) for person in self.people]
        faults: dict[str, list[str]] = {}
        for person, k in zip(self.people, indices, strict=True):
            if k < 0:
                fault = "are not in the data"
            elif people[k].scan != person.scan:
                fault = "have another scan"
            elif people[k].diagnosis != person.diagnosis:
                fault = "have another diagnosis"
            else:
                continue
            faults.setdefault(fault, []).append(person.id)
        summary = [
            f"{len(ids)} {fault} (first: {ids[0]})" for fault, ids in faults.items()
        ]
        if summary:
            raise DataError(
                f"these are not the {len(self.people)} people that were learned: "
                f"{' and '.join(summary)}.",
                where=f"site '{self.site}'",
                do="Give exactly the data that `fcforge consortium contribute` was given: the same scans under "
                "the same ids with the same diagnoses.",
            )
        return np.array(indices)


class Spent(NamedTuple):
    """A spent budget; epsilon is infinite after a contribution without noise."""

    epsilon: float = 0.0
    delta: float = 0.0

"""Ledger of a hospital: its contributions, their people, the spent budget, and its threshold.

One file per hospital, beside the data, that never leaves the hospital. An entry lists the people
behind a record, by id and by scan. The budget is the sum over all entries, whoever took part.

A record that travels holds a commitment: a salted hash of the people behind it, their scans and
diagnoses. It says nothing without the salt, which stays in the entry, as does the list of people. An
audit must be of the same people, or it would find nothing and look reassuring.

The file only grows (`fcforge_consortium.ledger.journal`): outgoing files appear with a line of it or
not at all, and it is locked while a command may add to it.
"""

from collections.abc import Collection
from math import inf
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, TypeAdapter

from fcforge.core.errors import ConfigError, DataError, at
from fcforge_consortium.ledger.entries import LedgerEntry, Spent
from fcforge_consortium.ledger.journal import Header, Intent, Journal
from fcforge_consortium.ledger.people import People, same_people
from fcforge_consortium.ledger.threshold import Threshold
from fcforge_consortium.records.policy import Policy

NAME = "fcforge.private"  # of the file, beside the data


class Ledger(Journal):
    """The receipts of one hospital and its threshold.

    ``with PrivateRecord.open(path) as private:`` locks the file, for whoever adds to it;
    `PrivateRecord.read` is for whoever looks. ``private.publish(receipt, files)`` charges.
    """

    format = "fcforge-private"
    pays = LedgerEntry
    kinds = TypeAdapter(
        Annotated[
            Header | Intent | LedgerEntry | Threshold, Field(discriminator="kind")
        ]
    )
    keep = "Nothing else knows what its people have spent: bring back your copy of it."

    @property
    def receipts(self) -> tuple[LedgerEntry, ...]:
        """Of everything that was given, first to last."""
        return tuple(line for line in self.lines if isinstance(line, LedgerEntry))

    @property
    def threshold(self) -> Threshold | None:
        """The one that was fitted last."""
        fitted = (line for line in self.lines[::-1] if isinstance(line, Threshold))
        return next(fitted, None)

    def require_threshold(self) -> Threshold:
        """The one that was fitted last; else `ConfigError`."""
        if self.threshold is not None:
            return self.threshold
        raise ConfigError(
            "holds no threshold of the hospital's own.",
            where=self.path,
            do="Fit one after a round (`fcforge consortium threshold`), or leave --ledger out.",
        )

    # -- the budget ---------------------------------------------------------------------------
    @property
    def spent(self) -> Spent:
        """Sum of all entries; epsilon is infinite once exact numbers have left the hospital.

        It does not depend on who took part in which contribution, so that the published total says
        nothing about anybody.
        """
        epsilon = sum(inf if r.epsilon is None else r.epsilon for r in self.receipts)
        return Spent(float(epsilon), float(sum(r.delta for r in self.receipts)))

    def require_budget(
        self, epsilon: float | None, delta: float, policy: Policy
    ) -> Spent:
        """Return the total after one more contribution; `ConfigError` beyond the policy.

        Parameters
        ----------
        epsilon : float or None
            Budget of the contribution; None without noise.
        delta : float
        policy : Policy
            Its `max_epsilon` and `max_delta` hold for the sum of the ledger.
        """
        policy.require_budget(epsilon, delta)
        if epsilon is None:
            return Spent()
        before = self.spent
        total = Spent(before.epsilon + epsilon, before.delta + delta)
        with at(self.path):
            policy.require_budget(*total)
        return total

    def holds(
        self, people: People, commitments: Collection[str] | None = None
    ) -> np.ndarray:
        """Return which people (n,) are in an entry, by id or by scan.

        Parameters
        ----------
        people : tuple of Person
        commitments : collection of str, optional
            Looks only at the entries with these commitments.
        """
        found = np.zeros(len(people), dtype=bool)
        for receipt in self.receipts:
            if commitments is None or receipt.commitment in commitments:
                found |= same_people(people, receipt.people)
        return found

    def receipt_for(self, commitment: str, what: str) -> LedgerEntry:
        """The receipt that a record commits to; else `DataError`."""
        for receipt in self.receipts:
            if receipt.commitment == commitment:
                return receipt
        raise DataError(
            f"there is no receipt for {what}, so that nobody can tell whether these are the people "
            "it learned.",
            where=self.path,
            do="Name the private record that `fcforge consortium contribute` wrote to: --ledger FILE.",
        )


def default_ledger(data: str | Path) -> Path:
    """Where the private record of these data lies: one for all that is in their folder."""
    place = Path(data)
    return (place if place.is_dir() else place.parent) / NAME

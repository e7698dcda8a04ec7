"""Ledger of a hospital: its contributions, their people, the spent budget, and its threshold.

One file per hospital, beside the data, that never leaves the hospital. An entry lists the people
behind a record, by id and by scan. The budget is the sum over all entries, whoever took part.

A record that travels holds a commitment: a salted hash of the people behind it, their scans and
diagnoses. It reveals nothing without the salt, which stays in the entry, as does the list of
people. An audit must use the same people: with others it would find no leak and look reassuring.

The file only grows (`fcforge_consortium.ledger.journal`). Outgoing files are written together with
their entry or not at all, and the file is locked while a command may add to it.
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

NAME = "fcforge.private"  # default file name, beside the data


class Ledger(Journal):
    """A hospital's ledger: its entries and its threshold.

    ``with Ledger.open(path) as ledger:`` locks the file for writing, and
    ``ledger.publish(entry, files)`` charges a contribution. `Ledger.read` reads without a lock.
    """

    format = "fcforge-private"
    pays = LedgerEntry
    kinds = TypeAdapter(
        Annotated[
            Header | Intent | LedgerEntry | Threshold, Field(discriminator="kind")
        ]
    )
    keep = "No other file has the spent budget of its people. Restore your backup."

    @property
    def receipts(self) -> tuple[LedgerEntry, ...]:
        """Return the entries of all contributions, first to last."""
        return tuple(line for line in self.lines if isinstance(line, LedgerEntry))

    @property
    def threshold(self) -> Threshold | None:
        """Return the threshold that was fitted last, or None."""
        fitted = (line for line in self.lines[::-1] if isinstance(line, Threshold))
        return next(fitted, None)

    def require_threshold(self) -> Threshold:
        """Return the threshold that was fitted last; raise `ConfigError` without one."""
        if self.threshold is not None:
            return self.threshold
        raise ConfigError(
            "does not hold a threshold of the hospital.",
            where=self.path,
            do="Fit one after a round (`fcforge consortium threshold`), or leave --ledger out.",
        )

    # -- the budget ---------------------------------------------------------------------------
    @property
    def spent(self) -> Spent:
        """Return the sum of all entries; epsilon is infinite once exact numbers have left the hospital.

        The sum does not depend on who took part in which contribution, so that the published total
        reveals nothing about a person.
        """
        epsilon = sum(inf if r.epsilon is None else r.epsilon for r in self.receipts)
        return Spent(float(epsilon), float(sum(r.delta for r in self.receipts)))

    def require_budget(
        self, epsilon: float | None, delta: float, policy: Policy
    ) -> Spent:
        """Return the total after one more contribution; raise `ConfigError` beyond the policy.

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
            Restricts the search to the entries with these commitments.

        Returns
        -------
        ndarray of bool, shape (n,)
        """
        members = np.zeros(len(people), dtype=bool)
        for receipt in self.receipts:
            if commitments is None or receipt.commitment in commitments:
                members |= same_people(people, receipt.people)
        return members

    def receipt_for(self, commitment: str, title: str) -> LedgerEntry:
        """Return the entry with the commitment of a record.

        Parameters
        ----------
        commitment : str
        title : str
            Title of the record, for the error message.

        Returns
        -------
        LedgerEntry

        Raises
        ------
        DataError
            If no entry has this commitment.
        """
        for receipt in self.receipts:
            if receipt.commitment == commitment:
                return receipt
        raise DataError(
            f"there is no entry for {title}, so that its people cannot be compared with these.",
            where=self.path,
            do="Name the ledger that `fcforge consortium contribute` wrote to: --ledger FILE.",
        )


def default_ledger(data: str | Path) -> Path:
    """Return the path of the ledger beside some data; a folder has one ledger.

    Parameters
    ----------
    data : str or Path
        File or folder of the data.

    Returns
    -------
    Path
    """
    path = Path(data)
    return (path if path.is_dir() else path.parent) / NAME

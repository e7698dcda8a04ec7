"""What stays at home: whom a hospital gave, what each of them has spent, its own threshold.

One file per hospital, beside the data, that never travels. Its receipts say who is behind a
record, by id and by scan. They are the budget register: people are known under whatever site they
are given, and epsilon and delta add up over everything they were part of.

A record that travels holds a salted hash of the people behind it, their scans and diagnoses (the
commitment). It tells nobody anything without the salt, which stays at home in the receipt, as does
the list. An audit must be of the same people, or it would find nothing and look reassuring.

The file only grows (`Journal`), and other files appear with a line of it or not at all. A line
counts when all of it is on the disk, so that a killed process leaves neither half a line that
counts nor a copy of the file. It is locked while somebody may add to it.
"""

from collections.abc import Mapping
from math import inf
from pathlib import Path
from types import MappingProxyType
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

    # -- the budget register ---------------------------------------------------------------------
    def spent(
        self, people: People, times: Mapping[str, int] = MappingProxyType({})
    ) -> list[Spent | None]:
        """What each of these people has spent, by id or scan; None for somebody new.

        Parameters
        ----------
        people : tuple of Person
        times : mapping of commitment to int
            How often that was published, where it was not once (`rounds.times_published`).
        """
        found: list[Spent | None] = [None] * len(people)
        for receipt in self.receipts:
            often = times.get(receipt.commitment, 1)
            if not often:
                continue
            epsilon = inf if receipt.epsilon is None else often * receipt.epsilon
            delta = often * receipt.delta
            for k in np.flatnonzero(same_people(people, receipt.people)):
                before = found[k] or Spent()
                found[k] = Spent(before.epsilon + epsilon, before.delta + delta)
        return found

    def require_room(
        self,
        people: People,
        epsilon: float | None,
        delta: float,
        policy: Policy,
        *,
        again: bool = False,
        times: Mapping[str, int] = MappingProxyType({}),
    ) -> Spent:
        """Most that one of these people will have spent; `ConfigError` beyond the policy.

        Parameters
        ----------
        people : tuple of Person
        epsilon : float or None
            What each is about to spend; None without noise.
        delta : float
        policy : Policy
            Its `max_epsilon` and `max_delta` hold for everything a person was ever part of.
        again : bool
            Whether people of an earlier record may be given again; what they spend adds up.
        times : mapping of commitment to int
            As in `spent`.
        """
        policy.require_budget(epsilon, delta)
        before = [spent for spent in self.spent(people, times) if spent is not None]
        with at(self.path):
            if before and not again:
                raise ConfigError(
                    f"{len(before)} of these {len(people)} people were given before, by id or by "
                    "scan.",
                    do="Give new people only, or add --again: what they have spent adds up.",
                )
            if epsilon is None:
                return Spent()
            epsilons, deltas = zip(Spent(), *before, strict=True)
            total = Spent(epsilon + max(epsilons), delta + max(deltas))
            policy.require_budget(*total)
        return total

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

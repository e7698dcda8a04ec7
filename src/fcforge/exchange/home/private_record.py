"""What stays at home: whom a hospital gave, what each of them has spent, its own threshold.

One file per hospital, beside the data, that never travels (`journal`). Its receipts are the budget
register: people are known by id and by scan, under whatever site they are given, and epsilon and
delta add up over everything they were part of.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field, TypeAdapter

from fcforge.errors import ConfigError, DataError, at
from fcforge.exchange.home.journal import Header, Intent, Journal
from fcforge.exchange.home.receipts import People, Receipt, Threshold, same_people
from fcforge.exchange.policy import Policy

NAME = "fcforge.private"  # of the file, beside the data


class Spent(NamedTuple):
    """What somebody has spent; `exact` where something was given without noise."""

    epsilon: float = 0.0
    delta: float = 0.0
    exact: bool = False


class PrivateRecord(Journal):
    """The receipts of one hospital and its threshold.

    ``with PrivateRecord.open(path) as private:`` locks the file, for whoever adds to it;
    `PrivateRecord.read` is for whoever looks. ``private.publish(receipt, files)`` charges.
    """

    format = "fcforge-private"
    title = "a private record of fcforge"
    pays = Receipt
    kinds = TypeAdapter(
        Annotated[Header | Intent | Receipt | Threshold, Field(discriminator="kind")]
    )
    keep = "Nothing else knows what its people have spent: bring back your copy of it."

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """Of everything that was given, first to last."""
        return tuple(line for line in self.lines if isinstance(line, Receipt))

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
            do="Fit one after a round (`fcforge threshold`), or leave --register out.",
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
            for k in np.flatnonzero(same_people(people, receipt.people)):
                before = found[k] or Spent()
                found[k] = Spent(
                    before.epsilon + often * (receipt.epsilon or 0.0),
                    before.delta + often * receipt.delta,
                    before.exact or receipt.epsilon is None,
                )
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
                return Spent(exact=True)
            most = _most([Spent(), *before])
            total = Spent(epsilon + most.epsilon, delta + most.delta)
            policy.require_budget(total.epsilon, total.delta)
        return total

    def receipt_for(self, commitment: str, what: str) -> Receipt:
        """The receipt that a record commits to; else `DataError`."""
        for receipt in self.receipts:
            if receipt.commitment == commitment:
                return receipt
        raise DataError(
            f"there is no receipt for {what}, so that nobody can tell whether these are the people "
            "it learned.",
            where=self.path,
            do="Name the private record that `fcforge learn` wrote to: --register FILE.",
        )


def _most(spent: Sequence[Spent]) -> Spent:
    """The most that one of them has spent; `ConfigError` where that has no end."""
    if exact := sum(one.exact for one in spent):
        raise ConfigError(
            f"{exact} of these people were given without noise: no noise now can promise them "
            "anything.",
            do="Give the others, or use --mechanism none.",
        )
    epsilons, deltas, _ = zip(*spent, strict=True)
    return Spent(max(epsilons), max(deltas))


def default_place(data: str | Path) -> Path:
    """Where the private record of these data lies: one for all that is in their folder."""
    place = Path(data)
    return (place if place.is_dir() else place.parent) / NAME

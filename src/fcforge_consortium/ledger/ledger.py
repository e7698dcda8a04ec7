"""Ledger of a hospital: its contributions, their people, the spent budget, and its threshold.

A ledger is one file, beside the data, that never leaves the hospital. It has an *entry* for each
contribution, notice or chain step of the hospital: the people behind it, by id and by scan, and the
budget that it spends of each of them. The spent budget is the sum over all entries, whoever took part.

A record that travels holds a *commitment*: a salted hash of the people behind it, their scans and
diagnoses. It reveals nothing without the salt, which stays in the entry, as does the list of
people. An audit must use the same people: with others it would find no leak and look reassuring.

The file only grows, and every line is signed ("sealed") with the hospital's key (`ledger.journal`).
Outgoing files are written together with their entry or not at all. The file is locked while a command
may add to it. A hospital may have further ledgers for people who are in no other one (*cohorts*); the
list beside the key (`ledger.known`) knows all ledgers of the key and the last line of each.
"""

import contextlib
from collections.abc import Collection, Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, TypeAdapter

from fcforge.core.errors import ConfigError, DataError, at
from fcforge_consortium.ledger.entries import LedgerEntry, Spent
from fcforge_consortium.ledger.journal import Handover, Header, Intent, Journal
from fcforge_consortium.ledger.known import KnownLedgers
from fcforge_consortium.ledger.people import People, same_people
from fcforge_consortium.ledger.threshold import Threshold
from fcforge_consortium.records.keys import Signer
from fcforge_consortium.records.policy import Policy

NAME = "fcforge.private"  # default file name, beside the data


class Ledger(Journal):
    """A hospital's ledger: its entries and its threshold.

    ``with Ledger.open(path, key) as ledger:`` locks the file for writing, and
    ``ledger.publish(entry, files)`` writes an entry together with the files that leave. `Ledger.read`
    reads without a lock. `Ledger.of_key` also uses the list of the key's ledgers, as every command
    does.

    Attributes
    ----------
    others : tuple of Ledger
        Other ledgers that the same key seals: nobody may be in two of them.
    """

    format = "fcforge-private"
    committing = LedgerEntry
    kinds = TypeAdapter(
        Annotated[
            Header | Intent | LedgerEntry | Threshold | Handover,
            Field(discriminator="kind"),
        ]
    )
    keep = "No other file has the spent budget of its people. Restore your backup."
    missing = (
        "If none of these people was contributed before, begin a ledger with --new-ledger. "
        "Otherwise name the ledger that has their spent budget: --ledger FILE."
    )

    def __init__(self, path: str | Path, lines: Sequence[Any] = ()) -> None:
        super().__init__(path, lines)
        self.others: tuple[Self, ...] = ()
        self._known: KnownLedgers | None = None

    @classmethod
    @contextlib.contextmanager
    def of_key(
        cls,
        path: str | Path,
        key: Signer,
        key_file: Path | None,
        new: Header | None = None,
    ) -> Iterator[Self]:
        """Open and lock a ledger and the list of its key's ledgers, and read the other ledgers.

        A hospital that does not sign has no such list; its ledger is opened alone.

        Parameters
        ----------
        path : str or Path
        key : private key or None
            None for a hospital that does not sign.
        key_file : Path or None
            File of the key.
        new : Header, optional
            As in `Journal.open`.

        Yields
        ------
        Ledger
        """
        if key is None or key_file is None:
            with cls.open(path, key, new=new) as ledger:
                yield ledger
            return
        with KnownLedgers.open(key_file, key) as known:
            if new is not None:
                known.require_room(Path(path), new)
            with cls.known_by(known, path, key, new) as ledger:
                ledger.others = tuple(ledger._read_others(known))
                yield ledger

    @classmethod
    @contextlib.contextmanager
    def known_by(
        cls,
        known: KnownLedgers,
        path: str | Path,
        key: Signer,
        new: Header | None = None,
    ) -> Iterator[Self]:
        """Open and lock a ledger, and compare it with the list of its key's ledgers.

        Parameters
        ----------
        known : KnownLedgers
            The open list.
        path : str or Path
        key : private key
            Key that seals the ledger.
        new : Header, optional
            As in `Journal.open`.

        Yields
        ------
        Ledger
        """
        ledger = cls(path)
        ledger._known, ledger._signer = known, key
        with ledger._opened(new):
            yield ledger

    def _read_others(self, known: KnownLedgers) -> Iterator[Self]:
        """Yield the other ledgers of the key; raise `ExchangeError` for an older copy."""
        for id_, place in known.others(self.header.id).items():
            other = type(self).read(place)
            known.require_newest(id_, place, other.heads)
            yield other

    def _note(self) -> None:
        """Write the head of the last line into the list beside the key."""
        if self._known is not None:
            self._known.note(self.header, self.path, self.heads[-1])

    def _require_newest(self, *, begun: bool) -> None:
        """Raise `ExchangeError` for an older copy, or a ledger that the key's list does not have."""
        if self._known is not None:
            self._known.require_newest(
                self.header.id, self.path, self.heads, begun=begun
            )

    def require_site(self, site: str) -> None:
        """Raise `ConfigError` if the ledger belongs to another hospital.

        Parameters
        ----------
        site : str
            The hospital that is about to write to it.
        """
        owner = self.header.site
        if owner == site:
            return
        owned = f"'{owner}'" if owner else "several sites"
        raise ConfigError(
            f"is the ledger of {owned}, not of '{site}'.",
            where=self.path,
            do="Name the ledger of this hospital with --ledger.",
        )

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """Return the entries of all contributions, first to last."""
        return tuple(line for line in self.lines if isinstance(line, LedgerEntry))

    @property
    def every_entry(self) -> tuple[LedgerEntry, ...]:
        """Return the entries of this ledger and of the other ledgers of its key."""
        others = (entry for ledger in self.others for entry in ledger.entries)
        return (*others, *self.entries)

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
        epsilon = sum(inf if r.epsilon is None else r.epsilon for r in self.entries)
        return Spent(float(epsilon), float(sum(r.delta for r in self.entries)))

    def require_budget(
        self, epsilon: float | None, delta: float, policy: Policy
    ) -> Spent:
        """Return the budget spent in all after one more contribution.

        Parameters
        ----------
        epsilon : float or None
            Budget of the contribution; None without noise.
        delta : float
        policy : Policy
            Its `max_epsilon` and `max_delta` hold for the sum of the ledger.

        Returns
        -------
        Spent
            Zero for a contribution without noise, whose record states no budget.

        Raises
        ------
        ConfigError
            If the contribution or the sum is beyond the policy.
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
            Restricts the search to the entries with these commitments; by default all are searched.

        Returns
        -------
        ndarray of bool, shape (n,)
        """
        members = np.zeros(len(people), dtype=bool)
        for entry in self.entries:
            if commitments is None or entry.commitment in commitments:
                members |= same_people(people, entry.people)
        return members

    def require_nobody_elsewhere(self, people: People) -> None:
        """Raise `ConfigError` if people are in another ledger of the same key.

        Each ledger adds up its own budget, so that nobody may be in two of them.

        Parameters
        ----------
        people : tuple of Person
        """
        for other in self.others:
            if twice := int(other.holds(people).sum()):
                raise ConfigError(
                    f"{twice} of these {len(people)} people are in the ledger {other.path}, by id "
                    "or by scan: their budget is added up there.",
                    where=self.path,
                    do=f"Leave them out, or contribute all of them with --ledger {other.path}.",
                )

    def entry_for(self, commitment: str, title: str) -> LedgerEntry:
        """Return the entry with the commitment of a record.

        Parameters
        ----------
        commitment : str
            Salted hash of the people behind the record.
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
        for entry in self.entries:
            if entry.commitment == commitment:
                return entry
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

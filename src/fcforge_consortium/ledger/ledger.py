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

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy import ndarray as Array
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from fcforge.core.errors import ConfigError, DataError, ExchangeError, at
from fcforge.core.files import read_plain
from fcforge.data.cohort import Cohort
from fcforge.data.sketches import SIZE, same_scans, sketches_of
from fcforge_consortium.records import schema
from fcforge_consortium.records.schema import (
    Budget,
    Closed,
    Count,
    Name,
    Number,
    Policy,
    Sha256,
    Share,
    SiteName,
    Size,
    Text,
)

if TYPE_CHECKING:
    from fcforge_consortium.records.exchange import Exchange


NAME = "fcforge.private"  # of the file, beside the data
MAX_BYTES = 1 << 30
Sketch = Annotated[str, Field(pattern=f"^[01][A-Za-z0-9+/]{{{SIZE * 4 // 3}}}$")]


# -- a file that only grows ------------------------------------------------------------------------
class Header(Closed):
    """First line of the file: what it is."""

    kind: Literal["header"] = "header"
    format: Name
    version: Literal[1] = 1


class Placed(Closed):
    """A file that is written under a hidden name first, and the name that it gets."""

    hidden: Text
    final: Annotated[str, Field(max_length=4096)]

    @property
    def paths(self) -> tuple[Path, Path]:
        """Both, in one folder."""
        final = Path(self.final)
        return final.with_name(self.hidden), final


class Intent(Closed):
    """Files that are about to be written; the line that follows makes them count."""

    kind: Literal["intent"] = "intent"
    files: tuple[Placed, ...]


class Journal:
    """A growing file; ``with Journal.open(path) as journal:`` locks it, `read` only looks.

    Class attributes
    ----------------
    format : str
        What the header says.
    kinds : TypeAdapter
        Of all lines, told apart by ``kind``.
    pays : type
        Of the line that makes files count.
    keep : str
        What to do about a damaged one.
    """

    format: ClassVar[str]
    pays: ClassVar[type]
    kinds: ClassVar[TypeAdapter[Any]]
    keep: ClassVar[str]

    def __init__(self, path: str | Path, lines: Sequence[Any] = ()) -> None:
        self.path = Path(path)
        self.lines = list(lines)  # all that is in the file, in order
        self._handle = -1

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """What is in a file that must exist."""
        journal = cls(path)
        journal._load()
        return journal

    @classmethod
    @contextlib.contextmanager
    def open(cls, path: str | Path) -> Iterator[Self]:
        """The file, made where there is none, and locked until the block ends.

        What an earlier command was killed in is put right first: files that are complete and
        paid for get their names, others go.
        """
        journal = cls(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            journal.path.parent.mkdir(parents=True, exist_ok=True)
            journal._handle = os.open(path, flags, 0o600)
        except OSError as error:
            what = f"cannot be opened ({error.strerror})."
            raise DataError(what, where=path, do="Name another file.") from error
        try:
            journal._lock()
            journal._recover(journal._load())
            yield journal
        finally:
            os.close(journal._handle)  # which also unlocks it
            journal._handle = -1

    def publish(self, line: BaseModel, files: Mapping[Path, bytes]) -> None:
        """Add a line and write what it pays for: both or neither, whatever happens between.

        The files are written under hidden names, then the line, then they get their names. A
        process that is killed before the line leaves hidden files, which the next one removes;
        one that is killed after it leaves files that the next one names.

        Raises
        ------
        ExchangeError
            Nothing was added and nothing was written, unless it says otherwise.
        """
        placed = []
        for final in files:
            hidden = f".{final.name[:40]}.{secrets.token_hex(6)}"
            placed.append(Placed(hidden=hidden, final=str(final.absolute())))
        self.append(Intent(files=tuple(placed)))
        try:
            for place, data in zip(placed, files.values(), strict=True):
                _write_hidden(place, data)
            self.append(line)
        except ExchangeError:
            _remove(placed)
            raise
        try:
            _name(placed)
        except OSError as error:
            raise ExchangeError(
                f"cannot get its name ({error.strerror}).",
                where=error.filename2 or self.path,
                do=f"It is complete and was charged in {self.path}; mend the folder, and the next "
                "command that uses that file names it.",
            ) from error

    def append(self, line: BaseModel) -> None:
        """One line more, on the disk; `ExchangeError` and no line where there is no room."""
        end = os.lseek(self._handle, 0, os.SEEK_END)
        data = schema.written(line) + b"\n"
        try:
            while data:
                data = data[os.write(self._handle, data) :]
            os.fsync(self._handle)
        except OSError as error:
            os.ftruncate(self._handle, end)
            raise _full(error, self.path) from error
        self.lines.append(line)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            what = "is in use by another fcforge."
            do = "Wait until that one has finished, then give the same command again."
            raise DataError(what, where=self.path, do=do) from error

    def _load(self) -> int:
        """Read the lines; how many bytes of another follow, which was never finished."""
        data = read_plain(self.path, MAX_BYTES)
        *whole, begun = data.split(b"\n")
        header = schema.written(Header(format=self.format))
        with at(self.path, do=self.keep):
            if whole[:1] != [header] and not header.startswith(data):
                raise ExchangeError(f"is not of format {self.format}.")
            for number, line in enumerate(whole, start=1):
                self.lines.append(schema.read(self.kinds, line, f"line {number}"))
        return len(begun)

    def _recover(self, begun: int) -> None:
        """Put right what an earlier command was killed in; `begun` as of `_load`.

        A line follows its files, which stay hidden until all of it is there: without them it was
        whole once, and was cut off since.
        """
        last = self.lines[-1] if self.lines else None
        placed = last.files if isinstance(last, Intent) else ()
        kept = any(place.paths[0].exists() for place in placed)
        named = any(place.paths[1].exists() for place in placed)
        if placed and not kept and (begun or named):
            what = "its end is cut off."
            raise ExchangeError(what, where=self.path, do=self.keep)
        if begun:
            os.ftruncate(self._handle, os.lseek(self._handle, 0, os.SEEK_END) - begun)
        if not self.lines:
            self.append(Header(format=self.format))
        for line, following in zip(self.lines, [*self.lines[1:], None], strict=True):
            if isinstance(line, Intent) and isinstance(following, self.pays):
                _name(line.files)
            elif isinstance(line, Intent):
                _remove(line.files)


def _write_hidden(place: Placed, data: bytes) -> None:
    hidden, final = place.paths
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(handle)
    except OSError as error:
        raise _full(error, final) from error


def _name(placed: Iterable[Placed]) -> None:
    """Give files their names that have none yet."""
    for place in placed:
        hidden, final = place.paths
        if hidden.exists():
            os.replace(hidden, final)


def _remove(placed: Iterable[Placed]) -> None:
    for place in placed:
        place.paths[0].unlink(missing_ok=True)


def _full(error: OSError, path: Path) -> ExchangeError:
    return ExchangeError(
        f"cannot be written ({error.strerror}).",
        where=path,
        do="Nobody was charged and nothing was given; make room and run the same command again.",
    )


# -- people, receipts, thresholds ------------------------------------------------------------------
class Person(Closed):
    """Somebody who was given: id, SHA-256 and sketch of the scan, diagnosis (or scaled number)."""

    id: Text
    scan: Sha256
    diagnosis: Name
    sketch: Sketch


People = tuple[Person, ...]


def people_of(fc: Array, ids: Sequence[str], y: Array) -> People:
    """People by id, scan and diagnosis, in order; `fc` is (n, R, R)."""
    scans = np.ascontiguousarray(fc, dtype="<f4")
    found = []
    for who, scan, sketch, label in zip(ids, scans, sketches_of(fc), y, strict=True):
        digest = schema.sha256(scan.tobytes())
        said = f"{label:.6f}" if y.dtype.kind == "f" else str(int(label))
        try:
            person = Person(id=str(who), scan=digest, diagnosis=said, sketch=sketch)
        except ValidationError as error:
            what = f"a subject {schema.said(error)}."
            raise DataError(what, do="Give people shorter or plainer ids.") from error
        found.append(person)
    return tuple(found)


def people_in(cohort: Cohort) -> People:
    """The people of a cohort, in order."""
    return people_of(cohort.fc, cohort.subject_id.tolist(), cohort.y)


def same_people(people: People, others: People) -> Array:
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
        return schema.sha256(schema.canonical([self.salt, people]))

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


class Threshold(Closed):
    """A hospital's own threshold: log odds = intercept + slope * the exchange's log odds.

    It was fitted on `people` of `site` and the state `exchange` (an id).
    """

    kind: Literal["threshold"] = "threshold"
    intercept: Number
    slope: Number
    people: Size
    exchange: Sha256
    site: SiteName

    def odds(self, shared: Array) -> Array:
        """The hospital's own log odds from those of the exchange."""
        return self.intercept + self.slope * shared

    def require_site(self, sites: Iterable[str]) -> None:
        """Raise `DataError` where people say that they are of another site."""
        others = sorted({name for name in sites if name not in ("", self.site)})
        if others:
            raise DataError(
                f"the threshold is of site '{self.site}', these people are of "
                f"{', '.join(others)}.",
                do="Name the private record of their own hospital with --ledger.",
            )

    def stale(self, exchange: str) -> list[str]:
        """What to say where it was fitted on another state of the exchange."""
        if self.exchange == exchange:
            return []
        said = "The threshold was fitted with another state of the exchange; "
        return [
            said + "`fcforge consortium threshold` fits it again at home, at no cost."
        ]


# -- the file -------------------------------------------------------------------------------------
class Spent(NamedTuple):
    """What somebody has spent; epsilon is infinite where something was given without noise."""

    epsilon: float = 0.0
    delta: float = 0.0


class PrivateRecord(Journal):
    """The receipts of one hospital and its threshold.

    ``with PrivateRecord.open(path) as private:`` locks the file, for whoever adds to it;
    `PrivateRecord.read` is for whoever looks. ``private.publish(receipt, files)`` charges.
    """

    format = "fcforge-private"
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

    def receipt_for(self, commitment: str, what: str) -> Receipt:
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


def default_place(data: str | Path) -> Path:
    """Where the private record of these data lies: one for all that is in their folder."""
    place = Path(data)
    return (place if place.is_dir() else place.parent) / NAME

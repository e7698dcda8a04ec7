"""What stays at home: whom a hospital gave, what each of them has spent, its own threshold.

One file per hospital, beside the data, that never travels. It is a list of lines that only grows:
a line counts when all of it is on the disk, so that a killed process leaves neither half a line
that counts nor a copy of the file. It is locked while somebody may add to it.

The receipts are the budget register. People are known by id and by scan, under whatever site they
are given, and epsilon and delta add up over everything they were part of.
"""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, TypeAdapter

from fcforge.errors import ConfigError, DataError, ExchangeError, at
from fcforge.exchange import schema
from fcforge.exchange.policy import Policy
from fcforge.exchange.receipts import People, Receipt, Threshold, same_people
from fcforge.exchange.schema import Closed, Text
from fcforge.reading import read_plain

NAME = "fcforge.private"  # of the file, beside the data
MAX_BYTES = 1 << 30
KEEP = "It stays at home, and nothing else knows what its people have spent: keep it."


class Header(Closed):
    """First line of the file."""

    kind: Literal["fcforge-private"] = "fcforge-private"
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
    """Files that are about to be written; the receipt that follows makes them count."""

    kind: Literal["intent"] = "intent"
    files: tuple[Placed, ...]


Line = Header | Intent | Receipt | Threshold
LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])


class Spent(NamedTuple):
    """What somebody has spent; `exact` where something was given without noise."""

    epsilon: float = 0.0
    delta: float = 0.0
    exact: bool = False


class PrivateRecord:
    """The receipts of one hospital and its threshold.

    ``with PrivateRecord.open(path) as private:`` locks the file, for whoever adds to it;
    `PrivateRecord.read` is for whoever looks.

    Attributes
    ----------
    path : Path
    lines : list
        All that is in the file, in order.
    finished : list of Path
        Files that an interrupted command had paid for and that have their names now.
    """

    def __init__(self, path: Path, lines: Sequence[Line] = ()) -> None:
        self.path = path
        self.lines = list(lines)
        self.finished: list[Path] = []
        self._handle = -1

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """Of everything that was given, first to last."""
        return tuple(line for line in self.lines if isinstance(line, Receipt))

    @property
    def threshold(self) -> Threshold | None:
        """The one that was fitted last."""
        found = [line for line in self.lines if isinstance(line, Threshold)]
        return found[-1] if found else None

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """The record in a file that must exist."""
        data = read_plain(path, MAX_BYTES)
        with at(path, do=KEEP):
            return cls(Path(path), _lines(data)[0])

    @classmethod
    @contextlib.contextmanager
    def open(cls, path: str | Path) -> Iterator[Self]:
        """The record in a file, made where there is none, and locked until the block ends.

        What an earlier command was killed in is put right first: files that are complete and
        paid for get their names, others go.
        """
        private = cls(Path(path))
        private.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            private._handle = os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            what = f"cannot be opened ({error.strerror})."
            raise DataError(what, where=path, do="Name another: --register.") from error
        try:
            private._lock()
            private._load()
            private._recover()
            yield private
        finally:
            os.close(private._handle)  # which also unlocks it
            private._handle = -1

    # -- the budget register ---------------------------------------------------------------------
    def spent(self, people: People, void: Iterable[str] = ()) -> list[Spent | None]:
        """What each of these people has spent, by id or scan; None for somebody new.

        Parameters
        ----------
        people : tuple of Person
        void : iterable of str
            Commitments of what was given to a round and never became part of its sum.
        """
        found: list[Spent | None] = [None] * len(people)
        for receipt in self.receipts:
            if receipt.commitment in void:
                continue
            for k in np.flatnonzero(same_people(people, receipt.people)):
                before = found[k] or Spent()
                found[k] = Spent(
                    before.epsilon + (receipt.epsilon or 0.0),
                    before.delta + receipt.delta,
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
        void: Iterable[str] = (),
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
        void : iterable of str
            As in `spent`.
        """
        policy.require_budget(epsilon, delta)
        before = [spent for spent in self.spent(people, void) if spent is not None]
        with at(self.path):
            if before and not again:
                raise ConfigError(
                    f"{len(before)} of these {len(people)} people were given before, by id or by "
                    "scan.",
                    do="Give new people only, or add --again: what they have spent adds up.",
                )
            if epsilon is None:
                return Spent(exact=True)
            exact = sum(spent.exact for spent in before)
            if exact:
                raise ConfigError(
                    f"{exact} of these people were given without noise: no noise now can promise "
                    "them anything.",
                    do="Give the others, or use --mechanism none.",
                )
            total = Spent(
                epsilon + max((spent.epsilon for spent in before), default=0.0),
                delta + max((spent.delta for spent in before), default=0.0),
            )
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

    # -- writing ---------------------------------------------------------------------------------
    def publish(self, receipt: Receipt, files: Mapping[Path, bytes]) -> None:
        """Charge a receipt and write what it is for: both or neither, whatever happens between.

        The files are written under hidden names, then the receipt, then they get their names. A
        process that is killed before the receipt leaves hidden files, which the next one removes;
        one that is killed after it leaves files that the next one names.

        Raises
        ------
        ExchangeError
            Nobody was charged and nothing was written.
        """
        placed = [_placed(final) for final in files]
        self._append(Intent(files=tuple(placed)))
        try:
            for place, data in zip(placed, files.values(), strict=True):
                _write_hidden(place, data)
            self._append(receipt)
        except OSError as error:
            _remove(placed)
            raise _full(error, error.filename or self.path) from error
        except ExchangeError:
            _remove(placed)
            raise
        try:
            _name(placed)
        except OSError as error:
            raise ExchangeError(
                f"cannot get its name ({error.strerror}).",
                where=error.filename2 or self.path,
                do="Its people were charged and it is complete; mend the folder, and the next "
                "`fcforge learn` with this private record names it.",
            ) from error

    def fit(self, threshold: Threshold) -> None:
        """Keep a threshold; the earlier ones no longer count."""
        self._append(threshold)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            what = "is in use by another fcforge."
            do = "Wait until that one has finished, then give the same command again."
            raise DataError(what, where=self.path, do=do) from error

    def _load(self) -> None:
        data = read_plain(self.path, MAX_BYTES)
        with at(self.path, do=KEEP):
            self.lines, whole = _lines(data)
        if len(data) > whole:  # a line that a killed process began
            os.ftruncate(self._handle, whole)
        if not self.lines:
            self._append(Header())

    def _recover(self) -> None:
        """Put right what an earlier command was killed in."""
        for line, following in zip(self.lines, [*self.lines[1:], None], strict=True):
            if isinstance(line, Intent) and isinstance(following, Receipt):
                self.finished += _name(line.files)
            elif isinstance(line, Intent):
                _remove(line.files)

    def _append(self, line: Line) -> None:
        """One line more, on the disk; `ExchangeError` and no line where there is no room."""
        if self._handle < 0:
            raise RuntimeError("a private record is written inside `with` only")
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


def default_place(data: str | Path) -> Path:
    """Where the private record of these data lies: one for all that is in their folder."""
    place = Path(data)
    return (place if place.is_dir() else place.parent) / NAME


def _lines(data: bytes) -> tuple[list[Line], int]:
    """Lines of a file and the bytes that they take; what follows the last was never finished."""
    whole = data.rfind(b"\n") + 1
    lines = []
    for number, line in enumerate(data[:whole].split(b"\n")[:-1], start=1):
        lines.append(schema.read(LINE, line, f"line {number}"))
    begun = lines or schema.written(Header()).startswith(data)
    if not begun or (lines and not isinstance(lines[0], Header)):
        raise ExchangeError("is not a private record of fcforge.")
    return lines, whole


def _placed(final: Path) -> Placed:
    place = final.absolute()
    hidden = f".{place.name[:40]}.{secrets.token_hex(6)}"
    return Placed(hidden=hidden, final=str(place))


def _write_hidden(place: Placed, data: bytes) -> None:
    hidden, final = place.paths
    final.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(handle, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(handle)


def _name(placed: Iterable[Placed]) -> list[Path]:
    """Give files their names; those that had none yet."""
    named = []
    for place in placed:
        hidden, final = place.paths
        if hidden.exists():
            os.replace(hidden, final)
            named.append(final)
    return named


def _remove(placed: Iterable[Placed]) -> None:
    for place in placed:
        place.paths[0].unlink(missing_ok=True)


def _full(error: OSError, path: str | Path) -> ExchangeError:
    return ExchangeError(
        f"cannot be written ({error.strerror}).",
        where=path,
        do="Nobody was charged and nothing was given; make room and run the same command again.",
    )

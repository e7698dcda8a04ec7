"""A file of one's own that only grows, and files that appear with a line of it or not at all.

A line counts when all of it is on the disk, so that a killed process leaves neither half a line
that counts nor a copy of the file. The file is locked while somebody may add to it.
"""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field, TypeAdapter

from fcforge.errors import DataError, ExchangeError, at
from fcforge.exchange import schema
from fcforge.exchange.schema import Closed, Name, Text
from fcforge.files import read_plain

MAX_BYTES = 1 << 30


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
    title : str
        What it is, in words.
    pays : type
        The kind of line that makes files count.
    kinds : TypeAdapter
        Of all lines, told apart by ``kind``.
    keep : str
        What to do about a damaged one.

    Attributes
    ----------
    path : Path
    lines : list
        All that is in the file, in order.
    """

    format: ClassVar[str]
    title: ClassVar[str]
    pays: ClassVar[type[BaseModel]]
    kinds: ClassVar[TypeAdapter[Any]]
    keep: ClassVar[str]

    def __init__(self, path: str | Path, lines: Sequence[Any] = ()) -> None:
        self.path = Path(path)
        self.lines = list(lines)
        self._handle = -1

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """What is in a file that must exist."""
        data = read_plain(path, MAX_BYTES)
        with at(path, do=cls.keep):
            return cls(path, cls._parsed(data)[0])

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
            journal._load()
            journal._recover()
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
        placed = [_placed(final) for final in files]
        self.append(Intent(files=tuple(placed)))
        try:
            for place, data in zip(placed, files.values(), strict=True):
                _write_hidden(place, data)
            self.append(line)
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
                do=f"It is complete and was charged in {self.path}; mend the folder, and the next "
                "command that uses that file names it.",
            ) from error

    def append(self, line: BaseModel) -> None:
        """One line more, on the disk; `ExchangeError` and no line where there is no room."""
        if self._handle < 0:
            raise RuntimeError("a journal is written inside `with` only")
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

    def _load(self) -> None:
        data = read_plain(self.path, MAX_BYTES)
        with at(self.path, do=self.keep):
            self.lines, whole = self._parsed(data)
            self._require_end(begun=len(data) > whole)
        if len(data) > whole:  # a line that a killed process began
            os.ftruncate(self._handle, whole)
        if not self.lines:
            self.append(Header(format=self.format))

    def _require_end(self, *, begun: bool) -> None:
        """Raise `ExchangeError` where the last line was whole once, and was cut off since.

        It follows its files, which stay hidden until all of it is there.
        """
        last = self.lines[-1] if self.lines else None
        placed = last.files if isinstance(last, Intent) else ()
        kept = any(place.paths[0].exists() for place in placed)
        named = any(place.paths[1].exists() for place in placed)
        if placed and not kept and (begun or named):
            raise ExchangeError("its end is cut off.")

    def _recover(self) -> None:
        """Put right what an earlier command was killed in."""
        for line, following in zip(self.lines, [*self.lines[1:], None], strict=True):
            if isinstance(line, Intent) and isinstance(following, self.pays):
                _name(line.files)
            elif isinstance(line, Intent):
                _remove(line.files)

    @classmethod
    def _parsed(cls, data: bytes) -> tuple[list[Any], int]:
        """Lines and the bytes that they take; what follows the last was never finished."""
        whole = data.rfind(b"\n") + 1
        header = Header(format=cls.format)
        begun = data.startswith(schema.written(header) + b"\n")
        if not begun and not schema.written(header).startswith(data):
            raise ExchangeError(f"is not {cls.title}.")
        lines = []
        for number, line in enumerate(data[:whole].split(b"\n")[:-1], start=1):
            lines.append(schema.read(cls.kinds, line, f"line {number}"))
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


def _name(placed: Iterable[Placed]) -> None:
    """Give files their names that have none yet."""
    for place in placed:
        hidden, final = place.paths
        if hidden.exists():
            os.replace(hidden, final)


def _remove(placed: Iterable[Placed]) -> None:
    for place in placed:
        place.paths[0].unlink(missing_ok=True)


def _full(error: OSError, path: str | Path) -> ExchangeError:
    return ExchangeError(
        f"cannot be written ({error.strerror}).",
        where=path,
        do="Nobody was charged and nothing was given; make room and run the same command again.",
    )

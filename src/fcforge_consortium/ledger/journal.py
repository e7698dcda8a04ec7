"""Journal: a locked file that only grows, in which other files appear with a line or not at all.

A line counts when all of it is on the disk, so that a killed process leaves neither half a line that
counts nor an outgoing file without its line.
"""

import contextlib
import errno
import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field, TypeAdapter

from fcforge.core.errors import DataError, ExchangeError, at
from fcforge.core.files import read_plain
from fcforge_consortium.records.canonical import read_canonical, to_canonical
from fcforge_consortium.records.fields import Closed, Name, Text

MAX_BYTES = 1 << 30


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
        for final in files:
            if final.exists():
                raise ExchangeError(
                    "exists already: an earlier command that was interrupted has written it.",
                    where=final,
                    do="Keep it, and choose another name for a further one. Nobody was charged.",
                )
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
        self._name_files(placed)

    def _name_files(self, placed: Iterable[Placed]) -> None:
        """Give complete files that were charged their names; `ExchangeError` if one is taken."""
        try:
            _name(placed)
        except OSError as error:
            raise ExchangeError(
                f"could not get its name ({error.strerror}).",
                where=error.filename2 or self.path,
                do=f"It is complete and was charged in {self.path}; mend the folder, and the next "
                "command that uses that file names it.",
            ) from error

    def append(self, line: BaseModel) -> None:
        """One line more, on the disk; `ExchangeError` and no line where there is no room."""
        end = os.lseek(self._handle, 0, os.SEEK_END)
        data = to_canonical(line) + b"\n"
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
        header = to_canonical(Header(format=self.format))
        with at(self.path, do=self.keep):
            if whole[:1] != [header] and not header.startswith(data):
                raise ExchangeError(f"is not of format {self.format}.")
            for number, line in enumerate(whole, start=1):
                self.lines.append(read_canonical(self.kinds, line, f"line {number}"))
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
                self._name_files(line.files)
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
        if hidden.exists() and final.exists():
            taken = "a file of that name exists"
            raise FileExistsError(errno.EEXIST, taken, str(hidden), None, str(final))
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

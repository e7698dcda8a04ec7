"""Journal: a locked append-only file whose lines commit the writing of other files.

A line counts once all of it is on the disk. A killed process therefore leaves neither a partial line
that counts nor an outgoing file without its line.
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


class Header(Closed):
    """First line of a journal: format and version."""

    kind: Literal["header"] = "header"
    format: Name
    version: Literal[1] = 1


class Placed(Closed):
    """An outgoing file: the hidden name under which it is written, and its final name."""

    hidden: Text
    final: Annotated[str, Field(max_length=4096)]

    @property
    def paths(self) -> tuple[Path, Path]:
        """Return the hidden and the final path, in one folder."""
        final = Path(self.final)
        return final.with_name(self.hidden), final


class Intent(Closed):
    """Files that are about to be written; the next line commits them."""

    kind: Literal["intent"] = "intent"
    files: tuple[Placed, ...]


class Journal:
    """An append-only file; `open` locks it for writing, `read` reads it without a lock.

    Class attributes
    ----------------
    format : str
        Format in the header.
    kinds : TypeAdapter
        Schema of all lines, distinguished by ``kind``.
    pays : type
        Class of the line that commits files.
    keep : str
        Advice for a damaged file.
    """

    format: ClassVar[str]
    pays: ClassVar[type]
    kinds: ClassVar[TypeAdapter[Any]]
    keep: ClassVar[str]

    def __init__(self, path: str | Path, lines: Sequence[Any] = ()) -> None:
        self.path = Path(path)
        self.lines = list(lines)  # all lines of the file
        self._handle = -1

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read an existing file without locking it.

        Parameters
        ----------
        path : str or Path

        Returns
        -------
        Journal
        """
        journal = cls(path)
        journal._load()
        return journal

    @classmethod
    @contextlib.contextmanager
    def open(cls, path: str | Path) -> Iterator[Self]:
        """Open or create the file and lock it until the block ends.

        Work of a killed command is completed first: committed files get their final names, others
        are removed.

        Parameters
        ----------
        path : str or Path

        Yields
        ------
        Journal
        """
        journal = cls(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            journal.path.parent.mkdir(parents=True, exist_ok=True)
            journal._handle = os.open(path, flags, 0o600)
        except OSError as error:
            message = f"cannot be opened ({error.strerror})."
            raise DataError(message, where=path, do="Name another file.") from error
        try:
            journal._lock()
            journal._recover(journal._load())
            yield journal
        finally:
            os.close(journal._handle)  # which also unlocks it
            journal._handle = -1

    def publish(self, line: BaseModel, files: Mapping[Path, bytes]) -> None:
        """Append a line and write the files that it commits: both or neither.

        The files are written under hidden names, then the line is appended, then the files get
        their final names. After a kill before the line, the next command removes the hidden files;
        after a kill behind the line, it renames them.

        Parameters
        ----------
        line : BaseModel
            Of class `pays`.
        files : mapping of Path to bytes

        Raises
        ------
        ExchangeError
            If nothing was appended and written, or if the files could not be renamed.
        """
        for final in files:
            if final.exists():
                raise ExchangeError(
                    "exists already: an earlier command that was interrupted has written it.",
                    where=final,
                    do="Keep it, and choose another name for a further file. Nobody was charged.",
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
        """Rename committed files to their final names; `ExchangeError` if a name is taken."""
        try:
            _name(placed)
        except OSError as error:
            raise ExchangeError(
                f"could not be renamed to its final name ({error.strerror}).",
                where=error.filename2 or self.path,
                do=f"The file is complete and was charged in {self.path}. Repair the folder; the next "
                "command that uses the ledger renames the file.",
            ) from error

    def append(self, line: BaseModel) -> None:
        """Append a line and flush it to the disk.

        Parameters
        ----------
        line : BaseModel

        Raises
        ------
        ExchangeError
            If the line cannot be written; the file is as before.
        """
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
        """Lock the open file; raise `DataError` if another process holds the lock."""
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            message = "is in use by another fcforge."
            do = (
                "Wait until that process has finished, then run the same command again."
            )
            raise DataError(message, where=self.path, do=do) from error

    def _load(self) -> int:
        """Read the complete lines; return the number of bytes of an incomplete last line."""
        data = read_plain(self.path, MAX_BYTES)
        *complete, partial = data.split(b"\n")
        header = to_canonical(Header(format=self.format))
        with at(self.path, do=self.keep):
            if complete[:1] != [header] and not header.startswith(data):
                raise ExchangeError(f"does not have the format {self.format}.")
            for number, line in enumerate(complete, start=1):
                self.lines.append(read_canonical(self.kinds, line, f"line {number}"))
        return len(partial)

    def _recover(self, partial: int) -> None:
        """Complete or undo the work of a killed command.

        A partial last line is removed. Its files must still be hidden then: if they are not, the
        line was complete once and has been cut off since, which is an `ExchangeError`.

        Parameters
        ----------
        partial : int
            Bytes of an incomplete last line, as returned by `_load`.
        """
        last = self.lines[-1] if self.lines else None
        placed = last.files if isinstance(last, Intent) else ()
        hidden = any(place.paths[0].exists() for place in placed)
        named = any(place.paths[1].exists() for place in placed)
        if placed and not hidden and (partial or named):
            message = "its end is cut off."
            raise ExchangeError(message, where=self.path, do=self.keep)
        if partial:
            end = os.lseek(self._handle, 0, os.SEEK_END)
            os.ftruncate(self._handle, end - partial)
        if not self.lines:
            self.append(Header(format=self.format))
        for line, following in zip(self.lines, [*self.lines[1:], None], strict=True):
            if isinstance(line, Intent) and isinstance(following, self.pays):
                self._name_files(line.files)
            elif isinstance(line, Intent):
                _remove(line.files)


def _write_hidden(place: Placed, data: bytes) -> None:
    """Write a new file under its hidden name and flush it to the disk."""
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
    """Rename the files that are still hidden; raise `FileExistsError` if a name is taken."""
    for place in placed:
        hidden, final = place.paths
        if hidden.exists() and final.exists():
            reason = "a file of that name exists"
            raise FileExistsError(errno.EEXIST, reason, str(hidden), None, str(final))
        if hidden.exists():
            os.replace(hidden, final)


def _remove(placed: Iterable[Placed]) -> None:
    """Delete the hidden files."""
    for place in placed:
        place.paths[0].unlink(missing_ok=True)


def _full(error: OSError, path: Path) -> ExchangeError:
    """Return the error of a file that could not be written."""
    return ExchangeError(
        f"cannot be written ({error.strerror}).",
        where=path,
        do="Nobody was charged and nothing was written. Make room and run the same command again.",
    )

"""Journal: a locked, sealed, append-only file, whose lines and outgoing files are written together.

Two files are journals: a hospital's ledger, and an aggregator's list of rounds. Each must have a line
about everything that its owner has sent.

**Lines.** A line is canonical JSON and a seal. The first line is the *header*. The *head* of a line is
the SHA-256 of the head before it and of the line, so that it stands for all lines up to this one. The
*seal* is the owner's signature of the head. A journal whose owner does not sign has the head itself as
a seal, which shows damage but no forgery.

**Outgoing files.** A line *commits* the files that were announced in the line before it (an *intent*):
they are written under hidden names, the line is appended, and then they get their final names. A line
counts once all of it is on the disk. A process that is killed at any moment therefore leaves neither
an outgoing file without its line nor a line whose file is lost: the next command that opens the
journal renames committed files and removes the others.
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
from fcforge_consortium.records.canonical import read_canonical, sha256, to_canonical
from fcforge_consortium.records.fields import Closed, Name, PublicKey, SiteName, Text
from fcforge_consortium.records.keys import Signer, public_hex
from fcforge_consortium.records.signatures import fits

MAX_BYTES = 1 << 30  # of a journal
CONTEXT = b"fcforge journal 2\n"  # binds seals to journals of this version
FINISH = "Repair the folder; the next command that uses the ledger renames the file."
BEGINNING = b'{"cohort":"'  # first bytes of every header in canonical JSON
SEAL = b"\t"  # between a line and its seal; canonical JSON has no tab


class Header(Closed):
    """First line of a journal: format, version and owner.

    Attributes
    ----------
    format : str
        Format of the journal: that of a ledger or of a list of rounds.
    id : str
        128 random bits that identify the journal wherever it lies.
    key : str
        Public key of the owner in hex; empty if the owner does not sign.
    site : str
        The hospital or aggregator that owns it; empty for several.
    cohort : str
        Name of the people of a further ledger of a hospital; empty for its first ledger.
    """

    kind: Literal["header"] = "header"
    format: Name
    version: Literal[2] = 2
    id: str = Field(
        pattern="^[0-9a-f]{32}$", default_factory=lambda: secrets.token_hex(16)
    )
    key: PublicKey | Literal[""] = ""
    site: SiteName | Literal[""] = ""
    cohort: Name | Literal[""] = ""


class Handover(Closed):
    """A line that changes the owner's key: the old key seals it, the new key seals later lines."""

    kind: Literal["handover"] = "handover"
    new_key: PublicKey


class Placed(Closed):
    """An outgoing file: the hidden name under which it is written, and its final path."""

    hidden: Text
    final: Annotated[str, Field(max_length=4096)]

    @property
    def paths(self) -> tuple[Path, Path]:
        """Return the hidden and the final path, in one folder."""
        final = Path(self.final)
        return final.with_name(self.hidden), final


class Intent(Closed):
    """A line that announces outgoing files; the next line commits them."""

    kind: Literal["intent"] = "intent"
    files: tuple[Placed, ...]


class Journal:
    """An append-only file; `open` locks it for writing, `read` reads it without a lock.

    Class attributes
    ----------------
    format : str
        Format in the header.
    kinds : TypeAdapter
        Schema of all lines, distinguished by their field ``kind``.
    committing : type or tuple of type
        Classes of the lines that commit files, such as the entry of a ledger.
    keep : str
        Advice in the error message for a damaged file.
    missing : str
        Advice in the error message for a missing file.
    """

    format: ClassVar[str]
    committing: ClassVar[type | tuple[type, ...]]
    kinds: ClassVar[TypeAdapter[Any]]
    keep: ClassVar[str]
    missing: ClassVar[str]

    def __init__(self, path: str | Path, lines: Sequence[Any] = ()) -> None:
        self.path = Path(path)
        self.lines = list(lines)  # all lines of the file, decoded
        self.heads: list[str] = []  # the head of each line
        self._signer: Signer = None  # the owner's private key
        self._handle = -1  # descriptor of the locked file; -1 while it is not open

    @classmethod
    def new(cls, site: str = "", key: Signer = None, cohort: str = "") -> Header:
        """Return the header of a new journal.

        Parameters
        ----------
        site : str, optional
            The owner; empty for several.
        key : private key, optional
            Key of the owner; without it lines are not signed.
        cohort : str, optional
            Name of the people of a further ledger.

        Returns
        -------
        Header
        """
        return Header(format=cls.format, key=public_hex(key), site=site, cohort=cohort)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read an existing file without locking it, and check its seals.

        Parameters
        ----------
        path : str or Path

        Returns
        -------
        Journal

        Raises
        ------
        DataError, ExchangeError
            If the file is missing, damaged, changed or of another format.
        """
        journal = cls(path)
        if not journal.path.exists():
            raise DataError("does not exist.", where=path, do=cls.missing)
        journal._load()
        journal._require_header()
        return journal

    @classmethod
    @contextlib.contextmanager
    def open(
        cls, path: str | Path, key: Signer = None, *, new: Header | None = None
    ) -> Iterator[Self]:
        """Open the file and lock it until the block ends.

        Work of a killed command is completed first: outgoing files that a line commits get their final
        names, others are removed.

        Parameters
        ----------
        path : str or Path
        key : private key, optional
            Key of the owner, which seals every line.
        new : Header, optional
            Begin a journal with this header; a file that already has lines behind its header is
            refused. Without it the journal must exist.

        Yields
        ------
        Journal
        """
        journal = cls(path)
        journal._signer = key
        with journal._opened(new):
            yield journal

    @contextlib.contextmanager
    def _opened(self, new: Header | None) -> Iterator[None]:
        """Lock the file, check it and complete or undo a killed command; unlock it at the end.

        Parameters
        ----------
        new : Header or None
            As in `open`.
        """
        self._lock_file(create=new is not None)
        try:
            self._begin(new)
            yield
        finally:
            os.close(self._handle)  # which also unlocks it
            self._handle = -1

    @property
    def header(self) -> Header:
        """Return the header; for a journal in memory, a header without an owner."""
        first = self.lines[0] if self.lines else None
        return first if isinstance(first, Header) else Header(format=self.format)

    @property
    def key(self) -> str:
        """Return the public key that seals the next line; empty if the owner does not sign."""
        key = self.header.key
        for line in self.lines:
            key = line.new_key if isinstance(line, Handover) else key
        return key

    def publish(self, line: BaseModel, files: Mapping[Path, bytes]) -> None:
        """Append a line and write the files that it commits: both or neither.

        The files are written under hidden names, then the line is appended, then the files get
        their final names. After a kill before the line, the next command removes the hidden files;
        after a kill behind the line, it renames them.

        Parameters
        ----------
        line : BaseModel
            The line that commits the files, of a class in `committing`.
        files : mapping of Path to bytes
            Contents of the outgoing files by final path.

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
        placed: list[Placed] = []
        for final in files:
            hidden = f".{final.name[:40]}.{secrets.token_hex(6)}"
            placed.append(Placed(hidden=hidden, final=str(final.absolute())))
        self.append(Intent(files=tuple(placed)))
        try:
            for place, data in zip(placed, files.values(), strict=True):
                _write_hidden(place, data)
            self._write(line)
        except ExchangeError:
            _remove(placed)
            raise
        with at(
            do=f"The contribution is complete and was charged in {self.path}. {FINISH}"
        ):
            self._note()  # before anything leaves
        self._name_files(placed)

    def _name_files(self, placed: Iterable[Placed]) -> None:
        """Rename committed files to their final names; raise `ExchangeError` if a name is taken."""
        try:
            _rename_hidden(placed)
        except OSError as error:
            raise ExchangeError(
                f"could not be renamed to its final name ({error.strerror}).",
                where=error.filename2 or self.path,
                do=f"The file is complete and was charged in {self.path}. {FINISH}",
            ) from error

    def append(self, line: BaseModel) -> None:
        """Append a line with its seal and flush it to the disk.

        Parameters
        ----------
        line : BaseModel

        Raises
        ------
        ExchangeError
            If the line cannot be written; the file is as before.
        """
        self._write(line)
        self._note()

    def _write(self, line: BaseModel) -> None:
        """Append a line with its seal, without noting its head elsewhere.

        Raises
        ------
        ExchangeError
            If the line cannot be written; the file is as before.
        """
        end = os.lseek(self._handle, 0, os.SEEK_END)
        content = to_canonical(line)
        head = head_of(self.heads[-1] if self.heads else "", content)
        seal = head
        if self._signer is not None:
            seal = self._signer.sign(CONTEXT + head.encode()).hex()
        data = content + SEAL + seal.encode() + b"\n"
        try:
            while data:
                data = data[os.write(self._handle, data) :]
            os.fsync(self._handle)
        except OSError as error:
            os.ftruncate(self._handle, end)
            raise _not_written(error, self.path) from error
        self.lines.append(line)
        self.heads.append(head)

    def _note(self) -> None:
        """Write the last head to another file, so that an older copy of this one is recognised.

        A subclass may override it together with `_require_newest`; by default nothing is written.
        """

    def _require_newest(self, *, begun: bool) -> None:
        """Raise `ExchangeError` if the file lacks the line whose head `_note` wrote last.

        Parameters
        ----------
        begun : bool
            Whether the journal begins now, so that no head of it is known.
        """

    def _begin(self, new: Header | None) -> None:
        """Read the locked file, or begin a new one; check it; complete or undo a killed command.

        Parameters
        ----------
        new : Header or None
            As in `open`.
        """
        partial = self._load()
        if new is not None and len(self.lines) > 1:
            raise ExchangeError(
                f"exists already and has {len(self.lines) - 1} lines.",
                where=self.path,
                do="Use it as it is: leave --new-ledger out. Nothing was changed.",
            )
        # a journal of a header alone may be begun again, by the same owner: only the ids differ
        if new is not None and self.lines and new != self.header.changed(id=new.id):
            raise ExchangeError(
                "exists already, for another site, key or cohort.",
                where=self.path,
                do="Name another file.",
            )
        if new is not None and not self.lines:
            if partial:
                os.ftruncate(self._handle, 0)
            self._write(new)
        self._require_header()
        if self.key != public_hex(self._signer):
            theirs = f"sealed by key {self.key[:16]}" if self.key else "not signed"
            given = public_hex(self._signer)
            yours = f"you sign with key {given[:16]}" if given else "you gave no key"
            raise ExchangeError(
                f"is {theirs}, but {yours}.",
                where=self.path,
                do="Name its own key (--sign KEY), or the file that belongs to your key. After "
                "`fcforge consortium keys rotate` the new key seals it.",
            )
        self._require_newest(begun=new is not None)
        self._recover(partial)
        self._note()

    def _lock_file(self, *, create: bool) -> None:
        """Open and lock the file; raise `DataError` if it is missing or in use.

        Parameters
        ----------
        create : bool
            Whether a missing file is made.
        """
        if not create and not self.path.exists():
            raise DataError("does not exist.", where=self.path, do=self.missing)
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(self.path, flags, 0o600)
        except OSError as error:
            message = f"cannot be opened ({error.strerror})."
            hint = "Name another file."
            raise DataError(message, where=self.path, do=hint) from error
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._handle)
            raise in_use(self.path) from error

    def _load(self) -> int:
        """Read all complete lines into `lines` and `heads`, and check their seals.

        Returns
        -------
        int
            Bytes of an incomplete last line, which a killed process has left; usually 0.
        """
        data = read_plain(self.path, MAX_BYTES)
        # every complete line ends in a line feed; what follows the last one was cut off by a kill
        *complete, partial = data.split(b"\n")
        owner_key = ""
        with at(self.path, do=self.keep):
            if complete:
                self._require_format(complete[0])
            elif not partial.startswith(BEGINNING[: len(partial)]):
                raise ExchangeError(f"does not have the format {self.format}.")
            for number, line in enumerate(complete, start=1):
                content, _, seal = line.partition(SEAL)
                body = read_canonical(self.kinds, content, f"line {number}")
                if isinstance(body, Header) != (number == 1):
                    raise ExchangeError(f"line {number} must not be there.")
                head = head_of(self.heads[-1] if self.heads else "", content)
                owner_key = body.key if isinstance(body, Header) else owner_key
                # with a key the seal is its signature of the head, without one the head itself
                signed = bool(owner_key) and fits(
                    owner_key, seal.decode("ascii", "replace"), CONTEXT + head.encode()
                )
                if not signed and (owner_key or seal != head.encode()):
                    raise ExchangeError(
                        f"line {number} or one before it was changed, left out or added: its "
                        "seal does not fit."
                    )
                # the old key has sealed this line; the new one seals all lines after it
                owner_key = body.new_key if isinstance(body, Handover) else owner_key
                self.lines.append(body)
                self.heads.append(head)
        return len(partial)

    def _require_header(self) -> None:
        """Raise `ExchangeError` for a file without a complete first line."""
        if not self.lines:
            raise ExchangeError("has no header.", where=self.path, do=self.keep)

    def _require_format(self, line: bytes) -> None:
        """Raise `ExchangeError` for the first line of another format or version."""
        if line == to_canonical(_OldHeader(format=self.format)):
            raise ExchangeError(
                "is of version 1, which fcforge 0.2 reads and writes. Its lines are not sealed.",
                do="Keep it: the budget in it is spent. For people who are not in it, begin a new "
                "one.",
            )
        start = f'"format":"{self.format}","id":'.encode()
        if start not in line or b'"kind":"header"' not in line:
            raise ExchangeError(f"does not have the format {self.format}.")

    def _recover(self, partial: int) -> None:
        """Complete or undo the work of a killed command.

        An incomplete last line is removed. The files that it would commit must still be hidden then. If
        they are not, the line was complete once and has been cut off since.

        Parameters
        ----------
        partial : int
            Bytes of an incomplete last line, as returned by `_load`.

        Raises
        ------
        ExchangeError
            If the end of the file was cut off, or a file cannot get its final name.
        """
        last = self.lines[-1] if self.lines else None
        announced = last.files if isinstance(last, Intent) else ()
        any_hidden = any(file.paths[0].exists() for file in announced)
        any_final = any(file.paths[1].exists() for file in announced)
        if announced and not any_hidden and (partial or any_final):
            message = "its end is cut off."
            raise ExchangeError(message, where=self.path, do=self.keep)
        if partial:
            end = os.lseek(self._handle, 0, os.SEEK_END)
            os.ftruncate(self._handle, end - partial)
        for line, following in zip(self.lines, [*self.lines[1:], None], strict=True):
            if isinstance(line, Intent) and isinstance(following, self.committing):
                self._name_files(line.files)
            elif isinstance(line, Intent):
                _remove(line.files)


class _OldHeader(Closed):
    """First line of a journal of version 1, by which such a file is recognised."""

    kind: Literal["header"] = "header"
    format: Name
    version: Literal[1] = 1


def head_of(before: str, content: bytes) -> str:
    """Return the head of a line.

    Parameters
    ----------
    before : str
        Head of the line before; empty for the first line.
    content : bytes
        The line without its seal.

    Returns
    -------
    str
        SHA-256 in hex.
    """
    return sha256(before.encode() + b"\n" + content)


def in_use(path: Path) -> DataError:
    """Return the error of a file that another process has locked."""
    hint = "Wait until that process has finished, then run the same command again."
    return DataError("is in use by another fcforge.", where=path, do=hint)


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
        raise _not_written(error, final) from error


def _rename_hidden(placed: Iterable[Placed]) -> None:
    """Give their final names to the files that are still hidden.

    Raises
    ------
    FileExistsError
        If a file of a final name exists.
    """
    for place in placed:
        hidden, final = place.paths
        if hidden.exists() and final.exists():
            reason = "a file of that name exists"
            raise FileExistsError(errno.EEXIST, reason, str(hidden), None, str(final))
        if hidden.exists():
            os.replace(hidden, final)


def _remove(placed: Iterable[Placed]) -> None:
    """Delete the hidden files; those that do not exist are no error."""
    for place in placed:
        place.paths[0].unlink(missing_ok=True)


def _not_written(error: OSError, path: Path) -> ExchangeError:
    """Return the error to raise when the system refused to write a file, e.g. to a full disk.

    Parameters
    ----------
    error : OSError
        The system's reason.
    path : Path
        The file that was to be written.
    """
    return ExchangeError(
        f"cannot be written ({error.strerror}).",
        where=path,
        do="Nobody was charged and nothing was written. Make room and run the same command again.",
    )

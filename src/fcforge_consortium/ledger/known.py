"""Ledgers that a key seals: a signed list beside the key, which recognises older and missing ledgers.

A hospital signs ("seals") every line of its ledger with its key. The *head* of a line is a hash of the
ledger up to that line (`ledger.journal`). The list holds, for each ledger of the key, its path and the
head of its last line. It lies in the folder of the key and not with the data. Therefore commands notice
when the data are copied into another folder, when a ledger is deleted, and when an older copy of it is
restored. They cannot notice when ledger and list are restored together from one backup.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, TypeAdapter

from fcforge.core.errors import ConfigError, ExchangeError, at
from fcforge.core.files import read_plain, write_bytes
from fcforge_consortium.ledger.journal import Header, in_use
from fcforge_consortium.records.canonical import read_canonical, to_canonical
from fcforge_consortium.records.fields import Closed, Name, Sha256, SiteName
from fcforge_consortium.records.keys import PrivateKey, public_hex
from fcforge_consortium.records.signatures import fits

SUFFIX = ".ledgers"  # KEY.ledgers is the list of the key in the file KEY
MAX_BYTES = 1 << 22  # of the list
CONTEXT = b"fcforge ledgers 1\n"  # binds signatures to lists of this version
REGISTER = "`fcforge consortium ledger register LEDGER --sign KEY`"


class KnownLedger(Closed):
    """A ledger that the key seals.

    Attributes
    ----------
    id, site, cohort : str
        As in the ledger's header.
    path : str
        Path of the ledger when it was last written.
    head : str
        Head of its last line.
    """

    id: str = Field(pattern="^[0-9a-f]{32}$")
    path: Annotated[str, Field(max_length=4096)]
    site: SiteName | Literal[""]
    cohort: Name | Literal[""]
    head: Sha256


class _Listed(Closed):
    """Content of the list; a signature follows it in the file."""

    format: Literal["fcforge-ledgers"] = "fcforge-ledgers"
    ledgers: tuple[KnownLedger, ...] = ()


class KnownLedgers:
    """The list of the ledgers of a key; `open` locks it.

    Parameters
    ----------
    key_file : Path
        File of the private key; the list lies beside it.
    key : private key

    Attributes
    ----------
    path : Path
        File of the list.
    ledgers : dict of str to KnownLedger
        By id.
    """

    def __init__(self, key_file: Path, key: PrivateKey) -> None:
        # links to the key are followed, so that a key has one list
        self.path = Path(f"{key_file.resolve()}{SUFFIX}")
        self._key = key
        self.ledgers: dict[str, KnownLedger] = {}
        if self.path.exists():
            self.ledgers = {one.id: one for one in self._read().ledgers}

    @classmethod
    @contextlib.contextmanager
    def open(cls, key_file: Path, key: PrivateKey) -> Iterator[Self]:
        """Read the list and lock the key's file until the block ends.

        Parameters
        ----------
        key_file : Path
            File of the private key; the list lies beside it.
        key : private key

        Yields
        ------
        KnownLedgers
        """
        handle = os.open(key_file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise in_use(key_file) from error
            yield cls(key_file, key)
        finally:
            os.close(handle)

    def _read(self) -> _Listed:
        """Return the content of the list; raise `ExchangeError` unless the key signed it."""
        hint = "Restore your backup of it; it lies beside the key."
        with at(self.path, do=hint):
            data = read_plain(self.path, MAX_BYTES, ExchangeError)
            content, _, signature = data.partition(b"\n")
            shown = signature.decode("ascii", "replace").rstrip("\n")
            if not fits(public_hex(self._key), shown, CONTEXT + content):
                raise ExchangeError("was changed: its signature does not fit the key.")
            return read_canonical(TypeAdapter(_Listed), content, "the list")

    def note(self, header: Header, path: Path, head: str) -> None:
        """Write the path and the last head of a ledger into the list.

        Parameters
        ----------
        header : Header
            Header of the ledger.
        path : Path
            Path of the ledger.
        head : str
            Head of its last line.
        """
        current = KnownLedger(
            id=header.id,
            path=str(path.absolute()),
            site=header.site,
            cohort=header.cohort,
            head=head,
        )
        if self.ledgers.get(header.id) != current:
            self._write({**self.ledgers, header.id: current})

    def _write(self, ledgers: dict[str, KnownLedger]) -> None:
        """Write the list, signed, whole or not at all."""
        content = to_canonical(_Listed(ledgers=tuple(ledgers.values())))
        signature = self._key.sign(CONTEXT + content).hex().encode()
        try:
            write_bytes(self.path, content + b"\n" + signature + b"\n", private=True)
        except OSError as error:
            raise ExchangeError(
                f"cannot be written ({error.strerror}).",
                where=self.path,
                do="The folder of the key must be writable: the list of its ledgers is kept there. "
                "Repair it and run the same command again.",
            ) from error
        self.ledgers = ledgers

    def others(self, id_: str) -> dict[str, Path]:
        """Return the paths of all ledgers but one by id; each must still exist.

        Parameters
        ----------
        id_ : str
            Id of the ledger to leave out.

        Returns
        -------
        dict of str to Path

        Raises
        ------
        ExchangeError
            If a ledger is not in its place.
        """
        known = self.ledgers.values()
        places = {one.id: Path(one.path) for one in known if one.id != id_}
        for place in places.values():
            if not place.exists():
                raise ExchangeError(
                    f"the ledger {place} of this key is not in its place, so that its people "
                    "cannot be compared with these.",
                    where=self.path,
                    do=f"Restore it, or name its new place: {REGISTER}.",
                )
        return places

    def require_room(self, path: Path, new: Header) -> None:
        """Raise an error if a new ledger would hide a ledger that the key already has.

        Parameters
        ----------
        path : Path
            Path of the new ledger.
        new : Header
            Its header.

        Raises
        ------
        ConfigError
            If the key has a ledger of another site, has a first ledger although this one would be the
            first, or has a ledger of the same cohort.
        ExchangeError
            If the list has a ledger at this path, and the file is missing.
        """
        for one in self.ledgers.values():
            here = one.path == str(path.absolute())
            if one.site != new.site:
                raise ConfigError(
                    f"the key seals a ledger of '{one.site}', not of '{new.site}': {one.path}.",
                    where=self.path,
                    do="Each hospital needs a key of its own (`fcforge consortium keys new`).",
                )
            if not new.cohort and not here:
                raise ConfigError(
                    f"the key seals the ledger {one.path} already: a second one would not add "
                    "up the budget that its people have spent.",
                    where=self.path,
                    do="Name that ledger with --ledger. For people who were in no earlier "
                    "contribution: `fcforge consortium ledger new FILE --cohort NAME`.",
                )
            if new.cohort and one.cohort == new.cohort and not here:
                raise ConfigError(
                    f"the key has a ledger of cohort '{one.cohort}' already: {one.path}.",
                    where=self.path,
                    do="Name that ledger with --ledger, or choose another name.",
                )
            if here and not path.exists():
                raise ExchangeError(
                    "was there before and is missing.",
                    where=path,
                    do="Restore your backup: no other file has the spent budget of its people.",
                )

    def require_newest(
        self, id_: str, path: Path, heads: Sequence[str], *, begun: bool = False
    ) -> None:
        """Raise `ExchangeError` unless a ledger is in the list and has the line that was written last.

        Parameters
        ----------
        id_ : str
            Id of the ledger.
        path : Path
            Path of the ledger.
        heads : sequence of str
            Head of each of its lines.
        begun : bool
            Whether the ledger begins now, so that the list need not have it.
        """
        here = str(path.absolute())
        if begun and here in {o.path for o in self.ledgers.values() if o.id != id_}:
            raise ExchangeError(
                "is not the ledger that was here before.",
                where=path,
                do="Restore your backup: no other file has the spent budget of its people.",
            )
        if begun and id_ not in self.ledgers:
            return
        if id_ not in self.ledgers:
            raise ExchangeError(
                f"is not in the list {self.path} of its key: the list is missing or older.",
                where=path,
                do=f"Restore the list beside the key. If it is lost: {REGISTER}.",
            )
        if self.ledgers[id_].head not in heads:
            raise ExchangeError(
                "is an older copy or another ledger: lines that the key's list knows are missing.",
                where=path,
                do="Restore the newest copy: no other file has the spent budget of its people.",
            )

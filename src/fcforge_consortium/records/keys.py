"""Keys: Ed25519 signatures that prove who wrote a record, and the keyring that says whose is whose.

The keyring is one JSON file per user. A key added under the name of a site is the only one that
may sign for that site. A hospital that changes its key signs the new one with the old one (a
rotation, which travels as a record); a key that was lost is revoked, and what it signed is refused
everywhere but for the records that a rotation to a known key vouches for.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from pydantic import TypeAdapter

from fcforge.core.errors import ConfigError, ExchangeError, at
from fcforge.core.files import read_plain, write_bytes
from fcforge.core.names import look_alike, unknown_name
from fcforge_consortium.options import TrustRequest
from fcforge_consortium.records import schema
from fcforge_consortium.records.schema import (
    Closed,
    PublicKey,
    SiteName,
    Time,
    key_fault,
    now,
    site_name,
)

if TYPE_CHECKING:
    from fcforge_consortium.records.kinds import Record

PrivateKey = Ed25519PrivateKey
Signer = PrivateKey | None  # None where a hospital does not sign
PASSPHRASE = "FCFORGE_PASSPHRASE"
PLACE = "FCFORGE_KEYRING"
MAX_PEM = 1 << 14  # bytes
MAX_KEYRING = 1 << 22


def public_hex(key: Signer) -> str:
    """64 hex digits of the public key of a private one; empty without a key."""
    return "" if key is None else key.public_key().public_bytes_raw().hex()


def read_private(path: str | Path, passphrase: str = "") -> Ed25519PrivateKey:
    """Private key from a PEM file (``openssl genpkey -algorithm ed25519``).

    The passphrase of an encrypted one may also be in ``$FCFORGE_PASSPHRASE``.
    """
    secret = (passphrase or os.environ.get(PASSPHRASE, "")).encode() or None

    def load(data: bytes) -> Any:
        encrypted = b"ENCRYPTED" in data.split(b"\n", 1)[0]
        return serialization.load_pem_private_key(data, secret if encrypted else None)

    return _loaded(path, load, Ed25519PrivateKey)


def read_signer(path: Path | None) -> Signer:
    """The private key of a file; none where none is named."""
    return None if path is None else read_private(path)


def read_public(path: str | Path) -> str:
    """Hex of the public key in a PEM file (``openssl pkey -in KEY -pubout``)."""
    key = _loaded(path, serialization.load_pem_public_key, Ed25519PublicKey)
    public = key.public_bytes_raw().hex()
    if why := key_fault(public):
        raise ExchangeError(f"key {public[:16]} {why}.", where=path)
    return public


def _loaded(path: str | Path, load: Callable[[bytes], Any], kind: type[Any]) -> Any:
    """What `load` makes of a PEM file; `ExchangeError` unless it is a key of this kind."""
    what = "private" if kind is Ed25519PrivateKey else "public"
    do = f"`fcforge consortium keys new FILE` makes a {what} key; ${PASSPHRASE} opens a locked one."
    with at(path, do=do):
        try:
            key = load(read_plain(path, MAX_PEM, ExchangeError))
        except (ValueError, TypeError) as error:
            raise ExchangeError(f"no {what} key can be read ({error}).") from error
        if not isinstance(key, kind):
            raise ExchangeError(f"is not an Ed25519 {what} key.")
    return key


def write_keys(path: str | Path, passphrase: str = "") -> str:
    """New key pair: `path` (private, its owner's only) and ``path.pub``; returns the public hex.

    Existing ones stay.
    """
    if Path(path).exists() or Path(f"{path}.pub").exists():
        do = "Choose another name."
        raise ExchangeError("exists already.", where=path, do=do)
    key = Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    locked: Any = serialization.NoEncryption()
    if passphrase:
        locked = serialization.BestAvailableEncryption(passphrase.encode())
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, locked)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    write_bytes(path, private, private=True)
    write_bytes(f"{path}.pub", key.public_key().public_bytes(pem, form))
    return public_hex(key)


class KnownKey(Closed):
    """A public key, whose it is, since when it is known, and when it was revoked (if it was)."""

    name: SiteName
    key: PublicKey
    added: Time
    revoked: Time | Literal[""] = ""


class Keyring(Closed):
    """Known keys, in the order in which they were added."""

    format: Literal["fcforge-keyring"] = "fcforge-keyring"
    keys: tuple[KnownKey, ...] = ()

    @property
    def names(self) -> dict[str, str]:
        """Whose every key is."""
        return {k.key: k.name for k in self.keys}

    def _lookalike(self, name: str) -> str:
        """Another name of the keyring that a reader could take for this one; empty without."""
        others = {known.name for known in self.keys} - {name}
        return min((one for one in others if look_alike(one, name)), default="")

    def add(self, name: str, key: str) -> Self:
        """One key more; a name may have several, a key only one name."""
        known = KnownKey(name=site_name(name), key=key, added=now())
        if key in self.names:
            whose = self.names[key]
            raise ConfigError(f"this key is known already, as that of '{whose}'.")
        if other := self._lookalike(known.name):
            what = f"the name '{known.name}' looks like '{other}', which is known."
            raise ConfigError(what, do="Use the name as it is known.")
        return self.changed(keys=(*self.keys, known))

    def revoke(self, name: str) -> Self:
        """All keys of a name, or the one that begins so, revoked from now on."""
        valid = [k for k in self.keys if not k.revoked]
        meant = [k for k in valid if k.name == name]
        if len(name) > 7:
            meant += [k for k in valid if k.key.startswith(name)]
        if not meant:
            raise unknown_name("key", name, {k.name for k in valid})
        kept = [k.changed(revoked=now()) if k in meant else k for k in self.keys]
        return self.changed(keys=tuple(kept))

    def require_valid(
        self, key: str, what: str, site: str, line: Sequence[str] = ()
    ) -> None:
        """Raise `ExchangeError` for a key that was revoked, or that is not the site's.

        A key that is known under a site's name is the only one that speaks for that site: whoever
        rewrites another's record can sign it, but not with that key.

        Parameters
        ----------
        key : str
            That signed; empty where nobody did.
        what : str
            What was signed, for the error.
        site : str
            For whom it speaks.
        line : sequence of str
            The site's keys as its rotations name them, first to last: each vouches for those
            before it, and hands over to those after it.
        """
        if other := self._lookalike(site):
            raise ExchangeError(
                f"{what} is of {site!a}, which looks like '{other}' of your keyring.",
                do="Ask that hospital how it writes its name.",
            )
        line = around(key, line)
        own = [k for k in self.keys if k.name == site]
        valid = {k.key for k in own if not k.revoked}
        gone = next((k for k in self.keys if k.key == key and k.revoked), None)
        if gone and valid.isdisjoint(line[line.index(key) + 1 :]):
            raise ExchangeError(
                f"{what} is signed by a key of '{gone.name}' that was revoked on "
                f"{gone.revoked[:10]}.",
                do="Ask that hospital to sign what it stands for anew "
                "(`fcforge consortium keys rotate`), and for its new key.",
            )
        if own and valid.isdisjoint(line):
            by = f"by key {self.said(key)}" if key else "by nobody"
            raise ExchangeError(
                f"{what} is signed {by}, not by the key of '{site}' in your keyring.",
                do="Ask that hospital for what it sealed, or for its new key (`fcforge consortium keys add`).",
            )

    def said(self, key: str) -> str:
        """A key in words: its first digits and whose it is."""
        name = self.names.get(key)
        return f"{key[:16]} ({name})" if name else key[:16]


def around(key: str, line: Sequence[str]) -> Sequence[str]:
    """The line of keys that a key is in; itself where it is in none."""
    return line if key in line else (key,)


def keyring_file() -> Path:
    """``$FCFORGE_KEYRING``, or the user's own."""
    own = Path.home() / ".config" / "fcforge" / "keyring.json"
    return Path(os.environ.get(PLACE) or own)


def read_keyring() -> Keyring:
    """The keyring; empty where there is none."""
    path = keyring_file()
    if not path.exists():
        return Keyring()
    do = (
        "Name the file that fcforge wrote; a damaged one is not taken for an empty one."
    )
    with at(path, do=do):
        data = read_plain(path, MAX_KEYRING, ExchangeError)
        return schema.read(TypeAdapter(Keyring), data, "the keyring")


def write_keyring(keyring: Keyring) -> Path:
    """Write the keyring, whole or not at all, readable by its owner only."""
    path = keyring_file()
    write_bytes(path, schema.written(keyring), private=True)
    return path


@dataclass(frozen=True)
class Trust:
    """Whose records are accepted.

    Attributes
    ----------
    keys : tuple of str
        Hex Ed25519 public keys; when given, every record must be signed by one of them.
    required : bool
        Whether every record must be signed; else as soon as any is.
    keyring : Keyring
        Names keys, and knows those that were revoked.
    """

    keys: tuple[str, ...] = ()
    required: bool = False
    keyring: Keyring = field(default_factory=Keyring)

    @classmethod
    def asked(cls, request: TrustRequest) -> Self:
        """Trust in the public keys of PEM files; the user's keyring names and revokes."""
        keys = tuple(read_public(path) for path in request.trust)
        return cls(keys, request.require_signature, read_keyring())

    def require(self, record: "Record", line: Sequence[str] = ()) -> None:
        """Raise `ExchangeError` for a record of a site that is not signed by its key.

        Without keys all pass but what a revoked key of the keyring signed, and what is said for a
        site that the keyring has another key of. An unsigned root passes: the records name it by
        its id (`require_signed`: where there are any). `line` as in `Keyring.require_valid`.
        """
        key = record.key
        self.keyring.require_valid(key, f"the {record.title}", record.site, line)
        if record.is_root and not key:
            return
        if self.keys and set(self.keys).isdisjoint(around(key, line)):
            by = f"by key {key[:16]}, which is not trusted" if key else "by nobody"
            raise ExchangeError(
                f"the {record.title} is signed {by}.",
                do="Ask the hospital for its public key and name it with --trust.",
            )

    def require_signed(self, records: "Sequence[Record]") -> None:
        """Raise `ExchangeError` for a record without a signature where one is needed.

        A root needs one where signatures are required, or where keys are named and no record
        that they signed names it.
        """
        alone = all(record.is_root for record in records)
        needed = self.required or (alone and bool(self.keys))
        asked = [record for record in records if needed or not record.is_root]
        bare = [record.title for record in asked if not record.key]
        others = len(bare) < len(asked)
        if bare and (needed or others):
            lost = ", though others are: its signature may have been taken off"
            raise ExchangeError(
                f"the {bare[0]} is not signed{lost if others else ''}.",
                do="Ask whoever made it for a signed one: `fcforge consortium keys new KEY`, then --sign KEY "
                "with the command that makes it.",
            )

"""Keys: Ed25519 signatures that prove who sealed a capsule (extra ``signing``), and the keyring.

The keyring says whose key is whose, and which must no longer be trusted: one JSON file per user.
A key added under the name of a site is the only one that may sign for that site. A hospital that
changes its key is added once more under its name; the old key is revoked when it is lost, and
from then on whatever it signed is refused.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fcforge.capsule import ledger
from fcforge.capsule.home import read_own, write_own
from fcforge.errors import CapsuleError, ConfigError, unknown_name

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

PASSPHRASE, PLACE = "FCFORGE_PASSPHRASE", "FCFORGE_KEYRING"
FORMAT = "fcforge-keyring"
CONTEXT = b"fcforge capsule 1\n"  # a signature for a capsule is valid for nothing else


def _library() -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise CapsuleError(
            "signatures need the package 'cryptography'.", do="pip install 'fcforge[signing]'"
        ) from error
    return serialization, ed25519


def _bytes_of(path: str | Path, kind: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CapsuleError(f"no {kind} key can be read ({error}).", where=str(path)) from error


def read_private(path: str | Path, passphrase: str = "") -> Ed25519PrivateKey:
    """Private key from a PEM file (``openssl genpkey -algorithm ed25519``).

    The passphrase of an encrypted one may also be in ``$FCFORGE_PASSPHRASE``.
    """
    serialization, ed25519 = _library()
    secret = (passphrase or os.environ.get(PASSPHRASE, "")).encode() or None
    data = _bytes_of(path, "private")
    encrypted = b"ENCRYPTED" in data.split(b"\n", 1)[0]
    if encrypted and secret is None:
        raise CapsuleError(
            "the key has a passphrase.", where=str(path), do=f"Set ${PASSPHRASE} for this command."
        )
    try:
        key = serialization.load_pem_private_key(data, password=secret if encrypted else None)
    except (ValueError, TypeError) as error:
        raise CapsuleError(f"no private key can be read ({error}).", where=str(path)) from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise CapsuleError("is not an Ed25519 key.", where=str(path))
    return key


def read_public(path: str | Path) -> str:
    """Hex of the public key in a PEM file (``openssl pkey -in KEY -pubout``)."""
    serialization, ed25519 = _library()
    try:
        key = serialization.load_pem_public_key(_bytes_of(path, "public"))
    except (ValueError, TypeError) as error:
        raise CapsuleError(f"no public key can be read ({error}).", where=str(path)) from error
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise CapsuleError("is not an Ed25519 key.", where=str(path))
    return public_hex(key)


def public_hex(key: Ed25519PublicKey) -> str:
    """64 hex digits of a public key."""
    return key.public_bytes_raw().hex()


def sign(key: Ed25519PrivateKey, manifest_sha256: str) -> tuple[str, str]:
    """Public key and signature, both as hex."""
    message = CONTEXT + manifest_sha256.encode()
    return public_hex(key.public_key()), key.sign(message).hex()


def check_signature(public: str, signature: str, manifest_sha256: str) -> None:
    """Raise `CapsuleError` unless `signature` was made by `public` over that manifest."""
    _, ed25519 = _library()
    from cryptography.exceptions import InvalidSignature

    try:
        key = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), CONTEXT + manifest_sha256.encode())
    except (InvalidSignature, ValueError, TypeError) as error:
        raise CapsuleError("the signature is not valid for this capsule.") from error


def write_keys(path: str | Path, passphrase: str = "") -> str:
    """New key pair: `path` (private, readable by its owner only) and ``path.pub``; public hex."""
    serialization, ed25519 = _library()
    if Path(path).exists() or Path(f"{path}.pub").exists():
        raise CapsuleError("exists already.", where=str(path), do="Choose another name.")
    key = ed25519.Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    locked = serialization.NoEncryption()
    if passphrase:
        locked = serialization.BestAvailableEncryption(passphrase.encode())
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, locked)
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as stream:
            stream.write(private)
        Path(f"{path}.pub").write_bytes(public)
    except OSError as error:
        raise CapsuleError(f"cannot be written ({error.strerror}).", where=str(path)) from error
    return public_hex(key.public_key())


@dataclass(frozen=True)
class KnownKey:
    """A public key, whose it is, since when it is known, and when it was revoked (if it was)."""

    name: str
    key: str
    added: str
    revoked: str = ""


@dataclass(frozen=True)
class Keyring:
    """Known keys, in the order in which they were added."""

    keys: tuple[KnownKey, ...] = ()

    @property
    def names(self) -> dict[str, str]:
        """Whose every key is."""
        return {k.key: k.name for k in self.keys}

    def add(self, name: str, key: str) -> Keyring:
        """One key more; a name may have several, a key only one name."""
        if not re.fullmatch("[0-9a-f]{64}", key) or not (name.strip() and name.isprintable()):
            raise ConfigError(f"'{name}' and key '{key[:20]}' cannot be added.")
        if key in self.names:
            raise ConfigError(f"this key is known already, as that of '{self.names[key]}'.")
        return Keyring((*self.keys, KnownKey(name, key, ledger.now())))

    def revoke(self, name: str) -> Keyring:
        """All keys of a name, or the one that begins so, revoked from now on."""
        long = len(name) > 7
        mine = [k for k in self.keys if k.name == name or (long and k.key.startswith(name))]
        if not mine:
            raise unknown_name("key", name, {k.name for k in self.keys})
        now = ledger.now()
        return Keyring(tuple(replace(k, revoked=now) if k in mine else k for k in self.keys))

    def require_valid(self, key: str, what: str, site: str = "") -> None:
        """Raise `CapsuleError` for a key that was revoked, or that is not the site's.

        A key that is known under a site's name is the only one that speaks for that site: whoever
        rewrites another's line can sign it, but not with that key.
        """
        for known in self.keys:
            if known.key == key and known.revoked:
                raise CapsuleError(
                    f"{what} is signed by a key of '{known.name}' that was revoked on "
                    f"{known.revoked[:10]}."
                )
        own = [known.key for known in self.keys if site and known.name == site]
        if own and key not in own:
            by = f"by key {self.said(key)}" if key else "by nobody"
            raise CapsuleError(
                f"{what} is signed {by}, not by the key of '{site}' in your keyring.",
                do="Ask that hospital for what it sealed, or for its new key (`fcforge keys add`).",
            )

    def said(self, key: str) -> str:
        """A key in words: its first digits and whose it is."""
        name = self.names.get(key)
        return f"{key[:16]} ({name})" if name else key[:16]


def keyring_file() -> Path:
    """``$FCFORGE_KEYRING``, or the user's own."""
    given = os.environ.get(PLACE)
    return Path(given) if given else Path.home() / ".config" / "fcforge" / "keyring.json"


def read_keyring(path: str | Path | None = None) -> Keyring:
    """The keyring; empty where there is none."""
    path = Path(path or keyring_file())
    if not path.is_file():
        return Keyring()
    return read_own(path, FORMAT, lambda data: Keyring(tuple(KnownKey(**k) for k in data["keys"])))


def write_keyring(keyring: Keyring, path: str | Path | None = None) -> Path:
    """Write the keyring, whole or not at all, readable by its owner only."""
    return write_own(keyring, path or keyring_file(), FORMAT)

"""Keys: Ed25519 signatures that prove who wrote a record, and the keyring that says whose is whose.

The keyring is one JSON file per user. A key added under the name of a site is the only one that
may sign for that site. A hospital that changes its key signs the new one with the old one (a
rotation, which travels as a record); a key that was lost is revoked, and what it signed is refused
everywhere but for the records that a rotation to a known key vouches for.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from fcforge.core.errors import ExchangeError, at
from fcforge.core.files import read_plain, write_bytes
from fcforge_consortium.records.signatures import key_fault

PrivateKey = Ed25519PrivateKey
Signer = PrivateKey | None  # None where a hospital does not sign
PASSPHRASE = "FCFORGE_PASSPHRASE"
MAX_PEM = 1 << 14  # bytes


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

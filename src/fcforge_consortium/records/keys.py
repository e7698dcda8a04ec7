"""Files of Ed25519 key pairs, with which the authors of records sign."""

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
Signer = PrivateKey | None  # None for a hospital that does not sign
PASSPHRASE = "FCFORGE_PASSPHRASE"
MAX_PEM = 1 << 14  # bytes


def public_hex(key: Signer) -> str:
    """Return the public key that belongs to a private key, in hex.

    Parameters
    ----------
    key : private key or None

    Returns
    -------
    str
        64 hex digits; empty without a key.
    """
    return "" if key is None else key.public_key().public_bytes_raw().hex()


def read_private(path: str | Path, passphrase: str = "") -> Ed25519PrivateKey:
    """Read a private key from a PEM file (``openssl genpkey -algorithm ed25519``).

    Parameters
    ----------
    path : str or Path
    passphrase : str, optional
        Passphrase of an encrypted key; by default ``$FCFORGE_PASSPHRASE``.

    Returns
    -------
    Ed25519PrivateKey
    """
    secret = (passphrase or os.environ.get(PASSPHRASE, "")).encode() or None

    def load(data: bytes) -> Any:
        """Return the key of a PEM file; the passphrase is used for an encrypted one only."""
        encrypted = b"ENCRYPTED" in data.split(b"\n", 1)[0]
        return serialization.load_pem_private_key(data, secret if encrypted else None)

    return _loaded(path, load, Ed25519PrivateKey)


def read_signer(path: Path | None) -> Signer:
    """Read a private key, or return None without a file.

    Parameters
    ----------
    path : Path or None

    Returns
    -------
    private key or None
    """
    return None if path is None else read_private(path)


def read_public(path: str | Path) -> str:
    """Read a public key from a PEM file (``openssl pkey -in KEY -pubout``).

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    str
        In hex.
    """
    key = _loaded(path, serialization.load_pem_public_key, Ed25519PublicKey)
    public = key.public_bytes_raw().hex()
    if fault := key_fault(public):
        raise ExchangeError(f"key {public[:16]} {fault}.", where=path)
    return public


def _loaded(path: str | Path, load: Callable[[bytes], Any], kind: type[Any]) -> Any:
    """Read a PEM file and load its key; raise `ExchangeError` unless it is as expected.

    Parameters
    ----------
    path : str or Path
    load : callable
        Returns the key in the bytes of a PEM file.
    kind : type
        `Ed25519PrivateKey` or `Ed25519PublicKey`: the class that the key must have.
    """
    noun = "private" if kind is Ed25519PrivateKey else "public"
    hint = f"`fcforge consortium keys new FILE` makes a {noun} key; ${PASSPHRASE} opens an encrypted one."
    with at(path, do=hint):
        try:
            key = load(read_plain(path, MAX_PEM, ExchangeError))
        except (ValueError, TypeError) as error:
            raise ExchangeError(f"no {noun} key can be read ({error}).") from error
        if not isinstance(key, kind):
            raise ExchangeError(f"is not an Ed25519 {noun} key.")
    return key


def write_keys(path: str | Path, passphrase: str = "") -> str:
    """Write a new key pair; existing files are never overwritten.

    Parameters
    ----------
    path : str or Path
        File of the private key, readable by its owner only; ``path.pub`` gets the public key.
    passphrase : str, optional
        Encrypts the private key.

    Returns
    -------
    str
        Public key in hex.
    """
    if Path(path).exists() or Path(f"{path}.pub").exists():
        hint = "Choose another name."
        raise ExchangeError("exists already.", where=path, do=hint)
    key = Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    encryption: Any = serialization.NoEncryption()
    if passphrase:
        encryption = serialization.BestAvailableEncryption(passphrase.encode())
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, encryption)
    public_format = serialization.PublicFormat.SubjectPublicKeyInfo
    write_bytes(path, private, private=True)
    write_bytes(f"{path}.pub", key.public_key().public_bytes(pem, public_format))
    return public_hex(key)

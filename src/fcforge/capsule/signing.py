"""Optional Ed25519 signatures: who sealed a capsule, provably (extra ``signing``)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fcforge.errors import CapsuleError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

PASSPHRASE = "FCFORGE_PASSPHRASE"
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

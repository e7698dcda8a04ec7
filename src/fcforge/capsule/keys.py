"""Keys: Ed25519 signatures that prove who sealed a capsule (extra ``signing``), and the keyring.

The keyring says whose key is whose, and which must no longer be trusted: one JSON file per user.
A key added under the name of a site is the only one that may sign for that site. A hospital that
changes its key is added once more under its name; the old key is revoked when it is lost, and
from then on whatever it signed is refused.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from fcforge.capsule import home, ledger
from fcforge.errors import CapsuleError, ConfigError, at, unknown_name
from fcforge.writing import write_bytes

PASSPHRASE, PLACE = "FCFORGE_PASSPHRASE", "FCFORGE_KEYRING"


def _loaded(path: str | Path, load: Callable[[bytes], Any], kind: str) -> Any:
    """What `load` makes of a PEM file; `CapsuleError` unless it is an Ed25519 key."""
    _, ed25519, _ = ledger.library()
    with at(path):
        try:
            key = load(Path(path).read_bytes())
        except (OSError, ValueError, TypeError) as error:
            raise CapsuleError(f"no {kind} key can be read ({error}).") from error
        if not isinstance(key, ed25519.Ed25519PrivateKey | ed25519.Ed25519PublicKey):
            raise CapsuleError("is not an Ed25519 key.")
    return key


def read_private(path: str | Path, passphrase: str = "") -> ledger.PrivateKey:
    """Private key from a PEM file (``openssl genpkey -algorithm ed25519``).

    The passphrase of an encrypted one may also be in ``$FCFORGE_PASSPHRASE``.
    """
    serialization, *_ = ledger.library()
    secret = (passphrase or os.environ.get(PASSPHRASE, "")).encode() or None

    def load(data: bytes) -> Any:
        encrypted = b"ENCRYPTED" in data.split(b"\n", 1)[0]
        if encrypted and secret is None:
            do = f"Set ${PASSPHRASE} for this command."
            raise CapsuleError("the key has a passphrase.", do=do)
        return serialization.load_pem_private_key(
            data, password=secret if encrypted else None
        )

    return _loaded(path, load, "private")


def read_public(path: str | Path) -> str:
    """Hex of the public key in a PEM file (``openssl pkey -in KEY -pubout``)."""
    serialization, *_ = ledger.library()
    return (
        _loaded(path, serialization.load_pem_public_key, "public")
        .public_bytes_raw()
        .hex()
    )


def write_keys(path: str | Path, passphrase: str = "") -> str:
    """New key pair: `path` (private, readable by its owner only) and ``path.pub``; public hex."""
    serialization, ed25519, _ = ledger.library()
    if Path(path).exists() or Path(f"{path}.pub").exists():
        raise CapsuleError(
            "exists already.", where=str(path), do="Choose another name."
        )
    key = ed25519.Ed25519PrivateKey.generate()
    pem, locked = serialization.Encoding.PEM, serialization.NoEncryption()
    if passphrase:
        locked = serialization.BestAvailableEncryption(passphrase.encode())
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, locked)
    public = key.public_key().public_bytes(
        pem, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    try:
        write_bytes(path, private, private=True)
        write_bytes(f"{path}.pub", public)
    except OSError as error:
        raise CapsuleError(
            f"cannot be written ({error.strerror}).", where=str(path)
        ) from error
    return ledger.public_hex(key)


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

    form: ClassVar[str] = "keyring"
    keys: tuple[KnownKey, ...] = ()

    @property
    def names(self) -> dict[str, str]:
        """Whose every key is."""
        return {k.key: k.name for k in self.keys}

    def add(self, name: str, key: str) -> Self:
        """One key more; a name may have several, a key only one name."""
        if not re.fullmatch("[0-9a-f]{64}", key) or not (
            name.strip() and name.isprintable()
        ):
            raise ConfigError(f"'{name}' and key '{key[:20]}' cannot be added.")
        if key in self.names:
            raise ConfigError(
                f"this key is known already, as that of '{self.names[key]}'."
            )
        return replace(self, keys=(*self.keys, KnownKey(name, key, ledger.now())))

    def revoke(self, name: str) -> Self:
        """All keys of a name, or the one that begins so, revoked from now on."""
        long = len(name) > 7
        mine = [
            k for k in self.keys if k.name == name or (long and k.key.startswith(name))
        ]
        if not mine:
            raise unknown_name("key", name, {k.name for k in self.keys})
        kept = tuple(
            replace(k, revoked=ledger.now()) if k in mine else k for k in self.keys
        )
        return replace(self, keys=kept)

    def require_valid(self, key: str, what: str, site: str = "") -> None:
        """Raise `CapsuleError` for a key that was revoked, or that is not the site's.

        A key that is known under a site's name is the only one that speaks for that site: whoever
        rewrites another's line can sign it, but not with that key.
        """
        for known in self.keys:
            if known.key == key and known.revoked:
                when = f"was revoked on {known.revoked[:10]}"
                raise CapsuleError(
                    f"{what} is signed by a key of '{known.name}' that {when}."
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
    return Path(
        os.environ.get(PLACE) or Path.home() / ".config" / "fcforge" / "keyring.json"
    )


def read_keyring() -> Keyring:
    """The keyring; empty where there is none."""
    path = keyring_file()
    return home.read_own(Keyring, path) if path.is_file() else Keyring()


def write_keyring(keyring: Keyring) -> Path:
    """Write the keyring, whole or not at all, readable by its owner only."""
    return home.write_own(keyring, keyring_file())

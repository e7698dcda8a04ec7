"""The keyring: whose key is whose, and which must no longer be trusted.

One JSON file per user. A key added under the name of a site is the only one that may sign for that
site. A hospital that changes its key is added once more under its name; the
old key is revoked when it is lost, and from then on whatever it signed is refused.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fcforge.capsule import ledger
from fcforge.errors import CapsuleError, ConfigError, unknown_name
from fcforge.writing import write_bytes

FORMAT, PLACE = "fcforge-keyring", "FCFORGE_KEYRING"


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
    try:
        data: Any = json.loads(path.read_bytes())
        if data["format"] != FORMAT:
            raise ValueError("another format")
        return Keyring(tuple(KnownKey(**{k: str(v) for k, v in d.items()}) for d in data["keys"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CapsuleError(
            f"is not a keyring of fcforge ({error}).",
            where=str(path),
            do="Mend or delete it; a damaged keyring is not taken for an empty one.",
        ) from error


def write_keyring(keyring: Keyring, path: str | Path | None = None) -> Path:
    """Write the keyring, whole or not at all, readable by its owner only."""
    path = Path(path or keyring_file())
    data = {"format": FORMAT, "keys": [asdict(k) for k in keyring.keys]}
    write_bytes(path, json.dumps(data, indent=1).encode(), private=True)
    return path

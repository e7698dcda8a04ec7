"""Keyring: the public keys that a user knows, whose they are, and which were revoked.

The keyring is one JSON file per user. A key added under the name of a site is the only one that may
sign for that site. A hospital that changes its key signs the new one with the old one (a rotation,
which travels as a record). A lost key is revoked, and its signatures are refused everywhere, except
on records that a rotation to a known key vouches for.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self

from pydantic import TypeAdapter

from fcforge.core.errors import ConfigError, ExchangeError, at
from fcforge.core.files import read_plain, write_bytes
from fcforge.core.names import look_alike, unknown_name
from fcforge_consortium.records.canonical import now, read_canonical, to_canonical
from fcforge_consortium.records.fields import Closed, PublicKey, SiteName, Time
from fcforge_consortium.records.names import site_name

PLACE = "FCFORGE_KEYRING"
MAX_KEYRING = 1 << 22


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
        return read_canonical(TypeAdapter(Keyring), data, "the keyring")


def write_keyring(keyring: Keyring) -> Path:
    """Write the keyring, whole or not at all, readable by its owner only."""
    path = keyring_file()
    write_bytes(path, to_canonical(keyring), private=True)
    return path

"""Keyring: the public keys that a user knows, their owners, and their revocations.

The keyring is one JSON file per user. Once it has a key of a site, no other key may sign for that
site. A hospital that changes its key signs the new one with the old one: a *rotation*, which travels
as a record and lists the records of the old key that remain valid (the new key *vouches* for them). A
lost key is revoked. Its signatures are then refused, except on records that a rotation to a valid key
vouches for.

The *line* of a site is the sequence of its keys, first to last, that its rotations connect.
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

PLACE = "FCFORGE_KEYRING"  # environment variable with the path of the keyring
MAX_KEYRING = 1 << 22  # bytes


class KnownKey(Closed):
    """A public key of the keyring.

    Attributes
    ----------
    name : str
        Site that owns the key.
    key : str
    added : str
        Time of the addition.
    revoked : str
        Time of the revocation; empty for a valid key.
    """

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
        """Return the owner of each key."""
        return {k.key: k.name for k in self.keys}

    def _lookalike(self, name: str) -> str:
        """Return another name of the keyring that looks like this one; empty without one."""
        others = {known.name for known in self.keys} - {name}
        return min((one for one in others if look_alike(one, name)), default="")

    def add(self, name: str, key: str) -> Self:
        """Return the keyring with one more key.

        A name may have several keys; a key has one name.

        Parameters
        ----------
        name : str
            Site that owns the key.
        key : str
            Public key in hex.

        Returns
        -------
        Keyring

        Raises
        ------
        ConfigError
            If the key is known already, or the name looks like another name of the keyring.
        """
        known = KnownKey(name=site_name(name), key=key, added=now())
        if key in self.names:
            owner = self.names[key]
            raise ConfigError(f"this key is already known as a key of '{owner}'.")
        if other := self._lookalike(known.name):
            message = f"the name '{known.name}' looks like '{other}' of the keyring."
            raise ConfigError(message, do=f"Use the name '{other}', or another one.")
        return self.changed(keys=(*self.keys, known))

    def revoke(self, name: str) -> Self:
        """Return the keyring with some keys revoked from now on.

        Parameters
        ----------
        name : str
            Name of a site, for all its keys, or at least 8 leading digits of one key.

        Returns
        -------
        Keyring

        Raises
        ------
        ConfigError
            If no valid key has this name or these digits.
        """
        valid = [k for k in self.keys if not k.revoked]
        matching = [k for k in valid if k.name == name]
        if len(name) > 7:
            matching += [k for k in valid if k.key.startswith(name)]
        if not matching:
            raise unknown_name("key", name, {k.name for k in valid})
        keys = [k.changed(revoked=now()) if k in matching else k for k in self.keys]
        return self.changed(keys=tuple(keys))

    def require_valid(
        self, key: str, title: str, site: str, line: Sequence[str] = ()
    ) -> None:
        """Raise `ExchangeError` for a key that was revoked or does not belong to the site.

        If the keyring has keys of the site, one of its valid keys must be in the site's line. A revoked
        key passes only if a valid key comes after it in the line.

        Parameters
        ----------
        key : str
            Key of the signature; empty without one.
        title : str
            Title of the signed record, for error messages.
        site : str
            Author of the record.
        line : sequence of str, optional
            Keys of the site, first to last. Each vouches for those before it. By default the key alone.
        """
        if other := self._lookalike(site):
            raise ExchangeError(
                f"{title} is by {site!a}, which looks like '{other}' of your keyring.",
                do="Ask that hospital how it writes its name.",
            )
        line = around(key, line)
        known = [k for k in self.keys if k.name == site]
        valid = {k.key for k in known if not k.revoked}
        revoked = next((k for k in self.keys if k.key == key and k.revoked), None)
        later_keys = line[line.index(key) + 1 :]
        if revoked and valid.isdisjoint(later_keys):
            raise ExchangeError(
                f"{title} is signed by a key of '{revoked.name}' that was revoked on "
                f"{revoked.revoked[:10]}.",
                do="Ask that hospital for its new key and to sign its valid records again "
                "(`fcforge consortium keys rotate`).",
            )
        if known and valid.isdisjoint(line):
            by = f"by key {self.label(key)}" if key else "by nobody"
            raise ExchangeError(
                f"{title} is signed {by}, not by the key of '{site}' in your keyring.",
                do="Ask that hospital for the record that it signed, or for its new key "
                "(`fcforge consortium keys add`).",
            )

    def require_owner(self, key: str, title: str, name: str) -> None:
        """Raise `ExchangeError` for a key that the keyring knows under another name.

        Otherwise a hospital whose key is known could pose as one whose key is not.

        Parameters
        ----------
        key : str
            Key of the signature, or of an aggregator; empty without one.
        title : str
            Title of the record or card, for error messages.
        name : str
            Its author.
        """
        owner = self.names.get(key, name)
        if owner != name:
            raise ExchangeError(
                f"{title} is by {name!a}, but your keyring knows key {key[:16]} as that of '{owner}'.",
                do=f"Ask '{owner}' whether it writes its name so. A key has the name of its site in "
                "the keyring.",
            )

    def label(self, key: str) -> str:
        """Return the first digits of a key and its owner, if known.

        Parameters
        ----------
        key : str

        Returns
        -------
        str
        """
        name = self.names.get(key)
        return f"{key[:16]} ({name})" if name else key[:16]


def around(key: str, line: Sequence[str]) -> Sequence[str]:
    """Return a line of keys if it contains a key, else the key alone.

    Parameters
    ----------
    key : str
        Key of a signature; empty without one.
    line : sequence of str
        Keys of the signing site, first to last.

    Returns
    -------
    sequence of str
    """
    return line if key in line else (key,)


def keyring_file() -> Path:
    """Return the path of the keyring: ``$FCFORGE_KEYRING``, or one in the user's home.

    Returns
    -------
    Path
    """
    default = Path.home() / ".config" / "fcforge" / "keyring.json"
    return Path(os.environ.get(PLACE) or default)


def read_keyring() -> Keyring:
    """Read the user's keyring; a missing file is an empty keyring.

    Returns
    -------
    Keyring
    """
    path = keyring_file()
    if not path.exists():
        return Keyring()
    hint = "Restore the file that fcforge wrote; a damaged keyring is not used as an empty one."
    with at(path, do=hint):
        data = read_plain(path, MAX_KEYRING, ExchangeError)
        return read_canonical(TypeAdapter(Keyring), data, "the keyring")


def write_keyring(keyring: Keyring) -> Path:
    """Write the user's keyring whole or not at all, readable by its owner only.

    Parameters
    ----------
    keyring : Keyring

    Returns
    -------
    Path
    """
    path = keyring_file()
    write_bytes(path, to_canonical(keyring), private=True)
    return path

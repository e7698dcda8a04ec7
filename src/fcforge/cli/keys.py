"""Keys, and what they are for beside signing: encryption for named recipients."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from fcforge.cli import _options as given


def encrypt(
    file: Annotated[Path, Argument(help="Capsule or any other file.")],
    to: Annotated[
        list[str], Option(help="Key (age1..., ssh-ed25519 ...) or file; repeatable.")
    ],
    out: Annotated[Path | None, Option(help="File to write [FILE.age].")] = None,
    overwrite: given.Overwrite = False,
) -> None:
    """Encrypt a file so that only the named recipients can read it (age format)."""
    from fcforge import encryption

    print(f"wrote {encryption.encrypt(file, to, out, overwrite=overwrite)}")


def decrypt(
    file: Annotated[Path, Argument(help="File that ends in .age.")],
    identity: Annotated[
        Path, Option(help="Identity file of age, or an SSH private key.")
    ],
    out: Annotated[
        Path | None, Option(help="File to write [FILE without .age].")
    ] = None,
    overwrite: given.Overwrite = False,
) -> None:
    """Decrypt a file that was encrypted for you; nothing is written unless all of it is right."""
    from fcforge import encryption

    print(f"wrote {encryption.decrypt(file, identity, out, overwrite=overwrite)}")


keys = typer.Typer(no_args_is_help=True, help="Keys: make, name, list, revoke them.")


@keys.command("new")
def new_key(
    out: Annotated[Path, Argument(help="Private key to write.")],
    passphrase: Annotated[
        bool, Option("--passphrase", help="Ask for a passphrase.")
    ] = False,
) -> None:
    """Make an Ed25519 key pair: OUT, which you keep, and OUT.pub, which you give away.

    Signing with a protected key needs its passphrase in $FCFORGE_PASSPHRASE.
    """
    from fcforge.capsule.keys import write_keys

    said = ""
    if passphrase:
        said = typer.prompt("Passphrase", hide_input=True, confirmation_prompt=True)
    public = write_keys(out, said)
    print(f"wrote {out} (private: keep it) and {out}.pub, key {public[:16]}")


@keys.command("age")
def new_identity(out: Annotated[Path, Argument(help="Identity to write.")]) -> None:
    """Make a key for encryption: OUT, which you keep; give away the recipient it prints."""
    from fcforge.encryption import write_identity

    recipient = write_identity(out)
    print(
        f"wrote {out} (private: keep it); others encrypt for you with --to {recipient}"
    )


@keys.command("add")
def add_key(
    name: Annotated[str, Argument(help="Whose key it is.")],
    file: Annotated[Path, Argument(help="Public key (PEM).")],
) -> None:
    """Name a public key in your keyring."""
    from fcforge.capsule.keys import read_keyring, read_public, write_keyring

    public = read_public(file)
    path = write_keyring(read_keyring().add(name, public))
    print(f"{path}: key {public[:16]} is that of {name}")


@keys.command("list")
def list_keys(as_json: given.AsJson = False) -> None:
    """Show the keys of your keyring."""
    from fcforge.capsule.keys import keyring_file, read_keyring

    known = read_keyring().keys
    if as_json:
        print(json.dumps([asdict(k) for k in known], indent=1))
    elif not known:
        print(f"{keyring_file()}: no key yet")
    for k in () if as_json else known:
        since = f"REVOKED {k.revoked[:10]}" if k.revoked else f"since {k.added[:10]}"
        print(f"{k.key[:16]}  {k.name}  {since}")


@keys.command("revoke")
def revoke_key(
    name: Annotated[str, Argument(help="Whose keys, or a key's first digits.")],
) -> None:
    """Refuse whatever these keys signed, from now on."""
    from fcforge.capsule.keys import read_keyring, write_keyring

    path = write_keyring(read_keyring().revoke(name))
    print(f"{path}: what the keys of {name} signed is refused from now on")


COMMANDS = (encrypt, decrypt)
PANEL = given.CAPSULES

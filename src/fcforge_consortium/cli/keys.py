"""Commands that make, name, list, rotate and revoke keys of hospitals and aggregators."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from fcforge.cli.messages import say
from fcforge.cli.options import takes
from fcforge.core.formatting import counted
from fcforge_consortium.options import RotateRequest

keys = typer.Typer(
    no_args_is_help=True, help="Make, name, list, rotate and revoke keys."
)
aggregators = typer.Typer(no_args_is_help=True, help="Aggregators: make their keys.")
Protect = Annotated[bool, Option("--passphrase", help="Ask for a passphrase.")]


def _passphrase(asked: bool) -> str:
    """Return a passphrase typed twice at the terminal, or an empty one if none is wanted."""
    if not asked:
        return ""
    return typer.prompt("Passphrase", hide_input=True, confirmation_prompt=True)


@aggregators.command("new")
def new_aggregator(
    name: Annotated[str, Argument(help="Name of the aggregator, e.g. University.")],
    out: Annotated[Path, Option(help="Private key to write.")],
    passphrase: Protect = False,
) -> None:
    """Make an aggregator's key OUT, which it keeps, and its card for the base model."""
    from fcforge_consortium.aggregation.aggregators import CARD, write_aggregator

    card = write_aggregator(out, name, _passphrase(passphrase))
    print(f"wrote {out} (private: keep it) and {out}{CARD}, key {card.key[:16]}")
    print(
        f"the base model names it: fcforge consortium base-model --aggregator {out}{CARD}"
    )
    print(f"give {out}.pub to every hospital by another way than the base model")


@keys.command("new")
def new_key(
    out: Annotated[Path, Argument(help="Private key to write.")],
    passphrase: Protect = False,
) -> None:
    """Make an Ed25519 key pair: OUT, which you keep, and OUT.pub, which you give away.

    Signing with a protected key needs its passphrase in $FCFORGE_PASSPHRASE.
    """
    from fcforge_consortium.records.keys import write_keys

    public = write_keys(out, _passphrase(passphrase))
    print(f"wrote {out} (private: keep it) and {out}.pub, key {public[:16]}")


@keys.command("add")
def add_key(
    name: Annotated[str, Argument(help="Whose key it is.")],
    file: Annotated[Path, Argument(help="Public key (PEM).")],
) -> None:
    """Name a public key in your keyring."""
    from fcforge_consortium.records.keyring import read_keyring, write_keyring
    from fcforge_consortium.records.keys import read_public

    public = read_public(file)
    path = write_keyring(read_keyring().add(name, public))
    print(f"{path}: key {public[:16]} is that of {name}")


@keys.command("list")
def list_keys() -> None:
    """Show the keys of your keyring."""
    from fcforge_consortium.records.keyring import keyring_file, read_keyring

    known = read_keyring().keys
    if not known:
        print(f"{keyring_file()}: no key yet")
    for k in known:
        since = f"REVOKED {k.revoked[:10]}" if k.revoked else f"since {k.added[:10]}"
        print(f"{k.key[:16]}  {k.name}  {since}")


@keys.command("rotate")
@takes
def rotate_key(request: RotateRequest) -> None:
    """Let the old key sign the new one; later signatures of the old key are refused.

    `fcforge consortium keys new NEW` makes the new key. Everybody who merges OUT accepts it.
    """
    from fcforge_consortium.operations.records import rotate_file

    rotation = rotate_file(request, warn=lambda text: say(text, style="yellow"))
    vouched = counted(len(rotation.vouches), "record")
    key = rotation.new_key[:16]
    print(f"wrote {request.out}: {rotation.site} signs with key {key} from now on")
    print(f"signed by the old key and still valid: {vouched}")


@keys.command("revoke")
def revoke_key(
    name: Annotated[str, Argument(help="Whose keys, or a key's first digits.")],
) -> None:
    """Refuse everything that these keys signed, from now on."""
    from fcforge_consortium.records.keyring import read_keyring, write_keyring

    path = write_keyring(read_keyring().revoke(name))
    print(f"{path}: everything the keys of {name} signed is refused from now on")

"""Commands of keepers: two of them add what hospitals give, and neither can read it alone."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from fcforge.cli import _options as given
from fcforge.cli._options import takes
from fcforge.requests import KeepRequest
from fcforge.text import counted


@takes
def keep(asked: KeepRequest) -> None:
    """Add the shares of a round and a dose of noise, sign, and write this keeper's half."""
    from fcforge.exchange.keeping.keeper_step import keep_files

    kept = keep_files(asked)
    half = kept.half
    names = ", ".join(one.site for one in half.hospitals)
    size = counted(len(half.hospitals), "hospital")
    print(f"wrote {asked.out}: half of round {half.round}, {size}")
    print(f"added: {names}")
    if kept.withdrawn:
        print(f"withdrawn and not added: {', '.join(kept.withdrawn)}")
    print(
        "It says nothing by itself; `fcforge merge` joins it with the other keeper's."
    )


keepers = typer.Typer(no_args_is_help=True, help="Keepers of rounds: make their keys.")


@keepers.command("new")
def new_keeper(
    name: Annotated[str, Argument(help="Who the keeper is, e.g. University.")],
    out: Annotated[Path, Option(help="Private key to write.")],
    passphrase: Annotated[
        bool, Option("--passphrase", help="Ask for a passphrase.")
    ] = False,
) -> None:
    """Make a keeper's key: OUT, which the keeper keeps, and OUT.keeper for `fcforge start`."""
    from fcforge.exchange.keeping.keepers import CARD, write_keeper

    said = ""
    if passphrase:
        said = typer.prompt("Passphrase", hide_input=True, confirmation_prompt=True)
    card = write_keeper(out, name, said)
    print(f"wrote {out} (private: keep it) and {out}{CARD}, key {card.key[:16]}")
    print(f"whoever makes the start names it: fcforge start --keeper {out}{CARD}")


COMMANDS = (keep,)
PANEL = given.EXCHANGE

"""Commands of keepers: two of them add what hospitals give, and neither can read it alone."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from fcforge.cli import _options as given


def keep(
    shares: Annotated[list[Path], Argument(help="Share files of one round.")],
    state: Annotated[Path, Option(help="The start, or the exchange as it is now.")],
    key: Annotated[Path, Option(help="The keeper's private key.")],
    out: Annotated[Path, Option(help="Half to write, e.g. half.record.")],
    rounds: Annotated[
        Path | None, Option(help="List of rounds published [KEY.rounds].")
    ] = None,
    again: Annotated[
        bool,
        Option(
            "--again",
            help="Publish a round once more without who withdrew; all spend once more.",
        ),
    ] = False,
    trust: given.Trust = None,
    overwrite: given.Overwrite = False,
) -> None:
    """Add the shares of a round and a dose of noise, sign, and write this keeper's half."""
    from fcforge.exchange.keeper_step import keep_files
    from fcforge.exchange.keys import Trust

    kept = keep_files(
        shares,
        state,
        key,
        out,
        Trust.of(trust or ()),
        listed=rounds,
        again=again,
        overwrite=overwrite,
    )
    half = kept.half
    names = ", ".join(one.site for one in half.hospitals)
    print(f"wrote {out}: half of round {half.round}, {len(half.hospitals)} hospitals")
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
    from fcforge.exchange.keepers import CARD, write_keeper

    said = ""
    if passphrase:
        said = typer.prompt("Passphrase", hide_input=True, confirmation_prompt=True)
    card = write_keeper(out, name, said)
    print(f"wrote {out} (private: keep it) and {out}{CARD}, key {card.key[:16]}")
    print(f"whoever makes the start names it: fcforge start --keeper {out}{CARD}")


COMMANDS = (keep,)
PANEL = given.EXCHANGE

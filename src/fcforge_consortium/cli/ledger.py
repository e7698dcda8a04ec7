"""Commands around a hospital's ledger."""

import typer

from fcforge.cli.options import takes
from fcforge_consortium.options import (
    LedgerNewRequest,
    LedgerRegisterRequest,
    LedgerShowRequest,
)

ledger = typer.Typer(
    no_args_is_help=True, help="Your ledger: contributions, people and spent budget."
)


@ledger.command("show")
@takes
def show(request: LedgerShowRequest) -> None:
    """Show every contribution of a ledger and the budget spent in all; names nobody."""
    from fcforge.report.text import json_text
    from fcforge_consortium.ledger.ledger import Ledger
    from fcforge_consortium.report.ledger import ledger_summary, ledger_text

    opened = Ledger.read(request.file)
    print(json_text(ledger_summary(opened)) if request.as_json else ledger_text(opened))


@ledger.command("new")
@takes
def new(request: LedgerNewRequest) -> None:
    """Begin a further ledger, for people who are in none of your other ledgers.

    `contribute --ledger LEDGER` compares its people with all ledgers of the key and refuses anybody who
    is in another one.
    """
    from fcforge_consortium.operations.ledger import new_ledger

    path = new_ledger(request)
    print(f"wrote {path}: ledger of cohort {request.cohort}; it must not leave.")


@ledger.command("register")
@takes
def register(request: LedgerRegisterRequest) -> None:
    """Write the place of a ledger into the list beside its key, after it was moved.

    If that list is lost, the ledger is taken as it is: make sure that it is the newest copy.
    """
    from fcforge_consortium.operations.ledger import register_ledger

    print(f"{register_ledger(request)}: {request.file}")

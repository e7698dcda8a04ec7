"""Commands around a hospital's ledger."""

import typer

from fcforge.cli.options import takes
from fcforge_consortium.options import LedgerShowRequest

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

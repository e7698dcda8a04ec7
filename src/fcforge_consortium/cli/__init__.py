"""Commands of the consortium, mounted on fcforge's command line by an entry point."""

import typer

from fcforge_consortium.cli import commands, keys

PANEL = "Consortium"


def register(app: typer.Typer) -> None:
    """Add the consortium's commands to the command line.

    Parameters
    ----------
    app : typer.Typer
        The command line of fcforge.
    """
    for command in commands.COMMANDS:
        app.command(command.__name__, rich_help_panel=PANEL)(command)
    app.add_typer(keys.keepers, name="keepers", rich_help_panel=PANEL)
    app.add_typer(keys.keys, name="keys", rich_help_panel=PANEL)

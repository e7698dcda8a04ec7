"""The command line: reads arguments, calls the library, prints. It holds no logic.

Results go to stdout, messages and progress to stderr. Everything heavy is imported inside
the commands, so that ``fcforge --help`` answers at once.
"""

from fcforge.cli import exchange, experiments, keys
from fcforge.cli.commands import app, main

__all__ = ["app", "main"]

EXCHANGE = "Exchange"
PANELS = {
    "Experiments": experiments.COMMANDS,
    EXCHANGE: exchange.COMMANDS,
    "Imaging": experiments.IMAGING,
}
for panel, members in PANELS.items():
    for command in members:
        name = command.__name__.removesuffix("_things")  # `list` is Python's own
        app.command(name, rich_help_panel=panel)(command)
for name, group in (("keepers", keys.keepers), ("keys", keys.keys)):
    app.add_typer(group, name=name, rich_help_panel=EXCHANGE)

"""The command line: reads arguments, calls the library, prints. It holds no logic.

Results go to stdout, messages and progress to stderr. Everything heavy is imported inside
the commands, so that ``fcforge --help`` answers at once.
"""

from fcforge.cli import exchange, experiments, imaging, keys
from fcforge.cli.commands import app, main

__all__ = ["app", "main"]

for room in (experiments, exchange, imaging):
    for command in room.COMMANDS:
        name = command.__name__.removesuffix("_things")  # `list` is Python's own
        app.command(name, rich_help_panel=room.PANEL)(command)
for name, group in (("keepers", keys.keepers), ("keys", keys.keys)):
    app.add_typer(group, name=name, rich_help_panel=exchange.PANEL)

"""Command line: parse arguments, call the library, print. It holds no logic.

Results go to stdout, messages and progress to stderr. Everything heavy is imported inside
the commands, so that ``fcforge --help`` answers at once. Other packages add commands through the
entry-point group ``fcforge.commands``: a function that receives the `typer.Typer` app.
"""

from fcforge.cli import audit, experiments
from fcforge.cli.application import app, main
from fcforge.cli.messages import say
from fcforge.core.errors import ConfigError
from fcforge.core.registry import load_plugins

__all__ = ["app", "main"]

PANELS = {
    "Experiments": (*experiments.COMMANDS, audit.audit),
    "Imaging": experiments.IMAGING,
}
for panel, members in PANELS.items():
    for command in members:
        name = command.__name__.removesuffix("_things")  # `list` is Python's own
        app.command(name, rich_help_panel=panel)(command)


def _warn(problem: ConfigError) -> None:
    """Report a plug-in whose commands are missing; all other commands still work."""
    say(f"warning: {problem}", style="yellow")


for _, register, _ in load_plugins("fcforge.commands", _warn):
    register(app)

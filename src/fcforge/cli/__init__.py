"""The command line: reads arguments, calls the library, prints. It holds no logic.

Results go to stdout, messages and progress bars to stderr. Everything heavy is imported inside
the commands, so that ``fcforge --help`` answers at once.
"""

import sys
from typing import Annotated, Any

import typer

from fcforge.cli import exchange, experiments, imaging, keys
from fcforge.errors import FCForgeError, needs
from fcforge.progress import say

app = typer.Typer(
    name="fcforge",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Continual learning for fMRI diagnosis across hospitals. Start with `fcforge init`.",
)
for room in (experiments, exchange, imaging):
    for command in room.COMMANDS:
        name = command.__name__.removesuffix("_things")  # `list` is Python's own
        app.command(name, rich_help_panel=room.PANEL)(command)
for name, group in (("keepers", keys.keepers), ("keys", keys.keys)):
    app.add_typer(group, name=name, rich_help_panel=exchange.PANEL)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.")
    ] = False,
) -> None:
    if version:
        from fcforge import __version__

        print(f"fcforge {__version__}")
        raise typer.Exit()


def main(argv: list[str] | None = None) -> Any:
    """Entry point: deliberate errors become one line and exit code 2."""
    try:
        return app(args=argv, standalone_mode=True)
    except FCForgeError as error:
        problem = error
    except ImportError as error:  # a hospital's environment has no torch
        if error.name != "torch":
            raise
        problem = needs("torch", "train")
    except (
        OSError
    ) as error:  # disk full, no permission, a folder where a file should be
        problem = FCForgeError(
            f"{error.strerror or error}.", where=str(error.filename or "")
        )
    say(f"error: {problem}", style="red")
    sys.exit(2)

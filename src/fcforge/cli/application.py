"""The command-line application and its entry point."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from fcforge.core.errors import FCForgeError, needs

if TYPE_CHECKING:
    pass
from fcforge.cli.messages import say

app = typer.Typer(
    name="fcforge",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Continual learning for fMRI diagnosis across hospitals. Start with `fcforge init`.",
)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from fcforge.core.version import __version__

        print(f"fcforge {__version__}")
        raise typer.Exit()


def main(argv: list[str] | None = None) -> Any:
    """Run the command line; deliberate errors become one line and exit code 2."""
    try:
        return app(args=argv, standalone_mode=True)
    except FCForgeError as error:
        problem = error
    except ImportError as error:  # a hospital's environment has no torch
        if error.name != "torch":
            raise
        problem = needs("torch", "train")
    # disk full, no permission, a folder where a file should be
    except OSError as error:
        place = str(error.filename or "")
        problem = FCForgeError(f"{error.strerror or error}.", where=place)
    say(f"error: {problem}", style="red")
    sys.exit(2)

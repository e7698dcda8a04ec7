"""The command-line application and its entry point."""

import errno
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer import Option

from fcforge.cli.messages import say
from fcforge.core.errors import FCForgeError, needs

MAKE_ROOM = "Free some disk space; the same command again continues."

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
    """Print the version, if that is asked for, before any command runs."""
    if version:
        from fcforge.core.version import __version__

        print(f"fcforge {__version__}")
        raise typer.Exit()


def run(complete: Callable[[], typer.Typer], argv: list[str] | None = None) -> Any:
    """Run the command line.

    Errors of fcforge and of the file system are printed as one line, with exit code 2.

    Parameters
    ----------
    complete : callable
        Returns the application with all its commands.
    argv : list of str, optional
        Words of the command line without the program; by default those of this process.
    """
    try:
        return complete()(args=argv, standalone_mode=True)
    except FCForgeError as error:
        problem = error
    except ImportError as error:  # a hospital's environment has no torch
        if error.name != "torch":
            raise
        problem = needs("torch", "train")
    # disk full, no permission, a folder where a file should be
    except OSError as error:
        place = str(error.filename or "")
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        do = MAKE_ROOM if full else ""
        problem = FCForgeError(f"{error.strerror or error}.", where=place, do=do)
    say(f"error: {problem}", style="red")
    sys.exit(2)

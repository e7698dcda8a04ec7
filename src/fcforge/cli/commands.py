"""The command line itself: its entry point, and what several commands share.

Commands with many options are made from requests; other options are described here, each once.
Messages and progress go to stderr: a bar on a terminal, plain lines in logs.
"""

import functools
import inspect
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer import Argument, Option

from fcforge.core.errors import FCForgeError, needs
from fcforge.core.formatting import printable
from fcforge.core.options import JSON

if TYPE_CHECKING:
    from rich.status import Status

Report = Callable[[int, int, str], None]
EVERY = 10.0  # seconds between lines

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
    # disk full, no permission, a folder where a file should be
    except OSError as error:
        place = str(error.filename or "")
        problem = FCForgeError(f"{error.strerror or error}.", where=place)
    say(f"error: {problem}", style="red")
    sys.exit(2)


# -- what is said while something works -----------------------------------------------------------
def say(text: str = "", style: str = "") -> None:
    """Print a message to stderr."""
    typer.secho(printable(text, keep="\n"), sys.stderr, fg=style or None)


def at_work(what: str) -> "Status":
    """Shows on a terminal that something is at work, while it is entered."""
    from rich.console import Console

    return Console(stderr=True).status(what)


@contextmanager
def progress_on_stderr(what: str) -> Iterator[Report]:
    """Yield a function (done, total, last) that shows how far it is.

    No time left is told: pieces of work differ in length, so that any guess would swing.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    line_of = TextColumn("{task.description}", markup=False)
    shown = Progress(BarColumn(), line_of, console=Console(stderr=True), transient=True)
    task = shown.add_task("")
    told = -math.inf
    on_terminal = sys.stderr.isatty()

    def report(done: int, total: int, last: str) -> None:
        nonlocal told
        line = f"{what}: {done}/{total} {last}".rstrip()
        now = time.monotonic()
        if on_terminal:
            shown.update(task, completed=done, total=total, description=printable(line))
            shown.start()  # at the first report: before it somebody may have to be asked
        elif done == total or now - told >= EVERY:
            told = now
            say(line)

    try:
        yield report
    finally:
        if on_terminal:
            shown.stop()


# -- options ---------------------------------------------------------------------------------------
def run_folder(given: Path) -> Path:
    """A run folder as it is; of a config the folder that `fcforge run` writes."""
    return Path("runs", given.stem) if given.suffix == ".toml" else given


Config = Annotated[Path, Argument(help="Config file (TOML).", show_default=False)]
Folder = Annotated[
    Path,
    Argument(
        help="Run folder, or its config (TOML).",
        show_default=False,
        callback=run_folder,
    ),
]
Overrides = Annotated[
    list[str] | None, Option("--set", help="A setting, e.g. training.epochs=5.")
]
Out = Annotated[
    Path | None, Option(help="Folder to write (runs/<name of the config>).")
]
Jobs = Annotated[int, Option(min=0, help="Worker processes; 0 uses all cores.")]
DryRun = Annotated[bool, Option("--dry-run", help="Only estimate time and disk space.")]
Cluster = Annotated[
    str, Option(help="Dask scheduler, tcp://HOST:PORT; or slurm, slurm:JOBS.")
]
Device = Annotated[str, Option(help="cpu, cuda, or auto.")]
AsJson = Annotated[bool, Option("--json", help=JSON)]


# -- requests --------------------------------------------------------------------------------------
def takes(work: Callable[[Any], Any]) -> Callable[..., None]:
    """A command with the fields of a request (`fcforge_consortium.options`) as arguments and options.

    The decorated function is called with the request, by which its one parameter is annotated;
    what it returns is the exit code.
    """
    request = next(iter(get_type_hints(work).values()))
    hints = get_type_hints(request)
    parameters = [_parameter(one, hints[one.name]) for one in fields(request)]

    @functools.wraps(work)
    def command(**given: Any) -> None:
        raise typer.Exit(work(request(**given)) or 0)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _parameter(one: Field[Any], hint: Any) -> inspect.Parameter:
    """A field as typer understands it: an argument where it has a metavar, else an option."""
    metadata = dict(one.metadata)
    names = []
    if "flag" in metadata:
        names = [metadata.pop("flag")]
    elif one.default is False:
        names = [f"--{one.name.replace('_', '-')}"]  # else there were a --no-..., too
    kind = Argument if "metavar" in metadata else Option
    default = inspect.Parameter.empty if one.default is MISSING else one.default
    if one.default_factory is not MISSING:
        default = one.default_factory()
    return inspect.Parameter(
        one.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[hint, kind(*names, **metadata)],
    )

"""Options and arguments that several commands share, and commands made from request classes."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer import Argument, Option

from fcforge.cli.several_values import SeveralValues
from fcforge.core.options import ALLOW_CODE, JSON, LogFormat


# -- options ---------------------------------------------------------------------------------------
def run_folder(given: Path) -> Path:
    """Return the run folder: the path itself, or for a config the folder that `fcforge run` writes."""
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
Log = Annotated[
    LogFormat | None,
    Option(help="Write losses, accuracy and quotas of every epoch to the run folder."),
]
KeepNetworks = Annotated[
    bool, Option("--keep-networks", help="Store the trained network of every run.")
]
Device = Annotated[str, Option(help="cpu, cuda, or auto.")]
AsJson = Annotated[bool, Option("--json", help=JSON)]
AllowCode = Annotated[bool, Option("--allow-code", help=ALLOW_CODE)]


# -- requests --------------------------------------------------------------------------------------
def takes(work: Callable[[Any], Any]) -> Callable[..., None]:
    """Turn a function of a request into a command that takes each field of the request.

    A field whose metadata has a `metavar` becomes an argument of the command line, every other field
    an option.

    Parameters
    ----------
    work : callable
        Its one parameter is annotated with a dataclass, the request. It returns the exit code;
        None stands for 0.

    Returns
    -------
    callable
        Command for typer, with a keyword parameter for every field of the request.
    """
    request, *_ = get_type_hints(work).values()  # the type of its one parameter
    hints = get_type_hints(request)
    parameters = [_parameter(field, hints[field.name]) for field in fields(request)]

    @functools.wraps(work)
    def command(**given: Any) -> None:
        raise typer.Exit(work(request(**given)) or 0)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    # typer makes the command by a class of its own where an option takes several words
    several = frozenset(
        _flag(field) for field in fields(request) if field.metadata.get("several")
    )
    if several:
        kind = type("Command", (SeveralValues,), {"several": several})
        command.command_class = kind  # type: ignore[attr-defined]
    return command


def _flag(field: Field[Any]) -> str:
    """Return the option of a field, ``--like-this``."""
    return f"--{field.name.replace('_', '-')}"


def _parameter(field: Field[Any], hint: Any) -> inspect.Parameter:
    """Return a field as a parameter for typer.

    It is a positional argument if the field's metadata has a metavar, else an option. `hint` is
    the type of the field.
    """
    # what remains of the metadata are keyword arguments for typer
    metadata = dict(field.metadata)
    metadata.pop("only", None)
    metadata.pop("several", None)
    names = []
    if "flag" in metadata:
        names = metadata.pop("flag").split()
    elif field.default is False:
        names = [_flag(field)]  # without a name typer would add --no-...
    kind = Argument if "metavar" in metadata else Option
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    if field.default_factory is not MISSING:
        default = field.default_factory()
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[hint, kind(*names, **metadata)],
    )

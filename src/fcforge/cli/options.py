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
    """Return a run folder as it is; of a config the folder that `fcforge run` writes."""
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
    """Turn a function of a request into a command with the request's fields as options.

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
    several = frozenset(
        _flag(one) for one in fields(request) if one.metadata.get("several")
    )
    if several:
        kind = type("Command", (SeveralValues,), {"several": several})
        command.command_class = kind  # type: ignore[attr-defined]
    return command


def _flag(one: Field[Any]) -> str:
    return f"--{one.name.replace('_', '-')}"


def _parameter(one: Field[Any], hint: Any) -> inspect.Parameter:
    """Return a field as typer understands it: an argument where it has a metavar, else an option."""
    metadata = dict(one.metadata)
    metadata.pop("only", None)
    metadata.pop("several", None)
    names = []
    if "flag" in metadata:
        names = metadata.pop("flag").split()
    elif one.default is False:
        names = [_flag(one)]  # else there were a --no-..., too
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

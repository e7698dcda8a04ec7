"""What several commands share: options, each described once, and the rooms they call.

Commands with many options are made from requests.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer import Argument, Option

from fcforge.requests import (
    HOME,
    JSON,
    KIND,
    NEW,
    POSITIVE,
    REQUIRE,
    TRUST,
    Kind,
    NewSite,
)

EXPERIMENTS, CAPSULES, IMAGING = (
    "Experiments",
    "Capsules",
    "Imaging",
)  # groups of the help


class Room:
    """A folder of fcforge; its modules are imported when they are used: help answers at once."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, module: str) -> Any:
        return import_module(f"{self._name}.{module}")


fcforge = Room("fcforge")
capsule, consortium, report = (
    Room(f"fcforge.{n}") for n in ("capsule", "consortium", "report")
)
imaging, runner, studies = (
    Room(f"fcforge.{n}") for n in ("imaging", "runner", "studies")
)
judging = Room("fcforge.studies.judge")

Config = Annotated[Path, Argument(help="Config file (TOML).", show_default=False)]
Folder = Annotated[Path, Argument(help="Run folder.", show_default=False)]
Capsule = Annotated[Path, Argument(help="Capsule file or folder.", show_default=False)]
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
Trust = Annotated[list[Path] | None, Option(help=TRUST)]
RequireSignature = Annotated[bool, Option("--require-signature", help=REQUIRE)]
Positive = Annotated[str | None, Option(help=POSITIVE)]
Local = Annotated[Path | None, Option(help=HOME)]
Overwrite = Annotated[bool, Option("--overwrite", help="Replace OUT.")]
Unseen = Annotated[NewSite, Option(help=NEW)]
FileKind = Annotated[Kind, Option(help=KIND)]


def takes(request: type[Any]) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Give a command the fields of a request (`fcforge.requests`) as arguments and options.

    The decorated function is called with the request; what it returns is the exit code.
    """
    hints = get_type_hints(request)
    parameters = [_parameter(one, hints[one.name]) for one in fields(request)]

    def decorate(work: Callable[..., Any]) -> Callable[..., None]:
        @functools.wraps(work)
        def command(**given: Any) -> None:
            raise typer.Exit(work(request(**given)) or 0)

        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate


def _parameter(one: Field[Any], hint: Any) -> inspect.Parameter:
    """A field as typer understands it: an argument where it has a metavar, else an option."""
    metadata = dict(one.metadata)
    own = (
        [f"--{one.name.replace('_', '-')}"] if one.default is False else []
    )  # no --no-
    names = [metadata.pop("flag")] if "flag" in metadata else own
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

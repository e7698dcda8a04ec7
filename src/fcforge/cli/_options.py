"""Options that several commands take, each described once; commands made from requests."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer

EXPERIMENTS, CAPSULES, IMAGING = "Experiments", "Capsules", "Imaging"  # groups of the help

Config = Annotated[Path, typer.Argument(help="Config file (TOML).", show_default=False)]
Folder = Annotated[Path, typer.Argument(help="Run folder.", show_default=False)]
Capsule = Annotated[Path, typer.Argument(help="Capsule file or folder.", show_default=False)]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="Override a setting, e.g. training.epochs=5.")
]
Out = Annotated[Path | None, typer.Option(help="Folder to write (runs/<name of the config>).")]
Jobs = Annotated[int, typer.Option(min=0, help="Worker processes; 0 uses all cores.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only estimate time and disk space.")]
Cluster = Annotated[
    str, typer.Option(help="Dask scheduler, tcp://HOST:PORT; or slurm, slurm:JOBS.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
Trust = Annotated[
    list[Path] | None,
    typer.Option(help="Public key (PEM) the capsule must be signed by; may be repeated."),
]
RequireSignature = Annotated[
    bool,
    typer.Option(
        "--require-signature",
        help="Refuse a capsule with an unsigned line or release (default: if any is signed).",
    ),
]
Positive = Annotated[
    str | None,
    typer.Option(help="Diagnosis of the patients, where it is neither 1 nor a word that says it."),
]
Local = Annotated[
    Path | None, typer.Option(help="The hospital's home file: its own threshold is shown beside.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace OUT.")]
Kind = Annotated[Literal["auto", "fc", "timeseries"], typer.Option(help="What the files hold.")]


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
    names = [metadata.pop("flag")] if "flag" in metadata else []
    kind = typer.Argument if "metavar" in metadata else typer.Option
    default = inspect.Parameter.empty if one.default is MISSING else one.default
    if one.default_factory is not MISSING:
        default = one.default_factory()
    return inspect.Parameter(
        one.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[hint, kind(*names, **metadata)],
    )

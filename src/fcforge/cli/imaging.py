"""Commands from scans to FC, made from the fields of their requests."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, fields
from typing import Annotated, Any, get_type_hints

import typer

from fcforge.cli._console import say
from fcforge.cli._options import IMAGING
from fcforge.imaging.options import FCRequest, PreprocessRequest


def mount(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("fc", rich_help_panel=IMAGING)(command_of(FCRequest, _fc))
    app.command("preprocess", rich_help_panel=IMAGING)(command_of(PreprocessRequest, _preprocess))


def command_of(request: type, work: Callable[[Any], int]) -> Callable[..., None]:
    """Function with a typer parameter for every field of `request`; `work` gets the request."""

    def command(**values: Any) -> None:
        raise typer.Exit(work(request(**values)))

    hints = get_type_hints(request)
    parameters = []
    for one in fields(request):
        kind = typer.Argument if "metavar" in one.metadata else typer.Option
        default = inspect.Parameter.empty if one.default is MISSING else one.default
        if one.default_factory is not MISSING:
            default = one.default_factory()
        parameters.append(
            inspect.Parameter(
                one.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=Annotated[hints[one.name], kind(**one.metadata)],
            )
        )
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.__doc__ = work.__doc__
    return command


def progress_bar(items: Iterable[Any], total: int) -> Iterator[Any]:
    """Yield items while a bar on stderr shows how many are done."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    yield from track(items, total=total, description="subjects", console=console)


def _fc(request: FCRequest) -> int:
    """FC of every subject, from what fMRIPrep, XCP-D, C-PAC, DPABI or you have made."""
    from fcforge.imaging.app import fc_folder
    from fcforge.report import quality

    return fc_folder(request, say=say, progress=progress_bar, pages=quality).code


def _preprocess(request: PreprocessRequest) -> int:
    """Raw scans to MNI space: basic, for data that never saw fMRIPrep."""
    from fcforge.imaging.raw.walk import preprocess_folder
    from fcforge.report import quality

    return preprocess_folder(request, say=say, progress=progress_bar, pages=quality).code

"""Commands from scans to FC."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from fcforge.cli._console import say
from fcforge.cli._options import IMAGING

In = Annotated[Path, typer.Argument(metavar="IN", help="Derivatives, scans or time series.")]
Out = Annotated[Path, typer.Argument(metavar="OUT", help="Output folder.")]
Level = Annotated[str, typer.Argument(metavar="LEVEL", help="participant or group.")]
Labels = Annotated[
    list[str] | None, typer.Option("--participant-label", help="Subject; repeat for more.")
]
People = Annotated[Path | None, typer.Option(help="Table with id, site, diagnosis.")]
Pages = Annotated[bool, typer.Option("--report/--no-report", help="HTML quality pages.")]


def mount(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    for command in (fc, preprocess):
        app.command(rich_help_panel=IMAGING)(command)


def progress_bar(items: Iterable[Any], total: int) -> Iterator[Any]:
    """Yield items while a bar on stderr shows how many are done."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    yield from track(items, total=total, description="subjects", console=console)


def fc(
    source: In,
    out: Out,
    level: Level = "participant",
    participant_label: Labels = None,
    atlas: Annotated[str, typer.Option(help="AAL116, a volume, or a tool's name.")] = "AAL116",
    atlas_image: Annotated[Path | None, typer.Option(help="Another AAL-116 volume.")] = None,
    atlas_lut: Annotated[Path | None, typer.Option(help="Label table: index, name.")] = None,
    denoise: Annotated[
        str, typer.Option(help="none, simple, scrubbing, compcor, ica_aroma, or parts with +.")
    ] = "simple",
    high_pass: Annotated[float, typer.Option(help="Hz, 0 for none.")] = 0.01,
    low_pass: Annotated[float, typer.Option(help="Hz, 0 for none.")] = 0.1,
    fd_threshold: Annotated[float | None, typer.Option(help="mm, for scrubbing.")] = None,
    std_dvars_threshold: Annotated[float | None, typer.Option(help="For scrubbing.")] = None,
    layout: Annotated[
        str, typer.Option(help="auto, fmriprep, xcpd, cpac, dpabi, nifti, series.")
    ] = "auto",
    participants: People = None,
    task: Annotated[str, typer.Option(help="BIDS task.")] = "",
    session: Annotated[str, typer.Option(help="BIDS session.")] = "",
    space: Annotated[str, typer.Option(help="BIDS space.")] = "",
    select: Annotated[str, typer.Option(help="Part of the file name.")] = "",
    tr: Annotated[float | None, typer.Option(help="Seconds; overrides the files.")] = None,
    drop: Annotated[int, typer.Option(min=0, help="Volumes to drop at the start.")] = 0,
    columns: Annotated[str | None, typer.Option(help="Of series, e.g. 1-116.")] = None,
    variable: Annotated[str | None, typer.Option(help="In .mat or .npz files.")] = None,
    min_coverage: Annotated[float, typer.Option(min=0, max=1, help="Share of an ROI.")] = 0.5,
    max_empty: Annotated[float, typer.Option(min=0, max=1, help="Share of ROIs.")] = 0.1,
    report: Pages = True,
) -> None:
    """FC of every subject, from what fMRIPrep, XCP-D, C-PAC, DPABI or you have made."""
    from fcforge.imaging.commands import fc_command

    code = fc_command(
        source=source,
        out=out,
        analysis_level=level,
        participant_label=participant_label or [],
        atlas=atlas,
        atlas_image=atlas_image,
        atlas_lut=atlas_lut,
        denoise=denoise,
        high_pass=high_pass,
        low_pass=low_pass,
        fd_threshold=fd_threshold,
        std_dvars_threshold=std_dvars_threshold,
        layout=layout,
        participants=participants,
        task=task,
        session=session,
        space=space,
        select=select,
        tr=tr,
        drop=drop,
        columns=columns,
        variable=variable,
        min_coverage=min_coverage,
        max_empty=max_empty,
        report=report,
        progress=progress_bar,
        say=say,
    )
    raise typer.Exit(code)


def preprocess(
    source: Annotated[Path, typer.Argument(metavar="IN", help="BIDS folder or 4D files.")],
    out: Out,
    participant_label: Labels = None,
    drop: Annotated[int, typer.Option(min=0, help="First volumes to leave out.")] = 5,
    slice_order: Annotated[
        str, typer.Option(help="ascending, descending, interleaved, interleaved_even.")
    ] = "",
    tr: Annotated[float | None, typer.Option(help="Seconds; overrides the files.")] = None,
    motion: Annotated[str, typer.Option(help="fcforge or ants.")] = "fcforge",
    sdc: Annotated[bool, typer.Option("--sdc/--no-sdc", help="Distortion correction.")] = False,
    resolution: Annotated[float, typer.Option(min=1, max=8, help="mm.")] = 3.0,
    route: Annotated[str, typer.Option(help="auto, pip or fsl.")] = "auto",
    report: Pages = True,
) -> None:
    """Raw scans to MNI space: basic, for data that never saw fMRIPrep."""
    from fcforge.imaging.commands import preprocess_command

    code = preprocess_command(
        source=source,
        out=out,
        participant_label=participant_label or [],
        drop=drop,
        slice_order=slice_order,
        tr=tr,
        motion=motion,
        sdc=sdc,
        resolution=resolution,
        route=route,
        report=report,
        progress=progress_bar,
        say=say,
    )
    raise typer.Exit(code)

"""Options that several commands take, each described once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXPERIMENTS, CAPSULES, IMAGING = "Experiments", "Capsules", "Imaging"  # groups of the help

Config = Annotated[Path, typer.Argument(help="Config file (TOML).", show_default=False)]
Folder = Annotated[Path, typer.Argument(help="Run folder.", show_default=False)]
Capsule = Annotated[Path, typer.Argument(help="Capsule file or folder.", show_default=False)]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="Override a setting, e.g. training.epochs=5.")
]
Out = Annotated[Path | None, typer.Option(help="Folder to write [runs/<name of the config>].")]
Jobs = Annotated[int, typer.Option(min=0, help="Worker processes; 0 uses all cores.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
Trust = Annotated[
    list[Path] | None,
    typer.Option(help="Public key (PEM) the capsule must be signed by; may be repeated."),
]
Kind = Annotated[str, typer.Option(help="What the files hold: auto, fc or timeseries.")]
Sign = Annotated[Path | None, typer.Option(help="Private key (PEM) to sign with.")]

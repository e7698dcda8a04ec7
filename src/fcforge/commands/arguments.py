"""Arguments that several commands take, each described once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[Path, typer.Argument(help="Config file (TOML).", show_default=False)]
Folder = Annotated[Path, typer.Argument(help="Run folder.", show_default=False)]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="Override a setting, e.g. training.epochs=5.")
]
Jobs = Annotated[int, typer.Option(min=0, help="Worker processes; 0 = all cores.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto.")]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]

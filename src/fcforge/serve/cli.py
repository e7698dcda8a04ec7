"""The command ``fcforge serve``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def _say(text: str) -> None:
    typer.secho(text, err=True)


def register(app: typer.Typer) -> None:
    """Add ``serve`` to `app`."""

    @app.command()
    def serve(
        folder: Annotated[Path, typer.Argument(help="Folder with runs and capsules.")],
        host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
        port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8765,
    ) -> None:
        """Show runs and capsules below a folder in the browser: local, read-only, offline."""
        from fcforge.serve.commands import serve_command

        serve_command(folder, host, port, _say)

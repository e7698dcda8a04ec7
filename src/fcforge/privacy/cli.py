"""``fcforge audit`` on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def _say(text: str) -> None:
    typer.secho(text, err=True)


def register(app: typer.Typer) -> None:
    """Add ``audit`` to `app`."""

    @app.command()
    def audit(
        data: Annotated[Path, typer.Option(help="The hospital's data: .npz file or folder.")],
        site: Annotated[
            list[str], typer.Option(help="Site of the data; repeated: audited as one.")
        ],
        generator: Annotated[
            list[str] | None,
            typer.Option(help="Generator, e.g. corr_gauss or corr_gauss:rank=8; may be repeated."),
        ] = None,
        capsule: Annotated[Path | None, typer.Option(help="Audit this capsule instead.")] = None,
        halves: Annotated[
            Path | None, typer.Option(help="Two halves of each run (.npz), for fingerprinting.")
        ] = None,
        reference: Annotated[
            Path | None, typer.Option(help="Capsule: other people, the attacker's reference.")
        ] = None,
        record: Annotated[
            Path | None, typer.Option(help="Capsule: seal it again with the audit in its ledger.")
        ] = None,
        sign: Annotated[Path | None, typer.Option(help="Private key (PEM) to sign with.")] = None,
        trust: Annotated[
            list[Path] | None,
            typer.Option(help="Public key (PEM) the capsule must be signed by; may be repeated."),
        ] = None,
        kind: Annotated[
            str, typer.Option(help="What files hold: auto, fc or timeseries.")
        ] = "auto",
        worlds: Annotated[int, typer.Option(min=1, help="Retrainings per generator.")] = 8,
        multiple: Annotated[
            int, typer.Option(min=1, help="Synthetic subjects per training subject.")
        ] = 4,
        seed: Annotated[int, typer.Option(help="Seed of splits and generators.")] = 0,
        device: Annotated[
            str, typer.Option(help="Where generators are fitted: cpu, cuda.")
        ] = "cpu",
        out: Annotated[Path | None, typer.Option(help="Folder for audit.json, audit.md.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
    ) -> None:
        """Attack what would be released: who was trained on, who can be identified."""
        from fcforge.privacy.commands import audit_command

        text = audit_command(
            data=data,
            sites=site,
            generators=generator or (),
            capsule=capsule,
            halves=halves,
            reference=reference,
            record=record,
            sign=sign,
            trust=trust or (),
            kind=kind,
            worlds=worlds,
            multiple=multiple,
            seed=seed,
            device=device,
            out=out,
            as_json=as_json,
            say=_say,
        )
        print(text)

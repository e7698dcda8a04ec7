"""Commands around capsules: learning one site at a time, predicting, inspecting, auditing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fcforge.cli._console import progress_on_stderr, say
from fcforge.cli._options import CAPSULES, AsJson, Capsule, Kind, Sign, Trust


def mount(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    for command in (learn, predict, inspect, verify, audit, keys):
        app.command(rich_help_panel=CAPSULES)(command)


def learn(
    site: Annotated[str, typer.Option(help="Name of the site to learn.")],
    data: Annotated[Path, typer.Option(help="Its data: .npz file or folder.")],
    out: Annotated[Path, typer.Option(help="Capsule to write (no suffix: a folder).")],
    state: Annotated[Path | None, typer.Option(help="Capsule of the sites before.")] = None,
    config: Annotated[Path | None, typer.Option(help="First site: config (TOML).")] = None,
    learner: Annotated[str | None, typer.Option(help="Which learner of the config.")] = None,
    method: Annotated[str | None, typer.Option(help="First site: method.")] = None,
    model: Annotated[str | None, typer.Option(help="First site: model.")] = None,
    generator: Annotated[str | None, typer.Option(help="First site: generator.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="First site: epochs.")] = None,
    seed: Annotated[int | None, typer.Option(help="First site: seed.")] = None,
    held_out: Annotated[
        int | None, typer.Option(min=0, help="First site: synthetic held-out subjects.")
    ] = None,
    calibrate: Annotated[
        str | None, typer.Option(help="First site: inner_val, synthetic or none.")
    ] = None,
    kind: Kind = "auto",
    sign: Sign = None,
    trust: Trust = None,
    allow_real_subjects: Annotated[
        bool,
        typer.Option(
            "--allow-real-subjects",
            help="Seal a method that keeps real subjects; recorded in the ledger.",
        ),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT.")] = False,
) -> None:
    """Learn one site on top of a capsule and seal the next one."""
    from fcforge.capsule.commands import learn_command
    from fcforge.runner.config import load_experiment

    with progress_on_stderr("learning") as report:
        text = learn_command(
            site=site,
            data=data,
            out=out,
            state=state,
            experiment=load_experiment(config) if config is not None else None,
            learner=learner,
            method=method,
            model=model,
            generator=generator,
            epochs=epochs,
            seed=seed,
            held_out=held_out,
            calibrate=calibrate,
            kind=kind,
            sign=sign,
            trust=trust or (),
            allow_real_subjects=allow_real_subjects,
            overwrite=overwrite,
            progress=report,
            say=say,
        )
    print(text)


def predict(
    capsule: Capsule,
    scans: Annotated[list[Path], typer.Argument(help="Files or folders of scans.")],
    out: Annotated[Path | None, typer.Option(help="File to write; without it, to stdout.")] = None,
    kind: Kind = "auto",
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Probability of each scan, or silence where it is unlike anything seen."""
    from fcforge.capsule.commands import predict_command

    text = predict_command(
        capsule=capsule,
        scans=scans,
        kind=kind,
        trust=trust or (),
        as_json=as_json,
        out=out,
        say=say,
    )
    if text:
        print(text)


def inspect(capsule: Capsule, trust: Trust = None, as_json: AsJson = False) -> None:
    """Say in plain words what is in a capsule: who, when, what is kept, how good."""
    from fcforge.capsule.commands import inspect_command

    print(inspect_command(capsule=capsule, trust=trust or (), as_json=as_json))


def verify(capsule: Capsule, trust: Trust = None, as_json: AsJson = False) -> None:
    """Check a capsule bit by bit; exit code 1 when it must not be used."""
    from fcforge.capsule.commands import verify_command

    text, ok = verify_command(capsule=capsule, trust=trust or (), as_json=as_json)
    print(text)
    raise typer.Exit(0 if ok else 1)


def keys(out: Annotated[Path, typer.Argument(help="Private key to write.")]) -> None:
    """Make an Ed25519 key pair for signing capsules."""
    from fcforge.capsule.commands import keys_command

    print(keys_command(out=out))


def audit(
    data: Annotated[Path, typer.Option(help="The hospital's data: .npz file or folder.")],
    site: Annotated[list[str], typer.Option(help="Site of the data; repeated: audited as one.")],
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
    kind: Annotated[str, typer.Option(help="What files hold: auto, fc or timeseries.")] = "auto",
    worlds: Annotated[int, typer.Option(min=1, help="Retrainings per generator.")] = 8,
    multiple: Annotated[
        int, typer.Option(min=1, help="Synthetic subjects per training subject.")
    ] = 4,
    seed: Annotated[int, typer.Option(help="Seed of splits and generators.")] = 0,
    device: Annotated[str, typer.Option(help="Where generators are fitted: cpu, cuda.")] = "cpu",
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
        say=say,
    )
    print(text)

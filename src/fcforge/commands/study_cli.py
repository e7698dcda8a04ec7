"""Commands around an experiment: ``fcforge tune, unseen, calibration, motion``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fcforge.commands.arguments import AsJson, Config, Device, Folder, Jobs, Overrides


def register(app: typer.Typer) -> None:
    """Add the commands to `app`; nothing heavy is imported before one is called."""
    app.command()(tune)
    app.command()(unseen)
    app.command()(calibration)
    app.command()(motion)


def _say(text: str = "", **style: Any) -> None:
    typer.secho(text, err=True)


def tune(
    config: Config,
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder; runs/<config name>_tune without it.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Inner cuts of the training part.")] = 3,
    jobs: Jobs = 0,
    device: Device = "auto",
) -> None:
    """Choose hyper-parameters on inner validation of the first sites; prints them as TOML."""
    from fcforge.commands.tune import tune_command
    from fcforge.runner.config import load_experiment

    experiment = load_experiment(config, overrides or [])
    folder = out or Path("runs") / f"{config.stem}_tune"
    print(
        tune_command(experiment, folder, repeats=repeats, jobs=jobs, device=device, say=_say),
        end="",
    )


def unseen(
    folder: Folder,
    metric: Annotated[str, typer.Option(help="accuracy, balanced_accuracy, auroc, ...")] = (
        "accuracy"
    ),
    as_json: AsJson = False,
) -> None:
    """What a run's models do at hospitals they have not seen: after k sites, and site by site."""
    from fcforge.commands.unseen import unseen_command

    _show(unseen_command(folder, metric), as_json)


def calibration(folder: Folder, as_json: AsJson = False) -> None:
    """Brier score and calibration error of a run, site by site."""
    from fcforge.commands.unseen import calibration_command

    _show(calibration_command(folder), as_json)


def motion(
    config: Config,
    overrides: Overrides = None,
    phenotypes: Annotated[
        Path | None, typer.Option(help="Table with SUB_ID and func_mean_fd, as ABIDE's.")
    ] = None,
    beside: Annotated[
        Path | None, typer.Option(help="Run folder to show the same rows for.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """How far head motion alone gets on the same splits."""
    from fcforge.commands.motion import motion_command
    from fcforge.report import as_json as table_json
    from fcforge.report import print_table
    from fcforge.runner.config import load_experiment

    found = motion_command(load_experiment(config, overrides or []), phenotypes, beside)
    if as_json:
        print(table_json(found), end="")
    else:
        print_table(found)


def _show(tables: list[Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps({t.title: t.to_json() for t in tables}, indent=1))
    else:
        print("\n".join(t.markdown() for t in tables), end="")

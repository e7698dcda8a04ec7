"""The command line: reads arguments, calls the library, prints. It holds no logic.

Results go to stdout; talk and progress bars to stderr. Heavy imports happen inside the commands,
so that ``fcforge --help`` answers at once.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fcforge.commands.arguments import AsJson, Config, Device, Folder, Jobs, Overrides
from fcforge.errors import FCForgeError

app = typer.Typer(
    name="fcforge",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Continual learning for fMRI diagnosis across hospitals. `fcforge init` to begin.",
)


def say(text: str = "", *, err: bool = True, style: str = "") -> None:
    """Print talk to stderr (or a result to stdout)."""
    typer.secho(text, err=err, fg=style or None)


@app.command()
def init(
    path: Annotated[Path, typer.Argument(help="File to write.")] = Path("experiment.toml"),
    force: Annotated[bool, typer.Option(help="Overwrite an existing file.")] = False,
) -> None:
    """Write a commented config to start from."""
    from fcforge.commands.templates import EXPERIMENT
    from fcforge.writing import write_text

    if path.exists() and not force:
        raise FCForgeError("file exists.", where=str(path), do="Use --force to overwrite it.")
    write_text(path, EXPERIMENT)
    say(f"wrote {path}; edit it, then: fcforge check {path} && fcforge run {path}")


@app.command()
def check(
    target: Annotated[Path, typer.Argument(help="Config, .npz file or data folder.")],
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Say what is wrong with a config or a dataset, subject by subject, before anything runs."""
    from fcforge.commands.check import check_target

    verdict = check_target(target, overrides or [])
    if as_json:
        print(json.dumps(verdict.to_json(), indent=1))
    else:
        for line in verdict.lines():
            say(line.text, err=False, style=line.style)
    raise typer.Exit(0 if verdict.ok else 1)


@app.command()
def run(
    config: Config,
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; runs/<config name> without it.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what it would cost.")
    ] = False,
    jobs: Jobs = 0,
    device: Device = "auto",
    cluster: Annotated[
        str, typer.Option(help="Dask scheduler, tcp://HOST:PORT; or slurm, slurm:JOBS.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Train every learner over all site orders; the same command again continues."""
    from fcforge.commands.run import run_and_report
    from fcforge.runner.config import load_experiment

    experiment = load_experiment(config, overrides or [])
    folder = out or Path("runs") / config.stem
    try:
        text = run_and_report(
            experiment,
            folder,
            dry_run=dry_run,
            jobs=jobs,
            device=device,
            as_json=as_json,
            say=say,
            cluster=cluster,
        )
    except KeyboardInterrupt:  # typer would end without a word
        say("stopped; the same command again continues.", style="yellow")
        raise typer.Exit(130) from None
    print(text)


@app.command()
def status(folder: Folder, as_json: AsJson = False) -> None:
    """How far a run is."""
    from fcforge.commands.run import status_of

    found = status_of(folder)
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        for line in found["lines"]:
            print(line)


@app.command()
def report(
    folder: Folder,
    out: Annotated[Path | None, typer.Option(help="HTML file [FOLDER/report.html].")] = None,
    audit: Annotated[
        list[Path] | None, typer.Option(help="audit.json of `fcforge audit`; may be repeated.")
    ] = None,
    judge: Annotated[
        list[Path] | None, typer.Option(help="Folder of `fcforge judge`; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the HTML report of a run, finished or not, and print its table."""
    from fcforge.commands.run import report_on

    page = out or folder / "report.html"
    text = report_on(folder, page, as_json=as_json, say=say, audits=audit or (), judged=judge or ())
    print(text)


@app.command("list")
def list_things(
    what: Annotated[str, typer.Argument(help="datasets, models, generators or methods.")],
    as_json: AsJson = False,
) -> None:
    """List what a config can name."""
    from fcforge.commands.catalogue import catalogue

    rows = catalogue(what)
    if as_json:
        print(json.dumps([row["name"] for row in rows]))
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        print(f"{row['name']:<{width}}  {row['about']}")


@app.command()
def judge(
    config: Config,
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="Folder; runs/<config name> without it.")] = None,
    device: Device = "auto",
) -> None:
    """Judge generators of synthetic FC: fidelity, diversity, use; the same command continues."""
    from fcforge.commands.judge import judge_config

    print(judge_config(config, overrides or [], out or Path("runs") / config.stem, device, say))


def _load_config(path: Path) -> Any:
    from fcforge.runner.config import load_experiment

    return load_experiment(path)


def _progress(what: str) -> Any:
    from fcforge.commands.progress import progress_on_stderr

    return progress_on_stderr(what)


def _mount() -> None:
    """Add the commands that other layers bring along; none of them imports torch here."""
    from fcforge.capsule.cli import register as mount_capsule
    from fcforge.commands.study_cli import register as mount_study
    from fcforge.imaging.cli import mount as mount_imaging
    from fcforge.privacy.cli import register as mount_privacy
    from fcforge.serve.cli import register as mount_serve

    mount_study(app)
    mount_imaging(app)
    mount_capsule(app, _load_config, _progress)
    mount_privacy(app)
    mount_serve(app)


def _one_line(error: FCForgeError) -> None:
    say(f"error: {error}", style="red")


def main(argv: list[str] | None = None) -> Any:
    """Entry point: deliberate errors become one line and exit code 2."""
    try:
        return app(args=argv, standalone_mode=True)
    except FCForgeError as error:
        _one_line(error)
        sys.exit(2)
    except OSError as error:  # disk full, no permission, a folder where a file should be
        _one_line(FCForgeError(f"{error.strerror or error}.", where=str(error.filename or "")))
        sys.exit(2)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from fcforge import __version__

        print(f"fcforge {__version__}")
        raise typer.Exit()


_mount()

if __name__ == "__main__":
    main()

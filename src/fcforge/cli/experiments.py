"""Commands around experiments: from ``init`` to ``report``, and the studies of a run."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from fcforge.cli import _options as given
from fcforge.cli._console import progress_on_stderr, say
from fcforge.errors import FCForgeError


def mount(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    for command in (
        demo,
        init,
        check,
        run,
        status,
        report,
        pages,
        tune,
        unseen,
        calibration,
        motion,
    ):
        app.command(rich_help_panel=given.EXPERIMENTS)(command)
    app.command("list", rich_help_panel=given.EXPERIMENTS)(list_things)
    app.command(rich_help_panel=given.EXPERIMENTS)(judge)


def demo(
    out: Annotated[Path, typer.Option(help="Run folder to write.")] = Path("runs/demo"),
    jobs: given.Jobs = 0,
    device: given.Device = "auto",
    as_json: given.AsJson = False,
) -> None:
    """Let four simulated hospitals learn in turn and write a report; minutes on a laptop."""
    from importlib.resources import as_file, files

    with as_file(files("fcforge.cli").joinpath("demo.toml")) as config:
        run(config, out=out, jobs=jobs, device=device, as_json=as_json)


def init(
    path: Annotated[Path, typer.Argument(help="File to write.")] = Path("experiment.toml"),
    force: Annotated[bool, typer.Option(help="Overwrite an existing file.")] = False,
) -> None:
    """Write a commented config to start from."""
    from importlib.resources import files

    from fcforge.writing import write_text

    if path.exists() and not force:
        raise FCForgeError("file exists.", where=str(path), do="Use --force to overwrite it.")
    write_text(path, files("fcforge.cli").joinpath("first.toml").read_text(encoding="utf-8"))
    say(f"wrote {path}; edit it, then: fcforge check {path} && fcforge run {path}")


def check(
    target: Annotated[Path, typer.Argument(help="Config, .npz file or data folder.")],
    overrides: given.Overrides = None,
    as_json: given.AsJson = False,
) -> None:
    """Check a config or a dataset, subject by subject, before anything runs."""
    from fcforge.report.terminal import check_lines
    from fcforge.studies.check import check_target

    verdict = check_target(target, overrides or [])
    if as_json:
        print(json.dumps(verdict.to_json(), indent=1))
    else:
        for text, style in check_lines(verdict):
            typer.secho(text, fg=style or None)
    raise typer.Exit(0 if verdict.ok else 1)


def run(
    config: given.Config,
    overrides: given.Overrides = None,
    out: given.Out = None,
    dry_run: given.DryRun = False,
    jobs: given.Jobs = 0,
    device: given.Device = "auto",
    cluster: given.Cluster = "",
    as_json: given.AsJson = False,
) -> None:
    """Train every learner over all site orders; the same command again continues."""
    from fcforge.runner.config import load_experiment
    from fcforge.runner.environment import place_to_train
    from fcforge.runner.run import leak_notes, prepare

    experiment, folder = load_experiment(config, overrides or []), out or Path("runs", config.stem)
    place = place_to_train(device, jobs, cluster)
    say("loading and checking the data ...")
    prepared = prepare(experiment)
    for note in leak_notes(experiment):
        say(note, style="red")
    if dry_run:
        _print_cost(prepared, folder, place.jobs)
        return
    _train(prepared, folder, place)
    _report(folder, folder / "report.html", as_json)


def _print_cost(prepared: Any, folder: Path, jobs: int) -> None:
    from fcforge.report.frame import spoken
    from fcforge.runner.run import estimate
    from fcforge.runner.store import Store

    say("training two sites of each learner briefly ...")
    cost = estimate(prepared, Store(folder), jobs)
    print(spoken("cost", cost=cost, plan=prepared.plan, jobs=jobs))


def _train(prepared: Any, folder: Path, place: Any) -> None:
    from fcforge.report.frame import spoken
    from fcforge.runner.run import train
    from fcforge.text import duration

    say(spoken("plan", plan=prepared.plan, place=place))
    started = time.monotonic()
    try:
        with progress_on_stderr("training") as progress:
            train(prepared, folder, place, progress)
    except KeyboardInterrupt:  # typer would end without a word
        say("stopped; the same command again continues.", style="yellow")
        raise typer.Exit(130) from None
    say(f"trained in {duration(time.monotonic() - started)}; writing the report ...")


def status(folder: given.Folder, as_json: given.AsJson = False) -> None:
    """Show the progress of a run."""
    from fcforge.report.frame import spoken
    from fcforge.runner.collect import progress_of

    found = progress_of(folder)
    print(json.dumps(found.to_json(), indent=1) if as_json else spoken("status", found=found))


def report(
    folder: given.Folder,
    out: Annotated[Path | None, typer.Option(help="HTML file [FOLDER/report.html].")] = None,
    audit: Annotated[
        list[Path] | None, typer.Option(help="audit.json of `fcforge audit`; may be repeated.")
    ] = None,
    judge: Annotated[
        list[Path] | None, typer.Option(help="given.Folder of `fcforge judge`; may be repeated.")
    ] = None,
    as_json: given.AsJson = False,
) -> None:
    """Write the HTML report of a run, finished or not, and print its table."""
    _report(folder, out or folder / "report.html", as_json, audits=audit or (), judged=judge or ())


def _report(folder: Path, page: Path, as_json: bool, **sections: Any) -> None:
    from fcforge.report.pages import report_folder
    from fcforge.report.results import print_findings

    rows, findings = report_folder(folder, page, **sections)
    print_findings(findings)
    say(f"report: {page}")
    _print_rows(rows, as_json)


def _print_rows(rows: Any, as_json: bool) -> None:
    from fcforge.report import results

    if as_json:
        print(results.as_json(rows), end="")
    else:
        results.print_table(rows)


def list_things(
    what: Annotated[str, typer.Argument(help="datasets, models, generators or methods.")],
    as_json: given.AsJson = False,
) -> None:
    """List what a config can name."""
    from fcforge.cli._catalogue import catalogue

    rows = catalogue(what)
    if as_json:
        print(json.dumps([row["name"] for row in rows]))
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        print(f"{row['name']:<{width}}  {row['about']}")


def judge(
    config: given.Config,
    overrides: given.Overrides = None,
    out: given.Out = None,
    device: given.Device = "auto",
) -> None:
    """Judge generators of synthetic FC: fidelity, diversity, usefulness."""
    from fcforge.report.judge import write_judgement
    from fcforge.runner.environment import pick_device
    from fcforge.studies.judge.experiment import judge_config

    folder = out or Path("runs") / config.stem
    found = judge_config(config, overrides or [], folder, pick_device(device), say)
    for warning in found.warnings:
        say(warning, style="red")
    print(write_judgement(found, folder))


def pages(
    folder: Annotated[Path, typer.Argument(help="given.Folder with runs, capsules and audits.")],
    out: Annotated[Path | None, typer.Option(help="given.Folder to write [FOLDER/pages].")] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open the overview.")] = False,
) -> None:
    """Write pages of all runs, capsules and audits below a folder: plain files to open or mail."""
    from fcforge.report.pages import write_pages

    overview = write_pages(folder, out, say)
    print(overview)
    if open_it:
        typer.launch(str(overview))


def tune(
    config: given.Config,
    overrides: given.Overrides = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write (runs/<name of the config>_tune).")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Inner cuts of the training part.")] = 3,
    budget: Annotated[
        int,
        typer.Option(
            min=0,
            help="Settings per learner, the same number for all, of rate, weight decay, epochs "
            "and strength; 0: the strengths of each method's grid.",
        ),
    ] = 0,
    jobs: given.Jobs = 0,
    device: given.Device = "auto",
) -> None:
    """Choose hyper-parameters by inner validation on the first sites; prints them as TOML."""
    from fcforge.runner.config import load_experiment
    from fcforge.runner.environment import place_to_train
    from fcforge.studies.tune import tune as tune_experiment

    experiment, place = load_experiment(config, overrides or []), place_to_train(device, jobs)
    folder = out or Path("runs") / f"{config.stem}_tune"
    with progress_on_stderr("tuning") as progress:
        text = tune_experiment(
            experiment, folder, place, repeats, budget, progress=progress, say=say
        )
    say(f"wrote {folder / 'tuned.toml'}: put these in place of the config's [[learner]] tables")
    print(text, end="")


def unseen(
    folder: given.Folder,
    metric: Annotated[str, typer.Option(help="accuracy, balanced_accuracy, auroc, ...")] = (
        "accuracy"
    ),
    as_json: given.AsJson = False,
) -> None:
    """Show how a run's models do at hospitals they have not learned."""
    from fcforge.studies.unseen import unseen_of

    _show(unseen_of(folder, metric), as_json)


def calibration(folder: given.Folder, as_json: given.AsJson = False) -> None:
    """Show the Brier score and calibration error of a run, site by site."""
    from fcforge.studies.unseen import calibration_of

    _show(calibration_of(folder), as_json)


def _show(tables: list[Any], as_json: bool) -> None:
    from fcforge.report.terminal import study_json, study_markdown

    if as_json:
        print(json.dumps({t.title: study_json(t) for t in tables}, indent=1))
    else:
        print("\n".join(map(study_markdown, tables)), end="")


def motion(
    config: given.Config,
    overrides: given.Overrides = None,
    phenotypes: Annotated[
        Path | None, typer.Option(help="Table with SUB_ID and func_mean_fd, such as ABIDE's.")
    ] = None,
    beside: Annotated[
        Path | None, typer.Option(help="Run folder whose learners are shown beside it.")
    ] = None,
    as_json: given.AsJson = False,
) -> None:
    """Measure how well head motion alone predicts, on the same splits."""
    from fcforge.runner.config import load_experiment
    from fcforge.studies.motion import motion_rows

    found = motion_rows(load_experiment(config, overrides or []), phenotypes, beside)
    _print_rows(found, as_json)

"""Commands of experiments, from ``init`` to ``report`` and ``pages``."""

import json
import textwrap
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from fcforge.cli.messages import at_work, progress_on_stderr, say, warn
from fcforge.cli.options import (
    AllowCode,
    AsJson,
    Cluster,
    Config,
    Device,
    DryRun,
    Folder,
    Jobs,
    KeepNetworks,
    Log,
    Out,
    Overrides,
    run_folder,
    takes,
)
from fcforge.core.errors import FCForgeError
from fcforge.core.files import write_text
from fcforge.core.formatting import counted, duration, printable
from fcforge.core.options import CheckRequest, LogFormat

if TYPE_CHECKING:
    from fcforge.evaluation.tables import Row
    from fcforge.experiments.execute import Place
    from fcforge.experiments.run import Prepared
    from fcforge.report.run_numbers import RunInfo, RunNumbers

BUDGET = (
    "Settings to try per learner (rate, weight decay, epochs, strength), the same number for all; "
    "0: only the strengths of each method's grid."
)
PAGE_WIDTH = 96  # characters per line of a paragraph


def demo(
    out: Annotated[Path, Option(help="Run folder to write.")] = Path("runs/demo"),
    overrides: Overrides = None,
) -> None:
    """Run FORGE and its baselines on four simulated hospitals; a minute on two CPU cores."""
    from fcforge.experiments.execute import place_to_train
    from fcforge.report.run_page import read_folder

    with as_file(files("fcforge.cli").joinpath("demo.toml")) as config:
        prepared = _prepared(config, overrides)
    page = out / "report.html"
    _train(prepared, out, place_to_train("auto", 0, ""))
    _print_rows(_write_report(out, page)[0].rows, as_json=False)
    _, info = read_folder(out)
    print()
    for sentence in info.sentences:
        print(textwrap.fill(sentence, PAGE_WIDTH))
    say(f"report: {page}")


def init(
    path: Annotated[Path, Argument(help="File to write.")] = Path("experiment.toml"),
) -> None:
    """Write a commented config to start from."""
    if path.exists():
        hint = "Choose another name, or remove it."
        raise FCForgeError("file exists.", where=path, do=hint)
    first = files("fcforge.cli").joinpath("first.toml")
    write_text(path, first.read_text(encoding="utf-8"))
    say(f"wrote {path}; edit it, then: fcforge check {path} && fcforge run {path}")


@takes
def check(asked: CheckRequest) -> int:
    """Check a config or a dataset, subject by subject, before anything runs."""
    from fcforge.experiments.check import check_target
    from fcforge.report.terminal import check_lines
    from fcforge.report.text import json_text

    with at_work("checking"):
        verdict = check_target(asked)
    if asked.as_json:
        print(json_text(verdict.to_json()))
        return 0 if verdict.ok else 1
    for line in check_lines(verdict):
        typer.secho(printable(line.text), fg=line.colour or None)
    return 0 if verdict.ok else 1


def run(
    config: Config,
    overrides: Overrides = None,
    out: Out = None,
    dry_run: DryRun = False,
    jobs: Jobs = 0,
    device: Device = "auto",
    cluster: Cluster = "",
    log: Log = None,
    keep_networks: KeepNetworks = False,
    as_json: AsJson = False,
) -> None:
    """Train every learner over all site orders; the same command again continues."""
    from fcforge.experiments.execute import place_to_train

    folder = out or run_folder(config)
    place = place_to_train(device, jobs, cluster)
    prepared = _prepared(config, overrides)
    if dry_run:
        _print_cost(prepared, folder, place.jobs)
        return
    _train(prepared, folder, place, log, keep_networks=keep_networks)
    if log:
        _say_log(prepared, folder, log)
    if keep_networks:
        _say_networks(prepared, folder)
    _report(folder, folder / "report.html", as_json)


def _prepared(config: Path, overrides: Sequence[str] | None) -> "Prepared":
    """Read a config, load and check its data, and print their warnings and the leaks that are on."""
    from fcforge.data.checks import data_warnings, warning_lines
    from fcforge.experiments.config import load_experiment
    from fcforge.experiments.run import leak_notes, prepare

    experiment = load_experiment(config, overrides or [])
    with at_work("loading and checking the data"):
        prepared = prepare(experiment)
        found = data_warnings(prepared.cohort)
        found += warning_lines(prepared.public_warnings)
    for line in found:
        warn(line)
    for note in leak_notes(experiment):
        say(note, style="red")
    return prepared


def _print_cost(prepared: "Prepared", folder: Path, jobs: int) -> None:
    """Print the estimated time and disk space of a run, for ``--dry-run``."""
    from fcforge.experiments.store import Store
    from fcforge.experiments.timing import estimate
    from fcforge.report.terminal import cost_text

    say("training a site of each learner briefly, to measure its cost")
    with progress_on_stderr("measured", every=0.0) as progress:
        cost = estimate(prepared, Store(folder), jobs, progress)
    print(cost_text(cost, prepared.plan, jobs))


def _train(
    prepared: "Prepared",
    folder: Path,
    place: "Place",
    log: LogFormat | None = None,
    *,
    keep_networks: bool = False,
) -> None:
    """Train what the run folder does not hold yet, with progress on stderr.

    Parameters
    ----------
    prepared : Prepared
        The experiment, its data and its plan of site trainings.
    folder : Path
        Run folder.
    place : Place
        Device and worker processes.
    log : {"csv", "tensorboard"}, optional
        Kind of log to write.
    keep_networks : bool
        Whether the trained networks are stored.
    """
    from fcforge.experiments.run import train

    say(f"{prepared.plan.words} on {place.words}")
    started = time.monotonic()
    try:
        with progress_on_stderr("training") as progress:
            train(prepared, folder, place, progress, log, keep_networks=keep_networks)
    except KeyboardInterrupt:  # typer would end without a word
        say("stopped; the same command again continues.", style="yellow")
        raise typer.Exit(130) from None
    say(f"trained in {duration(time.monotonic() - started)}.")


def _say_log(prepared: "Prepared", folder: Path, log: LogFormat) -> None:
    """Print the path of a run's log, and the number of site trainings that are not in it."""
    from fcforge.experiments.logs import LOG_PATHS, unlogged
    from fcforge.experiments.store import Store

    say(f"log: {folder / LOG_PATHS[log]}")
    missing = unlogged(Store(folder), prepared.plan)
    if missing:
        message = counted(len(missing), "site training")
        text = "ran without a log, so the log does not have them. Another --out trains them again."
        say(f"{message} {text}", style="yellow")


def _say_networks(prepared: "Prepared", folder: Path) -> None:
    """Print the folder of the trained networks, and the number of runs that have none."""
    from fcforge.experiments.networks import FOLDER, without_network
    from fcforge.experiments.store import Store

    say(f"networks: {folder / FOLDER}")
    missing = without_network(Store(folder), prepared.plan)
    if missing:
        text = "trained before --keep-networks was given, or of a learner without a network"
        say(
            f"{counted(missing, 'run')} without a stored network: {text}.",
            style="yellow",
        )


def status(folder: Folder, as_json: AsJson = False) -> None:
    """Show the progress of a run."""
    from fcforge.experiments.collect import progress_of
    from fcforge.report import terminal
    from fcforge.report.text import json_text

    progress = progress_of(folder)
    text = json_text(asdict(progress)) if as_json else terminal.status_text(progress)
    print(text)


def report(
    folder: Folder,
    out: Annotated[Path | None, Option(help="HTML file [FOLDER/report.html].")] = None,
    as_json: AsJson = False,
) -> None:
    """Write the HTML report of a run, finished or not, and print its table."""
    _report(folder, out or folder / "report.html", as_json)


def _report(folder: Path, page: Path, as_json: bool) -> None:
    """Write the HTML report of a run and print its results table."""
    from fcforge.report.terminal import differences_text

    numbers, info = _write_report(folder, page)
    say(f"report: {page}")
    _print_rows(numbers.rows, as_json)
    if not as_json and (
        text := differences_text(numbers, str(info.settings.get("reference", "")))
    ):
        print(f"\n{text}")


def _write_report(folder: Path, page: Path) -> "tuple[RunNumbers, RunInfo]":
    """Write the HTML report of a run, print its warnings, and return its numbers."""
    from fcforge.report.run_page import write_report

    with at_work("writing the report"):
        numbers, info = write_report(folder, page)
    for finding in numbers.warnings:
        say(str(finding), style="red" if finding.level == "serious" else "yellow")
    return numbers, info


def _print_rows(rows: "Sequence[Row]", as_json: bool) -> None:
    """Print the results table, or its numbers as JSON."""
    from fcforge.report.results_table import print_table, rows_json

    if as_json:
        print(rows_json(rows), end="")
    else:
        print_table(rows)


def list_things(
    what: Annotated[
        str, Argument(help="datasets, models, generators or methods.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """List the datasets, models, generators and methods that a config can name."""
    from fcforge.experiments.catalogue import PACKAGES, catalogue

    overview = {kind: f"fcforge list {kind}" for kind in PACKAGES}
    entries = catalogue(what) if what else overview
    if as_json:
        print(json.dumps(list(entries)))
        return
    width = max(map(len, entries))
    for name, description in entries.items():
        print(f"{name:<{width}}  {description}")


def tune(
    config: Config,
    overrides: Overrides = None,
    out: Annotated[
        Path | None, Option(help="Folder to write (runs/<config>_tune).")
    ] = None,
    repeats: Annotated[int, Option(min=1, help="Splits of the training part.")] = 3,
    budget: Annotated[int, Option(min=0, help=BUDGET)] = 0,
    jobs: Jobs = 0,
    device: Device = "auto",
    allow_code: AllowCode = False,
) -> None:
    """Choose hyper-parameters by inner validation on the first sites, and print them as TOML."""
    from fcforge.evaluation import tuning
    from fcforge.experiments.config import load_experiment
    from fcforge.experiments.execute import place_to_train

    experiment = load_experiment(config, overrides or [], allow_code=allow_code)
    place = place_to_train(device, jobs)
    folder = out or Path("runs") / f"{config.stem}_tune"
    with progress_on_stderr("tuning") as progress:
        text = tuning.tune(
            experiment,
            folder,
            place,
            repeats,
            budget,
            progress=progress,
            say=say,
            warn=warn,
        )
    wrote = folder / "tuned.toml"
    say(f"wrote {wrote}: put these in place of the config's tables of these learners")
    print(text, end="")


def pages(
    folder: Annotated[
        Path, Argument(help="Folder to search for runs, audits, consortium files ...")
    ],
    out: Annotated[Path | None, Option(help="Folder to write [FOLDER/pages].")] = None,
    open_it: Annotated[bool, Option("--open", help="Open the overview.")] = False,
) -> None:
    """Write a page for every run, audit and consortium file below a folder, and an overview."""
    from fcforge.report.overview import write_pages

    with at_work("writing the pages"):
        overview = write_pages(folder, out, say)
    print(overview)
    if open_it:
        typer.launch(str(overview))


COMMANDS = (demo, init, check, run, status, report, list_things, tune, pages)

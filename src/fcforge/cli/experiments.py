"""Commands around experiments: scans to FC, ``init`` to ``report``, and the studies of a run."""

import inspect
import json
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import import_module
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from fcforge.cli.messages import at_work, progress_on_stderr, say
from fcforge.cli.options import (
    AsJson,
    Cluster,
    Config,
    Device,
    DryRun,
    Folder,
    Jobs,
    Out,
    Overrides,
    run_folder,
    takes,
)
from fcforge.core.errors import FCForgeError
from fcforge.core.files import write_text
from fcforge.core.formatting import duration
from fcforge.core.options import CheckRequest
from fcforge.imaging.options import FCRequest, PreprocessRequest
from fcforge.report import tables as report_tables

if TYPE_CHECKING:
    from fcforge.evaluation.study import Study
    from fcforge.evaluation.tables import Row
    from fcforge.experiments.execute import Place
    from fcforge.experiments.run import Prepared

BUDGET = (
    "Settings to try per learner (rate, weight decay, epochs, strength), the same number for all; "
    "0: only the strengths of each method's grid."
)
PAGE_WIDTH = 96  # of paragraphs
DEMO_WORLD = "These hospitals are simulated and were made to disagree; on real data the effect is smaller."
# Where a config's names are found, by kind.
PACKAGES = {
    "datasets": "data.datasets",
    "models": "models",
    "generators": "generators",
    "methods": "methods",
}


def demo(
    out: Annotated[Path, Option(help="Run folder to write.")] = Path("runs/demo"),
    overrides: Overrides = None,
) -> None:
    """Run FORGE and its baselines on four simulated hospitals; a minute on two CPU cores."""
    from fcforge.data.simulated import SYSTEMS
    from fcforge.experiments.execute import place_to_train
    from fcforge.report.forgetting_sentences import forgetting_sentences
    from fcforge.report.run_page import read_folder

    with as_file(files("fcforge.cli").joinpath("demo.toml")) as config:
        prepared = _prepared(config, overrides)
    page = out / "report.html"
    _train(prepared, out, place_to_train("auto", 0, ""))
    _print_rows(_write_report(out, page), as_json=False)
    results, _ = read_folder(out)
    print()
    sentences = forgetting_sentences(results)
    if prepared.experiment.dataset.params.get("preset") == SYSTEMS:
        sentences += (DEMO_WORLD,)
    for sentence in sentences:
        print(textwrap.fill(sentence, PAGE_WIDTH))
    say(f"report: {page}")


def init(
    path: Annotated[Path, Argument(help="File to write.")] = Path("experiment.toml"),
) -> None:
    """Write a commented config to start from."""
    if path.exists():
        do = "Choose another name, or remove it."
        raise FCForgeError("file exists.", where=path, do=do)
    first = files("fcforge.cli").joinpath("first.toml")
    write_text(path, first.read_text(encoding="utf-8"))
    say(f"wrote {path}; edit it, then: fcforge check {path} && fcforge run {path}")


def data(
    name: Annotated[
        str, Argument(help="abide-529, abide-871, abide-871-cc200 or abide-1098.")
    ],
    out: Annotated[Path, Argument(help="File to write (.npz).")],
) -> None:
    """Rebuild a data file of the published tables from public series; needs a network."""
    from fcforge.data.abide import PUBLISHED, rebuild

    with at_work("fetching and correlating"):
        different = rebuild(name, out)
    for line in different:
        say(line, style="red")
    if different:
        raise typer.Exit(1)
    say(f"wrote {out}: {PUBLISHED[name].people} subjects, those of the published file")


@takes
def check(asked: CheckRequest) -> int:
    """Check a config or a dataset, subject by subject, before anything runs."""
    from fcforge.experiments.check import check_target
    from fcforge.report.terminal import check_text
    from fcforge.report.text import json_text

    with at_work("checking"):
        verdict = check_target(asked)
    print(json_text(verdict.to_json()) if asked.as_json else check_text(verdict))
    return 0 if verdict.ok else 1


def run(
    config: Config,
    overrides: Overrides = None,
    out: Out = None,
    dry_run: DryRun = False,
    jobs: Jobs = 0,
    device: Device = "auto",
    cluster: Cluster = "",
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
    _train(prepared, folder, place)
    _report(folder, folder / "report.html", as_json)


def _prepared(config: Path, overrides: Sequence[str] | None) -> "Prepared":
    """Return the experiment of a config with its data, checked; warn of leaks that are on."""
    from fcforge.experiments.config import load_experiment
    from fcforge.experiments.run import leak_notes, prepare

    experiment = load_experiment(config, overrides or [])
    with at_work("loading and checking the data"):
        prepared = prepare(experiment)
    for note in leak_notes(experiment):
        say(note, style="red")
    return prepared


def _print_cost(prepared: "Prepared", folder: Path, jobs: int) -> None:
    from fcforge.experiments.store import Store
    from fcforge.experiments.timing import estimate
    from fcforge.report.terminal import cost_text

    with at_work("training a few sites of each learner briefly"):
        cost = estimate(prepared, Store(folder), jobs)
    print(cost_text(cost, prepared.plan, jobs))


def _train(prepared: "Prepared", folder: Path, place: "Place") -> None:
    from fcforge.experiments.run import train

    say(f"{prepared.plan.words} on {place.words}")
    started = time.monotonic()
    try:
        with progress_on_stderr("training") as progress:
            train(prepared, folder, place, progress)
    except KeyboardInterrupt:  # typer would end without a word
        say("stopped; the same command again continues.", style="yellow")
        raise typer.Exit(130) from None
    say(f"trained in {duration(time.monotonic() - started)}.")


def status(folder: Folder, as_json: AsJson = False) -> None:
    """Show the progress of a run."""
    from fcforge.experiments.collect import progress_of
    from fcforge.report import terminal
    from fcforge.report.text import json_text

    found = progress_of(folder)
    text = json_text(asdict(found)) if as_json else terminal.status_text(found)
    print(text)


def report(
    folder: Folder,
    out: Annotated[Path | None, Option(help="HTML file [FOLDER/report.html].")] = None,
    as_json: AsJson = False,
) -> None:
    """Write the HTML report of a run, finished or not, and print its table."""
    _report(folder, out or folder / "report.html", as_json)


def _report(folder: Path, page: Path, as_json: bool) -> None:
    rows = _write_report(folder, page)
    say(f"report: {page}")
    _print_rows(rows, as_json)


def _write_report(folder: Path, page: Path) -> "list[Row]":
    """Write the HTML report of a run and print its warnings; returns the rows of its table."""
    from fcforge.report.run_page import report_folder

    with at_work("writing the report"):
        rows, findings = report_folder(folder, page)
    for finding in findings:
        say(str(finding), style="red" if finding.level == "serious" else "yellow")
    return rows


def _print_rows(rows: "Sequence[Row]", as_json: bool) -> None:
    from fcforge.report.results_table import print_table, rows_json

    if as_json:
        print(rows_json(rows), end="")
    else:
        print_table(rows)


def catalogue(kind: str) -> dict[str, str]:
    """Everything of a kind that a config can name, and its first line.

    Networks that belong to one method (PDGNN's) are left out. Only the room of that kind is
    imported: datasets are listed where there is no torch.
    """
    from fcforge.core.names import look_up

    package = import_module(f"fcforge.{look_up('kind', kind, PACKAGES)}")
    found = {}
    for name, thing in getattr(package, kind.upper()).items():
        if not getattr(thing, "belongs_to", ""):
            found[name] = _about(thing)
    return found


def _about(thing: Any) -> str:
    lines = (inspect.getdoc(thing) or "").splitlines()
    first = getattr(thing, "about", None) or lines[0]
    return f"{first} (keeps {thing.keeps})" if hasattr(thing, "keeps") else first


def list_things(
    what: Annotated[
        str, Argument(help="datasets, models, generators or methods.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """List what a config can name."""
    rows = (
        catalogue(what) if what else {name: f"fcforge list {name}" for name in PACKAGES}
    )
    if as_json:
        print(json.dumps(list(rows)))
        return
    width = max(map(len, rows))
    for name, about in rows.items():
        print(f"{name:<{width}}  {about}")


def judge(
    config: Config,
    overrides: Overrides = None,
    out: Out = None,
    device: Device = "auto",
) -> None:
    """Judge generators of synthetic FC: fidelity, diversity, usefulness."""
    from fcforge.evaluation.generator_quality.experiment import judge_config
    from fcforge.experiments.execute import pick_device
    from fcforge.report.judge import write_judgement

    folder = out or run_folder(config)
    where = pick_device(device)
    with at_work("judging"):
        collapsed = judge_config(config, overrides or [], folder, where, say)
    for text in collapsed:
        say(text, style="red")
    print(write_judgement(folder))


def pages(
    folder: Annotated[
        Path, Argument(help="Folder with runs, exchange files and audits.")
    ],
    out: Annotated[Path | None, Option(help="Folder to write [FOLDER/pages].")] = None,
    open_it: Annotated[bool, Option("--open", help="Open the overview.")] = False,
) -> None:
    """Write pages of all runs, exchange files and audits below a folder: plain files to mail."""
    from fcforge.report.overview import write_pages

    with at_work("writing the pages"):
        overview = write_pages(folder, out, say)
    print(overview)
    if open_it:
        typer.launch(str(overview))


def tune(
    config: Config,
    overrides: Overrides = None,
    out: Annotated[
        Path | None, Option(help="Folder to write (runs/<config>_tune).")
    ] = None,
    repeats: Annotated[int, Option(min=1, help="Inner cuts of the training part.")] = 3,
    budget: Annotated[int, Option(min=0, help=BUDGET)] = 0,
    jobs: Jobs = 0,
    device: Device = "auto",
) -> None:
    """Choose hyper-parameters by inner validation on the first sites; prints them as TOML."""
    from fcforge.evaluation import tuning
    from fcforge.experiments.config import load_experiment
    from fcforge.experiments.execute import place_to_train

    experiment = load_experiment(config, overrides or [])
    place = place_to_train(device, jobs)
    folder = out or Path("runs") / f"{config.stem}_tune"
    with progress_on_stderr("tuning") as progress:
        text = tuning.tune(
            experiment, folder, place, repeats, budget, progress=progress, say=say
        )
    wrote = folder / "tuned.toml"
    say(f"wrote {wrote}: put these in place of the config's tables of these learners")
    print(text, end="")


def unseen(
    folder: Folder,
    metric: Annotated[
        str, Option(help="accuracy, balanced_accuracy, auroc ...")
    ] = "accuracy",
    as_json: AsJson = False,
) -> None:
    """Show how a run's models do at hospitals they have not learned."""
    from fcforge.evaluation.unseen import unseen_of

    _show(lambda: unseen_of(folder, metric), as_json)


def calibration(folder: Folder, as_json: AsJson = False) -> None:
    """Show how well a run's scores are calibrated, and what acting on them is worth."""
    from fcforge.evaluation.calibration import calibration_of

    _show(lambda: calibration_of(folder), as_json)


def subgroups(folder: Folder, as_json: AsJson = False) -> None:
    """Show how a run's models do by sex, age and other covariates of the tested people."""
    from fcforge.evaluation.subgroups import subgroups_of

    _show(lambda: subgroups_of(folder), as_json)


def _show(measured: "Callable[[], Sequence[Study]]", as_json: bool) -> None:
    """Print the tables of a study."""
    from fcforge.report.results_table import study_json
    from fcforge.report.text import json_text

    with at_work("measuring"):
        tables = measured()
    if as_json:
        found = {table.title: study_json(table.rows) for table in tables}
        print(json_text(found))
    else:
        shown = [report_tables.interval_table(table).markdown() for table in tables]
        print("\n".join(shown), end="")


def motion(
    config: Config, overrides: Overrides = None, as_json: AsJson = False
) -> None:
    """Measure how well head motion alone predicts, on the same splits."""
    from fcforge.evaluation.motion import motion_rows
    from fcforge.experiments.config import load_experiment

    experiment = load_experiment(config, overrides or [])
    with at_work("measuring"):
        rows = motion_rows(experiment)
    _print_rows(rows, as_json)


# -- from scans to FC ------------------------------------------------------------------------------
@takes
def fc(request: FCRequest) -> int:
    """Make FC of every subject from the output of fMRIPrep, XCP-D, C-PAC, DPABI or your own."""
    from fcforge.imaging.app import fc_folder
    from fcforge.report import quality

    return fc_folder(request, quality).code


@takes
def preprocess(request: PreprocessRequest) -> int:
    """Bring raw scans to MNI space in basic steps, without T1w images; prefer fMRIPrep."""
    from fcforge.imaging.raw.pipeline import preprocess_folder
    from fcforge.report import quality

    return preprocess_folder(request, quality).code


COMMANDS = (
    demo,
    init,
    data,
    check,
    run,
    status,
    report,
    pages,
    tune,
    unseen,
    calibration,
    subgroups,
    motion,
    list_things,
    judge,
)
IMAGING = (fc, preprocess)

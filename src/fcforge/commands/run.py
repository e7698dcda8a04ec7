"""`fcforge run`, `status` and `report`: from an experiment to a table and a page."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from fcforge.errors import ConfigError
from fcforge.runner.collect import collect_some, stored_plan
from fcforge.runner.execute import default_jobs
from fcforge.runner.experiment import Experiment
from fcforge.runner.plan import trainings
from fcforge.runner.run import (
    Prepared,
    estimate,
    leak_notes,
    open_store,
    prepare,
    run_experiment,
)
from fcforge.runner.store import Store
from fcforge.text import counted, duration, memory
from fcforge.writing import write_text

Say = Callable[..., None]


def pick_device(wanted: str) -> str:
    """'auto' takes CUDA where there is one."""
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if wanted not in ("cpu", "cuda") and not wanted.startswith("cuda:"):
        raise ConfigError(f"unknown device '{wanted}'.", do="Give cpu, cuda, cuda:N or auto.")
    if wanted.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device '{wanted}' was asked for, but torch sees no GPU.")
    return wanted


def run_and_report(
    experiment: Experiment,
    folder: Path,
    *,
    dry_run: bool,
    jobs: int,
    device: str,
    as_json: bool,
    say: Say,
    cluster: str = "",
) -> str:
    """Check, train what is missing, write report and tables; returns the text for stdout."""
    jobs = jobs or default_jobs()
    where = pick_device(_device_of_cluster(device) if cluster else device)
    say("loading and checking the data ...")
    prepared = prepare(experiment)
    for note in leak_notes(experiment):
        say(note, style="red")
    if dry_run:
        return dry_run_text(prepared, Store(folder), jobs)
    plan = prepared.plan
    by = f"cluster {cluster}" if cluster else counted(jobs, "worker")
    say(
        f"{counted(len(plan.stages), 'run')} = {counted(plan.trainings, 'site training')}"
        f"{plan.saving} on {where}, {by}"
    )
    started = time.monotonic()
    _train(prepared, folder, jobs, where, cluster)
    say(f"trained in {duration(time.monotonic() - started)}; writing the report ...")
    return report_on(folder, folder / "report.html", as_json=as_json, say=say)


def _device_of_cluster(wanted: str) -> str:
    if wanted not in ("auto", "cpu"):
        raise ConfigError(
            f"device '{wanted}' was asked for, but the workers of a cluster train on CPUs.",
            do="Leave out --device, or leave out --cluster.",
        )
    return "cpu"


def _train(prepared: Prepared, folder: Path, jobs: int, device: str, cluster: str) -> None:
    from fcforge.commands.progress import progress_on_stderr
    from fcforge.runner.cluster import open_cluster, run_on

    # before the folder is made: a cluster that does not answer leaves nothing behind
    found: AbstractContextManager[Any] = open_cluster(cluster) if cluster else nullcontext()
    with found as client:
        store = open_store(prepared, folder)
        with progress_on_stderr("training") as progress:
            if client is None:
                run_experiment(prepared, store, jobs=jobs, device=device, progress=progress)
            else:
                dataset = prepared.experiment.dataset
                run_on(client, prepared.plan, dataset, store, progress=progress)


def dry_run_text(prepared: Prepared, store: Store, jobs: int) -> str:
    """What a run would cost."""
    cost, workers = estimate(prepared, store, jobs), counted(jobs, "idle CPU worker")
    return "\n".join(
        [
            f"site trainings  {cost.trainings}{prepared.plan.saving}",
            f"still to do     {cost.todo}",
            f"estimated time  {duration(cost.seconds)} of training on {workers}",
            f"estimated disk  {memory(cost.disk)}",
        ]
    )


def report_on(
    folder: Path,
    out: Path,
    *,
    as_json: bool,
    say: Say,
    audits: Sequence[Path] = (),
    judged: Sequence[Path] = (),
) -> str:
    """Write the page and the tables of a run folder; returns the table for stdout.

    `audits` are audit.json files of ``fcforge audit --out``, `judged` folders of ``fcforge judge``;
    each becomes a section of the page.
    """
    from fcforge.report import as_csv, as_markdown, print_findings, write_report
    from fcforge.report import as_json as table_json
    from fcforge.stats import findings, rows

    store = Store(folder)
    results, asked = collect_some(store)
    keeps = kept_by(store)
    found = rows(results, keeps=keeps)
    data = store.read_experiment()
    write_report(
        results,
        out,
        title=data["experiment"]["title"],
        keeps=keeps,
        expected=asked,
        settings=data["experiment"],
        environment=dict(results[0].environment),
        extra_sections=[*map(_judge_section, judged), *map(_audit_section, audits)],
    )
    write_text(folder / "table.csv", as_csv(found))
    write_text(folder / "table.md", as_markdown(found))
    print_findings(findings(results, expected=asked))
    say(f"report: {out}")
    return table_json(found) if as_json else _terminal(found)


def _audit_section(path: Path) -> Any:
    from fcforge.privacy.commands import read_audit
    from fcforge.report.audits import section

    return section(read_audit(path))


def _judge_section(folder: Path) -> Any:
    from fcforge.report.judge import report_section

    return report_section(folder)


def kept_by(store: Store) -> dict[str, str]:
    """What each learner of a run folder keeps between sites, by its title."""
    from fcforge.methods import METHODS

    experiment, _, _ = stored_plan(store)
    return {le.title: METHODS[le.method.name].keeps for le in experiment.learners}


def _terminal(found: list[Any]) -> str:
    from rich.console import Console

    from fcforge.report import print_table

    if sys.stdout.isatty():
        print_table(found)
        return ""
    text = io.StringIO()
    print_table(found, Console(file=text, width=140))
    return text.getvalue().rstrip()


def status_of(folder: Path) -> dict[str, Any]:
    """How far a run is, learner by learner."""
    store = Store(folder)
    experiment, plan, _ = stored_plan(store)
    done = store.done()
    found: dict[str, dict[str, int]] = {}
    for spec, keys in plan.stages:
        row = found.setdefault(spec.learner.title, {"done": 0, "asked": 0})
        row["asked"] += 1
        row["done"] += all(key in done for key in keys)
    trained = trainings(node for key, node in plan.nodes.items() if key in done)
    lines = [f"{experiment.title}: {trained} of {plan.trainings} site trainings done"]
    width = max(len(title) for title in found)
    lines += [f"  {t:<{width}}  {r['done']}/{r['asked']} runs" for t, r in found.items()]
    lines.append(f"  {memory(store.size())} in {folder}")
    return {"lines": lines, "learners": found, "trained": trained, "trainings": plan.trainings}

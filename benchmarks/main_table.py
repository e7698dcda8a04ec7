"""What the main table costs on a CPU: every learner of a TOML, relative to fine-tuning.

    python benchmarks/main_table.py [--experiment experiments/main_abide.toml] [--jobs 2]
    python benchmarks/main_table.py --full runs/main   # really run it (one seed)

Each learner goes through one order (all its sites) three times in a process of its own with one
thread, as the runner's workers: twice with few epochs (the first time its generators are fitted, in
full), once with more (`--share`). The difference gives the cost of an epoch at every depth, which
is carried to all site trainings of the prefix tree by their number of steps. Seconds
are CPU seconds of one thread, so that a busy machine changes them little; the table's time is their
sum over the cores. `--jobs` learners are measured at once, as workers would run.
"""

import argparse
import json
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from setting import FOLDER, ROOT, abide, machine, now, since  # isort: skip

import numpy as np
import torch

from fcforge.methods import METHODS
from fcforge.runner.environment import default_jobs
from fcforge.runner.experiment import Experiment
from fcforge.runner.plan import Node, make_plan
from fcforge.runner.run import open_store, prepare, run_experiment
from fcforge.runner.store import Store
from fcforge.runner.workshop import Workshop
from fcforge.sites import load_dataset
from fcforge.types import LearnerSpec

BATCH = 32


@dataclass(frozen=True)
class Cost:
    """One learner's measured costs, CPU seconds of one thread.

    Attributes
    ----------
    once : float
        Generators: fitted and sampled once per site of the table.
    around : list of float
        Per depth: everything of a site training but its epochs.
    step : list of float
        Per depth: one optimiser step (with its share of what happens once per epoch).
    bytes : int
        What the last node takes on disk.
    """

    once: float
    around: list[float]
    step: list[float]
    bytes: int


def train_sizes(experiment: Experiment) -> dict[str, int]:
    """Learning subjects of every site (everything but the test part)."""
    cohort = load_dataset(experiment.dataset)
    keep = 1 - experiment.test_fraction
    return {s: round(keep * int(np.sum(cohort.site == s))) for s in cohort.site_names}


def steps_of(node: Node, sizes: dict[str, int]) -> int:
    """Optimiser steps of one epoch of a site training."""
    whole = METHODS[node.spec.learner.method.name].depends_on in ("set", "all")
    seen = node.spec.order if whole else node.spec.order[-1:]
    return -(-sum(sizes[s] for s in seen) // BATCH)


def chain(experiment: Experiment, learner: LearnerSpec, epochs: int, sites: tuple) -> list[Node]:
    """Nodes of the first order, shallow first, without the untrained one."""
    training = replace(experiment.training, epochs=epochs)
    one = replace(
        experiment, learners=(learner,), seeds=(0,), training=training, orders=(tuple(sites),)
    )
    plan = make_plan(one.specs(sites), sites)
    return [n for n in plan.nodes.values() if n.depth > 0]


def measure(job: tuple[dict, int, tuple[int, int]]) -> tuple[int, dict]:
    """Cost of learner number `number` (runs in a worker process)."""
    text, number, share = job
    torch.set_num_threads(1)
    experiment = Experiment.from_json(text)
    learner = experiment.learners[number]
    cohort, sizes = load_dataset(experiment.dataset), train_sizes(experiment)
    few, more = share
    took: list[list[float]] = []
    with tempfile.TemporaryDirectory() as scratch:
        shop = Workshop(cohort, Store(scratch))
        for turn, epochs in enumerate((few, few, more)):
            if turn:  # the same nodes once more; the generators' subjects are in the bank now
                shop.store = Store(Path(scratch) / str(turn))
            nodes = chain(experiment, learner, epochs, cohort.site_names)
            took.append([])
            for node in nodes:
                start = time.process_time()
                shop.run([node])
                took[-1].append(time.process_time() - start)
        size = sum(f.stat().st_size for f in (shop.store.root / "nodes" / nodes[-1].key).iterdir())
    steps = [steps_of(n, sizes) for n in nodes]
    per_epoch = [(b - a) / (more - few) for a, b in zip(took[1], took[2], strict=True)]
    if not shop.learner(nodes[0].spec).method.fits:  # no epochs: a difference would be noise
        per_epoch = [0.0] * len(nodes)
    around = [a - few * e for a, e in zip(took[1], per_epoch, strict=True)]
    cost = Cost(
        max(sum(took[0]) - sum(took[1]), 0.0),
        [max(a, 0.0) for a in around],
        [max(e, 0.0) / s for e, s in zip(per_epoch, steps, strict=True)],
        size,
    )
    return number, asdict(cost)


def extrapolate(
    experiment: Experiment, learner: LearnerSpec, cost: Cost, sites: tuple, sizes: dict[str, int]
) -> tuple[int, float]:
    """Site trainings and CPU seconds of this learner over all orders, one seed."""
    one = replace(experiment, learners=(learner,), seeds=(0,))
    plan = make_plan(one.specs(sites), sites)
    seconds = cost.once
    for node in plan.nodes.values():
        if node.depth == 0:
            continue
        at = 0 if len(cost.step) == 1 else node.depth - 1
        epochs = node.spec.training.epochs
        seconds += cost.around[at] + epochs * cost.step[at] * steps_of(node, sizes)
    return plan.trainings, seconds


def load(args: argparse.Namespace) -> Experiment:
    """The TOML's learners, on the data there is, one seed."""
    import os

    from fcforge.runner.config import load_experiment

    os.environ.setdefault("FCFORGE_DATA", str(FOLDER))
    experiment = load_experiment(ROOT / args.experiment)
    if args.data:
        experiment = replace(experiment, dataset=abide(args.data, args.scale)[0])
    if args.only:
        kept = tuple(x for x in experiment.learners if any(o in x.title for o in args.only))
        experiment = replace(experiment, learners=kept)
    return replace(experiment, seeds=(0,))


def run_full(experiment: Experiment, out: str, jobs: int) -> None:
    """The whole table, for real."""
    prepared = prepare(experiment)
    start = now()
    run_experiment(
        prepared,
        open_store(prepared, out),
        jobs=jobs,
        progress=lambda done, total, what: print(f"{done}/{total} {what}", flush=True),
    )
    spent = since(start)
    print(f"{spent.wall / 3600:.2f} h wall, {spent.cpu / 3600:.2f} h CPU, {jobs} workers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--experiment", default="experiments/main_abide.toml")
    parser.add_argument("--data", default=None, help="abide1_aal116.npz, or 'simulated'")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--share", type=int, nargs=2, default=(1, 6), help="epochs, few and more")
    parser.add_argument("--only", nargs="*", default=[], help="learners whose name holds this")
    parser.add_argument("--full", default=None, metavar="OUT", help="really run the table")
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    experiment = load(args)
    print(f"{machine('cpu')}; {experiment.title}; {args.jobs} at once")
    if args.full:
        run_full(experiment, args.full, args.jobs)
        return
    sites, sizes = load_dataset(experiment.dataset).site_names, train_sizes(experiment)
    text = experiment.to_json()
    jobs = [(text, i, tuple(args.share)) for i in range(len(experiment.learners))]
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        costs = {i: Cost(**c) for i, c in pool.map(measure, jobs)}
    report(experiment, costs, sites, sizes, args)


def report(
    experiment: Experiment,
    costs: dict[int, Cost],
    sites: tuple,
    sizes: dict,
    args: argparse.Namespace,
) -> None:
    """Print the table and its sum."""
    found = {}
    for i, learner in enumerate(experiment.learners):
        trainings, seconds = extrapolate(experiment, learner, costs[i], sites, sizes)
        found[learner.title] = (trainings, seconds, costs[i])
    base = next((s for t, s, _ in found.values()), 1.0)
    print("| learner | trainings | ms/step, first | last site | around s | generators s |", end="")
    print(f" CPU min | x {next(iter(found))} |\n|---|---|---|---|---|---|---|---|")
    for title, (trainings, seconds, cost) in found.items():
        print(
            f"| {title} | {trainings} | {cost.step[0] * 1e3:.0f} | {cost.step[-1] * 1e3:.0f} | "
            f"{np.mean(cost.around):.2f} | {cost.once:.0f} | {seconds / 60:.1f} | "
            f"{seconds / base:.2f} |"
        )
    whole = sum(s for _, s, _ in found.values())
    orders = len(experiment.list_orders(sites))
    print(
        f"{len(found)} learners x {orders} orders x 1 seed: {whole / 3600:.2f} CPU hours, "
        f"{whole / 3600 / args.jobs:.2f} h on {args.jobs} of {default_jobs()} cores"
    )
    print(f"load after: {machine('cpu').split('load ')[1]}")
    if args.out:
        rows = {k: {"trainings": t, "cpu_s": s, **asdict(c)} for k, (t, s, c) in found.items()}
        args.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

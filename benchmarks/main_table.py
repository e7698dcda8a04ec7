"""What the main table costs on a CPU: every learner of a TOML, relative to fine-tuning.

    python benchmarks/main_table.py [--experiment experiments/main_abide.toml] [--jobs 2]
    fcforge run experiments/main_abide.toml --set experiment.seeds=[0] --jobs 2   # really run it

Each learner goes through one order (all its sites) three times in a process of its own with one
thread, as the runner's workers: twice with few epochs (the first time its generators are fitted, in
full), once with more (`--share`). The difference gives the cost of an epoch at every depth, which
is carried to all site trainings of the prefix tree by their number of steps. Seconds
are CPU seconds of one thread, so that a busy machine changes them little; the table's time is their
sum over the cores. `--jobs` learners are measured at once, as workers would run.
"""

import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from setting import ROOT, abide, machine, options, save, show

from fcforge.methods import METHODS
from fcforge.runner.environment import default_jobs
from fcforge.runner.experiment import Experiment
from fcforge.runner.plan import Node, make_plan
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


@dataclass(frozen=True)
class Setting:
    """One learner of an experiment with one seed; learning subjects of every site."""

    experiment: Experiment
    sizes: dict[str, int]

    @classmethod
    def of(cls, experiment: Experiment, learner: LearnerSpec) -> "Setting":
        """Sites' sizes are those of everybody but the test part."""
        cohort, keep = load_dataset(experiment.dataset), 1 - experiment.test_fraction
        sizes = {s: round(keep * int(np.sum(cohort.site == s))) for s in cohort.site_names}
        return cls(replace(experiment, learners=(learner,), seeds=(0,)), sizes)

    def plan(self, **change: object):
        """The prefix tree."""
        return make_plan(replace(self.experiment, **change).specs(list(self.sizes)), [*self.sizes])

    def chain(self, epochs: int) -> list[Node]:
        """Nodes of the first order, shallow first, without the untrained one."""
        training = replace(self.experiment.training, epochs=epochs)
        plan = self.plan(training=training, orders=(tuple(self.sizes),))
        return [n for n in plan.nodes.values() if n.depth > 0]

    def steps(self, node: Node) -> int:
        """Optimiser steps of one epoch of a site training."""
        whole = METHODS[node.spec.learner.method.name].depends_on in ("set", "all")
        seen = node.spec.order if whole else node.spec.order[-1:]
        return -(-sum(self.sizes[s] for s in seen) // BATCH)


def measure(job: tuple[dict, int, tuple[int, int]]) -> Cost:
    """Cost of learner number `number` (runs in a worker process)."""
    text, number, (few, more) = job
    torch.set_num_threads(1)
    experiment = Experiment.from_json(text)
    setting = Setting.of(experiment, experiment.learners[number])
    took: list[list[float]] = []
    with tempfile.TemporaryDirectory() as scratch:
        shop = Workshop(load_dataset(experiment.dataset), Store(scratch))
        for turn, epochs in enumerate((few, few, more)):
            if turn:  # the same nodes once more; the generators' subjects are in the bank now
                shop.store = Store(Path(scratch) / str(turn))
            nodes = setting.chain(epochs)
            took.append([])
            for node in nodes:
                start = time.process_time()
                shop.run([node])
                took[-1].append(time.process_time() - start)
        size = sum(f.stat().st_size for f in (shop.store.root / "nodes" / nodes[-1].key).iterdir())
    first, short, long = np.array(took)
    epoch = np.maximum(long - short, 0) / (more - few)
    if not shop.learner(nodes[0].spec).method.fits:  # no epochs: a difference would be noise
        epoch = 0 * epoch
    around = np.maximum(short - few * epoch, 0)
    step = epoch / [setting.steps(n) for n in nodes]
    return Cost(max(first.sum() - short.sum(), 0.0), around.tolist(), step.tolist(), size)


def extrapolate(setting: Setting, cost: Cost) -> tuple[int, float]:
    """Site trainings and CPU seconds of this learner over all orders, one seed."""
    plan, seconds = setting.plan(), cost.once
    for node in plan.nodes.values():
        if node.depth:
            at = 0 if len(cost.step) == 1 else node.depth - 1
            epochs = node.spec.training.epochs
            seconds += cost.around[at] + epochs * cost.step[at] * setting.steps(node)
    return plan.trainings, seconds


def asked(args) -> Experiment:
    """The TOML's learners, on the data there is, one seed."""
    from fcforge.runner.config import load_experiment

    experiment = load_experiment(ROOT / args.experiment)
    if args.data:
        experiment = replace(experiment, dataset=abide(args.data, args.scale)[0])
    kept = [x for x in experiment.learners if any(o in x.title for o in args.only or [""])]
    return replace(experiment, learners=tuple(kept), seeds=(0,))


def main() -> None:
    args = options(
        __doc__, experiment="experiments/main_abide.toml", data=str, scale=1.0, jobs=2,
        share=(1, 6), only=(str,), out=Path,
    )  # fmt: skip
    experiment = asked(args)
    print(f"{machine()}; {experiment.title}; {args.jobs} at once")
    text = experiment.to_json()
    jobs = [(text, i, tuple(args.share)) for i in range(len(experiment.learners))]
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        costs = list(pool.map(measure, jobs))
    found = {}
    for learner, cost in zip(experiment.learners, costs, strict=True):
        trainings, seconds = extrapolate(Setting.of(experiment, learner), cost)
        found[learner.title] = {"trainings": trainings, "cpu_s": seconds, **asdict(cost)}
    report(found, args.jobs)
    save(args.out, found)


def report(found: dict[str, dict], jobs: int) -> None:
    """Print the table and its sum."""
    first, base = next((title, row["cpu_s"]) for title, row in found.items())
    show(
        {
            "learner": title,
            "trainings": row["trainings"],
            "ms/step, first": f"{row['step'][0] * 1e3:.0f}",
            "last site": f"{row['step'][-1] * 1e3:.0f}",
            "around s": f"{np.mean(row['around']):.2f}",
            "generators s": f"{row['once']:.0f}",
            "CPU min": f"{row['cpu_s'] / 60:.1f}",
            f"x {first}": f"{row['cpu_s'] / base:.2f}",
        }
        for title, row in found.items()
    )
    whole = sum(row["cpu_s"] for row in found.values()) / 3600
    print(
        f"{len(found)} learners, 1 seed: {whole:.2f} CPU hours, {whole / jobs:.2f} h on {jobs} of "
        f"{default_jobs()} cores"
    )


if __name__ == "__main__":
    main()

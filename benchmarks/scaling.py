"""Scaling in ROIs, subjects, sites and workers, measured into a JSON file.

`scaling_plots.py` draws it.

    python benchmarks/scaling.py --out scaling_cpu.json [--device cpu|cuda] [--only rois ...]
    python benchmarks/scaling_plots.py scaling_cpu.json [scaling_cuda.json]

Steps are those of DER on the paper's GCN: 32 new and 32 remembered subjects with stored logits,
timed epoch by epoch inside the engine's own loop (`learn_site`), median over epochs (on a CPU in
seconds of the process). Sites and workers are whole runs of `run_experiment` on small simulated
data. `--seconds` bounds each point.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from setting import machine, now, since  # isort: skip  (puts src on the path)

import torch

from fcforge.engine.loop import Job, Learner, learn_site, start_lane
from fcforge.methods import make_method
from fcforge.models import make_model
from fcforge.replay.bank import Bank, PoolName, SiteView
from fcforge.runner.environment import default_jobs
from fcforge.runner.experiment import Experiment
from fcforge.runner.plan import make_plan
from fcforge.runner.run import open_store, prepare, run_experiment
from fcforge.sites import load_dataset, make_sites
from fcforge.types import Component, LearnerSpec, SiteSeal, Training

Row = dict[str, Any]


class Enough(Exception):
    """Raised by the epoch timer once it has seen enough."""


class EpochTimer:
    """Collects the seconds of epochs; stops the loop after `seconds` or `most` epochs."""

    def __init__(self, device: str, seconds: float, most: int = 60) -> None:
        self.device, self.seconds, self.most = device, seconds, most
        self.took: list[float] = []
        self.last = self.started = self._now()

    def _now(self) -> float:
        # one thread on a CPU: its own seconds, whoever else uses the machine
        return now(self.device).wall if self.device.startswith("cuda") else time.process_time()

    def __call__(self) -> None:
        """After every epoch."""
        here = self._now()
        self.took.append(here - self.last)
        self.last = here
        if len(self.took) > 2 and (
            here - self.started > self.seconds or len(self.took) >= self.most
        ):
            raise Enough

    @property
    def median(self) -> float:
        """Median epoch; the first one pays for warm-up and graph capture."""
        return statistics.median(self.took[1:])


def site_jobs(learner: Learner, sites: dict, lanes: list, bank: Bank, position: int) -> list[Job]:
    """Jobs of all lanes at one site; lanes share its subjects and differ in their seed."""
    name = list(sites)[position]
    rows = bank.add(PoolName("real", name, 0, "train"), sites[name].learning(with_val=True))
    view = SiteView(name, position, bank, rows, rows[:0], SiteSeal(name))
    prefix = tuple(list(sites)[: position + 1])
    return [Job(lane, view, seed, prefix) for seed, lane in enumerate(lanes)]


def step_rate(n_rois: int, per_site: int, lanes: int, device: str, seconds: float) -> Row:
    """Epoch time and model-steps per second at the second site."""
    # two sites of the layout hold 282 subjects, of which 0.7 are learned from
    scale = per_site / (0.7 * 141)
    cohort = load_dataset(Component("simulated", {"n_rois": n_rois, "n_sites": 2, "scale": scale}))
    sites = make_sites(cohort, 0, test_fraction=0.3, val_fraction=0.2)
    learner = Learner(
        make_method(Component("der", {"memory": 256, "replay": 32})),
        make_model(Component("gcn"), n_rois),
    )
    bank = Bank(device)
    start = [start_lane(learner, seed, device) for seed in range(lanes)]
    first = site_jobs(learner, sites, start, bank, 0)
    after = learn_site(learner, first, bank, Training(epochs=1))
    timer = EpochTimer(device, seconds)
    jobs = site_jobs(learner, sites, after, bank, 1)
    n = len(jobs[0].site.rows)
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
    with suppress(Enough):
        learn_site(learner, jobs, bank, Training(epochs=timer.most), tick=timer)
    steps = -(-n // 32)
    row = {
        "rois": n_rois,
        "subjects": n,
        "lanes": lanes,
        "epoch_s": timer.median,
        "model_steps_per_s": lanes * steps / timer.median,
        "epochs": len(timer.took),
    }
    if device.startswith("cuda"):
        row["gib"] = torch.cuda.max_memory_allocated() / 2**30
    return row


def measure_rois(args: argparse.Namespace) -> list[Row]:
    return [
        step_rate(rois, args.subjects[1], lanes, args.device, args.seconds)
        for rois in args.rois
        for lanes in args.lanes
    ]


def measure_subjects(args: argparse.Namespace) -> list[Row]:
    lanes = args.lanes[-1]
    return [step_rate(args.rois[0], n, lanes, args.device, args.seconds) for n in args.subjects]


# -- whole runs ------------------------------------------------------------------------------------
def small(n_sites: int, orders: Any, epochs: int, n_rois: int, scale: float) -> Experiment:
    """Fine-tuning of the GCN on small simulated sites."""
    return Experiment(
        Component("simulated", {"n_rois": n_rois, "scale": scale, "n_sites": n_sites}),
        (LearnerSpec(Component("finetune"), Component("gcn")),),
        orders=orders,
        training=Training(epochs=epochs),
    )


def run_seconds(experiment: Experiment, **how: Any) -> tuple[float, float, int]:
    """Wall and CPU seconds of a run, and how many site trainings it did."""
    prepared = prepare(experiment)
    with tempfile.TemporaryDirectory() as scratch:
        store = open_store(prepared, Path(scratch) / "run")
        start = now(how.get("device", "cpu"))
        run_experiment(prepared, store, **how)
        spent = since(start, how.get("device", "cpu"))
    return spent.wall, spent.cpu, prepared.plan.trainings


def measure_sites(args: argparse.Namespace) -> list[Row]:
    """Prefix trees of 3 to 7 sites; runs of all orders while they are few, else of a share."""
    rows = []
    for n in args.sites:
        names = [f"site{i}" for i in range(n)]
        spec = small(n, "all", 1, 24, 0.1)
        plan = make_plan(spec.specs(names), names)
        orders: Any = "all" if n <= args.all_orders_up_to else args.some_orders
        how = {"device": args.device, "group": 1 if args.device == "cpu" else None}
        wall, cpu, done = run_seconds(replace(spec, orders=orders), **how)
        rows.append(
            {
                "sites": n,
                "unshared": plan.unshared_trainings,
                "shared": plan.trainings,
                "measured": done,
                "wall_s": wall,
                "cpu_s": cpu,
                "wall_all_s": wall / done * plan.trainings,
            }
        )
    return rows


def measure_workers(args: argparse.Namespace) -> list[Row]:
    """The same run by 1, 2, ... processes of one thread, if asked also by one with many."""
    spec = small(4, "all", args.worker_epochs, 116, args.worker_scale)
    rows = []
    for jobs in args.workers:
        wall, cpu, done = run_seconds(spec, jobs=jobs)
        rows.append({"processes": jobs, "threads": 1, "wall_s": wall, "cpu_s": cpu})
    if args.with_threads and args.workers[-1] > 1:
        kept = torch.get_num_threads()
        torch.set_num_threads(args.workers[-1])
        wall, cpu, done = run_seconds(spec, group=1)
        rows.append({"processes": 1, "threads": args.workers[-1], "wall_s": wall, "cpu_s": cpu})
        torch.set_num_threads(kept)
    return [row | {"trainings": done} for row in rows]


MEASURES = {
    "rois": measure_rois,
    "subjects": measure_subjects,
    "sites": measure_sites,
    "workers": measure_workers,
}


def print_table(title: str, rows: list[Row]) -> None:
    print(f"\n{title}")
    print("| " + " | ".join(rows[0]) + " |\n|" + "---|" * len(rows[0]))
    for row in rows:
        cells = [
            f"{v:.3g}" if isinstance(v, float) and v < 1000 else f"{v:.0f}" for v in row.values()
        ]
        print("| " + " | ".join(cells) + " |", flush=True)


def measure(args: argparse.Namespace) -> None:
    torch.set_num_threads(args.threads)
    args.lanes = args.lanes or ([1] if args.device == "cpu" else [1, 24, 120])
    args.workers = args.workers or sorted({1, 2, *(2**i for i in range(7)), default_jobs()})
    args.workers = [w for w in args.workers if w <= default_jobs()]
    found: Row = {"machine": machine(args.device), "device": args.device, "threads": args.threads}
    print(found["machine"], flush=True)
    for name in args.only:
        if name == "workers" and args.device != "cpu":
            continue
        started = time.perf_counter()
        found[name] = MEASURES[name](args)
        print_table(f"{name} ({time.perf_counter() - started:.0f} s)", found[name])
        args.out.write_text(json.dumps(found, indent=1))
    found["load_after"] = os.getloadavg()
    args.out.write_text(json.dumps(found, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=1, help="of steps; workers have one each")
    parser.add_argument("--only", nargs="*", default=list(MEASURES), choices=list(MEASURES))
    parser.add_argument("--rois", type=int, nargs="*", default=[116, 200, 400])
    parser.add_argument("--lanes", type=int, nargs="*", default=[], help="default: 1; GPU 1 24 120")
    parser.add_argument("--subjects", type=int, nargs="*", default=[48, 96, 192, 384])
    parser.add_argument("--sites", type=int, nargs="*", default=[3, 4, 5, 6, 7])
    parser.add_argument("--all-orders-up-to", type=int, default=4)
    parser.add_argument("--some-orders", type=int, default=24)
    parser.add_argument("--workers", type=int, nargs="*", default=[])
    parser.add_argument("--with-threads", action="store_true", help="one process, many threads too")
    parser.add_argument("--worker-epochs", type=int, default=3)
    parser.add_argument("--worker-scale", type=float, default=0.3)
    parser.add_argument("--seconds", type=float, default=3.0, help="per point")
    measure(parser.parse_args())


if __name__ == "__main__":
    main()

"""Scaling in ROIs, subjects and sites: measured into a JSON file, and drawn.

    python paper/benchmarks/scaling.py measure --out FILE.json [--device cpu|cuda] [--only rois ...]
    python paper/benchmarks/scaling.py draw --out FOLDER --files FILE.json ...

Steps are those of DER on the paper's GCN: 32 new and 32 remembered subjects with stored logits,
timed epoch by epoch inside the engine's own loop (`learn_site`), median over epochs (on a CPU in
seconds of the process). Sites are whole runs of `run_experiment` on small simulated
data. `--seconds` bounds each point.
"""

import json
import time
from argparse import Namespace
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from setting import (
    DEVICE,
    MOST,
    Enough,
    EpochTimer,
    machine,
    options,
    save,
    show,
    whole_run,
)

from fcforge.core.component import Component
from fcforge.core.spec import LearnerSpec, Training
from fcforge.data.datasets import load_dataset
from fcforge.data.splits import make_sites
from fcforge.experiments.config import Experiment
from fcforge.experiments.plan import make_plan
from fcforge.methods import make_method
from fcforge.methods.base import Learner
from fcforge.models.gcn import GCN
from fcforge.replay.bank import Bank, PoolName, SiteView
from fcforge.training.initial_lanes import start_lane
from fcforge.training.lanes import Job
from fcforge.training.loop import learn_site

Row = dict[str, Any]


def site_jobs(sites: dict, lanes: list, bank: Bank, position: int) -> list[Job]:
    """Jobs of all lanes at one site; lanes share its subjects and differ in their seed."""
    name = list(sites)[position]
    rows = bank.add(
        PoolName("real", name, 0, "train"), sites[name].learning(with_val=True)
    )
    view = SiteView(name, position, bank, rows, rows[:0])
    prefix = tuple(list(sites)[: position + 1])
    return [Job(lane, view, seed, prefix) for seed, lane in enumerate(lanes)]


def step_rate(n_rois: int, per_site: int, lanes: int, args: Namespace) -> Row:
    """Epoch time and model-steps per second at the second site."""
    # two sites of the layout hold 282 subjects, of which 0.7 are learned from
    params = {"n_rois": n_rois, "n_sites": 2, "scale": per_site / (0.7 * 141)}
    cohort = load_dataset(Component("simulated", params))
    sites = make_sites(cohort, 0)
    method = make_method(Component("der", {"memory": 256, "replay": 32}))
    learner, bank = (Learner(method, GCN(n_rois)), Bank(args.device))
    start = [start_lane(learner, seed, args.device) for seed in range(lanes)]
    after = learn_site(
        learner, site_jobs(sites, start, bank, 0), bank, Training(epochs=1)
    )
    jobs = site_jobs(sites, after, bank, 1)
    n, cuda = len(jobs[0].site.rows), args.device.startswith("cuda")
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    timer = EpochTimer(args.device, args.seconds)
    with suppress(Enough):
        learn_site(learner, jobs, bank, Training(epochs=MOST), tick=timer)
    row = {"rois": n_rois, "subjects": n, "lanes": lanes, "epoch_s": timer.median}
    row["model_steps_per_s"] = lanes * -(-n // 32) / timer.median
    return row | ({"gib": torch.cuda.max_memory_allocated() / 2**30} if cuda else {})


def measure_rois(args: Namespace) -> list[Row]:
    """Each atlas by each number of lanes."""
    return [
        step_rate(r, args.subjects[1], n, args) for r in args.rois for n in args.lanes
    ]


def measure_subjects(args: Namespace) -> list[Row]:
    """Each number of subjects with the most lanes."""
    return [step_rate(args.rois[0], n, args.lanes[-1], args) for n in args.subjects]


# -- whole runs ------------------------------------------------------------------------------------
def measure_sites(args: Namespace) -> list[Row]:
    """Prefix trees of 3 to 7 sites; runs of all orders while they are few, else of a share."""
    rows = []
    for n in args.sites:
        names = [f"site{i}" for i in range(n)]
        data = Component("simulated", {"n_rois": 24, "scale": 0.1, "n_sites": n})
        learner = LearnerSpec(Component("finetune"), Component("gcn"))
        spec = Experiment(data, (learner,), orders="all", training=Training(epochs=1))
        plan = make_plan(spec.specs(names), names)
        chosen = (
            spec
            if n <= args.all_orders_up_to
            else replace(spec, orders=args.some_orders)
        )
        group = 1 if args.device == "cpu" else None
        spent, trained = whole_run(chosen, device=args.device, group=group)
        results = {"trainings": trained, "wall_s": spent.wall, "cpu_s": spent.cpu}
        whole = spent.wall / trained * plan.trainings
        tree = {
            "sites": n,
            "unshared": sum(len(spec.order) for spec, _ in plan.runs),
            "shared": plan.trainings,
        }
        rows.append({**tree, **results, "wall_all_s": whole})
    return rows


def measure(args: Namespace) -> None:
    """Everything asked for, into one file that is written after every part."""
    torch.set_num_threads(args.threads)
    args.lanes = args.lanes or ([1] if args.device == "cpu" else [1, 24, 120])
    results: Row = {
        "machine": machine(args.device),
        "device": args.device,
        "threads": args.threads,
    }
    print(results["machine"], flush=True)
    for name in args.only:
        started = time.perf_counter()
        results[name] = MEASURES[name](args)
        print(f"\n{name} ({time.perf_counter() - started:.0f} s)")
        show(results[name])
        save(args.out, results)


# -- figures ---------------------------------------------------------------------------------------
AXES = {
    "rois": ("ROIs", "ROIs", "model-steps / s"),
    "subjects": ("Subjects", "training subjects of a site", "ms / epoch"),
    "sites": ("Sites, all orders", "sites", "site trainings"),
}


def lines_of(kind: str, rows: list[Row]) -> dict[str, tuple[list, list]]:
    """Label -> (x, y) of what a panel shows; the last is what to compare it with."""
    x = [r[kind] for r in rows]
    if kind == "rois":
        results = {}
        for lanes in sorted({r["lanes"] for r in rows}):
            mine = [r for r in rows if r["lanes"] == lanes]
            x, y = ([r[k] for r in mine] for k in ("rois", "model_steps_per_s"))
            results[f"{lanes} lane{'s' * (lanes > 1)}"] = x, y
        return results | {"1 / ROIs²": (x, [y[0] * (x[0] / n) ** 2 for n in x])}
    if kind == "subjects":
        y = [r["epoch_s"] * 1e3 for r in rows]
        return {
            f"{rows[0]['lanes']} lane(s)": (x, y),
            "proportional": ([0, x[-1]], [0, y[-1]]),
        }
    shared, alone = ([r[k] for r in rows] for k in ("shared", "unshared"))
    return {"shared prefixes": (x, shared), "order by order": (x, alone)}


def draw(args: Namespace) -> None:
    """One figure per file: scaling_DEVICE.png."""
    args.out.mkdir(parents=True, exist_ok=True)
    for data in (json.loads(path.read_text()) for path in args.files):
        kinds = [k for k in AXES if k in data]
        figure, axes = plt.subplots(
            1, len(kinds), figsize=(3.6 * len(kinds), 3.2), squeeze=False
        )
        for ax, kind in zip(axes[0], kinds, strict=True):
            *results, beside = lines_of(kind, data[kind]).items()
            for label, (x, y) in results:
                ax.plot(x, y, "o-", label=label)
            ax.plot(*beside[1], ":", color="grey", label=beside[0])
            title, below, left = AXES[kind]
            scale = "log" if kind in ("rois", "sites") else "linear"
            ax.set(title=title, xlabel=below, ylabel=left, yscale=scale)
            ax.legend(frameon=False, fontsize=8)
            ax.spines[["top", "right"]].set_visible(False)
            ax.grid(alpha=0.25, linewidth=0.6)
        figure.suptitle(
            data["machine"].split(", load")[0], fontsize=8, x=0.01, ha="left"
        )
        figure.tight_layout()
        figure.savefig(args.out / f"scaling_{data['device']}.png", dpi=100)


MEASURES = {"rois": measure_rois, "subjects": measure_subjects, "sites": measure_sites}


def main() -> None:
    args = options(
        __doc__,
        "measure",
        "draw",
        out=Path(__file__).parent / "plots",
        files=(Path,),
        device=DEVICE,
        threads=1,
        only=tuple(MEASURES),
        rois=(116, 200, 400),
        lanes=(int,),
        subjects=(48, 96, 192, 384),
        sites=(3, 4, 5, 6, 7),
        all_orders_up_to=4,
        some_orders=24,
        seconds=3.0,
    )
    {"measure": measure, "draw": draw}[args.command](args)


if __name__ == "__main__":
    main()

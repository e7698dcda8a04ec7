"""FORGE over all site orders, end to end: fcforge against a one-order-at-a-time PyG loop.

    python paper/benchmarks/forge_run.py [--device cpu|cuda] [--threads 2] [--epochs 100] [--full]

The PyG side (`pyg_loop.py`) would take hours: it is measured on a share (`--share` epochs of every
site of one order, with and without replay, `--vae-share` generator epochs of every site, and one
each of the other stages) and every stage is multiplied by how often a full run does it; the table
shows both factors. Our side is the real runner on all orders: in full on a GPU or with `--full`,
else at two small numbers of epochs, between which the PyG side is measured, and the line through
them is drawn to `--epochs`. CPU seconds stand beside the wall clock: on a machine that others use
too, theirs is the ratio to read. PyG gets one thread or `--threads`, whichever is faster.

Three totals of the PyG side are printed: with a generator fitted anew for every site of every
order, with generators kept from order to order, and with our generator in place of the authors'
and no evaluation after every epoch, which leaves the training engine and shared prefixes alone.
"""

from argparse import Namespace
from collections.abc import Callable
from math import factorial
from pathlib import Path
from typing import Any

import setting
import torch
from setting import (
    DEVICE,
    Spent,
    Stopwatch,
    abide,
    clock_text,
    machine,
    options,
    show,
    whole_run,
)

from fcforge.core.component import Component
from fcforge.core.randomness import torch_rng
from fcforge.core.spec import LearnerSpec, Training
from fcforge.data.datasets import load_dataset
from fcforge.data.splits import make_sites
from fcforge.experiments.config import Experiment
from fcforge.experiments.execute import default_jobs
from fcforge.generators import make_generator
from fcforge.methods import make_method

REFRESH = 80  # epochs between two choices in the authors' code
VAE_EPOCHS = 100
LABELS = {
    "plain": "training, first site (epochs)",
    "replay": "training with replay (epochs)",
    "watch": "held-out subjects after every epoch",
    "generator epoch": "generators, anew per order (epochs)",
}
Stages = dict[
    str, tuple[int, int, Spent]
]  # units measured, units of a full run, its cost


# -- our side --------------------------------------------------------------------------------------
def run_ours(dataset: Component, args: Namespace, epochs: int) -> Spent:
    """FORGE on the GCN, one seed, from reading the data to the last stored node."""
    learner = LearnerSpec(
        Component("forge", {"variant": args.variant}),
        Component("gcn"),
        Component(
            "fcm_vae", {} if args.vae_epochs is None else {"epochs": args.vae_epochs}
        ),
        title="FORGE",
    )
    how = {
        "orders": setting.orders(args.orders),
        "training": Training(epochs, batch_size=32),
    }
    experiment = Experiment(dataset, (learner,), **how)
    return whole_run(experiment, args.device, jobs=args.jobs, group=args.group)[0]


def our_side(
    dataset: Component, args: Namespace, between: Callable[[], None]
) -> tuple[Spent, str]:
    """Cost of our full run, and in words how it was come by; `between` runs in the middle."""
    if args.full:
        between()
        return run_ours(
            dataset, args, args.epochs
        ), f"run in full, {args.epochs} epochs"
    short, long = args.ours_share
    a = run_ours(dataset, args, short)
    between()
    b = run_ours(dataset, args, long)
    how = (
        f"all orders at {short} epochs {clock_text(a.wall)} and at {long} epochs "
        f"{clock_text(b.wall)} wall ({clock_text(a.cpu)} and {clock_text(b.cpu)} CPU), "
        f"drawn on to {args.epochs}"
    )
    slope = (b + a.times(-1)).times(1 / (long - short))
    return b + slope.times(args.epochs - long), how


# -- the PyG side ----------------------------------------------------------------------------------
def make_order(dataset: Component, args: Namespace, watch: Stopwatch) -> Any:
    """The authors' loop on seed 0's splits, with generated subjects of the real density."""
    from pyg_loop import CANDIDATES, DEV, Order, warm_up

    sites = make_sites(load_dataset(dataset), 0)
    generator = make_generator(Component("corr_gauss"))
    synthetic = {}
    for name, site in sites.items():
        source = site.learning(with_val=True)
        state = generator.fit(source, torch_rng(0, name))
        labels = generator.diagnoses(state, source.y, CANDIDATES + DEV)
        mixed = labels[torch.randperm(len(labels), generator=torch_rng(1))]
        synthetic[name] = generator.sample(state, mixed, torch_rng(2, name))
    replay = make_method(Component("forge", {"variant": args.variant})).replay_size
    order = Order(sites, synthetic, watch, args.device, replay)
    warm_up(order, next(iter(sites)))
    choose_threads(order, args.threads)
    return order


def choose_threads(order: Any, most: int) -> None:
    """Threads with which the PyG loop is faster here: on a busy machine two wait for each other."""
    site, kept, took = (
        min(order.train, key=lambda s: len(order.train[s])),
        order.watch,
        {},
    )
    for threads in sorted({1, most}):
        torch.set_num_threads(threads)
        order.watch = Stopwatch(order.device)
        order.epochs(site, 1, replaying=False)
        took[threads] = order.watch.unit(f"{site}:plain").wall
    order.watch = kept
    best = min(took, key=lambda k: took[k])
    torch.set_num_threads(best)
    timings = ", ".join(
        f"{seconds:.2f} s on {n} thread(s)" for n, seconds in took.items()
    )
    print(f"PyG epoch at {site}: {timings}; it gets {best}", flush=True)


def pyg_counts(names: list[str], epochs: int) -> dict[str, int]:
    """Return how often a run over all orders executes each stage."""
    n, every = len(names), factorial(len(names))
    first = every // n  # orders in which a given site is first
    counts = {"graphs": every, "memory": every * n, "evaluation": every * n}
    counts["refresh, per past site"] = every * -(-epochs // REFRESH) * n * (n - 1) // 2
    for site in names:
        counts[f"{site}:plain"] = first * epochs
        counts[f"{site}:replay"] = (every - first) * epochs
        counts[f"{site}:watch"] = every * epochs
        counts[f"{site}:generator epoch"] = every * VAE_EPOCHS
    return counts


def pyg_stages(watch: Stopwatch, names: list[str], epochs: int) -> Stages:
    """Every stage scaled up to a full run; printed."""
    stages: Stages = {}
    for name, count in pyg_counts(names, epochs).items():
        if name in watch.count:
            label = LABELS.get(name.split(":")[-1], name)
            seen, full, spent = stages.get(label, (0, 0, Spent(0.0, 0.0)))
            cost = watch.unit(name).times(count)
            stages[label] = (seen + watch.count[name], full + count, spent + cost)
    orders_text = f"{factorial(len(names))} orders x {epochs} epochs"
    print(f"\nPyG, one order at a time, {orders_text} (scaled up)")
    show(
        {"stage": label, "units measured": seen, "units in a full run": full}
        | {"wall": clock_text(spent.wall), "CPU": clock_text(spent.cpu)}
        for label, (seen, full, spent) in stages.items()
    )
    return stages


def readings(stages: Stages, n_sites: int) -> dict[str, Spent]:
    """PyG's total under three readings."""
    fits, watching = LABELS["generator epoch"], LABELS["watch"]

    def total(*leave_out: str) -> Spent:
        kept = (s for label, (_, _, s) in stages.items() if label not in leave_out)
        return sum(kept, start=Spent(0.0, 0.0))

    results = {"generators anew for every order, as the authors": total()}
    if fits in stages:
        kept = stages[fits][2].times(1 / factorial(n_sites))
        results["generators kept from order to order"] = total(fits) + kept
    return {**results, "no generators, no evaluation per epoch": total(fits, watching)}


# -- both ------------------------------------------------------------------------------------------
def main() -> None:
    args = options(
        __doc__,
        device=DEVICE,
        threads=min(default_jobs(), 4),
        jobs=int,
        data=str,
        scale=1.0,
        variant="stable",
        epochs=100,
        share=1,
        vae_share=1,
        ours_share=(2, 12),
        vae_epochs=int,
        orders="all",
        group=int,
        full=False,
        out=Path,
    )
    args.full = args.full or args.device.startswith("cuda")
    torch.set_num_threads(args.threads)
    dataset, about = abide(args.data, args.scale)
    print(
        f"{machine(args.device)}\n{about}; {args.threads} threads; FORGE variant {args.variant}"
    )
    watch, order, stages = Stopwatch(args.device), None, {}
    try:
        order = make_order(dataset, args, watch)
    except ImportError as error:
        print(f"PyG is not here ({error}): only our side.")

    def pyg_turn() -> None:
        if order is not None:
            from pyg_loop import measure_order

            measure_order(order, args.share, args.vae_share)
            stages.update(pyg_stages(watch, list(order.sites), args.epochs))

    ours, how = our_side(dataset, args, pyg_turn)
    print(
        f"\nfcforge: {clock_text(ours.wall)} wall, {clock_text(ours.cpu)} CPU ({how})"
    )
    results: dict[str, Any] = {
        "fcforge": ours._asdict(),
        "how": how,
        "machine": machine(args.device),
    }
    if order is not None:
        rows = [
            {"PyG side": label, "PyG wall": clock_text(spent.wall)}
            | {"x (wall)": spent.wall / ours.wall, "x (CPU)": spent.cpu / ours.cpu}
            for label, spent in readings(stages, len(order.sites)).items()
        ]
        print()
        show(rows)
        results["PyG"] = rows
    setting.save(args.out, results)


if __name__ == "__main__":
    main()

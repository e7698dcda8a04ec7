"""FORGE over all site orders, end to end: fcforge against a one-order-at-a-time PyG loop.

    python benchmarks/forge_run.py [--device cpu|cuda] [--threads 2] [--epochs 100] [--full]

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

import argparse
import json
import tempfile
import time
from math import factorial
from pathlib import Path
from typing import Any

from setting import (  # isort: skip  (puts src on the path)
    Spent,
    Stopwatch,
    abide,
    clock_text,
    machine,
    now,
    since,
)

import torch

from fcforge.generators import make_generator
from fcforge.methods import make_method
from fcforge.randomness import torch_rng
from fcforge.runner.environment import default_jobs
from fcforge.runner.experiment import Experiment
from fcforge.runner.pools import class_counts
from fcforge.runner.run import open_store, prepare, run_experiment
from fcforge.sites import load_dataset, make_sites
from fcforge.types import Component, LearnerSpec, Training

REFRESH = 80  # epochs between two choices in the authors' code
VAE_EPOCHS = 100


# -- our side --------------------------------------------------------------------------------------
def experiment(dataset: Component, args: argparse.Namespace, epochs: int) -> Experiment:
    """FORGE on the GCN, all orders, one seed."""
    learner = LearnerSpec(
        Component("forge", {"preset": args.preset}),
        Component("gcn"),
        Component("fcm_vae", {} if args.vae_epochs is None else {"epochs": args.vae_epochs}),
        title="FORGE",
    )
    return Experiment(
        dataset, (learner,), orders=args.orders, training=Training(epochs=epochs, batch_size=32)
    )


def run_ours(dataset: Component, args: argparse.Namespace, epochs: int) -> Spent:
    """The whole run from reading the data to the last stored node."""
    with tempfile.TemporaryDirectory() as scratch:
        start = now(args.device)
        prepared = prepare(experiment(dataset, args, epochs))
        store = open_store(prepared, Path(scratch) / "run")
        say = progress if args.device.startswith("cuda") else quiet
        group = args.group or None
        run_experiment(
            prepared, store, jobs=args.jobs, device=args.device, group=group, progress=say
        )
        return since(start, args.device)


def progress(done: int, total: int, what: str) -> None:
    print(f"  {time.strftime('%H:%M:%S')} {done}/{total} {what}", flush=True)


def quiet(done: int, total: int, what: str) -> None:
    """Workers say nothing."""


def line_through(short: Spent, long: Spent, at: tuple[int, int], epochs: int) -> Spent:
    """The line through two numbers of epochs, read off at `epochs`."""
    slope = (long + short.times(-1)).times(1 / (at[1] - at[0]))
    return long + slope.times(epochs - at[1])


# -- the PyG side ----------------------------------------------------------------------------------
def make_order(dataset: Component, args: argparse.Namespace, watch: Stopwatch) -> Any:
    """The authors' loop on seed 0's splits, with generated subjects of the real density."""
    from pyg_loop import CANDIDATES, DEV, Order, warm_up

    sites = make_sites(load_dataset(dataset), 0, test_fraction=0.3, val_fraction=0.2)
    generator = make_generator(Component("corr_gauss"))
    synthetic = {}
    for name, site in sites.items():
        source = site.learning(with_val=True)
        state = generator.fit(source, torch_rng(0, name))
        labels = class_counts(source.y, CANDIDATES + DEV)
        mixed = labels[torch.randperm(len(labels), generator=torch_rng(1))]
        synthetic[name] = generator.sample(state, mixed, torch_rng(2, name))
    replay = make_method(Component("forge", {"preset": args.preset})).replay_size
    order = Order(sites, synthetic, watch, args.device, replay)
    warm_up(order, next(iter(sites)))
    return order


def pyg_counts(names: list[str], epochs: int) -> dict[str, int]:
    """How often a run over all orders does each stage."""
    n, orders = len(names), factorial(len(names))
    first = orders // n  # orders in which a given site is first
    refreshes = -(-epochs // REFRESH)
    counts = {"graphs": orders, "memory": orders * n, "evaluation": orders * n}
    counts["refresh, per past site"] = orders * refreshes * n * (n - 1) // 2
    for site in names:
        counts[f"{site}:plain"] = first * epochs
        counts[f"{site}:replay"] = (orders - first) * epochs
        counts[f"{site}:watch"] = orders * epochs
        counts[f"{site}:generator epoch"] = orders * VAE_EPOCHS
    return counts


LABELS = {
    "plain": "training, first site (epochs)",
    "replay": "training with replay (epochs)",
    "watch": "held-out subjects after every epoch",
    "generator epoch": "generators, anew per order (epochs)",
}


def pyg_stages(
    watch: Stopwatch, names: list[str], epochs: int
) -> dict[str, tuple[int, int, Spent]]:
    """Stage -> (units measured, units of a full run, cost of a full run)."""
    stages: dict[str, tuple[int, int, Spent]] = {}
    for name, count in pyg_counts(names, epochs).items():
        if name not in watch.count:
            continue
        label = LABELS.get(name.split(":")[-1], name)
        seen, full, spent = stages.get(label, (0, 0, Spent(0.0, 0.0)))
        cost = watch.unit(name).times(count)
        stages[label] = (seen + watch.count[name], full + count, spent + cost)
    return stages


def total(stages: dict[str, tuple[int, int, Spent]], leave_out: tuple[str, ...] = ()) -> Spent:
    """Sum over stages."""
    kept = [s for label, (_, _, s) in stages.items() if label not in leave_out]
    return Spent(sum(s.wall for s in kept), sum(s.cpu for s in kept))


def print_stages(stages: dict[str, tuple[int, int, Spent]], epochs: int, n_sites: int) -> None:
    print(f"\nPyG, one order at a time, {factorial(n_sites)} orders x {epochs} epochs (scaled up)")
    print("| stage | units measured | units in a full run | wall | CPU |\n|---|---|---|---|---|")
    for label, (seen, full, spent) in stages.items():
        times = f"{clock_text(spent.wall)} | {clock_text(spent.cpu)}"
        print(f"| {label} | {seen} | {full} | {times} |", flush=True)


def faster_threads(order: Any, most: int) -> int:
    """Threads with which the PyG loop is faster here: on a busy machine two wait for each other."""
    site, kept, took = min(order.train, key=lambda s: len(order.train[s])), order.watch, {}
    for threads in sorted({1, most}):
        torch.set_num_threads(threads)
        order.watch = Stopwatch(order.device)
        order.epochs(site, 1, replaying=False)
        took[threads] = order.watch.unit(f"{site}:plain").wall
    order.watch = kept
    best = min(took, key=lambda k: took[k])
    torch.set_num_threads(best)
    said = ", ".join(f"{seconds:.2f} s on {n} thread(s)" for n, seconds in took.items())
    print(f"PyG epoch at {site}: {said}; it gets {best}", flush=True)
    return best


# -- both ------------------------------------------------------------------------------------------
def ratios(
    stages: dict[str, tuple[int, int, Spent]], ours: Spent, n_sites: int
) -> dict[str, tuple[Spent, float, float]]:
    """PyG total, ratio of wall clocks, ratio of CPU seconds; under three readings."""
    fits, watching = LABELS["generator epoch"], LABELS["watch"]
    everything = total(stages)
    found = {"generators anew for every order, as the authors": everything}
    if fits in stages:
        kept = stages[fits][2].times(1 / factorial(n_sites))
        found["generators kept from order to order"] = total(stages, (fits,)) + kept
    bare = total(stages, (fits, watching))
    found["no generators, no evaluation per epoch"] = bare
    return {k: (v, v.wall / ours.wall, v.cpu / ours.cpu) for k, v in found.items()}


def our_side(dataset: Component, args: argparse.Namespace, between: Any) -> tuple[Spent, str]:
    """Cost of our full run, and in words how it was come by; `between` runs in the middle."""
    if args.full or args.device.startswith("cuda"):
        between()
        return run_ours(dataset, args, args.epochs), f"run in full, {args.epochs} epochs"
    short, long = args.ours_share
    a = run_ours(dataset, args, short)
    between()
    b = run_ours(dataset, args, long)
    how = (
        f"all orders at {short} epochs {clock_text(a.wall)} and at {long} epochs "
        f"{clock_text(b.wall)} wall ({clock_text(a.cpu)} and {clock_text(b.cpu)} CPU), "
        f"drawn on to {args.epochs}"
    )
    return line_through(a, b, (short, long), args.epochs), how


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--threads",
        type=int,
        default=min(default_jobs(), 4),
        help="of PyG; many cores only get in the way",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=None,
        help="our processes; default: every core (GPU: all but one)",
    )
    parser.add_argument("--data", default=None, help="abide1_aal116.npz, or 'simulated'")
    parser.add_argument("--scale", type=float, default=1.0, help="of simulated sites")
    parser.add_argument("--preset", default="default", choices=("default", "paper"))
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--share", type=int, default=1, help="PyG epochs per site and turn")
    parser.add_argument("--vae-share", type=int, default=1, help="PyG generator epochs per turn")
    parser.add_argument("--ours-share", type=int, nargs=2, default=(2, 12), help="epochs on a CPU")
    parser.add_argument("--vae-epochs", type=int, default=None, help="our generator's (100)")
    parser.add_argument("--orders", type=lambda s: s if s == "all" else int(s), default="all")
    parser.add_argument("--group", type=int, default=0, help="lanes together; 0: the runner's")
    parser.add_argument("--full", action="store_true", help="our side in full on a CPU too")
    parser.add_argument("--no-pyg", action="store_true")
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    dataset, about = abide(args.data, args.scale)
    print(f"{machine(args.device)}\n{about}; {args.threads} threads; FORGE preset {args.preset}")
    watch, order = Stopwatch(args.device), None
    if not args.no_pyg:
        try:
            order = make_order(dataset, args, watch)
            faster_threads(order, args.threads)
        except ImportError as error:
            print(f"PyG is not here ({error}): only our side.")

    def pyg_turn() -> None:
        if order is not None:
            from pyg_loop import measure_order

            order.past.clear()
            order.state = order.sampler.start("cpu")
            measure_order(order, args.share, args.vae_share)
            if args.full or args.device.startswith("cuda"):  # our side may take long
                names = list(order.sites)
                print_stages(pyg_stages(watch, names, args.epochs), args.epochs, len(names))

    ours, how = our_side(dataset, args, pyg_turn)
    print(f"\nfcforge: {clock_text(ours.wall)} wall, {clock_text(ours.cpu)} CPU ({how})")
    found: dict[str, Any] = {"fcforge": ours._asdict(), "how": how, "machine": machine(args.device)}
    if order is not None:
        names = list(order.sites)
        stages = pyg_stages(watch, names, args.epochs)
        if not args.full and args.device == "cpu":
            print_stages(stages, args.epochs, len(names))
        print("\n| PyG side | PyG wall | x (wall) | x (CPU) |\n|---|---|---|---|")
        for label, (spent, wall, cpu) in ratios(stages, ours, len(names)).items():
            print(f"| {label} | {clock_text(spent.wall)} | {wall:.1f} | {cpu:.1f} |")
            found[label] = [spent.wall, wall, cpu]
    print(f"load after: {machine(args.device).split('load ')[1]}")
    if args.out:
        args.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

"""Where the time of the main job goes: FORGE on the GCN, ABIDE sizes, CPU or GPU.

    python benchmarks/profiling.py ops    [--device cpu|cuda] [--epochs 5] [--seeds 1]
    python benchmarks/profiling.py stages [--device cpu|cuda] [--epochs 100] [--generator fcm_vae]

`ops` trains the first two sites and then puts torch.profiler around the third (replay from two
past sites) for all orders at once: the heaviest operations (CPU) or kernels (GPU) with their
share, and how busy the device was. `stages` runs a whole experiment in this process and splits its
time into generators, training, HCTS refreshes, evaluation and the store; a stage's time excludes
the stages inside it; on a GPU the device is waited for at each border, on a CPU seconds are those
of the process.

(Not called profile.py: that would hide Python's own module of that name from torch.)
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from setting import abide, ceilings, machine, now  # isort: skip  (puts src on the path)

import torch
from torch.profiler import ProfilerActivity, profile

from fcforge.methods.forge import Forge
from fcforge.replay.bank import Bank
from fcforge.runner import bench as bench_module
from fcforge.runner import workshop as workshop_module
from fcforge.runner.experiment import Experiment
from fcforge.runner.run import Prepared, open_store, prepare, run_experiment
from fcforge.runner.store import Store
from fcforge.runner.workshop import Workshop
from fcforge.speed import Graphed
from fcforge.types import Component, LearnerSpec, Training

# stage, owner, attribute; looked up by name so that a renamed one is said to be missing
BORDERS: list[tuple[str, Any, str]] = [
    ("training", workshop_module, "learn_site"),
    ("generators (fit and sample)", bench_module, "synthetic_subjects"),
    ("site end (teacher outputs)", Forge, "end_site"),
    ("HCTS refresh", Forge, "begin_epoch"),
    ("prepared inputs", Bank, "inputs"),
    ("evaluation", Workshop, "scores"),
    ("lanes that fit (trial epoch)", workshop_module, "lanes_that_fit"),
    ("lanes from the store", Workshop, "load_lane"),
    ("store", Store, "write_node"),
]


class Stages:
    """Exclusive wall seconds of nested stages."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.seconds: dict[str, float] = {}
        self.calls: dict[str, int] = {}
        self._stack: list[list[float]] = []  # seconds of inner stages

    def _now(self) -> float:
        if self.device.startswith("cuda") and torch.cuda.is_current_stream_capturing():
            return time.perf_counter()
        # one thread on a CPU: its own seconds, whoever else uses the machine
        return now(self.device).wall if self.device.startswith("cuda") else time.process_time()

    def wrap(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        """`inner` with its time booked under `name`."""

        def outer(*args: Any, **kwargs: Any) -> Any:
            start = self._now()
            self._stack.append([])
            try:
                return inner(*args, **kwargs)
            finally:
                whole = self._now() - start
                own = whole - sum(self._stack.pop())
                self.seconds[name] = self.seconds.get(name, 0.0) + own
                self.calls[name] = self.calls.get(name, 0) + 1
                if self._stack:
                    self._stack[-1].append(whole)

        return outer

    def watch_graphs(self) -> None:
        """Book replays of a captured refresh: a graph does not come by `begin_epoch` again."""
        plain = Graphed.__call__
        refresh = self.wrap("HCTS refresh", plain)

        def call(graphed: Graphed, *args: Any) -> Any:
            return (refresh if graphed._carried == 1 else plain)(graphed, *args)

        Graphed.__call__ = call  # type: ignore[method-assign]

    def watch(self, borders: list[tuple[str, Any, str]]) -> list[str]:
        """Put the clock around every border; names of those not found."""
        missing = []
        for name, owner, attribute in borders:
            if hasattr(owner, attribute):
                setattr(owner, attribute, self.wrap(name, getattr(owner, attribute)))
            else:
                missing.append(f"{name} ({attribute})")
        return missing


def prepared_run(args: argparse.Namespace, generator: str) -> Prepared:
    """FORGE over the orders and seeds asked for."""
    dataset, about = abide(args.data, args.scale)
    print(
        f"{machine(args.device)}\n{about}; {args.seeds} seed(s), {args.epochs} epochs, {generator}"
    )
    learner = LearnerSpec(Component("forge"), Component("gcn"), Component(generator), "FORGE")
    return prepare(
        Experiment(
            dataset,
            (learner,),
            seeds=tuple(range(args.seeds)),
            orders=args.orders,
            training=Training(epochs=args.epochs),
        )
    )


def stages(args: argparse.Namespace) -> None:
    """A whole run, split."""
    prepared = prepared_run(args, args.generator)
    clock = Stages(args.device)
    missing = clock.watch(BORDERS)
    clock.watch_graphs()
    group = args.group or (1 if args.device == "cpu" else None)
    with tempfile.TemporaryDirectory() as scratch:
        start, wall = clock._now(), now(args.device).wall
        store = open_store(prepared, Path(scratch) / "run")
        run_experiment(prepared, store, device=args.device, group=group, jobs=args.jobs)
        whole, wall = clock._now() - start, now(args.device).wall - wall
    every = Forge().refresh
    factor = {"training": 100 / args.epochs}
    factor["HCTS refresh"] = -(-100 // every) / -(-args.epochs // every)
    full = {k: s * factor.get(k, 1.0) for k, s in clock.seconds.items()}
    rest = whole - sum(clock.seconds.values())
    sum_full = sum(full.values()) + rest
    print(f"\n{prepared.plan.trainings} site trainings, {whole:.1f} s in all ({wall:.1f} wall)")
    print("| stage | calls | s | share | s at 100 epochs | share |\n|---|---|---|---|---|---|")
    rows = [*clock.seconds.items(), ("rest (waiting for generators too)", rest)]
    for name, s in sorted(rows, key=lambda r: -full.get(r[0], r[1])):
        at = full.get(name, s)
        print(
            f"| {name} | {clock.calls.get(name, 1)} | {s:.2f} | {s / whole:.0%} | {at:.1f} | "
            f"{at / sum_full:.0%} |"
        )
    print(f"| all | | {whole:.1f} | | {sum_full:.1f} | |")
    for name in missing:
        print(f"not found: {name}")


def site_groups(args: argparse.Namespace, prepared: Prepared, store: Store) -> tuple[Any, list]:
    """A workshop that has learned two sites for every order, and the third site's nodes."""
    group = args.group or (1 if args.device == "cpu" else 128)
    shop = Workshop(prepared.cohort, store, args.device, group)
    by_depth: dict[int, list] = {}
    for node in prepared.plan.nodes.values():
        by_depth.setdefault(node.depth, []).append(node)
    for depth in (0, 1, 2):
        shop.run(by_depth[depth])
    third = sorted(by_depth[3], key=lambda n: n.spec.order[-1] != "NYU")
    return shop, third[: args.nodes]


def ops(args: argparse.Namespace) -> None:
    """The third site under torch.profiler."""
    prepared = prepared_run(args, "corr_gauss")
    cuda = args.device.startswith("cuda")
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])
    with tempfile.TemporaryDirectory() as scratch:
        store = open_store(prepared, Path(scratch) / "run")
        shop, nodes = site_groups(args, prepared, store)
        if not cuda:
            shop.run(nodes[:1])  # warm
        start = now(args.device).wall
        with profile(activities=activities) as prof:
            shop.run(nodes)
            if cuda:
                torch.cuda.synchronize()
        whole = now(args.device).wall - start
    print(
        f"\n{len(nodes)} lanes at their third site, {args.epochs} epochs, {whole:.2f} s (profiled)"
    )
    table(prof, cuda, args.top, whole)
    flop, copy = ceilings(args.device)
    print(f"ceilings here: float32 product {flop / 1e9:.0f} GFLOP/s, copy {copy / 1e9:.0f} GB/s")


def own_times(prof: Any, cuda: bool) -> dict[str, tuple[int, float]]:
    """Calls and own seconds of every kernel (GPU) or operation (CPU)."""
    if not cuda:
        return {e.key: (e.count, e.self_cpu_time_total / 1e6) for e in prof.key_averages()}
    # raw events: a graph's replays are a million kernels, for which key_averages takes minutes
    found: dict[str, tuple[int, float]] = {}
    for event in prof.profiler.kineto_results.events():
        if event.device_type() == torch.autograd.DeviceType.CUDA:
            count, seconds = found.get(event.name(), (0, 0.0))
            found[event.name()] = count + 1, seconds + event.duration_ns() / 1e9
    return found


def table(prof: Any, cuda: bool, top: int, whole: float) -> None:
    """Heaviest entries by own time."""
    own = own_times(prof, cuda)
    busy = sum(seconds for _, seconds in own.values())
    print(f"{'kernels' if cuda else 'operations'} take {busy:.2f} s of {whole:.2f} s")
    print("| what | calls | ms | share |\n|---|---|---|---|")
    for name, (count, seconds) in sorted(own.items(), key=lambda r: -r[1][1])[:top]:
        share = seconds / max(busy, 1e-9)
        print(f"| {name[:90]} | {count} | {seconds * 1e3:.1f} | {share:.1%} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("ops", "stages"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=1, help="a worker of the runner has one")
    parser.add_argument("--data", default=None, help="abide1_aal116.npz, or 'simulated'")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--orders", type=lambda s: s if s == "all" else int(s), default="all")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--generator", default="fcm_vae")
    parser.add_argument("--group", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=None, help="processes that fit generators")
    parser.add_argument("--nodes", type=int, default=None, help="profile so many lanes")
    parser.add_argument("--top", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    {"ops": ops, "stages": stages}[args.what](args)


if __name__ == "__main__":
    main()

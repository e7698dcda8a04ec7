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

import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from setting import DEVICE, abide, ceilings, machine, now, options, orders, own_seconds, show
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
    """Exclusive seconds of nested stages."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.seconds: dict[str, float] = {}
        self.calls: dict[str, int] = {}
        self._inner: list[float] = []  # seconds of the stages inside each open one

    def now(self) -> float:
        """Seconds; the device cannot be waited for while a graph is captured."""
        if self.device.startswith("cuda") and torch.cuda.is_current_stream_capturing():
            return time.perf_counter()
        return own_seconds(self.device)

    def wrap(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        """`inner` with its time booked under `name`."""

        def outer(*args: Any, **kwargs: Any) -> Any:
            start = self.now()
            self._inner.append(0.0)
            try:
                return inner(*args, **kwargs)
            finally:
                whole = self.now() - start
                own = whole - self._inner.pop()
                self.seconds[name] = self.seconds.get(name, 0.0) + own
                self.calls[name] = self.calls.get(name, 0) + 1
                if self._inner:
                    self._inner[-1] += whole

        return outer

    def watch(self) -> None:
        """Put the clock around every border, and around replays of a captured refresh.

        A graph does not come by `begin_epoch` again.
        """
        for name, owner, attribute in BORDERS:
            if hasattr(owner, attribute):
                setattr(owner, attribute, self.wrap(name, getattr(owner, attribute)))
            else:
                print(f"not found: {name} ({attribute})")
        plain = Graphed.__call__
        refresh = self.wrap("HCTS refresh", plain)

        def call(graphed: Graphed, *args: Any) -> Any:
            return (refresh if graphed._carried == 1 else plain)(graphed, *args)

        Graphed.__call__ = call  # type: ignore[method-assign]


def prepared_run(args: Namespace, generator: str) -> Prepared:
    """FORGE over the orders and seeds asked for."""
    dataset, about = abide(args.data, args.scale)
    told = f"{args.seeds} seed(s), {args.epochs} epochs, {generator}"
    print(f"{machine(args.device)}\n{about}; {told}")
    learner = LearnerSpec(Component("forge"), Component("gcn"), Component(generator), "FORGE")
    seeds, training = tuple(range(args.seeds)), Training(epochs=args.epochs)
    return prepare(
        Experiment(dataset, (learner,), seeds=seeds, orders=orders(args.orders), training=training)
    )


def stages(args: Namespace, folder: Path) -> None:
    """A whole run, split."""
    prepared = prepared_run(args, args.generator)
    clock = Stages(args.device)
    clock.watch()
    group = args.group or (1 if args.device == "cpu" else None)
    start, wall = clock.now(), now(args.device).wall
    store = open_store(prepared, folder)
    run_experiment(prepared, store, device=args.device, group=group, jobs=args.jobs)
    whole, wall = clock.now() - start, now(args.device).wall - wall
    every = Forge().refresh
    factor = {"training": 100 / args.epochs}
    factor["HCTS refresh"] = -(-100 // every) / -(-args.epochs // every)
    took = {**clock.seconds, "rest (waiting for generators too)": 0.0}
    took["rest (waiting for generators too)"] = whole - sum(took.values())
    full = {name: s * factor.get(name, 1.0) for name, s in took.items()}
    print(f"\n{prepared.plan.trainings} site trainings, {whole:.1f} s in all ({wall:.1f} wall)")
    rows = []
    for name in sorted(full, key=lambda k: -full[k]):
        here = {"calls": clock.calls.get(name, 1), "s": f"{took[name]:.2f}"}
        share = {"share": f"{took[name] / whole:.0%}", "s at 100 epochs": f"{full[name]:.1f}"}
        there = f"{full[name] / sum(full.values()):.0%}"
        rows.append({"stage": name, **here, **share, "share there": there})
    show(rows)
    print(f"all: {whole:.1f} s, at 100 epochs {sum(full.values()):.1f} s")


def ops(args: Namespace, folder: Path) -> None:
    """The third site under torch.profiler, after two learned for every order."""
    prepared, cuda = prepared_run(args, "corr_gauss"), args.device.startswith("cuda")
    shop = Workshop(
        prepared.cohort,
        open_store(prepared, folder),
        args.device,
        args.group or (128 if cuda else 1),
    )
    by_depth: dict[int, list] = {}
    for node in prepared.plan.nodes.values():
        by_depth.setdefault(node.depth, []).append(node)
    for depth in (0, 1, 2):
        shop.run(by_depth[depth])
    nodes = sorted(by_depth[3], key=lambda n: n.spec.order[-1] != "NYU")[: args.nodes]
    if not cuda:
        shop.run(nodes[:1])  # warm
    start = now(args.device).wall
    with profile(activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * cuda]) as prof:
        shop.run(nodes)
        end = now(args.device).wall
    told = f"{len(nodes)} lanes at their third site, {args.epochs} epochs"
    print(f"\n{told}, {end - start:.2f} s (profiled)")
    own = own_times(prof, cuda)
    busy = sum(seconds for _, seconds in own.values())
    print(f"{'kernels' if cuda else 'operations'} take {busy:.2f} s of {end - start:.2f} s")
    show(
        {"what": name[:90], "calls": count, "ms": f"{s * 1e3:.1f}", "share": f"{s / busy:.1%}"}
        for name, (count, s) in sorted(own.items(), key=lambda r: -r[1][1])[: args.top]
    )
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


def main() -> None:
    args = options(
        __doc__, "ops", "stages", device=DEVICE, threads=1, data=str, scale=1.0, seeds=1,
        orders="all", epochs=5, generator="fcm_vae", group=int, jobs=int, nodes=int, top=15,
    )  # fmt: skip
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as scratch:
        {"ops": ops, "stages": stages}[args.command](args, Path(scratch) / "run")


if __name__ == "__main__":
    main()

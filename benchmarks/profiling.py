"""Where the time of the main job goes: FORGE on the GCN, ABIDE sizes, CPU or GPU.

    python benchmarks/profiling.py ops    [--device cpu|cuda] [--epochs 5] [--seeds 1]
    python benchmarks/profiling.py stages [--epochs 10] [--generator fcm_vae]

`ops` trains the first two sites and then puts torch.profiler around the third (replay from two
past sites) for all orders at once: the heaviest operations (CPU) or kernels (GPU) with their
share, and how busy the device was. `stages` runs a whole experiment in this process and splits its
time into generators, training, HCTS refreshes, evaluation and the store (CPU seconds; a stage's
time includes the stages inside it).

(Not called profile.py: that would hide Python's own module of that name from torch.)
"""

import cProfile
import pstats
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from setting import DEVICE, abide, ceilings, machine, now, options, orders, show
from torch.profiler import ProfilerActivity, profile

from fcforge.runner.experiment import Experiment
from fcforge.runner.run import Prepared, open_store, prepare, run_experiment
from fcforge.runner.workshop import Workshop
from fcforge.types import Component, LearnerSpec, Training

# stage: file and function whose time it is, those it calls included
STAGES = {
    "training, with its refreshes": ("loop", "learn_site"),
    "HCTS refresh": ("forge", "begin_epoch"),
    "generators, fitted and sampled": ("bench", "synthetic"),
    "teacher outputs": ("synthetic", "end_site"),
    "prepared inputs": ("bank", "inputs"),
    "evaluation": ("workshop", "scores"),
    "store": ("store", "write_node"),
}


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
    """A whole run in this process, split by Python's own profiler (on a CPU)."""
    prepared, watch = prepared_run(args, args.generator), cProfile.Profile(time.process_time)
    store = open_store(prepared, folder)
    watch.runcall(run_experiment, prepared, store, device="cpu", group=1, jobs=args.jobs)
    stats = pstats.Stats(watch)
    print(f"\n{prepared.plan.trainings} site trainings, {stats.total_tt:.1f} CPU s in all")
    found = {(Path(file).stem, name): took for (file, _, name), took in stats.stats.items()}
    show(
        {"stage": stage, "calls": found[at][1], "s": f"{found[at][3]:.2f}"}
        | {"share": f"{found[at][3] / stats.total_tt:.0%}"}
        for stage, at in STAGES.items()
        if at in found
    )


def ops(args: Namespace, folder: Path) -> None:
    """The third site under torch.profiler, after two learned for every order."""
    prepared, cuda = prepared_run(args, "corr_gauss"), args.device.startswith("cuda")
    store, group = open_store(prepared, folder), args.group or (128 if cuda else 1)
    shop = Workshop(prepared.cohort, store, args.device, group)
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

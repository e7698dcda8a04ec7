"""Time of each part of the main job: FORGE on the GCN, ABIDE sizes, CPU or GPU.

    python paper/benchmarks/profiling.py [--device cpu|cuda] [--epochs 5] [--seeds 1]

Trains the first two sites and then puts torch.profiler around the third (replay from two past
sites) for all orders at once: the heaviest operations (CPU) or kernels (GPU) with their share, and
how busy the device was. For the stages of a whole run Python's own profiler is enough:
``python -m cProfile -o run.prof -m fcforge.cli run CONFIG --jobs 1``.

(Not called profile.py: that would hide Python's own module of that name from torch.)
"""

import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from setting import DEVICE, abide, machine, now, options, orders, show
from torch.profiler import ProfilerActivity, profile

from fcforge.core.component import Component
from fcforge.core.spec import LearnerSpec, Training
from fcforge.experiments.config import Experiment
from fcforge.experiments.run import Prepared, open_store, prepare
from fcforge.experiments.trainer import Trainer


def prepared_run(args: Namespace) -> Prepared:
    """FORGE over the orders and seeds asked for."""
    dataset, about = abide(args.data, args.scale)
    heading = f"{args.seeds} seed(s), {args.epochs} epochs, corr_gauss"
    print(f"{machine(args.device)}\n{about}; {heading}")
    learner = LearnerSpec(
        Component("forge"), Component("gcn"), Component("corr_gauss"), "FORGE"
    )
    seeds, training = tuple(range(args.seeds)), Training(epochs=args.epochs)
    return prepare(
        Experiment(
            dataset,
            (learner,),
            seeds=seeds,
            orders=orders(args.orders),
            training=training,
        )
    )


def ops(args: Namespace, folder: Path) -> None:
    """The third site under torch.profiler, after two learned for every order."""
    prepared, cuda = prepared_run(args), args.device.startswith("cuda")
    store, group = open_store(prepared, folder), args.group or (128 if cuda else 1)
    trainer = Trainer(prepared.cohort, store, args.device, group)
    by_depth: dict[int, list] = {}
    for node in prepared.plan.nodes.values():
        by_depth.setdefault(node.depth, []).append(node)
    for depth in (0, 1, 2):
        trainer.run(by_depth[depth])
    nodes = sorted(by_depth[3], key=lambda n: n.spec.order[-1] != "NYU")[: args.nodes]
    if not cuda:
        trainer.run(nodes[:1])  # warm
    start = now(args.device).wall
    with profile(
        activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * cuda]
    ) as prof:
        trainer.run(nodes)
        end = now(args.device).wall
    heading = f"{len(nodes)} lanes at their third site, {args.epochs} epochs"
    print(f"\n{heading}, {end - start:.2f} s (profiled)")
    self_times = own_times(prof, cuda)
    busy = sum(seconds for _, seconds in self_times.values())
    print(
        f"{'kernels' if cuda else 'operations'} take {busy:.2f} s of {end - start:.2f} s"
    )
    show(
        {
            "what": name[:90],
            "calls": count,
            "ms": f"{s * 1e3:.1f}",
            "share": f"{s / busy:.1%}",
        }
        for name, (count, s) in sorted(self_times.items(), key=lambda r: -r[1][1])[
            : args.top
        ]
    )


def own_times(prof: Any, cuda: bool) -> dict[str, tuple[int, float]]:
    """Calls and own seconds of every kernel (GPU) or operation (CPU)."""
    if not cuda:
        return {
            e.key: (e.count, e.self_cpu_time_total / 1e6) for e in prof.key_averages()
        }
    # raw events: a graph's replays are a million kernels, for which key_averages takes minutes
    results: dict[str, tuple[int, float]] = {}
    for event in prof.profiler.kineto_results.events():
        if event.device_type() == torch.autograd.DeviceType.CUDA:
            count, seconds = results.get(event.name(), (0, 0.0))
            results[event.name()] = count + 1, seconds + event.duration_ns() / 1e9
    return results


def main() -> None:
    args = options(
        __doc__,
        device=DEVICE,
        threads=1,
        data=str,
        scale=1.0,
        seeds=1,
        orders="all",
        epochs=5,
        group=int,
        nodes=int,
        top=15,
    )
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as scratch:
        ops(args, Path(scratch) / "run")


if __name__ == "__main__":
    main()

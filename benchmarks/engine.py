"""GCN training steps on the CPU: our dense step against a PyG sparse step as the authors write it.

    python benchmarks/engine.py [--rounds 15] [--threads 2] [--batch 32] [--compiled]

Both train the paper's backbone (4 x 128, batch norm, edge weights, mean+max readout, head
256-64-32-2, dropout 0.3) with cross-entropy, gradient clipping and Adam. The dense step is the
engine's own (`fcforge.engine.loop.make_step`), gathering its batch from the bank by row. The
sparse step is timed with and without collating its batch, because a DataLoader does that in
every step. Variants take turns within a round, so that a busy machine slows all of them alike;
medians are printed.

bfloat16 runs in a child process: on a machine that announces AMX but does not let it be used,
the first bfloat16 product kills the process (seen: SIGILL in a nested virtual machine). The child
then runs again with AMX switched off.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from setting import cpu_name  # isort: skip  (puts src on the path)

from fcforge.engine.loop import Learner, make_step, start_lane
from fcforge.engine.optim import adam_start
from fcforge.graphs import adjacency, node_features
from fcforge.methods.finetune import Finetune
from fcforge.models import make_model
from fcforge.randomness import torch_rng
from fcforge.runner.experiment import Experiment
from fcforge.runner.plan import make_plan
from fcforge.runner.run import open_store, prepare, run_experiment
from fcforge.types import Component, LearnerSpec, Training

DATA = Path(os.environ.get("FCFORGE_DATA", Path(__file__).parents[2] / "shared" / "data"))
DENSITIES = (0.27, 0.37)  # of real ABIDE graphs at tau 0.4
N_SUBJECTS = 128
Step = Callable[[], object]


def subjects() -> tuple[torch.Tensor, torch.Tensor, str]:
    """FC (n, 116, 116) and labels: real NYU subjects where they are, else simulated ones."""
    file = DATA / "abide1_aal116.npz"
    if file.exists():
        from fcforge.graphs import from_edges

        with np.load(file) as data:
            here = np.flatnonzero(data["site"] == "NYU")[:N_SUBJECTS]
            upper, y = data["fc_upper"][here].astype(np.float32), data["label"][here]
        return (
            from_edges(torch.from_numpy(upper)),
            torch.from_numpy(y.astype(np.int64)),
            "ABIDE NYU",
        )
    rng = torch_rng(0, "benchmark")
    series = torch.randn(N_SUBJECTS, 116, 180, generator=rng)
    mixing = torch.randn(N_SUBJECTS, 116, 12, generator=rng) * 0.3 + 0.15
    series = series + mixing @ torch.randn(N_SUBJECTS, 12, 180, generator=rng)
    fc = torch.stack([torch.corrcoef(s) for s in series])
    return fc, torch.arange(N_SUBJECTS) % 2, "simulated"


def tau_for(fc: torch.Tensor, density: float) -> float:
    """Threshold that keeps this share of all ROI pairs."""
    rois = fc.shape[-1]
    pairs = fc[:, ~torch.eye(rois, dtype=torch.bool)]
    return float(np.quantile(pairs.numpy(), 1 - density))


def dense_step(
    fc: torch.Tensor, y: torch.Tensor, tau: float, batch: int, precision: str, compiled: bool
) -> Step:
    """The engine's step on one lane."""
    learner = Learner(Finetune(), make_model(Component("gcn", {"tau": tau}), fc.shape[-1]))
    training = Training(precision=precision)
    lane = start_lane(learner, seed=0)
    state = [lane, adam_start(lane.params), 0]
    inputs = learner.model.prepare(fc)
    step = make_step(learner, training, inputs, y, replaying=False)
    if compiled:
        step = torch.compile(step, dynamic=False)
    rng = torch_rng(0, "rows")

    def run() -> None:
        rows = torch.randperm(len(y), generator=rng)[:batch]
        state[2] += 1
        key = torch.tensor(state[2], dtype=torch.int32)
        state[0], state[1] = step(state[0], state[1], rows, key)

    return run


def sparse_step(fc: torch.Tensor, y: torch.Tensor, tau: float, batch: int, collate: bool) -> Step:
    """PyG as the authors write it: GCNConv, BatchNorm, ReLU, dropout; Adam; clipping at 1."""
    from torch_geometric.data import Batch, Data
    from torch_geometric.nn import GCNConv, global_max_pool, global_mean_pool

    class Net(torch.nn.Module):
        def __init__(self, rois: int, hidden: int = 128, depth: int = 4) -> None:
            super().__init__()
            widths = [rois] + [hidden] * depth
            self.convs = torch.nn.ModuleList(GCNConv(a, b) for a, b in pairwise(widths))
            self.norms = torch.nn.ModuleList(torch.nn.BatchNorm1d(hidden) for _ in range(depth))
            self.head = torch.nn.Sequential(
                *[torch.nn.Linear(2 * hidden, 64), torch.nn.ReLU(), torch.nn.Dropout(0.3)],
                *[torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Dropout(0.3)],
                torch.nn.Linear(32, 2),
            )

        def forward(self, data: Batch) -> torch.Tensor:
            x = data.x
            for conv, norm in zip(self.convs, self.norms, strict=True):
                x = torch.relu(norm(conv(x, data.edge_index, data.edge_attr)))
                x = F.dropout(x, 0.3, self.training)
            pooled = [global_mean_pool(x, data.batch), global_max_pool(x, data.batch)]
            return self.head(torch.cat(pooled, 1))

    graphs = []
    features, adj = node_features(fc), adjacency(fc, tau)
    for i in range(len(y)):
        index = adj[i].nonzero().t().contiguous()
        weight = adj[i][index[0], index[1]]
        graphs.append(Data(x=features[i], edge_index=index, edge_attr=weight, y=y[i : i + 1]))
    net = Net(fc.shape[-1]).train()
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=2e-4)
    rng = torch_rng(0, "rows")
    ready = [
        Batch.from_data_list([graphs[j] for j in torch.randperm(len(y), generator=rng)[:batch]])
        for _ in range(1 if collate else 4)
    ]
    calls = [0]

    def run() -> None:
        calls[0] += 1
        if collate:
            rows = torch.randperm(len(y), generator=rng)[:batch]
            data = Batch.from_data_list([graphs[int(j)] for j in rows])
        else:
            data = ready[calls[0] % len(ready)]
        optimiser.zero_grad()
        F.cross_entropy(net(data), data.y).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()

    return run


def medians(steps: dict[str, Step], rounds: int) -> dict[str, float]:
    """Median seconds of each step; the variants take turns."""
    for step in steps.values():
        step()
        step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            step()  # the first step after another variant finds cold caches
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(t) for name, t in times.items()}


def report_steps(args: argparse.Namespace) -> None:
    """float32: sparse against dense, eager and compiled."""
    fc, y, source = subjects()
    for density in DENSITIES:
        tau = tau_for(fc, density)
        steps = {
            "PyG sparse, with collating": sparse_step(fc, y, tau, args.batch, True),
            "PyG sparse, batch at hand": sparse_step(fc, y, tau, args.batch, False),
            "fcforge dense, eager": dense_step(fc, y, tau, args.batch, "float32", False),
        }
        if args.compiled:
            steps["fcforge dense, compiled"] = dense_step(fc, y, tau, args.batch, "float32", True)
        result = medians(steps, args.rounds)
        print(f"\n{source}, density {density} (tau {tau:.3f}), batch {args.batch}")
        sparse = result["PyG sparse, batch at hand"]
        for name, seconds in result.items():
            print(f"  {name:32s} {seconds * 1e3:8.1f} ms   {sparse / seconds:5.1f}x")


def report_bfloat16(args: argparse.Namespace) -> None:
    """bfloat16 products beside float32, in the same process."""
    fc, y, _ = subjects()
    tau = tau_for(fc, DENSITIES[0])
    result = medians(
        {
            f"fcforge dense, {precision}, {'compiled' if compiled else 'eager'}": dense_step(
                fc, y, tau, args.batch, precision, compiled
            )
            for precision in ("float32", "bfloat16")
            for compiled in ((False, True) if args.compiled else (False,))
        },
        args.rounds,
    )
    for name, seconds in result.items():
        print(f"  {name:40s} {seconds * 1e3:8.1f} ms")


def run_bfloat16_child(args: argparse.Namespace) -> None:
    """Run `report_bfloat16` where an illegal instruction cannot take this process along."""
    command = [sys.executable, __file__, "--bfloat16-only", f"--rounds={args.rounds}"]
    command += [f"--threads={args.threads}", f"--batch={args.batch}"]
    command += ["--compiled"] if args.compiled else []
    print("\nbfloat16 products (float32 parameters, reductions and optimiser)", flush=True)
    done = subprocess.run(command, check=False, stderr=subprocess.DEVNULL)
    if done.returncode == 0:
        return
    how = signal.Signals(-done.returncode).name if done.returncode < 0 else "an error of oneDNN"
    print(f"  {how}: the CPU announces AMX but it cannot be used here; without it:", flush=True)
    env = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    subprocess.run(command, check=True, env=env)


def report_prefix_tree() -> None:
    """Site trainings saved by sharing prefixes, and that sharing changes no number."""
    learner = LearnerSpec(Component("finetune"), Component("gcn"))
    print("\nprefix tree of all orders, one seed, one method")
    for n in (3, 4, 5):
        names = [f"site{i}" for i in range(n)]
        plan = make_plan(Experiment(Component("simulated"), (learner,)).specs(names), names)
        shared, alone = plan.trainings, plan.unshared_trainings
        print(f"  {n} sites: {alone} -> {shared} site trainings ({alone / shared:.2f}x fewer)")
    data = Component("simulated", {"n_rois": 24, "scale": 0.2, "n_sites": 3})
    small = Experiment(data, (learner,), training=Training(epochs=2))
    orders = prepare(small).experiment.list_orders(prepare(small).sites)
    with tempfile.TemporaryDirectory() as scratch:
        scores_of(small, Path(scratch) / "warm-up")
        together, shared = scores_of(small, Path(scratch) / "shared")
        apart, alone = 0.0, {}
        for i, order in enumerate(orders):
            seconds, found = scores_of(replace(small, orders=(order,)), Path(scratch) / str(i))
            apart, alone = apart + seconds, alone | found
    equal = shared.keys() == alone.keys() and all(
        np.array_equal(shared[k][s], alone[k][s]) for k in shared for s in shared[k]
    )
    ratio = apart / together
    print(f"  3 sites, 6 orders run: sharing is {ratio:.2f}x faster; scores bitwise equal: {equal}")
    if not equal:
        raise SystemExit("a shared prefix changed a score")


def scores_of(experiment: Experiment, out: Path) -> tuple[float, dict]:
    """Run in this process: seconds of training, and all scores read back."""
    prepared = prepare(experiment)
    store = open_store(prepared, out)
    started = time.process_time()
    run_experiment(prepared, store, group=1)
    seconds = time.process_time() - started
    return seconds, {key: store.read_scores(key) for key in store.done()}


def main() -> None:
    """Print everything in one run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--compiled", action="store_true", help="torch.compile too (minutes)")
    parser.add_argument("--bfloat16-only", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.bfloat16_only:
        report_bfloat16(args)
        return
    load = ", ".join(f"{x:.2f}" for x in os.getloadavg())
    print(
        f"{cpu_name()}, {os.cpu_count()} cores, {args.threads} threads, torch {torch.__version__}"
    )
    print(f"load before: {load} (an idle machine gives the cleanest numbers)")
    report_steps(args)
    run_bfloat16_child(args)
    report_prefix_tree()
    print(f"\nload after: {', '.join(f'{x:.2f}' for x in os.getloadavg())}")


if __name__ == "__main__":
    main()

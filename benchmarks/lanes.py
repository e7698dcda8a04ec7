"""Model-steps per second: one network at a time against lanes, with replay and distillation.

    python benchmarks/lanes.py [--device cuda|cpu] [--lanes 1 24 120 480] [--seconds 3]

Prints, in one run and on one device: a PyG step as the authors write it (without and with replay
and distillation), a plain dense loop in PyTorch, and the engine's lifted step of FORGE at several
numbers of lanes and precisions, with the achieved floating-point rate and memory traffic beside
what a copy and a float32 matrix product reach.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

from setting import ceilings  # isort: skip  (puts src on the path)

import torch
from torch import nn

from fcforge.engine.lift import lift, stack
from fcforge.engine.loop import Learner, make_step, start_lane
from fcforge.engine.optim import adam_start
from fcforge.graphs import adjacency, gcn_norm
from fcforge.methods import Lane, make_method
from fcforge.models import make_model
from fcforge.replay.bank import Bank, PoolName
from fcforge.speed import Graphed, products
from fcforge.types import Component, FCBatch, Training

BATCH, ROIS, WIDTH, DEPTH, MEMORY, SUBJECTS = 30, 116, 128, 4, 256, 64
PYG, PLAIN = "PyG, replay and distillation", "plain dense loop, replay and distillation"


def fake_fc(n: int) -> torch.Tensor:
    """Correlation matrices with ABIDE's density at tau = 0.4 (about 0.3)."""
    rng = torch.Generator().manual_seed(0)
    shared = torch.randn(n, 1, 150, generator=rng) * 0.75
    series = shared + torch.randn(n, ROIS, 150, generator=rng)
    return torch.stack([torch.corrcoef(s) for s in series])


def forge_lanes(device: str, n_lanes: int) -> tuple[Learner, list[Lane], Bank, torch.Tensor]:
    """FORGE with a full memory of one past site: 32 remembered subjects beside 30 new ones."""
    learner = Learner(
        make_method(Component("forge", {"memory": MEMORY, "replay": 32, "sampling": "uniform"})),
        make_model(Component("gcn"), ROIS),
    )
    bank = Bank(device)
    fc, y = fake_fc(200), torch.arange(200) % 2
    rows = bank.add(PoolName("real", "bench", 0, "train"), FCBatch(fc, y))
    slots = torch.arange(MEMORY, device=bank.device)
    lanes = []
    for seed in range(n_lanes):
        lane = start_lane(learner, seed, bank.device)
        held = rows[slots % len(rows)]
        memory = {
            "memory.row": held,
            "memory.y": bank.y[held],
            "memory.logits": torch.zeros(MEMORY, 2, device=bank.device),
            "memory.embedding": torch.zeros(MEMORY, 2 * WIDTH, device=bank.device),
            "memory.site": torch.zeros_like(held),
            "replay.active": slots,
            "replay.quota": torch.tensor([MEMORY], device=bank.device),
        }
        lanes.append(lane._replace(state={**lane.state, **memory}))
    return learner, lanes, bank, rows


def rate(step, n_lanes: int, seconds: float, device: str) -> float:
    """Model-steps per second of a callable that advances `n_lanes` models."""
    sync = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    for _ in range(3):
        step()
    sync()
    started, steps = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        for _ in range(5):
            step()
        steps += 5
        sync()
    return steps * n_lanes / (time.perf_counter() - started)


def lanes_step(device: str, n: int, graphed: bool, precision: str = "float32"):
    """The engine's step on `n` lanes."""
    learner, lanes, bank, rows = forge_lanes(device, n)
    inputs = bank.inputs(learner.model)
    step = lift(make_step(learner, Training(), inputs, bank.y, replaying=True), n)
    if graphed:
        step = Graphed(step, carried=2)
    state = [stack(lanes), stack([adam_start(la.params) for la in lanes])]
    chosen = rows[torch.randint(len(rows), (BATCH,) if n == 1 else (n, BATCH), device=bank.device)]
    key = torch.arange(n, dtype=torch.int32, device=bank.device)
    key = key[0] if n == 1 else key

    def run() -> None:
        with products(precision):
            state[0], state[1] = step(state[0], state[1], chosen, key)

    return run


class Net(nn.Module):
    """The paper's GCN in plain PyTorch, around a convolution and a pooling given from outside."""

    def __init__(self, convs: list[nn.Module]) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)
        self.norms = nn.ModuleList(nn.BatchNorm1d(WIDTH) for _ in range(DEPTH))
        self.head = nn.Sequential(
            nn.Linear(2 * WIDTH, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 2)
        )

    def forward(self, x, graph, pool):
        """Logits and readouts of nodes x (nodes, ROIS)."""
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = nn.functional.dropout(norm(conv(x, *graph)).relu(), 0.3, self.training)
        readout = pool(x)
        return self.head(readout), readout


def ordinary_step(device: str, net: Net, batch: Callable, replay: bool):
    """A step of an ordinary training loop; with `replay`, a second batch of 32 remembered subjects.

    It adds their cross-entropy and the distillation of logits and readouts, as the authors do.
    """
    y = torch.arange(SUBJECTS, device=device) % 2
    teacher = (
        torch.zeros(SUBJECTS, 2, device=device),
        torch.zeros(SUBJECTS, 2 * WIDTH, device=device),
    )
    net = net.to(device)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=2e-4)
    mse = nn.functional.mse_loss

    def run() -> None:
        rows = torch.randperm(SUBJECTS)[:BATCH].to(device)
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(net(*batch(rows))[0], y[rows])
        if replay:
            rows = torch.randperm(SUBJECTS)[:32].to(device)
            logits, readout = net(*batch(rows))
            loss = loss + 0.2 * nn.functional.cross_entropy(logits, y[rows])
            loss = loss + 0.35 * mse(logits, teacher[0][rows])
            loss = loss + 0.15 * mse(readout, teacher[1][rows])
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()

    return run


def pyg_step(device: str, replay: bool):
    """The authors' step: PyG sparse message passing, batches collated anew each time."""
    from torch_geometric.data import Batch, Data
    from torch_geometric.nn import GCNConv, global_max_pool, global_mean_pool

    graphs = []
    for matrix in fake_fc(SUBJECTS):
        index = ((matrix >= 0.4) & ~torch.eye(ROIS, dtype=torch.bool)).nonzero().T
        graphs.append(Data(x=matrix, edge_index=index, edge_weight=matrix[index[0], index[1]]))

    def batch(rows: torch.Tensor):
        b = Batch.from_data_list([graphs[i] for i in rows.tolist()]).to(device)
        return (
            b.x,
            (b.edge_index, b.edge_weight),
            lambda x: torch.cat([global_mean_pool(x, b.batch), global_max_pool(x, b.batch)], 1),
        )

    sizes = [ROIS] + [WIDTH] * DEPTH
    return ordinary_step(device, Net([GCNConv(a, b) for a, b in pairwise(sizes)]), batch, replay)


class DenseConv(nn.Module):
    """``P x W + b`` of stacked graphs."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)

    def forward(self, x: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        """x (n R, F), p (n, R, R)."""
        return torch.bmm(p, self.linear(x).reshape(len(p), ROIS, -1)).flatten(0, 1)


def dense_step(device: str, replay: bool):
    """A plain dense loop: everything on the device, nothing collated, one network at a time."""
    fc = fake_fc(SUBJECTS).to(device)
    p = gcn_norm(adjacency(fc, 0.4, "positive"))

    def pool(x: torch.Tensor) -> torch.Tensor:
        nodes = x.reshape(-1, ROIS, WIDTH)
        return torch.cat([nodes.mean(1), nodes.amax(1)], 1)

    def batch(rows: torch.Tensor):
        return fc[rows].flatten(0, 1), (p[rows],), pool

    sizes = [ROIS] + [WIDTH] * DEPTH
    return ordinary_step(device, Net([DenseConv(a, b) for a, b in pairwise(sizes)]), batch, replay)


def work_of_step() -> tuple[float, float]:
    """Floating-point operations and least bytes of activations of one model-step (62 subjects)."""
    n = BATCH + 32
    flop = sum(
        3 * 2 * n * (ROIS * w_in * WIDTH + ROIS * ROIS * WIDTH) for w_in in (ROIS, 128, 128, 128)
    )
    traffic = DEPTH * n * ROIS * WIDTH * 4 * 12  # about six reads and six writes per layer
    return flop, traffic


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--lanes", type=int, nargs="*", default=[1, 24, 120, 480])
    parser.add_argument("--precision", nargs="*", default=["float32", "tf32"])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    cuda = args.device.startswith("cuda")
    name = torch.cuda.get_device_name() if cuda else f"{os.cpu_count()} cores"
    found: dict[str, float] = {}
    measure = partial(rate, seconds=args.seconds, device=args.device)
    try:
        found["PyG, no replay"] = measure(pyg_step(args.device, replay=False), 1)
        found[PYG] = measure(pyg_step(args.device, replay=True), 1)
    except ImportError:
        print("torch_geometric is not installed: no PyG rows")
    found[PLAIN] = measure(dense_step(args.device, replay=True), 1)
    for precision in args.precision:
        for n in args.lanes:
            step = lanes_step(args.device, n, cuda, precision)
            found[f"lanes {n}, {precision}"] = measure(step, n)
            del step
    product, copy = ceilings(args.device) if cuda else (float("nan"), float("nan"))
    flop, traffic = work_of_step()
    print(
        f"machine: {name}, torch {torch.__version__}; "
        f"copy {copy / 1e12:.2f} TB/s, fp32 product {product / 1e12:.1f} TFLOP/s"
    )
    plain, pyg = found[PLAIN], found.get(PYG, float("nan"))
    print("| variant | model-steps/s | x plain | x PyG | share of fp32 | share of copy |")
    print("|---|---|---|---|---|---|")
    for label, value in found.items():
        print(
            f"| {label} | {value:.0f} | {value / plain:.1f} | {value / pyg:.1f} | "
            f"{value * flop / product:.2f} | {value * traffic / copy:.2f} |"
        )
    if args.out:
        args.out.write_text(json.dumps({"machine": name, "model-steps/s": found}, indent=1))


if __name__ == "__main__":
    main()

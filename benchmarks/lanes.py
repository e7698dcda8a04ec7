"""Model-steps per second: one network at a time against lanes, with replay and distillation.

    python benchmarks/lanes.py [--device cuda|cpu] [--lanes 1 24 120 480] [--seconds 3]

Prints, in one run and on one device: a PyG step as the authors write it (no replay), a plain dense
loop (FORGE's step, eager, one lane), and the engine's lifted step at several numbers of lanes, with
the achieved floating-point rate and memory traffic beside what a copy and a matrix product reach.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import torch

from fcforge.engine.graphed import GraphedStep
from fcforge.engine.lift import lift, stack
from fcforge.engine.loop import Learner, make_step, start_lane
from fcforge.engine.optim import adam_start
from fcforge.models import make_model
from fcforge.replay.bank import Bank, PoolName
from fcforge.strategies import make_strategy
from fcforge.types import Component, FCBatch, Training

BATCH, ROIS, WIDTH, DEPTH = 30, 116, 128, 4


def fake_fc(n: int) -> torch.Tensor:
    """Correlation matrices with ABIDE's density at tau = 0.4 (about 0.3)."""
    rng = torch.Generator().manual_seed(0)
    shared = torch.randn(n, 1, 150, generator=rng) * 0.75
    series = shared + torch.randn(n, ROIS, 150, generator=rng)
    return torch.stack([torch.corrcoef(s) for s in series])


def forge_lane(learner: Learner, seed: int, bank: Bank, rows: torch.Tensor) -> object:
    """Lane with a full memory of one past site."""
    lane = start_lane(learner, seed, bank.device)
    state = dict(lane.state)
    n = state["memory.row"].shape[0]
    state["memory.row"] = rows[torch.arange(n, device=bank.device) % len(rows)]
    return lane._replace(state=state)


def er_like(device: str, n_lanes: int) -> tuple[Learner, list, Bank, torch.Tensor]:
    """DER++-style step (replay, labels and logits): 32 remembered subjects beside 30 new ones."""
    learner = Learner(
        make_strategy(Component("der", {"memory": 256, "replay": 32})),
        make_model(Component("gcn"), ROIS),
    )
    bank = Bank(device)
    fc, y = fake_fc(200), torch.arange(200) % 2
    rows = bank.add(PoolName("real", "bench", 0, "train"), FCBatch(fc, y))
    lanes = [forge_lane(learner, s, bank, rows) for s in range(n_lanes)]
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


def lanes_step(device: str, n: int, graphed: bool):
    """The engine's step on `n` lanes."""
    learner, lanes, bank, rows = er_like(device, n)
    step = lift(
        make_step(learner, Training(), bank.inputs(learner.model), bank.y, replaying=True), n
    )
    if graphed:
        step = GraphedStep(step)
    state = [stack(lanes), stack([adam_start(la.params) for la in lanes])]
    chosen = rows[torch.randint(len(rows), (BATCH,) if n == 1 else (n, BATCH), device=bank.device)]
    key = torch.arange(n, dtype=torch.int32, device=bank.device)
    key = key[0] if n == 1 else key

    def run() -> None:
        state[0], state[1] = step(state[0], state[1], chosen, key)

    return run


def pyg_step(device: str):
    """The authors' step: PyG sparse message passing, batch collated anew each time, no replay."""
    from torch import nn
    from torch_geometric.data import Batch, Data
    from torch_geometric.nn import GCNConv, global_max_pool, global_mean_pool

    fc = fake_fc(64)
    graphs = []
    for matrix in fc:
        index = ((matrix >= 0.4) & ~torch.eye(ROIS, dtype=torch.bool)).nonzero().T
        graphs.append(Data(x=matrix, edge_index=index, edge_weight=matrix[index[0], index[1]]))
    y = torch.arange(64, device=device) % 2

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = [ROIS] + [WIDTH] * DEPTH
            self.convs = nn.ModuleList(GCNConv(a, b) for a, b in pairwise(sizes))
            self.norms = nn.ModuleList(nn.BatchNorm1d(WIDTH) for _ in range(DEPTH))
            self.head = nn.Sequential(
                nn.Linear(2 * WIDTH, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 2)
            )

        def forward(self, b):
            x = b.x
            for conv, norm in zip(self.convs, self.norms, strict=True):
                x = norm(conv(x, b.edge_index, b.edge_weight)).relu()
                x = nn.functional.dropout(x, 0.3, self.training)
            return self.head(
                torch.cat([global_mean_pool(x, b.batch), global_max_pool(x, b.batch)], 1)
            )

    net = Net().to(device)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=2e-4)

    def run() -> None:
        rows = torch.randperm(64)[:BATCH]
        batch = Batch.from_data_list([graphs[i] for i in rows.tolist()]).to(device)
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(batch), y[rows.to(device)]).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()

    return run


def ceilings(device: str) -> tuple[float, float]:
    """Measured bytes/s of a copy and FLOP/s of a float32 matrix product."""
    if not device.startswith("cuda"):
        return float("nan"), float("nan")
    a = torch.empty(2**29, device=device)
    b, m = torch.empty_like(a), torch.randn(8192, 8192, device=device)

    def timed(fn) -> float:
        for _ in range(3):
            fn()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(5):
            fn()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 5e3

    return 2 * 4 * 2**29 / timed(lambda: b.copy_(a)), 2 * 8192**3 / timed(lambda: m @ m)


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
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    cuda = args.device.startswith("cuda")
    name = torch.cuda.get_device_name() if cuda else f"{os.cpu_count()} cores"
    found: dict[str, float] = {}
    found["PyG, as the authors write it (no replay)"] = rate(
        pyg_step(args.device), 1, args.seconds, args.device
    )
    found["plain dense loop, eager"] = rate(
        lanes_step(args.device, 1, False), 1, args.seconds, args.device
    )
    for n in args.lanes:
        found[f"lanes {n}"] = rate(lanes_step(args.device, n, cuda), n, args.seconds, args.device)
    copy, product = ceilings(args.device)
    flop, traffic = work_of_step()
    print(
        f"machine: {name}, torch {torch.__version__}; "
        f"copy {copy / 1e12:.2f} TB/s, fp32 product {product / 1e12:.1f} TFLOP/s"
    )
    plain = found["plain dense loop, eager"]
    pyg = found["PyG, as the authors write it (no replay)"]
    print("| variant | model-steps/s | x plain | x PyG | share of fp32 | share of copy |")
    print("|---|---|---|---|---|---|")
    for label, value in found.items():
        print(
            f"| {label} | {value:.0f} | {value / plain:.1f} | {value / pyg:.1f} | "
            f"{value * flop / product:.2f} | {value * traffic / copy:.2f} |"
        )
    if args.out:
        args.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

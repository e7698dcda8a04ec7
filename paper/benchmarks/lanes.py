"""Model-steps per second: one network at a time against lanes, with replay and distillation.

    python paper/benchmarks/lanes.py [--device cuda|cpu] [--lanes 1 24 120 480] [--seconds 3]
    python paper/benchmarks/lanes.py --device cpu --lanes 1 --density 0.27 0.37   # fine-tuning

Prints, in one run and on one device: a PyG step as the authors write it (without and with replay
and distillation), a plain dense loop in PyTorch, and the engine's lifted step of FORGE at several
numbers of lanes and precisions, with the achieved floating-point rate and memory traffic beside
what a copy and a float32 matrix product reach.

With `--density` the steps are those of fine-tuning on subjects of the first real site (simulated
ones where ABIDE is not there), thresholded to each density (real ABIDE graphs have 0.27 to 0.37 at
tau 0.4); PyG is timed with and without collating its batch, which a DataLoader does in every step.
"""

import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from setting import DEVICE, Net, abide, ceilings, machine, options, save, show
from torch import Tensor, nn

from fcforge.core.component import Component
from fcforge.core.spec import Training
from fcforge.core.subjects import FCBatch
from fcforge.graphs import adjacency, gcn_norm
from fcforge.methods import Lane, make_method
from fcforge.methods.base import Learner
from fcforge.models.gcn import GCN
from fcforge.nn.adam import Adam
from fcforge.nn.cuda_graphs import Graphed
from fcforge.replay.bank import Bank, PoolName
from fcforge.replay.hcts import Choice
from fcforge.replay.memory import Memory
from fcforge.training.initial_lanes import start_lane
from fcforge.training.lanes import lift, stack
from fcforge.training.loop import matmul_precision
from fcforge.training.schedule import step_keys
from fcforge.training.step import make_step

BATCH, ROIS, WIDTH, DEPTH, MEMORY, SUBJECTS = 30, 116, 128, 4, 256, 64
FORGE = Component("forge", {"memory": MEMORY, "replay": 32, "sampling": "uniform"})
FINETUNE = Component("finetune")
# One model-step of 62 subjects: floating-point operations, and least bytes of activations (about
# six reads and six writes per layer).
FLOP = sum(
    6 * (BATCH + 32) * ROIS * WIDTH * (w_in + ROIS) for w_in in (ROIS, 128, 128, 128)
)
TRAFFIC = DEPTH * (BATCH + 32) * ROIS * WIDTH * 4 * 12
PYG, PLAIN = "PyG, replay and distillation", "plain dense loop, replay and distillation"
Step = Callable[[], None]


def fake_people(n: int = SUBJECTS, rois: int = ROIS, seed: int = 0) -> FCBatch:
    """Subjects with ABIDE's density at tau = 0.4 (about 0.3)."""
    rng = torch.Generator().manual_seed(seed)
    shared = torch.randn(n, 1, 150, generator=rng) * 0.75
    series = shared + torch.randn(n, rois, 150, generator=rng)
    return FCBatch(
        torch.stack([torch.corrcoef(s) for s in series]), torch.arange(n) % 2
    )


def real_people(density: float) -> tuple[FCBatch, float]:
    """128 subjects of the first site, and the threshold that keeps this share of ROI pairs."""
    from fcforge.data.datasets import load_dataset

    cohort = load_dataset(abide()[0])
    here = np.flatnonzero(cohort.site == cohort.site[0])[:128]
    people = FCBatch.from_numpy(cohort.fc[here], cohort.y[here])
    pairs = people.fc[:, ~torch.eye(people.n_rois, dtype=torch.bool)]
    return people, float(np.quantile(pairs.numpy(), 1 - density))


# -- the engine ------------------------------------------------------------------------------------
def full_memory(lane: Lane, bank: Bank, rows: Tensor) -> Lane:
    """A lane of FORGE that remembers one past site."""
    slots = torch.arange(MEMORY, device=bank.device)
    held = rows[slots % len(rows)]
    memory = Memory(
        rows=held,
        y=bank.y[held],
        logits=torch.zeros(MEMORY, 2, device=bank.device),
        embedding=torch.zeros(MEMORY, 2 * WIDTH, device=bank.device),
        site=torch.zeros_like(held),
    )
    quota = torch.tensor([MEMORY], device=bank.device)
    choice = Choice(slots, quota, torch.ones(1, device=bank.device))
    return lane.with_state(memory=memory, choice=choice)


def lanes_step(
    device: str,
    n: int,
    people: FCBatch,
    method: Component = FORGE,
    *,
    tau: float = 0.4,
    precision: str = "float32",
) -> Step:
    """The engine's step on `n` lanes: FORGE with a memory of one past site, or fine-tuning."""
    replay = method.name == "forge"
    method = make_method(method)
    learner = Learner(method, GCN(people.n_rois, tau=tau))
    bank = Bank(device)
    rows = bank.add(PoolName("real", "bench", 0, "train"), people)
    lanes = [start_lane(learner, seed, bank.device) for seed in range(n)]
    if replay:
        lanes = [full_memory(lane, bank, rows) for lane in lanes]
    inputs = bank.inputs(learner.model)
    step = lift(make_step(learner, Training(), inputs, bank.y, replaying=replay), n)
    if device.startswith("cuda"):
        step = Graphed(step, carried=3)
    state = [stack(lanes), stack([Adam.start(la.params) for la in lanes]), {}]
    chosen = rows[
        torch.randint(len(rows), (BATCH,) if n == 1 else (n, BATCH), device=bank.device)
    ]
    keys = step_keys(torch.arange(n, dtype=torch.int32, device=bank.device))
    keys = keys[0] if n == 1 else keys

    def run() -> None:
        with matmul_precision(precision):
            state[:] = step(*state, chosen, keys)

    return run


# -- ordinary loops --------------------------------------------------------------------------------
class Replay(NamedTuple):
    """Remembered subjects of a step, whether they share a forward pass with the new, loss weights."""

    n: int = 32
    joint: bool = False
    weights: tuple[float, float, float] = (0.2, 0.35, 0.15)


AUTHORS = Replay(64, joint=False, weights=(0.1, 0.4, 0.3))  # of their code


def ordinary_step(
    device: str, net: Net, batch: Callable, y: Tensor, replay: Replay | None
) -> Step:
    """A step of an ordinary training loop, perhaps with remembered subjects.

    These add their cross-entropy and the distillation of logits and readouts.
    """
    y, net = y.to(device), net.to(device).train()
    teacher = [torch.zeros(len(y), k, device=device) for k in (2, 2 * WIDTH)]
    optimiser, mse = net.optimiser(), nn.functional.mse_loss

    def run() -> None:
        rows = torch.randint(len(y), (BATCH,)).to(device)
        old = torch.randint(len(y), (replay.n if replay else 0,)).to(device)
        if replay and replay.joint:
            both = net(*batch(torch.cat([rows, old])))
            current, (logits, readout) = both[0][:BATCH], (o[BATCH:] for o in both)
        else:
            current = net(*batch(rows))[0]
            logits, readout = net(*batch(old)) if replay else (None, None)
        loss = nn.functional.cross_entropy(current, y[rows])
        if replay:
            l1, l2, l3 = replay.weights
            loss = loss + l1 * nn.functional.cross_entropy(logits, y[old])
            loss = loss + l2 * mse(logits, teacher[0][old])
            loss = loss + l3 * mse(readout, teacher[1][old])
        net.learn(optimiser, loss)

    return run


def pyg_step(
    device: str,
    people: FCBatch,
    tau: float,
    *,
    replay: Replay | None = None,
    collate: bool = True,
) -> Step:
    """The authors' step: PyG sparse message passing, batches collated anew each time."""
    from pyg_loop import Batch, GCNConv, build_graphs, unpacked

    graphs = build_graphs(people, tau)
    ready = Batch.from_data_list(graphs[:BATCH]).to(device)

    def batch(rows: Tensor) -> tuple:
        if not collate:
            return unpacked(ready)
        return unpacked(
            Batch.from_data_list([graphs[i] for i in rows.tolist()]).to(device)
        )

    return ordinary_step(device, Net(GCNConv, people.n_rois), batch, people.y, replay)


class DenseConv(nn.Linear):
    """``P x W + b`` of stacked graphs."""

    def forward(self, x: Tensor, p: Tensor) -> Tensor:
        """x (n R, F), p (n, R, R)."""
        nodes = super().forward(x).reshape(*p.shape[:2], -1)
        return torch.bmm(p, nodes).flatten(0, 1)


def dense_step(device: str, people: FCBatch, replay: Replay = Replay()) -> Step:  # noqa: B008
    """A plain dense loop: everything on the device, nothing collated, one network at a time."""
    fc = people.fc.to(device)
    p = gcn_norm(adjacency(fc, 0.4))

    def pool(x: Tensor) -> Tensor:
        nodes = x.reshape(-1, people.n_rois, WIDTH)
        return torch.cat([nodes.mean(1), nodes.amax(1)], 1)

    def batch(rows: Tensor) -> tuple:
        return fc[rows].flatten(0, 1), (p[rows],), pool

    net = Net(DenseConv, people.n_rois)
    return ordinary_step(device, net, batch, people.y, replay)


# -- measuring -------------------------------------------------------------------------------------
def rate(step: Step, n_lanes: int, args: Namespace) -> float:
    """Model-steps per second of a callable that advances `n_lanes` models."""
    sync = torch.cuda.synchronize if args.device.startswith("cuda") else int
    for _ in range(3):
        step()
    sync()
    started, steps = time.perf_counter(), 0
    while time.perf_counter() - started < args.seconds:
        for _ in range(5):
            step()
        steps += 5
        sync()
    return steps * n_lanes / (time.perf_counter() - started)


def with_replay(args: Namespace) -> dict[str, float]:
    """Model-steps per second of every variant, with replay and distillation."""
    results, people = {}, fake_people()
    try:
        results["PyG, no replay"] = rate(pyg_step(args.device, people, 0.4), 1, args)
        results[PYG] = rate(
            pyg_step(args.device, people, 0.4, replay=Replay()), 1, args
        )
    except ImportError:
        print("torch_geometric is not installed: no PyG rows")
    results[PLAIN] = rate(dense_step(args.device, people), 1, args)
    for precision in args.precision:
        for n in args.lanes:
            step = lanes_step(args.device, n, fake_people(200), precision=precision)
            results[f"lanes {n}, {precision}"] = rate(step, n, args)
            del step
    return results


def fine_tuning(args: Namespace) -> None:
    """Milliseconds of a step without replay, at every density asked for."""
    for density in args.density:
        people, tau = real_people(density)
        steps = {
            "PyG sparse, with collating": pyg_step(args.device, people, tau),
            "PyG sparse, batch at hand": pyg_step(
                args.device, people, tau, collate=False
            ),
            "fcforge dense": lanes_step(args.device, 1, people, FINETUNE, tau=tau),
        }
        took = {name: 1 / rate(step, 1, args) for name, step in steps.items()}
        print(f"\n{abide()[1]}, density {density} (tau {tau:.3f}), batch {BATCH}")
        base = took["PyG sparse, batch at hand"]
        show({"step": k, "ms": 1e3 * s, "x PyG": base / s} for k, s in took.items())


def main() -> None:
    args = options(
        __doc__,
        device=DEVICE,
        lanes=(1, 24, 120, 480),
        precision=("float32", "tf32"),
        density=(float,),
        seconds=3.0,
        threads=torch.get_num_threads(),
        out=Path,
    )
    torch.set_num_threads(args.threads)
    print(f"machine: {machine(args.device)}, {args.threads} threads")
    if args.density:
        fine_tuning(args)
        return
    results, (product, copy) = with_replay(args), ceilings(args.device)
    print(f"copy {copy / 1e12:.2f} TB/s, fp32 product {product / 1e12:.1f} TFLOP/s")
    plain, pyg = results[PLAIN], results.get(PYG, float("nan"))
    rows = [
        {
            "variant": label,
            "model-steps/s": f"{v:.0f}",
            "x plain": v / plain,
            "x PyG": v / pyg,
        }
        | {"share of fp32": v * FLOP / product, "share of copy": v * TRAFFIC / copy}
        for label, v in results.items()
    ]
    show(rows, ".2f")
    save(args.out, {"machine": machine(args.device), "model-steps/s": results})


if __name__ == "__main__":
    main()

"""GCN training steps on the CPU: our dense step against a PyG sparse step as the authors write it.

    python benchmarks/engine.py [--rounds 15] [--threads 2] [--batch 32]

Both train the paper's backbone (4 x 128, batch norm, edge weights, mean+max readout, head
256-64-32-2, dropout 0.3) with cross-entropy, gradient clipping and Adam. The dense step is the
engine's own (`fcforge.engine.loop.make_step`), gathering its batch from the bank by row. The
sparse step is timed with and without collating its batch, because a DataLoader does that in
every step. Variants take turns within a round, so that a busy machine slows all of them alike;
medians are printed.
"""

import argparse
import statistics
import time
from collections.abc import Callable

from setting import abide, machine  # isort: skip  (puts src on the path)

import numpy as np
import torch
import torch.nn.functional as F
from pyg_loop import Net, build_graphs
from torch_geometric.data import Batch

from fcforge.engine.loop import Learner, make_step, start_lane
from fcforge.engine.optim import adam_start
from fcforge.methods.finetune import Finetune
from fcforge.models import make_model
from fcforge.randomness import torch_rng
from fcforge.sites import load_dataset
from fcforge.types import Component, FCBatch, Training

DENSITIES = (0.27, 0.37)  # of real ABIDE graphs at tau 0.4
N_SUBJECTS = 128
Step = Callable[[], object]


def subjects() -> tuple[FCBatch, str]:
    """Subjects of the first site: real ones of NYU where they are, else simulated ones."""
    component, source = abide()
    cohort = load_dataset(component)
    here = np.flatnonzero(cohort.site == cohort.site[0])[:N_SUBJECTS]
    return FCBatch.from_numpy(cohort.fc[here], cohort.y[here]), source


def tau_for(fc: torch.Tensor, density: float) -> float:
    """Threshold that keeps this share of all ROI pairs."""
    pairs = fc[:, ~torch.eye(fc.shape[-1], dtype=torch.bool)]
    return float(np.quantile(pairs.numpy(), 1 - density))


def dense_step(people: FCBatch, tau: float, batch: int) -> Step:
    """The engine's step on one lane."""
    learner = Learner(Finetune(), make_model(Component("gcn", {"tau": tau}), people.n_rois))
    lane = start_lane(learner, seed=0)
    state = [lane, adam_start(lane.params), 0]
    inputs = learner.model.prepare(people.fc)
    step = make_step(learner, Training(), inputs, people.y, replaying=False)
    rng = torch_rng(0, "rows")

    def run() -> None:
        rows = torch.randperm(len(people), generator=rng)[:batch]
        state[2] += 1
        key = torch.tensor(state[2], dtype=torch.int32)
        state[0], state[1] = step(state[0], state[1], rows, key)

    return run


def sparse_step(people: FCBatch, tau: float, batch: int, collate: bool) -> Step:
    """PyG as the authors write it; without `collate` from a batch at hand."""
    graphs, net = build_graphs(people, tau), Net(people.n_rois).train()
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=2e-4)
    rng = torch_rng(0, "rows")

    def collated() -> Batch:
        rows = torch.randperm(len(graphs), generator=rng)[:batch]
        return Batch.from_data_list([graphs[int(j)] for j in rows])

    ready = collated()

    def run() -> None:
        data = collated() if collate else ready
        optimiser.zero_grad()
        F.cross_entropy(net(data)[0], data.y).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()

    return run


def medians(steps: dict[str, Step], rounds: int) -> dict[str, float]:
    """Median seconds of each step; the variants take turns."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds + 2):
        for name, step in steps.items():
            step()  # the first step after another variant finds cold caches
            start = time.perf_counter()
            step()
            times[name] += [time.perf_counter() - start] * (turn > 1)
    return {name: statistics.median(t) for name, t in times.items()}


def main() -> None:
    """Print everything in one run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in {"rounds": 15, "threads": 2, "batch": 32}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"{machine('cpu')}; {args.threads} threads (an idle machine gives the cleanest numbers)")
    people, source = subjects()
    for density in DENSITIES:
        tau = tau_for(people.fc, density)
        found = medians(
            {
                "PyG sparse, with collating": sparse_step(people, tau, args.batch, True),
                "PyG sparse, batch at hand": sparse_step(people, tau, args.batch, False),
                "fcforge dense": dense_step(people, tau, args.batch),
            },
            args.rounds,
        )
        print(f"\n{source}, density {density} (tau {tau:.3f}), batch {args.batch}")
        sparse = found["PyG sparse, batch at hand"]
        for name, seconds in found.items():
            print(f"  {name:32s} {seconds * 1e3:8.1f} ms   {sparse / seconds:5.1f}x")


if __name__ == "__main__":
    main()

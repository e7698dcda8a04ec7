"""Speed of the careful FCM-VAE against the authors' loop, and of sampling.

    python benchmarks/generators.py --data ../shared/data/abide1_aal116.npz [--epochs 100]

Same machine, same run, equal epochs, NYU's 120 training subjects, two threads. The authors' loop
is their preset (d_model 256, batch 8) with the Laplacian eigendecomposition inside every step, as
in their forward pass (it does use our faster attention). Prints one JSON line; CPU seconds are
those of the whole process, for machines that others use too.
"""

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import torch

from fcforge.generators.fcm_vae import FCMVAE
from fcforge.generators.fcm_vae import network as net
from fcforge.generators.fcm_vae.generator import to_coordinates
from fcforge.generators.fcm_vae.training import sampled_elbo
from fcforge.generators.layers import N_CLASSES, trainable
from fcforge.randomness import torch_rng
from fcforge.sites import load_dataset, split_site
from fcforge.types import Component, FCBatch


def nyu(data: str) -> FCBatch:
    cohort = load_dataset(Component("folder", {"path": data, "sites": ["NYU"]}))
    return split_site(cohort, "NYU", 0).learning(with_val=True)


def clock() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def since(start: tuple[float, float]) -> tuple[float, float]:
    return time.perf_counter() - start[0], time.process_time() - start[1]


def authors_loop(batch: FCBatch, epochs: int) -> tuple[float, float]:
    """Wall and CPU seconds of the authors' loop: all that derives from FC anew in every step."""
    s = FCMVAE.authors()
    rng = torch_rng(0)
    start = clock()
    target, _ = to_coordinates(batch.fc, s)
    p = trainable(net.init(batch.n_rois, N_CLASSES, s, rng), batch.fc.device)
    optimiser = torch.optim.Adam(list(p.values()), lr=s.lr)
    for _ in range(epochs):
        for index in torch.randperm(len(batch), generator=rng).split(s.batch_size):
            inputs = net.prepare(batch.fc[index], s)
            inputs |= {"target": target[index], "y": batch.y[index]}
            loss, _parts = sampled_elbo(p, inputs, s, s.beta, rng)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return since(start)


def careful(batch: FCBatch, epochs: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Wall and CPU seconds of the whole careful fit, and of sampling 1,000 matrices."""
    generator = FCMVAE(epochs=epochs)
    start = clock()
    state = generator.fit(batch, torch_rng(0))
    fit = since(start)
    start = clock()
    generator.sample(state, torch.arange(1000) % 2, torch_rng(1))
    return fit, since(start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    batch = nyu(args.data)
    authors_loop(batch.select(slice(0, 16)), 1)  # warm up
    ours, sampling = careful(batch, args.epochs)
    theirs = authors_loop(batch, args.epochs)
    found = {
        "subjects": len(batch),
        "epochs": args.epochs,
        "threads": args.threads,
        "speedup_wall": theirs[0] / ours[0],
        "speedup_cpu": theirs[1] / ours[1],
    }
    for name, (wall, cpu) in {"authors": theirs, "careful": ours, "sample_1000": sampling}.items():
        found |= {f"{name}_wall_s": wall, f"{name}_cpu_s": cpu}
    print(json.dumps({k: round(v, 2) for k, v in found.items()}))


if __name__ == "__main__":
    main()

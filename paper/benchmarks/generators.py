"""Speed of the stable FCM-VAE against the authors' loop, and of sampling.

    python paper/benchmarks/generators.py [--data ../shared/data/abide1_aal116.npz] [--epochs 100]
    python paper/benchmarks/generators.py --rois 400 --name corr_gauss  # or fcm_vae: memory, time

Same machine, same run, equal epochs, NYU's 121 training subjects, two threads. The authors' loop
is variant `authors` (d_model 256, batch 8) with the Laplacian eigendecomposition inside every step, as
in their forward pass (it does use our faster attention). Prints one JSON line; CPU seconds are
those of the whole process, for machines that others use too.

With `--rois` one generator is fitted on 64 people of so many ROIs and asked for 320, in one thread;
memory is the most that the process held, and what it held with torch and fcforge loaded.
"""

import json
import resource
from functools import partial

import torch
from setting import abide, options, timed

from fcforge.core.randomness import torch_rng
from fcforge.core.subjects import FCBatch
from fcforge.data.datasets import load_dataset
from fcforge.data.splits import split_site
from fcforge.generators import GENERATORS
from fcforge.generators.base import device_rng, normal, trainable
from fcforge.generators.fcm_vae import AuthorsVAE, StableVAE


def fit_authors_vae(batch: FCBatch, epochs: int) -> None:
    """The authors' generator: their sizes, all that derives from FC anew in every step."""
    vae = AuthorsVAE()
    p = trainable(vae.init(batch.n_rois, torch_rng(0)), batch.fc.device)
    rng = device_rng(torch_rng(0), batch.fc.device)
    optimiser = torch.optim.Adam(list(p.values()), lr=vae.lr)
    target = vae.prepare_site(batch)[1]["target"]
    for _ in range(epochs):
        order = torch.randperm(len(batch), generator=rng, device=rng.device)
        for index in order.split(vae.batch_size):
            inputs = vae.prepare(batch.fc[index])
            inputs |= {"target": target[index], "y": batch.y[index]}
            inputs["weight"] = torch.ones(len(index), device=rng.device)
            masks = vae.dropout_masks(len(index), batch.n_rois, rng)
            noise = normal(len(index), vae.d_z, rng=rng)
            loss, _ = vae.negative_elbo(p, inputs, noise, masks, vae.beta)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


def people_of(rois: int, n: int = 64) -> FCBatch:
    """Correlations of series that share twenty sources, each subject with weights of its own."""
    rng = torch_rng(0)
    shared = torch.randn(rois, 20, generator=rng)
    fc = torch.empty(n, rois, rois)
    for one in fc:
        weight = shared + 0.5 * torch.randn(rois, 20, generator=rng)
        series = 0.25 * weight @ torch.randn(20, 180, generator=rng)
        one.copy_(torch.corrcoef(series + torch.randn(rois, 180, generator=rng)))
    return FCBatch(fc, torch.arange(n) % 2)


def most_megabytes() -> float:
    """The most that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_many_rois(name: str, rois: int) -> None:
    """Print seconds and memory of one generator."""
    torch.set_num_threads(1)
    results = {"generator": name, "rois": rois, "loaded_mb": most_megabytes()}
    batch = people_of(rois)
    generator = GENERATORS[name]()
    fit, state = timed(partial(generator.fit, batch, torch_rng(0)))
    y = torch.arange(320) % 2
    sampling, _ = timed(partial(generator.sample, state, y, torch_rng(1)))
    results |= {"fit_cpu_s": fit.cpu, "sample_cpu_s": sampling.cpu}
    results["most_mb"] = most_megabytes()
    print(json.dumps(results))


def main() -> None:
    args = options(__doc__, data=str, epochs=100, threads=2, rois=0, name="corr_gauss")
    if args.rois:
        return measure_many_rois(args.name, args.rois)
    torch.set_num_threads(args.threads)
    cohort = load_dataset(abide(args.data)[0])
    batch = split_site(cohort, cohort.site_names[0], 0).learning(with_val=True)
    fit_authors_vae(batch.select(slice(0, 16)), 1)  # warm up
    generator = StableVAE(epochs=args.epochs)
    ours, state = timed(partial(generator.fit, batch, torch_rng(0)))
    sampling, _ = timed(
        partial(generator.sample, state, torch.arange(1000) % 2, torch_rng(1))
    )
    theirs, _ = timed(partial(fit_authors_vae, batch, args.epochs))
    results = {"subjects": len(batch), "epochs": args.epochs, "threads": args.threads}
    for name, spent in {
        "authors": theirs,
        "stable": ours,
        "sample_1000": sampling,
    }.items():
        results |= {f"{name}_wall_s": spent.wall, f"{name}_cpu_s": spent.cpu}
    faster = {
        "speedup_wall": theirs.wall / ours.wall,
        "speedup_cpu": theirs.cpu / ours.cpu,
    }
    print(json.dumps({k: round(v, 2) for k, v in (results | faster).items()}))


if __name__ == "__main__":
    main()

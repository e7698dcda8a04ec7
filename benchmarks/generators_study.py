"""All generators on real ABIDE, four sites, many seeds: torch and numpy are enough.

    python benchmarks/generators_study.py fit   --data FILE --work DIR --procs 14 --device cuda
    python benchmarks/generators_study.py judge --data FILE --work DIR --device cuda --out DIR

`fit` trains every generator of every (site, seed) in parallel processes (networks with small
steps on CPU cores, GANs on the GPU where there is one) and writes synthetic subjects to --work;
a job whose file exists is skipped, so the command may be repeated. `judge` reads them, judges,
trains all classifiers side by side, prints the tables and writes records.json to --out.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
import traceback
from functools import cache, partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import numpy as np
import torch

from fcforge.generators import make_generator
from fcforge.graphs import edges, from_edges
from fcforge.judge.panel import Panel, acceptance, judge_site, summarise
from fcforge.judge.tables import augmentation_table, fidelity_table
from fcforge.randomness import derive, torch_rng
from fcforge.sites import Cohort, load_dataset, split_site
from fcforge.types import Component, FCBatch, Site, Training

SITES = ("NYU", "UM", "USM", "UCLA")
FIVE = ("gae", "gat", "gcn", "sage", "graph_transformer")
ROWS = {
    "edge_gauss": Component("edge_gauss"),
    "corr_flow": Component("corr_flow"),
    "fcm_vae": Component("fcm_vae"),
    "w/o node feature": Component("fcm_vae", {"node_feature": False}),
    "w/o LAE": Component("fcm_vae", {"lae": False}),
    "w/o SGE": Component("fcm_vae", {"sge": False}),
    "fcm_vae paper": Component("fcm_vae", {"preset": "paper"}),
    "fcm_vae authors": Component("fcm_vae", {"preset": "authors"}),
    "regate": Component("regate"),
    "brainnetgan": Component("brainnetgan"),
    "gr_spd_gan": Component("gr_spd_gan"),
}
ON_GPU = ("brainnetgan", "gr_spd_gan")
TINY = {"epochs": 1, "steps": 1}


@cache
def cohort(path: str) -> Cohort:
    merge = {"UM": ["UM_1", "UM_2"], "UCLA": ["UCLA_1", "UCLA_2"]}
    return load_dataset(Component("folder", {"path": path, "sites": list(SITES), "merge": merge}))


def load(path: str, name: str, seed: int) -> Site:
    """One site, split 7:3 by class; depends on (seed, site) alone."""
    return split_site(cohort(path), name, seed)


def settings(row: str, tiny: bool) -> Component:
    component = Panel(ROWS).rows[row]
    if not tiny:
        return component
    generator = make_generator(component)
    small = {k: v for k, v in TINY.items() if hasattr(generator, k)}
    return Component(component.name, {**component.params, **small})


def sample_file(work: Path, row: str, site: str, seed: int) -> Path:
    return work / f"{row.replace('/', '').replace(' ', '_')}-{site}-{seed}.npz"


def fit_one(job: tuple, data: str, work: Path, multiple: int, device: str, tiny: bool) -> str:
    row, site, seed = job
    path = sample_file(work, row, site, seed)
    if path.exists():
        return f"{row} {site} {seed}: there"
    torch.set_num_threads(1)
    start = time.perf_counter()
    try:
        component = settings(row, tiny)
        where = device if component.name in ON_GPU else "cpu"
        train = load(data, site, seed).learning(with_val=True)
        train = FCBatch(train.fc.to(where), train.y.to(where))
        generator = make_generator(component)
        state = generator.fit(train, torch_rng(seed, "generator", site))
        fitted = time.perf_counter()
        rng = torch.Generator().manual_seed(derive(seed, "judge", site, row))
        out = generator.sample(state, train.y.repeat(multiple), rng)
        info = dict(generator.diagnostics(state)) | {"fit_seconds": fitted - start}
        part = path.with_suffix(".part.npz")
        np.savez(
            part,
            fc=edges(out.fc).cpu().numpy(),
            y=out.y.cpu().numpy(),
            info=np.array(json.dumps(info)),
        )
        os.replace(part, path)
    except Exception:  # noqa: BLE001 - one failed job must not lose the others
        return f"{row} {site} {seed}: FAILED\n{traceback.format_exc()}"
    return f"{row} {site} {seed}: {time.perf_counter() - start:.0f} s {json.dumps(info)}"


def cost(job: tuple) -> int:
    """Longest jobs first."""
    row, site, _ = job
    heavy = ["paper", "authors", "brainnet", "gr_spd", "fcm_vae", "w/o", "regate", "flow"]
    rank = next((len(heavy) - i for i, word in enumerate(heavy) if word in row), 0)
    return -10 * rank - {"NYU": 3, "UM": 2}.get(site, 0)


def fit(args: argparse.Namespace) -> None:
    args.work.mkdir(parents=True, exist_ok=True)
    rows = [r for r in Panel(ROWS).rows if r != "real" and (not args.rows or r in args.rows)]
    jobs = [(r, s, seed) for r in rows for s in args.sites for seed in range(args.seeds)]
    if args.first_seeds_only:
        jobs = [j for j in jobs if j[0] != "fcm_vae paper" or j[2] < 1]
    jobs.sort(key=cost)
    call = partial(
        fit_one,
        data=args.data,
        work=args.work,
        multiple=args.multiple,
        device=args.device,
        tiny=args.tiny,
    )
    start = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(args.procs) as pool:
        for i, text in enumerate(pool.imap_unordered(call, jobs), 1):
            print(f"[{time.perf_counter() - start:5.0f} s, {i}/{len(jobs)}] {text}", flush=True)


def read_made(component, train, site, seed, *, work: Path):
    row = next(k for k, v in Panel(ROWS).rows.items() if v == component)
    with np.load(sample_file(work, row, site, seed)) as found:
        batch = FCBatch(from_edges(torch.from_numpy(found["fc"])), torch.from_numpy(found["y"]))
        return batch, json.loads(str(found["info"]))


def available(args: argparse.Namespace) -> dict[str, Component]:
    """Rows whose samples exist for every site and seed."""
    return {
        row: component
        for row, component in Panel(ROWS).rows.items()
        if component is not None
        and all(
            sample_file(args.work, row, s, k).exists()
            for s in args.sites
            for k in range(args.seeds)
        )
    }


def judge(args: argparse.Namespace) -> None:
    rows = available(args)
    print("rows:", ", ".join(rows), flush=True)
    panel = Panel(
        rows,
        classifiers=("linear", "gcn") if not args.tiny else ("linear",),
        augment=tuple(args.augment),
        multiple=args.multiple,
        training=Training(epochs=1 if args.tiny else args.epochs),
    )
    start = time.perf_counter()
    records = []
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.sites:
        sites = {seed: load(args.data, name, seed) for seed in range(args.seeds)}
        records += judge_site(
            panel,
            sites,
            args.device,
            partial(read_made, work=args.work),
            lambda text: print(f"[{time.perf_counter() - start:5.0f} s] {text}", flush=True),
        )
        (args.out / "records.json").write_text(json.dumps(records))
    table = summarise(records)
    print(fidelity_table(table))
    print(augmentation_table(table, panel.augment))
    for finding in acceptance(table, "fcm_vae"):
        print("careful:", finding)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", choices=("fit", "judge"))
    parser.add_argument("--data", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--procs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sites", nargs="*", default=SITES)
    parser.add_argument("--rows", nargs="*", default=[])
    parser.add_argument("--augment", nargs="*", default=FIVE)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--multiple", type=int, default=4)
    parser.add_argument("--first-seeds-only", action="store_true", help="paper preset: seed 0 only")
    parser.add_argument("--tiny", action="store_true", help="one epoch of everything: a test")
    args = parser.parse_args()
    {"fit": fit, "judge": judge}[args.stage](args)


if __name__ == "__main__":
    main()

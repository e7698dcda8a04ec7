"""All generators on real ABIDE, four sites, many seeds: torch and numpy are enough.

    python benchmarks/generators_study.py fit   --data FILE --work DIR --procs 14 --device cuda
    python benchmarks/generators_study.py judge --data FILE --work DIR --device cuda --out DIR

`fit` trains every generator of every (site, seed) in parallel processes (networks with small
steps on CPU cores, GANs on the GPU where there is one) and writes synthetic subjects to --work;
a job whose file exists is skipped, so the command may be repeated. `judge` trains all classifiers
side by side, prints the tables and writes records.json and generators.md to --out; it begins
nothing new after --limit seconds and goes on when it is called again.
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
from fcforge.judge import judge_fidelity
from fcforge.judge.commands import collapse_list, markdown_report
from fcforge.judge.panel import (
    REAL,
    Panel,
    acceptance,
    add_utility,
    augment,
    record_of,
    summarise,
)
from fcforge.judge.utility import Task
from fcforge.randomness import torch_rng
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
    "brainnetgan": Component("brainnetgan", {"steps": 1000, "width": 16}),
    "gr_spd_gan": Component("gr_spd_gan", {"steps": 1500}),
}
# Rows that take part in 1:1 augmentation: the paper's options, its ablation, our baseline.
AUGMENTED = (
    "regate",
    "brainnetgan",
    "gr_spd_gan",
    "fcm_vae",
    "corr_gauss",
    "w/o node feature",
    "w/o LAE",
    "w/o SGE",
)
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


def file_of(work: Path, row: str, site: str, seed: int) -> Path:
    return work / f"{row.replace('/', '').replace(' ', '_')}-{site}-{seed}.npz"


def fit_one(job: tuple, data: str, work: Path, multiple: int, device: str, tiny: bool) -> str:
    row, site, seed = job
    path = file_of(work, row, site, seed)
    if path.exists():
        return f"{row} {site} {seed}: there"
    torch.set_num_threads(1)
    start = time.perf_counter()
    try:
        whole = load(data, site, seed)
        train = whole.learning(with_val=True)
        fake, info = (train, {}) if row == REAL else make(row, train, job, multiple, device, tiny)
        numbers = judge_fidelity(train, whole.test, fake, seed=seed)
        part = path.with_suffix(".part.npz")
        np.savez(
            part,
            fc=edges(fake.fc).numpy(),
            y=fake.y.numpy(),
            info=np.array(json.dumps(info)),
            numbers=np.array(json.dumps(numbers)),
        )
        os.replace(part, path)
    except Exception:  # noqa: BLE001 - one failed job must not lose the others
        return f"{row} {site} {seed}: FAILED\n{traceback.format_exc()}"
    return f"{row} {site} {seed}: {time.perf_counter() - start:.0f} s {json.dumps(info)}"


def make(
    row: str, train: FCBatch, job: tuple, multiple: int, device: str, tiny: bool
) -> tuple[FCBatch, dict]:
    _, site, seed = job
    component = settings(row, tiny)
    where = device if component.name in ON_GPU else "cpu"
    generator = make_generator(component)
    start = time.perf_counter()
    state = generator.fit(
        FCBatch(train.fc.to(where), train.y.to(where)), torch_rng(seed, "generator", site)
    )
    fitted = time.perf_counter()
    out = generator.sample(state, train.y.repeat(multiple), torch_rng(seed, "judge", site, row))
    info = dict(generator.diagnostics(state)) | {"fit_seconds": fitted - start}
    return FCBatch(out.fc.cpu(), out.y.cpu()), info


def cost(job: tuple) -> int:
    """Longest jobs first."""
    row, site, _ = job
    heavy = ["paper", "authors", "brainnet", "gr_spd", "fcm_vae", "w/o", "regate", "flow"]
    rank = next((len(heavy) - i for i, word in enumerate(heavy) if word in row), 0)
    return -10 * rank - {"NYU": 3, "UM": 2}.get(site, 0)


def fit(args: argparse.Namespace) -> None:
    args.work.mkdir(parents=True, exist_ok=True)
    rows = [r for r in Panel(ROWS).rows if not args.rows or r in args.rows]
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


def read(work: Path, row: str, site: str, seed: int) -> tuple[FCBatch, dict, dict]:
    with np.load(file_of(work, row, site, seed)) as found:
        batch = FCBatch(from_edges(torch.from_numpy(found["fc"])), torch.from_numpy(found["y"]))
        return batch, json.loads(str(found["info"])), json.loads(str(found["numbers"]))


def available(args: argparse.Namespace) -> list[str]:
    """Rows whose samples exist for every site and seed."""
    pairs = [(s, k) for s in args.sites for k in range(args.seeds)]
    return [r for r in Panel(ROWS).rows if all(file_of(args.work, r, *p).exists() for p in pairs)]


def judge(args: argparse.Namespace) -> None:
    """Utility of every (site, classifier), each kept in a file; then all records."""
    rows = available(args)
    print("rows:", ", ".join(rows), flush=True)
    start = time.perf_counter()
    panel = Panel({}, training=Training(epochs=1 if args.tiny else args.epochs), lanes=80)
    units = [("tstr", m) for m in args.classifiers] + [("aug", m) for m in args.augment]
    records = []
    for site in args.sites:
        mine = [
            record_of(r, site, k, *reversed(read(args.work, r, site, k)[1:]))
            for k in range(args.seeds)
            for r in rows
        ]
        for prefix, model in units:
            chosen = [
                m for m in mine if prefix == "tstr" or m["row"] in AUGMENTED or m["row"] == REAL
            ]
            path = args.work / f"utility-{site}-{prefix}-{model}-{len(chosen)}.json"
            if not path.exists() and time.perf_counter() - start < args.limit:
                tasks = [task(args, m, prefix) for m in chosen]
                blank = [{"site": site, "numbers": {}} for _ in chosen]
                say = partial(talk, start)
                add_utility(blank, prefix, tasks, [model], panel, args.device, say)
                path.write_text(json.dumps([b["numbers"] for b in blank]))
            if path.exists():
                for record, extra in zip(chosen, json.loads(path.read_text()), strict=True):
                    record["numbers"].update(extra)
        records += mine
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "records.json").write_text(json.dumps(records))
    tables(args)


def talk(start: float, text: str) -> None:
    print(f"[{time.perf_counter() - start:5.0f} s] {text}", flush=True)


def task(args: argparse.Namespace, record: dict, prefix: str) -> Task:
    row, site, seed = record["row"], record["site"], record["seed"]
    whole = load(args.data, site, seed)
    fake = read(args.work, row, site, seed)[0]
    train = whole.learning(with_val=True)
    used = fake if prefix == "tstr" else augment(row, train, fake)
    to = args.device
    return Task(
        FCBatch(used.fc.to(to), used.y.to(to)),
        FCBatch(whole.test.fc.to(to), whole.test.y.to(to)),
        seed,
    )


def tables(args: argparse.Namespace) -> None:
    """Markdown of records.json, printed and written beside it."""
    records = json.loads((args.out / "records.json").read_text())
    table = summarise(records)
    rows = {r: c for r, c in Panel(ROWS).rows.items() if r in table and c is not None}
    panel = Panel(rows, augment=tuple(args.augment))
    check = "fcm_vae" if "fcm_vae" in table else "corr_gauss"
    text = markdown_report(
        "ABIDE-I, four sites, strict protocol",
        panel,
        table,
        acceptance(table, check),
        collapse_list(records),
    )
    (args.out / "generators.md").write_text(text)
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", choices=("fit", "judge", "tables"))
    parser.add_argument("--data", default="")
    parser.add_argument("--work", type=Path, default=Path("."))
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--procs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sites", nargs="*", default=SITES)
    parser.add_argument("--rows", nargs="*", default=[])
    parser.add_argument("--augment", nargs="*", default=FIVE)
    parser.add_argument("--classifiers", nargs="*", default=("linear", "gcn"))
    parser.add_argument("--limit", type=float, default=500.0, help="begin nothing after so long")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--multiple", type=int, default=4)
    parser.add_argument("--first-seeds-only", action="store_true", help="paper preset: seed 0 only")
    parser.add_argument("--tiny", action="store_true", help="one epoch of everything: a test")
    args = parser.parse_args()
    {"fit": fit, "judge": judge, "tables": tables}[args.stage](args)


if __name__ == "__main__":
    main()

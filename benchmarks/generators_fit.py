"""Fit generators in many single-thread processes until a time limit; pack and unpack results.

Every worker takes the next job nobody has claimed. A worker that is killed loses its job and is
replaced; what is finished lies in the work folder and is not done again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import generators_rows as g
import numpy as np
import torch

from fcforge.generators import make_generator
from fcforge.graphs import edges
from fcforge.randomness import torch_rng
from fcforge.studies.judge import judge_fidelity
from fcforge.studies.judge.panel import REAL, augment
from fcforge.studies.judge.portraits import portrait
from fcforge.studies.judge.utility import Task, classify
from fcforge.types import FCBatch, Training

MIB = 2**20
PART_MIB = 14


def fit_one(job: g.JobKey, args: argparse.Namespace) -> str:
    """Fit, sample, measure, store; a line on how it went."""
    start = time.perf_counter()
    whole = g.load(args.data, job.site, job.seed)
    train = whole.learning(with_val=True)
    fake, info = (train, {}) if job.row == REAL else synthesise(job, train, args)
    numbers: dict[str, Any] = judge_fidelity(train, whole.test, fake, seed=job.seed)
    for prefix, used in (("tstr", fake), ("aug", augment(job.row, train, fake))):
        (found,) = classify([Task(used, whole.test, job.seed)], "linear", Training())
        numbers |= {f"{prefix}_linear_{k}": v for k, v in found.items()}
    few = fake.select(slice(0, len(train)))
    if (job.site, job.seed) == ("NYU", 0):
        g.write_arrays(g.portrait_file(args.work, job), portrait(few)._asdict())
    arrays = {"fc": edges(few.fc).numpy().astype(np.float16), "y": few.y.numpy()}
    g.write_arrays(g.samples_file(args.work, job), arrays)
    took = time.perf_counter() - start
    record = {"info": info, "numbers": numbers, "seconds": took}
    g.write_bytes(g.numbers_file(args.work, job), json.dumps(record).encode())
    return f"{took:.0f} s (expected {g.seconds(job):.0f})"


def synthesise(
    job: g.JobKey, train: FCBatch, args: argparse.Namespace
) -> tuple[FCBatch, dict[str, Any]]:
    """Synthetic subjects, `multiple` per training subject, and diagnostics."""
    generator = make_generator(g.component(job.row, args.tiny))
    start = time.perf_counter()
    if g.state_file(args.work, job).exists():
        with np.load(g.state_file(args.work, job)) as found:
            state = {k: torch.from_numpy(found[k]) for k in found.files}
        how = {"fit_seconds": float(state.pop("fit_seconds")), "lanes": int(state.pop("lanes"))}
    else:
        device = args.device if args.on_device else "cpu"
        batch = FCBatch(train.fc.to(device), train.y.to(device))
        state = generator.fit(batch, torch_rng(job.seed, "generator", job.site))
        state = {k: v.cpu() for k, v in state.items()}
        how = {"fit_seconds": time.perf_counter() - start, "fitted_on": str(device)}
    rng = torch_rng(job.seed, "judge", job.site, job.row)
    out = generator.sample(state, train.y.repeat(args.multiple), rng)
    return out, {**generator.diagnostics(state), **how}


def worker(jobs: list[g.JobKey], args: argparse.Namespace, start: float, end: float) -> None:
    """Take unclaimed jobs in order while there is time; with --follow, GANs as they are trained."""
    torch.set_num_threads(1)
    pace = 0.3 if args.on_device else 1.0  # seconds per second expected of a CPU core
    while True:
        last = not args.follow or (args.work / "gan.done").exists()
        for job in jobs:
            if _worth(job, args, pace, end - time.time()) and _claim(job, args, start):
                pace = _attempt(job, args, start, pace)
        if last:
            return
        time.sleep(0.5)


def _worth(job: g.JobKey, args: argparse.Namespace, pace: float, left: float) -> bool:
    """Whether a job can be done now and before the end."""
    state = g.state_file(args.work, job).exists()
    if job.row in g.GANS and not state and args.gans != "cpu":
        return False
    return args.tiny or (5.0 if state else pace * g.seconds(job)) <= left


def _claim(job: g.JobKey, args: argparse.Namespace, start: float) -> bool:
    """Whether nobody else of this crew has taken the job."""
    try:
        claim = args.work / f"{job.name}.{start:.0f}.claim"
        os.close(os.open(claim, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _attempt(job: g.JobKey, args: argparse.Namespace, start: float, pace: float) -> float:
    """Do a job; the pace found. What fails on the device is done, now and later, on the CPU."""
    state = g.state_file(args.work, job).exists()
    began = time.time()
    try:
        text = fit_one(job, args)
    except Exception:  # noqa: BLE001 - one failed job must not lose the others
        text = f"FAILED\n{traceback.format_exc()}"
    took = time.time() - began
    if g.seconds(job) > 4 and not state:
        pace = max(0.3, 0.5 * pace + 0.5 * took / g.seconds(job))
    print(f"[{time.time() - start:4.0f} s] {job.row} {job.site} {job.seed}: {text}", flush=True)
    if text.startswith("FAILED") and args.on_device:
        args.on_device = False
        torch.set_num_threads(4)
        return _attempt(job, args, start, 1.0)
    return pace


def fit(args: argparse.Namespace, finished: set[g.JobKey]) -> None:
    """All jobs that are neither finished nor stored, until --limit."""
    args.work.mkdir(parents=True, exist_ok=True)
    todo = g.jobs(args.rows, args.sites, args.seeds, args.all_seeds)
    todo = [j for j in todo if j not in finished and not g.stored(args.work, j)]
    if args.on_device:  # a seed counts when all sites have it
        todo.sort(key=lambda j: j.seed)
    if args.gans == "later":
        todo = [j for j in todo if j.row not in g.GANS]
    cost = sum(map(g.seconds, todo))
    print(f"{len(todo)} fits, about {cost:.0f} CPU s on {args.procs} processes", flush=True)
    start = time.time()
    end = start + args.limit
    context = multiprocessing.get_context("spawn")

    def launch() -> Any:
        process = context.Process(target=worker, args=(todo, args, start, end), daemon=True)
        process.start()
        return process

    crew = [launch() for _ in range(min(args.procs, len(todo)))]
    spare = 2 * len(crew)  # a fault that ends every worker must not go on for ever
    while any(p.is_alive() for p in crew) and time.time() < end:
        time.sleep(0.2)
        for i, process in enumerate(crew):
            if process.exitcode not in (None, 0) and spare > 0:
                spare -= 1
                print(f"a worker ended with {process.exitcode}; a new one starts", flush=True)
                crew[i] = launch()
    for process in crew:
        process.terminate()
        process.join()
    left = [j for j in todo if not g.stored(args.work, j)]
    names = ", ".join(j.name for j in left[:20])
    print(f"fit: {len(todo) - len(left)} done, {len(left)} left: {names}", flush=True)


# -- to another machine and back ----------------------------------------------------------------
def pack(args: argparse.Namespace, finished: set[g.JobKey]) -> None:
    """Numbers, portraits, samples that are needed or of --rows (dearest first) into --out."""
    args.out.mkdir(parents=True, exist_ok=True)
    everything = g.jobs([], args.sites, args.seeds, True)
    found = {
        j.name: g.read_json(g.numbers_file(args.work, j))
        for j in everything
        if g.numbers_file(args.work, j).exists()
    }
    g.write_bytes(args.out / "gen_numbers.json", json.dumps(found).encode())
    judged = args.work / "judged.jsonl"
    if judged.exists():
        g.write_bytes(args.out / "gen_judged.jsonl", judged.read_bytes())
    pictures: dict[str, np.ndarray] = {}
    for job in everything:
        if g.portrait_file(args.work, job).exists():
            with np.load(g.portrait_file(args.work, job)) as p:
                pictures |= {f"{job.name}|{k}": p[k].astype(np.float16) for k in p.files}
    if pictures:
        g.write_arrays(args.out / "gen_portraits.npz", pictures)
    wanted = [
        j
        for j in sorted(everything, key=lambda j: -g.seconds(j))
        if (j not in finished or j.row in args.rows)
        and j.row not in g.CHEAP
        and g.stored(args.work, j)
    ]
    _pack_samples(args, wanted)


def _pack_samples(args: argparse.Namespace, wanted: list[g.JobKey]) -> None:
    def small(job: g.JobKey) -> dict[str, np.ndarray]:
        with np.load(g.samples_file(args.work, job)) as found:
            return g.squeeze(found["fc"], found["y"])

    total, part, parts = 0, {}, 0
    carried = 0
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 12)) as pool:
        for job, arrays in zip(wanted, pool.map(small, wanted), strict=True):
            size = sum(a.nbytes for a in arrays.values()) + 2048
            if total + size > args.budget * MIB:
                break
            if sum(a.nbytes for a in part.values()) + size > PART_MIB * MIB:
                g.write_arrays(args.out / f"gen_samples_{parts}.npz", part)
                part, parts = {}, parts + 1
            part |= {f"{job.name}|{k}": np.asarray(v) for k, v in arrays.items()}
            total, carried = total + size, carried + 1
    if part:
        g.write_arrays(args.out / f"gen_samples_{parts}.npz", part)
        parts += 1
    while (old := args.out / f"gen_samples_{parts}.npz").exists():  # of an earlier call
        old.unlink()
        parts += 1
    print(f"packed {carried} of {len(wanted)} sample sets, {total / MIB:.1f} MiB", flush=True)


def unpack(args: argparse.Namespace) -> None:
    """What `pack` wrote to --back into the work folder, where it is not there already.

    Samples only of --rows where given. GANs that were not trained in lanes are left out: their
    schedule was another one.
    """
    args.work.mkdir(parents=True, exist_ok=True)
    kept = {job.name for job in g.jobs([], args.sites, args.seeds, True)}
    for name, record in _read_back(args.back, "gen_numbers.json").items():
        if name.startswith(g.GANS) and "lanes" not in record["info"]:
            kept.discard(name)
        elif not (args.work / f"{name}.json").exists():
            g.write_bytes(args.work / f"{name}.json", json.dumps(record).encode())
    old = args.back / "gen_judged.jsonl"
    new = args.work / "judged.jsonl"
    if old.exists():
        whole = [line for line in old.read_text().splitlines() if line.endswith("}")]
        lines = dict.fromkeys(line for line in whole if json.loads(line)["job"] in kept)
        lines |= dict.fromkeys(new.read_text().splitlines() if new.exists() else [])
        g.write_bytes(new, ("\n".join(lines) + "\n").encode())
    sampled = {job.name for job in g.jobs(args.rows, args.sites, args.seeds, True)} & kept
    for file in sorted(args.back.glob("gen_*.npz")):
        for name, arrays in _by_job(file).items():
            if "q" in arrays and name in sampled and not (args.work / f"{name}.npz").exists():
                fc, y = g.unsqueeze(arrays)
                g.write_arrays(args.work / f"{name}.npz", {"fc": fc, "y": y})
            picture = args.work / f"{name}.portrait.npz"
            if "q" not in arrays and name in kept and not picture.exists():
                g.write_arrays(picture, arrays)
    print(f"unpacked {len(list(args.work.glob('*.npz')))} files", flush=True)


def _read_back(folder: Path, name: str) -> dict[str, Any]:
    return g.read_json(folder / name) if (folder / name).exists() else {}


def _by_job(file: Path) -> dict[str, dict[str, np.ndarray]]:
    out: dict[str, dict[str, np.ndarray]] = {}
    with np.load(file) as found:
        for key in found.files:
            name, field = key.split("|")
            out.setdefault(name, {})[field] = found[key]
    return out

"""All generators on real ABIDE, four sites, many seeds: torch and numpy are enough.

    python benchmarks/generators_study.py fit    --data FILE --work DIR --procs 13 --limit 500
    python benchmarks/generators_study.py gan    --data FILE --work DIR --device cuda --limit 200
    python benchmarks/generators_study.py judge  --data FILE --work DIR --device cuda --limit 250
    python benchmarks/generators_study.py pack   --work DIR --out DIR      (unpack --back DIR)
    python benchmarks/generators_study.py tables --work DIR --out DIR

`fit` trains every generator of every (site, seed) on CPU cores, most important first, and keeps
fidelity, the linear classifiers' scores and as many synthetic subjects as training ones. `gan`
trains the two GANs of all sites and seeds as lanes on a GPU; `fit` then takes them up. `judge`
trains the network classifiers, all (row, seed) of a site side by side, and keeps every score at
once. Both begin nothing after --limit seconds and go on when called again; `pack` writes what
another machine needs to go on.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import traceback
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import Any

import generators_rows as g
import torch
from generators_fit import fit, pack, unpack
from generators_gan import gan

from fcforge.studies.judge.panel import REAL, Panel, acceptance, augment, record_of, summarise
from fcforge.studies.judge.utility import Task, classify
from fcforge.types import FCBatch, Training

Unit = tuple[str, str]  # ("tstr" or "aug", classifier)
LEAST = 10  # lanes worth a group while more are on their way


def units(args: argparse.Namespace) -> list[Unit]:
    """Classifiers to train, most important first."""
    return [("tstr", m) for m in args.classifiers] + [("aug", m) for m in args.augment]


def needs(job: g.JobKey, unit: Unit) -> bool:
    """Whether a row takes part."""
    return unit[0] == "tstr" or job.row in g.AUGMENTED


def read_judged(work: Path) -> dict[tuple[str, str, str], dict[str, float]]:
    """(job name, prefix, classifier) to scores."""
    path = work / "judged.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("}")]
    return {(f["job"], f["prefix"], f["model"]): f["scores"] for f in found}


def finished(args: argparse.Namespace) -> set[g.JobKey]:
    """Jobs that need neither fitting nor their samples any more."""
    judged = read_judged(args.work)
    return {
        job
        for job in g.jobs([], args.sites, args.seeds, True)
        if g.numbers_file(args.work, job).exists()
        and all((job.name, *u) in judged for u in units(args) if needs(job, u))
    }


def groups(args: argparse.Namespace, unit: Unit) -> list[list[g.JobKey]]:
    """Jobs still to be judged by one classifier, in groups that train side by side.

    While fits go on (--follow), only whole rows of a site, and not a few lanes at a time: they
    would take as long as many.
    """
    judged = read_judged(args.work)
    there = any((args.work / name).exists() for name in ("gan.sampled", "fit.done"))
    waiting = args.follow and not there
    together: dict[tuple[str, bool], list[g.JobKey]] = defaultdict(list)
    for row, site in product(g.PRIORITY, args.sites):
        jobs = [j for j in g.jobs([row], [site], args.seeds, True) if needs(j, unit)]
        ready = [j for j in jobs if g.samples_file(args.work, j).exists()]
        if not waiting or len(ready) >= min(args.seeds, g.PRIORITY[row][2]):
            # real subjects alone are half as many as augmented ones
            alone = unit[0] == "aug" and row == REAL
            together[site, alone] += [j for j in ready if (j.name, *unit) not in judged]
    found = []
    for (_, alone), members in together.items():
        if members and (alone or not waiting or len(members) >= LEAST):
            found += [members[i : i + args.lanes] for i in range(0, len(members), args.lanes)]
    return found


def task(args: argparse.Namespace, job: g.JobKey, prefix: str) -> Task:
    """Training and test set of one classifier, on the device."""
    whole = g.load(args.data, job.site, job.seed)
    fake = g.read_samples(args.work, job)
    used = fake if prefix == "tstr" else augment(job.row, whole.learning(with_val=True), fake)
    to = args.device
    test = FCBatch(whole.test.fc.to(to), whole.test.y.to(to))
    return Task(FCBatch(used.fc.to(to), used.y.to(to)), test, job.seed)


def train_group(args: argparse.Namespace, members: list[g.JobKey], unit: Unit) -> None:
    """Train and keep; a card without room for all of them gets half at a time."""
    training = Training(
        epochs=1 if args.tiny else args.epochs, precision="tf32" if args.tf32 else "float32"
    )
    tasks = [task(args, job, unit[0]) for job in members]
    try:
        scores = classify(tasks, unit[1], training, args.device, len(tasks))
    except torch.cuda.OutOfMemoryError:
        del tasks
        torch.cuda.empty_cache()
        if len(members) == 1:
            raise
        train_group(args, members[: len(members) // 2], unit)
        train_group(args, members[len(members) // 2 :], unit)
        return
    lines = [
        json.dumps({"job": job.name, "prefix": unit[0], "model": unit[1], "scores": found}) + "\n"
        for job, found in zip(members, scores, strict=True)
    ]
    with (args.work / "judged.jsonl").open("a") as stream:
        stream.write("".join(lines))


def judge(args: argparse.Namespace) -> None:
    """Scores of every classifier still missing, until --limit."""
    start = time.perf_counter()
    rate: dict[str, float] = {}  # seconds per lane of a classifier
    failed: set[tuple[Unit, g.JobKey]] = set()
    while True:
        over = not args.follow or (args.work / "fit.done").exists()
        trained = sum(_judge_unit(args, unit, start, rate, failed) for unit in units(args))
        passed = time.perf_counter() - start
        if passed > args.limit or (over and not trained):
            return
        if not trained:
            time.sleep(3)


def _judge_unit(
    args: argparse.Namespace,
    unit: Unit,
    start: float,
    rate: dict[str, float],
    failed: set[tuple[Unit, g.JobKey]],
) -> int:
    """Train what is there for one classifier; how many groups."""
    trained = 0
    for members in groups(args, unit):
        passed = time.perf_counter() - start
        late = passed + rate.get(unit[1], 0.0) * len(members) > args.limit
        if late or (unit, members[0]) in failed:
            continue
        try:
            train_group(args, members, unit)
        except Exception:  # noqa: BLE001 - one classifier that fails must not lose the others
            failed.add((unit, members[0]))
            print(f"{unit} at {members[0].site} FAILED\n{traceback.format_exc()}", flush=True)
        if torch.device(args.device).type == "cuda":
            torch.cuda.empty_cache()
        took = time.perf_counter() - start - passed
        rate[unit[1]] = max(rate.get(unit[1], 0.0), 0.8 * took / max(len(members), 8))
        trained += 1
        where = f"{members[0].site}, {len(members)} lanes"
        print(f"[{passed:4.0f} s] {unit[0]} {unit[1]} {where}: {took:.1f} s", flush=True)
    return trained


# -- tables -------------------------------------------------------------------------------------
def records(args: argparse.Namespace) -> list[dict[str, Any]]:
    """One record per job; what a (row, seed) has not at every site is left out."""
    judged: dict[str, dict[str, float]] = defaultdict(dict)
    for (name, prefix, model), scores in read_judged(args.work).items():
        judged[name] |= {f"{prefix}_{model}_{k}": v for k, v in scores.items()}
    found: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for job in g.jobs([], args.sites, args.seeds, True):
        if g.numbers_file(args.work, job).exists():
            stored = g.read_json(g.numbers_file(args.work, job))
            numbers = {**stored["numbers"], **judged[job.name]}
            record = record_of(job.row, job.site, job.seed, numbers, stored["info"])
            found[job.row, job.seed].append(record)
    order = list(g.PRIORITY)
    whole = {key: group for key, group in found.items() if len(group) == len(args.sites)}
    for group in whole.values():
        common = set.intersection(*(set(r["numbers"]) for r in group))
        for r in group:
            r["numbers"] = {k: v for k, v in r["numbers"].items() if k in common}
    return [r for key in sorted(whole, key=lambda k: order.index(k[0])) for r in whole[key]]


def tables(args: argparse.Namespace) -> None:
    """Markdown of all tables, printed and written with records.json to --out."""
    import generators_docs as docs

    from fcforge.report.judge import markdown
    from fcforge.studies.judge.experiment import Judgement, collapse_list

    args.out.mkdir(parents=True, exist_ok=True)
    found = records(args)
    g.write_bytes(args.out / "records.json", json.dumps(found).encode())
    summary = summarise(found)
    rows = {r: c for r, c in Panel(g.ROWS).rows.items() if r in summary and c is not None}
    findings = acceptance(summary, "fcm_vae") if {"fcm_vae", REAL} <= set(summary) else []
    panel = Panel(rows, augment=("linear", *args.augment))
    title = "ABIDE-I, four sites, strict protocol"
    text = markdown(Judgement(title, panel, summary, findings, collapse_list(found)))
    g.write_bytes(args.out / "generators.md", text.encode())
    print(text)
    models = ("linear", *args.augment)
    if findings:
        pieces = [docs.must_show(found).markdown(), docs.schedule(found).markdown()]
        pieces.append(docs.reproducibility(found, models))
        g.write_bytes(args.out / "documents.md", "\n\n".join(pieces).encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", choices=("fit", "gan", "judge", "pack", "unpack", "tables"))
    parser.add_argument("--data", default="")
    parser.add_argument("--work", type=Path, default=Path("."))
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--back", type=Path, default=Path(".carry/gen_out"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--procs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--all-seeds", action="store_true", help="also for the dearest rows")
    parser.add_argument("--sites", nargs="*", default=g.SITES)
    parser.add_argument("--rows", nargs="*", default=[])
    parser.add_argument(
        "--gans", choices=("lanes", "cpu", "later"), default="lanes", help="GANs: where"
    )
    parser.add_argument("--augment", nargs="*", default=g.FIVE)
    parser.add_argument("--classifiers", nargs="*", default=("gcn",))
    parser.add_argument("--limit", type=float, default=500.0, help="begin nothing after so long")
    parser.add_argument("--budget", type=float, default=40.0, help="MiB of packed samples")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--multiple", type=int, default=4)
    parser.add_argument("--lanes", type=int, default=80)
    parser.add_argument(
        "--follow",
        action="store_true",
        help="judge: until fit.done; fit: until gan.done (in --work)",
    )
    parser.add_argument("--on-device", action="store_true", help="fit: on --device, not the CPU")
    parser.add_argument("--tf32", action="store_true", help="tensor cores in judge's products")
    parser.add_argument("--tiny", action="store_true", help="one epoch of everything: a test")
    args = parser.parse_args()
    if args.stage in ("fit", "gan", "pack"):
        {"fit": fit, "gan": gan, "pack": pack}[args.stage](args, finished(args))
    else:
        {"judge": judge, "unpack": unpack, "tables": tables}[args.stage](args)


if __name__ == "__main__":
    main()

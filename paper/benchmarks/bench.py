"""fcforge beside its peers: every ratio is measured in one run, on the machine that runs it.

    make bench                                              # CPU, with Avalanche beside it
    python paper/benchmarks/bench.py [--device cpu|cuda] [--seconds 3] [--avalanche PYTHON]
    python paper/benchmarks/bench.py --only steps vae       # some of the parts

Parts:

- `steps`: training steps of FORGE on the paper's GCN (30 new subjects, remembered ones with their
  labels, logits and readouts), on one lane and on several, beside a plain PyG loop, a plain dense
  loop in PyTorch, and the authors' step re-written plainly in PyG (64 remembered subjects in a
  forward pass of their own).
- `vae`: a fit of FCM-VAE (variant `stable`) beside the same network as a plain `nn.Module`.
- `scaling`: FORGE's epochs by ROIs, by subjects of a site and by past sites.
- `avalanche`: EWC and ER beside Avalanche, which `--avalanche` names a Python for. It is installed
  into an environment of its own (`make bench`); without it the part says so.

Needs torch and numpy; PyG for its rows. On a GPU seconds are of the wall clock, on a CPU those of
the process, so that other programs disturb less.
"""

import json
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from lanes import (
    AUTHORS,
    BATCH,
    FORGE,
    MEMORY,
    Replay,
    Step,
    dense_step,
    fake_people,
    lanes_step,
    pyg_step,
)
from plain_vae import fit_plain
from setting import (
    DEVICE,
    MOST,
    Enough,
    EpochTimer,
    machine,
    options,
    own_seconds,
    save,
    show,
)

from fcforge.core.component import Component
from fcforge.core.spec import Training
from fcforge.generators.fcm_vae import StableVAE
from fcforge.generators.fcm_vae.training import train
from fcforge.methods import Lane, make_method
from fcforge.methods.base import Learner
from fcforge.models.gcn import GCN
from fcforge.nn.tensors import moved
from fcforge.replay.bank import Bank, PoolName, SiteView
from fcforge.training.initial_lanes import start_lane
from fcforge.training.lanes import Job
from fcforge.training.loop import learn_site

Row = dict[str, Any]
AUTHORS_FORGE = Component(
    "forge", {"variant": "authors", "memory": MEMORY, "sampling": "uniform"}
)
PEER = Path(__file__).with_name("avalanche_peer.py")
VAE_EPOCHS = {"cpu": 4, "cuda": 100}
SIDE_BY_SIDE = 20


def steps_per_second(step: Step, args: Namespace, models: int = 1) -> float:
    """Model-steps per second of a callable that advances `models` models."""
    block = 5 if args.device.startswith("cuda") else 1
    for _ in range(block):
        step()
    begun, n = own_seconds(args.device), 0
    while True:
        for _ in range(block):
            step()
        n += block
        spent = own_seconds(args.device) - begun
        if spent > args.seconds:
            return n * models / spent


def ours_on(lanes: int) -> str:
    """Name of our program in a table."""
    return f"fcforge, {lanes} lane{'s' * (lanes > 1)}"


# -- FORGE's step ----------------------------------------------------------------------------------
def measure_steps(args: Namespace) -> list[Row]:
    """FORGE's step in four programs; the ratio is to the PyG loop of the same arithmetic."""
    people = fake_people(args.people, args.rois[0])
    joint = Replay(joint=True)
    kinds = {
        "FORGE": (FORGE, joint, "plain PyG loop"),
        "FORGE, variant authors": (AUTHORS_FORGE, AUTHORS, "authors' step in PyG"),
    }
    rows = []
    for title, (method, replay, pyg) in kinds.items():
        results: dict[str, float] = {}
        with suppress(ImportError):
            step = pyg_step(args.device, people, 0.4, replay=replay)
            results[pyg] = steps_per_second(step, args)
        step = dense_step(args.device, people, replay)
        results["plain dense loop"] = steps_per_second(step, args)
        for n in args.lanes:
            step = lanes_step(args.device, n, people, method)
            results[ours_on(n)] = steps_per_second(step, args, n)
            del step
        beside = results.get(pyg, float("nan"))
        for name, rate in results.items():
            row = {"step": title, "program": name, "steps/s": rate}
            row["x PyG"] = rate / beside
            rows.append(row | {"x dense loop": rate / results["plain dense loop"]})
    if all(row["program"] != "plain PyG loop" for row in rows):
        print("torch_geometric is not installed: no PyG rows")
    return rows


# -- FCM-VAE ---------------------------------------------------------------------------------------
def measure_vae(args: Namespace) -> list[Row]:
    """Seconds per epoch of a site of FCM-VAE; the ratio is to the plain module."""
    device = torch.device(args.device)
    epochs = args.vae_epochs or VAE_EPOCHS[device.type]
    vae = StableVAE(epochs=epochs)
    site = moved(vae.prepare_site(fake_people(args.site, args.rois[0]))[1], device)

    def fit(sites: int) -> Callable[[], Any]:
        rngs = [torch.Generator().manual_seed(seed) for seed in range(sites)]
        return lambda: train(vae, [site] * sites, rngs)

    work = {"plain nn.Module": (1, lambda: fit_plain(vae, site, epochs))}
    work["fcforge"] = (1, fit(1))
    if device.type == "cuda":
        work[f"fcforge, {SIDE_BY_SIDE} sites side by side"] = (
            SIDE_BY_SIDE,
            fit(SIDE_BY_SIDE),
        )
    fit_plain(vae, site, 1)  # warm
    results = {}
    for name, (sites, run) in work.items():
        begun = own_seconds(args.device)
        run()
        results[name] = (own_seconds(args.device) - begun) / sites / epochs
    base = results["plain nn.Module"]
    return [
        {"program": name, "subjects": args.site, "ms per epoch and site": 1e3 * took}
        | {"x plain": base / took}
        for name, took in results.items()
    ]


# -- scaling ---------------------------------------------------------------------------------------
class World:
    """Sites of made-up subjects that lanes learn one after another."""

    def __init__(self, rois: int, subjects: int, lanes: int, args: Namespace) -> None:
        self.args, self.subjects = args, subjects
        self.bank = Bank(args.device)
        size = {"memory": MEMORY, "candidates": args.candidates}
        self.learner = Learner(
            make_method(Component("forge", size | {"dev": min(64, args.candidates)})),
            GCN(rois),
        )
        self.rois = rois
        self.lanes = [
            start_lane(self.learner, seed, args.device) for seed in range(lanes)
        ]
        self.names: list[str] = []

    def jobs(self) -> list[Job]:
        """Jobs of all lanes at one more site, which they share; they differ in their seed."""
        name = f"site{len(self.names)}"
        people = fake_people(self.subjects, self.rois, seed=len(self.names))
        rows = self.bank.add(PoolName("real", name, 0, "train"), people)
        pool = PoolName("synthetic", name, 0, "train")

        def synthetic(n: int) -> torch.Tensor:
            if pool in self.bank:
                return self.bank.rows(pool)
            made = fake_people(n, self.rois, seed=1000 + len(self.names))
            return self.bank.add(pool, made)

        view = SiteView(name, len(self.names), self.bank, rows, rows[:0], synthetic)
        self.names.append(name)
        return [
            Job(lane, view, seed, tuple(self.names))
            for seed, lane in enumerate(self.lanes)
        ]

    def learn(self, jobs: list[Job] | None = None) -> None:
        """One epoch at one more site, which ends."""
        jobs = jobs or self.jobs()
        self.lanes = learn_site(self.learner, jobs, self.bank, Training(epochs=1))

    def epoch(self) -> float:
        """Median seconds of an epoch at one more site; then one epoch of it is learned."""
        jobs = self.jobs()
        timer = EpochTimer(self.args.device, self.args.seconds)
        with suppress(Enough):
            learn_site(self.learner, jobs, self.bank, Training(epochs=MOST), tick=timer)
        self.learn(jobs)  # the timer has ended the training above before its site did
        return timer.median


def scaling_row(kind: str, n: int, world: World, lanes: int) -> Row:
    took, steps = world.epoch(), -(-world.subjects // 32)
    row = {"by": kind, "n": n, "lanes": lanes, "ms per epoch": 1e3 * took}
    return row | {"steps/s": lanes * steps / took}


def measure_scaling(args: Namespace) -> list[Row]:
    """FORGE's epochs at the second site by ROIs and subjects, then by the number of past sites."""
    rows = []
    lanes = args.lanes[-1] if args.device.startswith("cuda") else 1
    for rois in args.rois:
        world = World(rois, args.subjects[0], lanes, args)
        world.learn()
        rows.append(scaling_row("ROIs", rois, world, lanes))
    for subjects in args.subjects:
        world = World(args.rois[0], subjects, lanes, args)
        world.learn()
        rows.append(scaling_row("subjects of a site", subjects, world, lanes))
    world = World(args.rois[0], args.subjects[0], lanes, args)
    for past in range(max(args.past) + 1):
        if past in args.past:
            rows.append(scaling_row("past sites", past, world, lanes))
        else:
            world.learn()
    return rows


# -- Avalanche -------------------------------------------------------------------------------------
def measure_avalanche(args: Namespace) -> list[Row]:
    """Steps per second of EWC and ER at a second site, beside Avalanche's."""
    theirs: dict[str, Any] = {}
    if args.avalanche:
        theirs = peer_rates(args)
    else:
        print("Avalanche is not installed here (--avalanche PYTHON): no rows of it")
    rows = []
    settings = {"ewc": {"strength": 1.0}, "er": {"memory": MEMORY, "replay": 32}}
    for name, params in settings.items():
        rate = theirs.get(name, float("nan"))
        if theirs:
            title = f"Avalanche {theirs['version']}"
            rows.append({"method": name, "program": title, "steps/s": rate})
        # a CPU trains one lane per process: there lanes of one group gain nothing
        for n in args.lanes if args.device.startswith("cuda") else args.lanes[:1]:
            learner = Learner(make_method(Component(name, params)), GCN(args.rois[0]))
            ours = second_site_rate(learner, n, args)
            row = {"method": name, "program": ours_on(n), "steps/s": ours}
            rows.append(row | ({"x Avalanche": ours / rate} if theirs else {}))
    for row in rows:
        if theirs:
            row.setdefault("x Avalanche", 1.0)
    return rows


def second_site_rate(learner: Learner, lanes: int, args: Namespace) -> float:
    """Model-steps per second of an epoch at a second site of four batches."""
    bank = Bank(args.device)
    started: list[Lane] = [start_lane(learner, i, args.device) for i in range(lanes)]
    timer = EpochTimer(args.device, args.seconds)
    for position in range(2):
        people = fake_people(4 * BATCH, args.rois[0], seed=position)
        rows = bank.add(PoolName("real", f"{position}", 0, "train"), people)
        view = SiteView(f"{position}", position, bank, rows, rows[:0])
        prefix = tuple(f"{i}" for i in range(position + 1))
        jobs = [Job(lane, view, seed, prefix) for seed, lane in enumerate(started)]
        if position:
            with suppress(Enough):
                learn_site(learner, jobs, bank, Training(epochs=MOST), tick=timer)
        else:
            started = learn_site(learner, jobs, bank, Training(epochs=1))
    return 4 * lanes / timer.median


def peer_rates(args: Namespace) -> dict[str, Any]:
    """Run `avalanche_peer.py` in an environment that has Avalanche, and return its measurements."""
    asked = {name: getattr(args, name) for name in ("device", "seconds", "rois")}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        command = [args.avalanche, str(PEER), json.dumps(asked), str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["without a message"])[-1]
            print(f"Avalanche failed and has no rows: {last}", file=sys.stderr)
            return {}
        return json.loads(out.read_text())


PARTS = {
    "steps": measure_steps,
    "vae": measure_vae,
    "scaling": measure_scaling,
    "avalanche": measure_avalanche,
}


def main() -> None:
    args = options(
        __doc__,
        device=DEVICE,
        only=tuple(PARTS),
        lanes=(1, 24),
        rois=(116, 200, 400),
        subjects=(96, 192, 384),
        past=(1, 2, 4, 8),
        candidates=256,
        people=200,
        site=172,
        vae_epochs=0,
        seconds=3.0,
        threads=1,
        avalanche=str,
        out=Path,
    )
    torch.set_num_threads(args.threads)
    print(f"{machine(args.device)}, {args.threads} thread(s)", flush=True)
    results: dict[str, Any] = {"machine": machine(args.device), "device": args.device}
    for name in args.only:
        begun = own_seconds(args.device)
        results[name] = PARTS[name](args)
        print(f"\n{name} ({own_seconds(args.device) - begun:.0f} s)")
        show(results[name])
    save(args.out, results)


if __name__ == "__main__":
    main()

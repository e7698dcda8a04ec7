"""Both GANs of all sites and seeds as lanes on a GPU, with the steps that a time limit allows."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import generators_rows as g
import numpy as np

from fcforge.generators import make_generator
from fcforge.generators.base import GeneratorState
from fcforge.randomness import torch_rng
from fcforge.types import Component, FCBatch

MARGIN = 1.1  # of the seconds a step took in the trial


class Pace(NamedTuple):
    """Steps wanted of a GAN, and what a trial says that they cost (seconds)."""

    wanted: int
    once: float
    each: float


def affordable(paces: Sequence[Pace], seconds: float) -> int:
    """Steps of the first GAN when all get the same share of the steps wanted of them.

    A share of time instead would starve the GAN whose step turns out dearer than thought:
    GR-SPD-GAN got 252 steps of 1,500 and BrainNetGAN 600 of 1,000.
    """
    whole = sum(MARGIN * p.wanted * p.each for p in paces)
    share = (seconds - sum(p.once for p in paces)) / whole
    return int(paces[0].wanted * min(max(share, 0.0), 1.0))


@dataclass(frozen=True)
class Lanes:
    """One GAN of many (site, seed), on the device."""

    settings: Component
    jobs: Sequence[g.JobKey]
    batches: Sequence[FCBatch]

    @property
    def wanted(self) -> int:
        """Steps, if there is time."""
        return int(self.settings.params["steps"])

    def fit(self, steps: int) -> list[GeneratorState]:
        """States after so many steps, on the CPU."""
        params = {**self.settings.params, "steps": steps}
        generator = make_generator(Component(self.settings.name, params))
        rngs = [torch_rng(job.seed, "generator", job.site) for job in self.jobs]
        states = generator.fit_lanes(self.batches, rngs)
        return [{k: v.cpu() for k, v in state.items()} for state in states]

    def pace(self) -> Pace:
        """Seconds by a trial of 2 + 12 steps, after 2 in which libraries choose kernels."""
        self.fit(2)
        few = _seconds(self, 2)
        each = max(_seconds(self, 12) - few, 1e-3) / 10
        return Pace(self.wanted, max(few - 2 * each, 0.0), each)

    def keep(self, work: Path, steps: int) -> None:
        """Train and store the states; `fit` takes them up."""
        began = time.perf_counter()
        states = self.fit(steps)
        took = time.perf_counter() - began
        for job, state in zip(self.jobs, states, strict=True):
            arrays = {k: v.numpy() for k, v in state.items()}
            arrays |= {"fit_seconds": np.array(took), "lanes": np.array(len(self.jobs))}
            g.write_arrays(g.state_file(work, job), arrays)
        name = self.settings.name
        print(f"{name}: {steps} steps of {len(self.jobs)} lanes in {took:.0f} s", flush=True)


def _seconds(lanes: Lanes, steps: int) -> float:
    began = time.perf_counter()
    lanes.fit(steps)
    return time.perf_counter() - began


def gan(args: argparse.Namespace, finished: set[g.JobKey]) -> None:
    """GANs of all sites and seeds on --device, as many steps as --limit seconds allow."""
    args.work.mkdir(parents=True, exist_ok=True)
    end = time.time() + args.limit
    crew = [lanes for row in g.GANS if (lanes := _missing(args, row, finished)).jobs]
    paces = []
    for lanes in [] if args.tiny else crew:
        paces.append(lanes.pace())
        pace = f"{paces[-1].once:.1f} s once, {paces[-1].each:.3f} s per step"
        print(f"{lanes.settings.name}: {pace} of {len(lanes.jobs)} lanes", flush=True)
    for i, lanes in enumerate(crew):
        steps = lanes.wanted if args.tiny else affordable(paces[i:], end - time.time())
        if steps >= 1:
            lanes.keep(args.work, steps)


def _missing(args: argparse.Namespace, row: str, finished: set[g.JobKey]) -> Lanes:
    """What is neither finished nor stored nor trained."""
    todo = [
        j
        for j in g.jobs([row], args.sites, args.seeds, True)
        if j not in finished
        and not g.stored(args.work, j)
        and not g.state_file(args.work, j).exists()
    ]
    batches = []
    for job in todo:
        train = g.load(args.data, job.site, job.seed).learning(with_val=True)
        batches.append(FCBatch(train.fc.to(args.device), train.y.to(args.device)))
    return Lanes(g.component(row, args.tiny, lanes=True), todo, batches)

"""How long and how large a plan will be, from a few timed epochs per learner."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fcforge.engine import learn_site
from fcforge.methods import Lane
from fcforge.runner.plan import Node
from fcforge.runner.store import Store
from fcforge.runner.workshop import Workshop
from fcforge.sites import Cohort
from fcforge.types import RunSpec


class Rate(NamedTuple):
    """What one learner costs.

    Attributes
    ----------
    epoch, site : float
        Seconds per subject and epoch, and per site beside the epochs.
    size, growth : int
        Bytes of a lane after its first site, and what every further site adds.
    """

    epoch: float
    site: float
    size: int
    growth: int


def node_cost(cohort: Cohort, nodes: Sequence[Node]) -> tuple[float, int]:
    """Seconds on one core and bytes on disk of all `nodes`."""
    counts = {s: float(np.sum(cohort.site == s)) for s in cohort.site_names}
    rates: dict[str, Rate] = {}
    seconds, disk = 0.0, 0
    with tempfile.TemporaryDirectory() as scratch:  # fitted generators go there and away
        workshop = Workshop(cohort, Store(scratch))
        for node in nodes:
            learner = replace(node.spec, order=(), seed=0).key
            if learner not in rates:
                rates[learner] = _rate(workshop, node.spec)
            rate = rates[learner]
            method = workshop.learner(node.spec).method
            whole = node.whole or method.depends_on == "set"
            seen = node.spec.order if whole else node.spec.order[-1:]
            replayed = 2.0 if method.replay_size and node.depth > 1 else 1.0
            epochs = node.spec.training.epochs if method.fits else 0
            seconds += rate.site + rate.epoch * epochs * sum(counts[s] for s in seen) * replayed
            disk += rate.size + rate.growth * (node.depth - 1)
    return seconds, disk


def _rate(workshop: Workshop, spec: RunSpec) -> Rate:
    """Time one and three epochs at the first site; the difference is the cost of an epoch."""
    learner, site = workshop.learner(spec), spec.order[0]

    def took(epochs: int) -> tuple[float, Lane]:
        lane = workshop.first_lane(spec)
        job = workshop.job(spec.prefix(1), lane, 0)
        started = time.perf_counter()
        brief = replace(spec.training, epochs=epochs)
        (lane,) = learn_site(learner, [job], workshop.bench.bank, brief)
        return time.perf_counter() - started, lane

    took(1)  # the first call pays for caches and the generator
    short, lane = took(1)
    per_epoch = max(took(3)[0] - short, 0.0) / 2
    n = float(np.sum(workshop.cohort.site == site))
    size = _size(lane)
    again = workshop.job(spec.prefix(1), lane, 1)  # the same site: its generator is fitted
    (lane,) = learn_site(learner, [again], workshop.bench.bank, spec.training, fit=False)
    growth = max(_size(lane) - size, 0)
    return Rate(per_epoch / n, max(short - per_epoch, 0.0), size, growth)


def _size(lane: Lane) -> int:
    return sum(v.numel() * v.element_size() for part in lane for v in part.values())

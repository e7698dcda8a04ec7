"""How long and how large a plan will be, from one timed epoch per learner."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from tempfile import TemporaryDirectory

import numpy as np

from fcforge.runner.plan import Node
from fcforge.runner.pools import synthetic_subjects
from fcforge.runner.store import Store
from fcforge.runner.workshop import Workshop
from fcforge.sites import Cohort
from fcforge.types import RunSpec


def node_cost(cohort: Cohort, nodes: Sequence[Node]) -> tuple[float, int]:
    """Seconds on one core and bytes on disk of all `nodes`."""
    counts = {s: float(np.sum(cohort.site == s)) for s in cohort.site_names}
    with TemporaryDirectory(prefix="fcforge-") as scratch:  # fitted generators land in a store
        return _add_up(Workshop(cohort, Store(scratch)), nodes, counts)


def _add_up(
    workshop: Workshop, nodes: Sequence[Node], counts: dict[str, float]
) -> tuple[float, int]:
    rates: dict[str, tuple[float, int]] = {}
    seconds, disk = _generators(workshop, nodes, counts), 0
    for node in nodes:
        learner = replace(node.spec, order=(), seed=0).key
        if learner not in rates:
            rates[learner] = _rate(workshop, node.spec)
        per_subject, size = rates[learner]
        strategy = workshop.learner(node.spec).strategy
        whole = node.whole or strategy.depends_on == "set"
        seen = node.spec.order if whole else node.spec.order[-1:]
        replayed = 2.0 if strategy.replay_size and node.depth > 1 else 1.0
        seconds += per_subject * sum(counts[s] for s in seen) * replayed
        disk += size
    return seconds, disk


def _generators(workshop: Workshop, nodes: Sequence[Node], counts: dict[str, float]) -> float:
    """Seconds to fit every generator once per (site, seed), from one fit of each."""
    rates: dict[str, float] = {}
    fits = set()
    for node in nodes:
        generator, site = node.spec.learner.generator, node.spec.order[-1]
        if generator is None:
            continue
        name = str(generator)
        if name not in rates:
            started = time.perf_counter()
            synthetic_subjects(
                workshop.sites(node.spec)[site], node.spec, 8, workshop.store.generators
            )
            rates[name] = (time.perf_counter() - started) / counts[site]
        fits.add((name, site, node.spec.seed))
    return sum(rates[name] * counts[site] for name, site, _ in fits)


def _rate(workshop: Workshop, spec: RunSpec) -> tuple[float, int]:
    """Seconds per subject of a site for all epochs, and bytes of a stored lane."""
    from fcforge.engine import learn_site, start_lane

    learner = workshop.learner(spec)
    site = spec.order[0]
    view = workshop.view(spec, site, 0)
    brief = replace(spec.training, epochs=1)
    lane = start_lane(learner, spec.seed)
    job = workshop._job(spec.prefix(1), lane, 0)
    learn_site(learner, [job], workshop.bank, brief)  # first call pays for caches
    job = workshop._job(spec.prefix(1), lane, 0)
    started = time.perf_counter()
    (lane,) = learn_site(learner, [job], workshop.bank, brief)
    took = time.perf_counter() - started
    size = sum(v.numel() * v.element_size() for part in lane for v in part.values())
    epochs = spec.training.epochs if learner.strategy.fits else 1
    n_site = float(np.sum(workshop.cohort.site == site)) or float(len(view.train))
    return took * epochs / n_site, size

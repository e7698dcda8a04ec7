"""How long and how large a plan will be, from a few small nodes of each learner."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fcforge.runner.execute import generator_name
from fcforge.runner.pipelines import depends_on, pipeline_of
from fcforge.runner.plan import Node, Plan, missing_nodes
from fcforge.runner.store import LANE, SUBJECTS, Store
from fcforge.runner.workshop import Workshop
from fcforge.sites import Cohort


class Stage(NamedTuple):
    """What a node costs at one depth.

    Attributes
    ----------
    epoch, rest : float
        Seconds per subject and epoch; and of all else: loading, begin and end, scoring, writing.
    state, scores : int
        Bytes of the state, which is dropped later, and of what stays.
    """

    epoch: float
    rest: float
    state: int
    scores: int


@dataclass(frozen=True)
class Rate:
    """What a learner costs at its first site, at its second, and to fit a generator."""

    first: Stage
    second: Stage
    generator_seconds: float
    generator_bytes: int

    def state(self, depth: int) -> int:
        """Bytes of a state after `depth` sites: some grow with every site."""
        grown = max(self.second.state - self.first.state, 0)
        return self.first.state + grown * (depth - 1)

    def seconds(self, node: Node, subject_epochs: float) -> float:
        """Time of a node; what is not epochs grows with the state."""
        if node.depth == 1:
            return self.first.rest + self.first.epoch * subject_epochs
        larger = self.state(node.depth) / max(self.state(2), 1)
        return self.second.rest * max(larger, 1.0) + self.second.epoch * subject_epochs


def plan_cost(cohort: Cohort, plan: Plan, store: Store, jobs: int) -> tuple[float, int]:
    """Seconds on one core and bytes on disk of what is missing in a store, with `jobs` workers."""
    missing = missing_nodes(plan, store)
    todo = [node for node in missing if node.depth]
    with tempfile.TemporaryDirectory() as scratch:
        shop = Workshop(cohort, Store(scratch))
        longest = {_learner(node): node for node in todo}  # shallow first: the last is the longest
        rates = {learner: _rate(shop, node) for learner, node in longest.items()}
        seconds, disk = 0.0, sum(rates[_learner(node)].second.scores for node in missing)
        for node in todo:
            seen = sum(float(np.sum(cohort.site == s)) for s in _seen(node))
            seconds += rates[_learner(node)].seconds(node, _epochs(shop, node) * seen)
    for rate in {generator_name(n): rates[_learner(n)] for n in todo if generator_name(n)}.values():
        seconds += rate.generator_seconds
        disk += rate.generator_bytes
    states = [(n, rates[_learner(n)].state(n.depth)) for n in todo if n.continued]
    return seconds, disk + most_at_once(states, jobs)


def _seen(node: Node) -> tuple[str, ...]:
    """Sites that a node trains on: all so far, or the last."""
    anew = node.parent is None and pipeline_of(node.spec.learner) is not None
    together = anew or node.whole or depends_on(node.spec.learner) == "set"
    return node.spec.order if together else node.spec.order[-1:]


def _epochs(shop: Workshop, node: Node) -> int:
    if pipeline_of(node.spec.learner):
        return 1
    return node.spec.training.epochs if shop.learner(node.spec).method.fits else 0


def _learner(node: Node) -> str:
    return replace(node.spec, order=(), seed=0).key


def _rate(shop: Workshop, node: Node) -> Rate:
    """Train two sites for one and for three epochs; the difference is the cost of an epoch."""
    started = time.perf_counter()
    if node.spec.learner.generator is not None:
        for site in node.spec.order[:2]:
            shop.fit_generator(node.spec, site)
    fitting = (time.perf_counter() - started) / 2
    _try(shop, node, 1)  # the first call pays for caches
    once, thrice = _try(shop, node, 2), _try(shop, node, 4)
    stages = []
    for (short, long), site in zip(zip(once, thrice, strict=True), node.spec.order, strict=False):
        n = float(np.sum(shop.cohort.site == site))
        pipeline = pipeline_of(node.spec.learner)  # all it does goes with the subjects
        epoch = short.rest if pipeline else max(long.rest - short.rest, 0.0) / 2
        stages.append(Stage(epoch / n, max(short.rest - 2 * epoch, 0.0), long.state, long.scores))
    files = [p for p in shop.store.generators.rglob("*") if p.is_file()]
    fitted = sum(not p.name.startswith(SUBJECTS) for p in files)
    each = sum(map(_size, files)) // max(fitted, 1)
    return Rate(stages[0], stages[-1], fitting, each)


def _try(shop: Workshop, node: Node, epochs: int) -> list[Stage]:
    """Cost of the first two nodes on the way to `node`, with that many epochs."""
    spec = replace(node.spec, training=replace(node.spec.training, epochs=epochs))
    found, parent = [], None
    on_its_own = node.parent is None  # learns a site, or all of them, from the start
    for depth in (1,) if on_its_own else (1, 2):
        tried = Node(spec.prefix(depth), parent, node.whole)
        started = time.perf_counter()
        shop.run([tried])
        seconds = time.perf_counter() - started
        folder = shop.store.folder(tried.key)
        state = _size(folder / LANE)
        scores = sum(map(_size, folder.iterdir())) - state
        found.append(Stage(0.0, seconds, state, scores))
        parent = tried.key
    return found


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def most_at_once(states: Sequence[tuple[Node, int]], jobs: int) -> int:
    """Bytes of the states (of nodes, with their sizes) that wait for later nodes at the most.

    The deepest node goes first, so that each of `jobs` workers has one chain of states behind it.
    """
    chains: dict[str, dict[int, int]] = {}
    for node, size in states:
        chains.setdefault(_learner(node), {})[node.depth] = size
    longest = max((sum(chain.values()) for chain in chains.values()), default=0)
    return min(sum(size for _, size in states), jobs * longest)

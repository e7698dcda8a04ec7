"""How long and how large a plan will be, from a few short nodes of each learner."""

import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fcforge.runner.execute import generator_name
from fcforge.runner.pipelines import pipeline_of
from fcforge.runner.plan import Node, Plan, Work, missing_nodes
from fcforge.runner.site_loader import SiteLoader
from fcforge.runner.store import LANE, Store
from fcforge.runner.trainer import Trainer
from fcforge.runner.traits import traits_of
from fcforge.sites import Cohort
from fcforge.speed import one_thread
from fcforge.types import RunSpec

DEPTHS = (1, 2, 8)  # tried; at others a cost lies on the line through the nearest two
SHORT = 1  # epochs of a short and of a long trial: FORGE chooses subjects before
LONG = 6  # the first epoch and the sixth, so that their difference holds one choice


class Stage(NamedTuple):
    """What a node costs after so many sites.

    Attributes
    ----------
    depth : float
    epoch : float
        Seconds of an epoch, per subject trained on.
    rest : float
        Seconds of all else: begin and end, scoring, writing, and reading it for the next node.
    shown : float
        Seconds of every earlier site that is only shown.
    state, scores : float
        Bytes of the state, which is dropped later, and of what stays.
    """

    depth: float
    epoch: float = 0.0
    rest: float = 0.0
    shown: float = 0.0
    state: float = 0.0
    scores: float = 0.0


def at_depth(stages: Sequence[Stage], depth: int) -> Stage:
    """Cost at any depth, on straight lines through those of `stages`; beyond them it only grows."""
    known = [stage.depth for stage in stages]
    if depth <= known[-1] or len(stages) == 1:
        parts = zip(*stages, strict=True)
        return Stage(*(float(np.interp(depth, known, part)) for part in parts))
    before, last = np.array(stages[-2:])
    growth = np.maximum(last - before, 0.0) / (last[0] - before[0])
    return Stage(*(last + growth * (depth - last[0])).tolist())


@dataclass(frozen=True)
class Rate:
    """What a learner costs at some depths; and to fit a generator and draw from it."""

    stages: Sequence[Stage]
    generator_seconds: float = 0.0
    generator_bytes: int = 0

    def seconds(self, node: Node, subjects: float, epochs: int) -> float:
        """Time of a node that trains on so many subjects."""
        cost = at_depth(self.stages, node.depth)
        training = cost.epoch * subjects * epochs
        return training + cost.rest + cost.shown * (node.shown - 1)

    def state(self, node: Node) -> float:
        """Bytes of the state of a node; an untrained network is not stored."""
        return at_depth(self.stages, node.depth).state if node.depth else 0.0


def plan_cost(cohort: Cohort, plan: Plan, store: Store, jobs: int) -> tuple[float, int]:
    """Seconds on one core and bytes on disk of what is missing in a store, with `jobs` workers."""
    missing = missing_nodes(plan, store)
    todo = [node for node in missing if node.depth]
    # shallow first: the last node of a learner is its longest
    longest = {_learner(node): node for node in todo}
    with tempfile.TemporaryDirectory() as scratch, one_thread():
        trainer = Trainer(cohort, Store(scratch))
        trainer.loader = _Borrowing(generators=trainer.store.generators)
        rates = {learner: _rate(trainer, node) for learner, node in longest.items()}
        seconds = sum(_seconds(trainer, rates[_learner(node)], node) for node in todo)
    disk = most_at_once(plan, store, lambda n: rates[_learner(n)].state(n), jobs)
    disk += sum(rates[_learner(node)].stages[-1].scores for node in missing)
    wanted: dict[Any, list[Rate]] = {}
    for node in todo:
        if name := generator_name(node):
            wanted.setdefault(name, []).append(rates[_learner(node)])
    for alike in wanted.values():  # whoever was tried first has paid for the others
        seconds += max(rate.generator_seconds for rate in alike)
        disk += max(rate.generator_bytes for rate in alike)
    return seconds, round(disk)


class _Borrowing(SiteLoader):
    """A loader whose sites share what was drawn of the first: drawing is timed once."""

    def _subjects(self, name: Any, site: Any, spec: RunSpec, n: int, start: Any) -> Any:
        draw = partial(super()._subjects, name, site, spec, n, start)
        return self.bank.once((repr(spec.learner.generator), n), draw)


def _seconds(trainer: Trainer, rate: Rate, node: Node) -> float:
    epochs = _epochs(trainer, node.spec)
    return rate.seconds(node, _subjects(trainer.cohort, _seen(node)), epochs)


def _subjects(cohort: Cohort, sites: Iterable[str]) -> float:
    return float(sum(np.sum(cohort.site == site) for site in sites))


def _seen(node: Node) -> tuple[str, ...]:
    """Sites that a node trains on: all so far, or the last."""
    learner = node.spec.learner
    together = pipeline_of(learner) or traits_of(learner).depends_on in ("set", "all")
    return node.spec.order if together else node.spec.order[-1:]


def _epochs(trainer: Trainer, spec: RunSpec) -> int:
    """Epochs of a network; a closed form has none, and all of a pipeline counts as one."""
    if pipeline_of(spec.learner):
        return 1
    return spec.training.epochs if trainer.learner(spec).method.fits else 0


def _learner(node: Node) -> str:
    return replace(node.spec, order=(), seed=0).key


def _rate(trainer: Trainer, node: Node) -> Rate:
    """Try a learner at a few depths, on sites of middling size."""
    sizes = {site: _subjects(trainer.cohort, [site]) for site in node.spec.order}
    middle = float(np.median(list(sizes.values())))
    order = tuple(sorted(sizes, key=lambda site: abs(sizes[site] - middle)))
    spec = replace(node.spec, order=order)
    generators = trainer.store.generators
    before = sum(map(_size, generators.glob("*")))
    first = _clocked(trainer.run, [_trial(spec.prefix(1), SHORT)])
    depths = sorted({min(depth, node.depth) for depth in DEPTHS})
    stages = [_try(trainer, spec.prefix(depth)) for depth in depths]
    if spec.learner.generator is None:
        return Rate(stages)
    again = _clocked(trainer.run, [_trial(spec.prefix(1), SHORT)])
    made = sum(map(_size, generators.glob("*"))) - before
    return Rate(stages, max(first - again, 0.0), made)


def _trial(spec: RunSpec, epochs: int) -> Node:
    """A node that learns the last site of a spec, after the others were shown."""
    short = replace(spec.training, epochs=min(spec.training.epochs, epochs))
    return Node(replace(spec, training=short), None, shown=len(spec.order))


def _clocked(call: Callable[[Any], Any], given: Any) -> float:
    """Seconds of this process that a call takes."""
    started = time.process_time()
    call(given)
    return time.process_time() - started


def _try(trainer: Trainer, spec: RunSpec) -> Stage:
    """Cost of learning the last site of a spec; what is done once per site is not counted."""
    short = _trial(spec, SHORT)
    long = _trial(spec, LONG)
    subjects = _subjects(trainer.cohort, _seen(short))
    trainer.run([short])
    one = _clocked(trainer.run, [short])
    state, scores = _bytes(trainer, short)
    if pipeline_of(spec.learner):  # all it does goes with the subjects
        return Stage(short.depth, epoch=one / subjects, scores=scores)
    shown = _clocked(trainer.load_lane, short)
    more = long.spec.training.epochs - SHORT
    epoch = 0.0
    if more and _epochs(trainer, spec):
        epoch = max(_clocked(trainer.run, [long]) - one, 0.0) / more
    rest = max(one - shown - epoch * SHORT, 0.0)
    earlier = max(short.depth - 1, 1)
    return Stage(short.depth, epoch / subjects, rest, shown / earlier, state, scores)


def _bytes(trainer: Trainer, node: Node) -> tuple[int, int]:
    """Bytes of a node's state, and of all else in its folder."""
    folder = trainer.store.folder(node.key)
    state = _size(folder / LANE)
    return state, sum(map(_size, folder.iterdir())) - state


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


class _Scales(Store):
    """Weighs the states that a run folder would hold, and touches none of its files."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.held: dict[str, float] = {}

    def drop_lane(self, key: str) -> None:
        """The state of a node is gone."""
        self.held.pop(key, None)

    def drop_subjects(self) -> None:
        """Nothing was drawn."""


def most_at_once(
    plan: Plan, store: Store, size: Callable[[Node], float], jobs: int
) -> float:
    """Bytes of the states that wait for later nodes at the most, by going through the plan."""
    scales = _Scales(store.root)
    most = 0.0
    work = Work(plan, scales, lambda *step: None)
    running = list[Node]()
    while True:
        while len(running) < jobs and (node := work.take()) is not None:
            running.append(node)
        if not running:
            return most
        done = running.pop(0)
        if done.continued:
            scales.held[done.key] = size(done)
        most = max(most, sum(scales.held.values()))
        work.done([done], "")

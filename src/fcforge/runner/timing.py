"""How long and how large a plan will be, from a few short nodes of each learner."""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fcforge.runner.execute import wanted_generators
from fcforge.runner.pipelines import pipeline_of
from fcforge.runner.plan import Node, Plan, Work, missing_nodes, traits_of
from fcforge.runner.run import Prepared
from fcforge.runner.site_loader import SiteLoader
from fcforge.runner.store import LANE, Store
from fcforge.runner.trainer import Trainer
from fcforge.sites import Cohort
from fcforge.speed import one_thread
from fcforge.types import RunSpec

SHORT = 1  # epochs of a short and of a long trial: FORGE chooses subjects before
LONG = 6  # the first epoch and the sixth, so that their difference holds one choice


class Trial(NamedTuple):
    """What a node of a learner, or a site's generator, costs at a middling depth.

    Attributes
    ----------
    epoch : float
        Seconds of an epoch.
    rest : float
        Seconds of all else: begin and end, scoring, writing.
    state, scores : float
        Bytes of the state, which is dropped later, and of what stays.
    """

    epoch: float = 0.0
    rest: float = 0.0
    state: float = 0.0
    scores: float = 0.0


@dataclass(frozen=True)
class Cost:
    """What a run will cost: site trainings to do, seconds, most bytes on disk."""

    todo: int
    seconds: float = 0.0
    disk: int = 0


def estimate(prepared: Prepared, store: Store, jobs: int) -> Cost:
    """Train a few sites of each learner briefly and scale up; nothing is written."""
    missing = missing_nodes(prepared.plan, store)
    todo = [node for node in missing if node.depth]
    if not todo:
        return Cost(0)
    alike: dict[str, list[Node]] = {}
    for node in todo:
        alike.setdefault(_learner(node), []).append(node)
    with tempfile.TemporaryDirectory() as scratch, one_thread():
        trials = _Trials(prepared.cohort, Store(scratch))
        costs = {learner: trials.of(nodes) for learner, nodes in alike.items()}

    def state(node: Node) -> float:
        return costs[_learner(node)].state

    seconds = 0.0
    disk = most_at_once(prepared.plan, store, state, jobs)
    for node in todo:
        cost = costs[_learner(node)]
        seconds += cost.rest + cost.epoch * node.spec.training.epochs
    for node in missing:  # an untrained network is scored, too
        disk += costs.get(_learner(node), Trial()).scores
    for node in wanted_generators(todo):
        made = trials.generators[repr(node.spec.learner.generator)]
        seconds += made.rest
        disk += made.scores
    return Cost(len(todo), seconds / min(jobs, len(todo)), round(disk))


def _learner(node: Node) -> str:
    return replace(node.spec, order=(), seed=0).key


class _Borrowing(SiteLoader):
    """A loader whose sites share what was drawn of the first: drawing is timed once."""

    def _subjects(self, name: Any, site: Any, spec: RunSpec, n: int) -> Any:
        draw = partial(super()._subjects, name, site, spec, n)
        return self.bank.once((repr(spec.learner.generator), n), draw)


class _Trials:
    """Short trainings in a folder of their own.

    Attributes
    ----------
    generators : dict of str to Trial
        What one site's generator of each kind costs, in time and on disk.
    """

    def __init__(self, cohort: Cohort, store: Store) -> None:
        self.trainer = Trainer(cohort, store)
        public = self.trainer.public
        self.trainer.loader = _Borrowing(generators=store.generators, public=public)
        self.generators: dict[str, Trial] = {}

    def of(self, nodes: Sequence[Node]) -> Trial:
        """Cost of a learner's node of the mean depth, on sites of middling size."""
        deepest = max(nodes, key=lambda node: node.depth).spec
        site = self.trainer.cohort.site
        sizes = {name: np.sum(site == name) for name in deepest.order}
        middle = np.median(list(sizes.values()))
        order = sorted(sizes, key=lambda name: abs(sizes[name] - middle))
        depth = round(np.mean([node.depth for node in nodes]))
        spec = replace(deepest, order=tuple(order[:depth]))
        generator = repr(spec.learner.generator)
        if spec.learner.generator and generator not in self.generators:
            self.generators[generator] = self._fit(spec)
        return self._train(spec)

    def _fit(self, spec: RunSpec) -> Trial:
        fit = partial(self.trainer.fit_generator, spec, draw=True)
        seconds = _clocked(fit, spec.order[0])
        folder = self.trainer.store.generators
        return Trial(rest=seconds, scores=sum(map(_size, folder.iterdir())))

    def _train(self, spec: RunSpec) -> Trial:
        """Cost of learning the last site of a spec; what is done once per site is not counted."""
        run = self.trainer.run
        short = _brief(spec, SHORT)
        run([short])
        one = _clocked(run, [short])
        folder = self.trainer.store.folder(short.key)
        state = _size(folder / LANE)
        scores = sum(map(_size, folder.iterdir())) - state
        shown = 0.0
        if traits_of(spec.learner).grows:  # the others were learned before
            shown = _clocked(self.trainer.load_lane, short)
        epoch = 0.0
        more = min(spec.training.epochs, LONG) - SHORT
        if more and self._has_epochs(spec):
            long = _clocked(run, [_brief(spec, LONG)])
            epoch = max(long - one, 0.0) / more
        rest = max(one - shown - epoch * SHORT, 0.0)
        return Trial(epoch, rest, state, scores)

    def _has_epochs(self, spec: RunSpec) -> bool:
        """Whether a network is trained; a closed form and a pipeline are not."""
        return not pipeline_of(spec.learner) and self.trainer.learner(spec).method.fits


def _brief(spec: RunSpec, epochs: int) -> Node:
    """A node that learns the last site of a spec, after the others were shown."""
    short = replace(spec.training, epochs=min(spec.training.epochs, epochs))
    return Node(replace(spec, training=short), None, shown=len(spec.order))


def _clocked(call: Callable[[Any], Any], given: Any) -> float:
    """Seconds of this process that a call takes."""
    started = time.process_time()
    call(given)
    return time.process_time() - started


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

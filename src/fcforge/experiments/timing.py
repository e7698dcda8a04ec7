"""Estimate time and disk space of a plan from a few short trainings of each learner."""

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fcforge.core.component import Component
from fcforge.core.spec import RunSpec
from fcforge.experiments.cost import Cost
from fcforge.experiments.execute import wanted_generators
from fcforge.experiments.pipelines import pipeline_of
from fcforge.experiments.plan import Node
from fcforge.experiments.run import Prepared
from fcforge.experiments.run_keys import run_key
from fcforge.experiments.store import Store
from fcforge.experiments.trainer import Trainer
from fcforge.experiments.traits import traits_of
from fcforge.experiments.work import missing_nodes
from fcforge.nn.resources import one_thread

SHORT = 1  # epochs of a short and of a long trial: FORGE chooses subjects before
LONG = 6  # the first epoch and the sixth, so that their difference holds one choice


class Trial(NamedTuple):
    """Seconds, bytes that stay, and bytes of the state, of a node or of a site's generator."""

    seconds: float
    stays: int
    state: int = 0


def estimate(prepared: Prepared, store: Store, jobs: int) -> Cost:
    """Return the cost of a plan: a few sites of each learner are trained briefly and scaled up.

    A worker ends a chain before it begins another, so that one state of each depth waits.
    """
    missing = missing_nodes(prepared.plan, store)
    todo = [node for node in missing if node.depth]
    if not todo:
        return Cost(0)
    people = Counter(prepared.cohort.site.tolist())
    alike: dict[str, list[Node]] = {}
    for node in sorted(
        missing, key=lambda node: sum(people[s] for s in node.spec.order)
    ):
        alike.setdefault(run_key(replace(node.spec, order=(), seed=0)), []).append(node)
    waiting = 0
    with tempfile.TemporaryDirectory() as scratch, one_thread():
        trainer = Trainer(prepared.cohort, Store(scratch))
        costs = _fit(trainer, todo)
        for nodes in alike.values():
            one = _train(trainer, nodes[len(nodes) // 2].spec)
            scored = one._replace(seconds=0.0)  # an untrained network
            costs += [one if node.depth else scored for node in nodes]
            depths = [node.depth for node in nodes if node.continued]
            waiting = max(waiting, jobs * one.state * max(depths, default=0))
    seconds = sum(one.seconds for one in costs) / min(jobs, len(todo))
    return Cost(len(todo), seconds, sum(one.stays for one in costs) + waiting)


def _fit(trainer: Trainer, todo: Sequence[Node]) -> list[Trial]:
    """Return the cost of fitting every generator and drawing from it; one of each kind is fitted."""
    known: dict[Component | None, Trial] = {}
    trials = []
    for node in wanted_generators(todo):
        kind = node.spec.learner.generator
        if kind not in known:
            before = trainer.store.size()
            seconds = _clocked(trainer.parts.fit_generator, node.spec)
            known[kind] = Trial(seconds, trainer.store.size() - before)
        trials.append(known[kind])
    return trials


def _train(trainer: Trainer, spec: RunSpec) -> Trial:
    """Return the cost of learning the last site of a spec, without work done once per site."""
    short = _brief(spec, SHORT)
    trainer.run([short])
    seconds = _clocked(trainer.run, [short])
    files = trainer.store.folder(short.key).iterdir()
    sizes = {file.suffix: file.stat().st_size for file in files}
    state = sizes.pop(".safetensors", 0)
    is_network = not pipeline_of(spec.learner)
    if (
        is_network and trainer.parts.learner(spec).method.fits
    ):  # else there are no epochs
        more = _clocked(trainer.run, [_brief(spec, LONG)]) - seconds
        seconds += max(more, 0.0) * (spec.training.epochs - SHORT) / (LONG - SHORT)
    if traits_of(spec.learner).grows:  # the others were learned before
        seconds -= _clocked(trainer.load_lane, short)
    return Trial(max(seconds, 0.0), sum(sizes.values()), state)


def _brief(spec: RunSpec, epochs: int) -> Node:
    """Return a node that learns the last site of a spec, after the others were shown.

    Its synthetic subjects are drawn at no cost: generators are timed by themselves.
    """
    learner = spec.learner
    if learner.generator:
        learner = replace(learner, generator=Component("bootstrap"))
    short = replace(spec.training, epochs=epochs)
    brief = replace(spec, learner=learner, training=short)
    return Node(run_key(brief), brief, None, shown=len(spec.order))


def _clocked(call: Callable[..., Any], *given: Any) -> float:
    """Return the seconds of processor time that a call takes."""
    started = time.process_time()
    call(*given)
    return time.process_time() - started

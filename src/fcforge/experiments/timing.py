"""Estimates of time and disk space of a plan, from a few short trainings of each learner.

A node is one site training of the prefix tree (`fcforge.experiments.plan`).
"""

import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
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
from fcforge.experiments.work import Progress, missing_nodes
from fcforge.generators import make_generator
from fcforge.nn.resources import one_thread

# Epochs of a short and of a long trial. FORGE chooses subjects before the first and the sixth epoch, so the
# difference of the two trials contains one such choice.
SHORT = 1
LONG = 6
# Of a generator that trains longer, these shares of its epochs or steps are tried.
SHORT_FIT = 0.01
LONG_FIT = 0.04
LENGTHS = ("epochs", "steps")  # settings that say how long a generator trains


class Trial(NamedTuple):
    """Cost of a node, or of fitting a site's generator.

    Attributes
    ----------
    seconds : float
    stays : int
        Bytes on disk that stay.
    state : int
        Bytes of the state, which is stored only while later nodes need it.
    """

    seconds: float
    stays: int
    state: int = 0


def estimate(
    prepared: Prepared,
    store: Store,
    jobs: int,
    progress: Progress = lambda done, total, title: None,
) -> Cost:
    """Estimate the cost of a plan from brief trainings of each learner and generator, scaled up.

    Parameters
    ----------
    prepared : Prepared
    store : Store
        Run folder, whose stored nodes cost nothing.
    jobs : int
        Number of worker processes. Each trains a branch of the prefix tree to its end before it begins
        another, so it needs one stored state for each site of the branch.
    progress : callable
        Called after every trial with the number of trials done, their total, and what was tried.
    """
    missing = missing_nodes(prepared.plan, store)
    todo = [node for node in missing if node.depth]
    if not todo:
        return Cost(0)
    people = Counter(prepared.cohort.site.tolist())  # number of subjects by site
    # missing nodes of each learner, those with few subjects first
    alike: dict[str, list[Node]] = {}
    for node in sorted(
        missing, key=lambda node: sum(people[s] for s in node.spec.order)
    ):
        alike.setdefault(run_key(replace(node.spec, order=(), seed=0)), []).append(node)
    fits: dict[Component, list[Node]] = {}  # nodes by generator
    for node in wanted_generators(todo):
        component = node.spec.learner.generator
        if component is not None:
            fits.setdefault(component, []).append(node)
    total = len(fits) + len(alike)
    costs: list[Trial] = []
    waiting = 0
    with tempfile.TemporaryDirectory() as scratch, one_thread():
        trainer = Trainer(prepared.cohort, Store(scratch))
        for done, (component, nodes) in enumerate(fits.items(), 1):
            costs += [_fit(trainer, nodes[0].spec)] * len(nodes)
            progress(done, total, f"generator {_title(component)}")
        for done, nodes in enumerate(alike.values(), len(fits) + 1):
            one = _train(trainer, nodes[len(nodes) // 2].spec)  # of median size
            scored = one._replace(seconds=0.0)  # an untrained network
            costs += [one if node.depth else scored for node in nodes]
            depths = [node.depth for node in nodes if node.continued]
            waiting = max(waiting, jobs * one.state * max(depths, default=0))
            progress(done, total, nodes[0].spec.learner.title)
    seconds = sum(one.seconds for one in costs) / min(jobs, len(todo))
    return Cost(len(todo), seconds, sum(one.stays for one in costs) + waiting)


def _title(component: Component) -> str:
    """Return the name of a generator with its variant, if it names one."""
    variant = component.params.get("variant", "")
    return f"{component.name} {variant}".rstrip()


def _fit(trainer: Trainer, spec: RunSpec) -> Trial:
    """Return the cost of fitting the generator of a run's last site and drawing from it.

    A generator that trains in many epochs or steps is fitted twice, for few of them; each further one costs
    as much as those by which the two fits differ.
    """
    before = trainer.store.size()
    component = spec.learner.generator
    assert component is not None  # the caller's nodes have generators
    generator = make_generator(component)
    names = [field.name for field in fields(generator) if field.name in LENGTHS]
    whole = getattr(generator, names[0]) if names else 0
    short, long = (max(1, round(share * whole)) for share in (SHORT_FIT, LONG_FIT))
    if short >= long:
        seconds = _clocked(trainer.parts.fit_generator, spec)
        return Trial(seconds, trainer.store.size() - before)

    def fit(length: int) -> float:
        """Return the seconds of a fit with another number of epochs or steps."""
        brief = Component(component.name, {**component.params, names[0]: length})
        learner = replace(spec.learner, generator=brief)
        return _clocked(trainer.parts.fit_generator, replace(spec, learner=learner))

    seconds = fit(short)
    stays = trainer.store.size() - before
    more = max(fit(long) - seconds, 0.0)
    return Trial(seconds + more * (whole - short) / (long - short), stays)


def _train(trainer: Trainer, spec: RunSpec) -> Trial:
    """Return the cost of learning the last site of a run, without the work that is done once per site."""
    short = _brief(spec, SHORT)
    trainer.run([short])  # not timed: it loads the sites and prepares their inputs
    seconds = _clocked(trainer.run, [short])
    # facts, scores and lane, which have different suffixes
    files = trainer.store.folder(short.key).iterdir()
    sizes = {file.suffix: file.stat().st_size for file in files}
    state = sizes.pop(".safetensors", 0)  # the lane
    is_network = not pipeline_of(spec.learner)
    if is_network and trainer.parts.learner(spec).method.fits:  # it trains in epochs
        more = _clocked(trainer.run, [_brief(spec, LONG)]) - seconds
        seconds += max(more, 0.0) * (spec.training.epochs - SHORT) / (LONG - SHORT)
    if traits_of(spec.learner).grows:  # the others were learned before
        seconds -= _clocked(trainer.load_lane, short)
    return Trial(max(seconds, 0.0), sum(sizes.values()), state)


def _brief(spec: RunSpec, epochs: int) -> Node:
    """Return a node that learns the last site of a run for a few epochs.

    The sites before it are shown without training. Synthetic subjects are replaced by real ones drawn again,
    which costs nothing, because generators are timed separately.
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

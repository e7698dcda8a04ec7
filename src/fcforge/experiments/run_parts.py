"""Sites, public subjects, learners and generators that the runs of a dataset share.

A `RunSpec` states a run, or its beginning: the last site of its order is the one to learn. A lane is one
network among several that train in parallel: one order, seed and learner.

A node is one site training of the prefix tree (`fcforge.experiments.plan`).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fcforge.core.component import Component
from fcforge.core.spec import BaseModelSpec, RunSpec
from fcforge.core.subjects import Site
from fcforge.data.cohort import Cohort
from fcforge.data.confounds import fit_on_training
from fcforge.data.splits import make_sites
from fcforge.experiments.config_code import import_parts
from fcforge.experiments.pipelines import pipeline_of
from fcforge.experiments.plan import Node
from fcforge.experiments.public_subjects import Public, fit_public
from fcforge.experiments.site_loader import SiteLoader, site_conditions
from fcforge.experiments.site_thresholds import without_fold
from fcforge.experiments.store import Store
from fcforge.generators.base import Generator
from fcforge.generators.cache import fit_together
from fcforge.methods import Lane, Learner, build_learner
from fcforge.methods.base import Method
from fcforge.training.evaluation import Evaluator
from fcforge.training.lanes import Job

MOST_CACHED = 6  # prefixes whose sites are cached, if confounds are fitted on each


class SiteKey(NamedTuple):
    """Everything on which the sites of a dataset depend after the split and the removal of confounds.

    Attributes
    ----------
    seed : int
    conditions : str
        Digest of further settings (`site_conditions`).
    fitted_on : tuple of str
        Sites on which the confound model is fitted; empty if it does not depend on sites.
    """

    seed: int
    conditions: str
    fitted_on: tuple[str, ...]


class LearnerKey(NamedTuple):
    """Everything on which a learner of a dataset depends, except its generator."""

    method: Component
    model: Component


class RunParts:
    """Parts of a dataset's runs, each made once: sites, public subjects, learners, evaluators.

    Parameters
    ----------
    cohort : Cohort
    store : Store
        Its cache keeps fitted generators.
    device : str
    """

    def __init__(self, cohort: Cohort, store: Store, device: str = "cpu") -> None:
        self.cohort = cohort
        self.store = store
        self.device = device
        self.loader = SiteLoader(device, store.generators, self.public)
        self._sites: dict[SiteKey, dict[str, Site]] = {}
        self._learners: dict[LearnerKey, Learner] = {}
        self._evaluators: dict[tuple[SiteKey, LearnerKey], Evaluator] = {}
        self._public: dict[tuple[BaseModelSpec | None, tuple[str, ...]], Public] = {}

    def sites(self, spec: RunSpec) -> dict[str, Site]:
        """Return the sites of a run by name, split by its seed, with confounds removed."""
        key = _site_key(spec)
        if key not in self._sites:
            if spec.fitted_on:
                # confounds make the sites of every prefix others: only the latest are cached
                _make_room(self._sites, MOST_CACHED)
                _make_room(self._evaluators, MOST_CACHED)
            split = make_sites(self.cohort, spec.seed, spec)
            if spec.left_out is not None:
                out = (spec.left_out, spec.seed)
                split = {n: without_fold(site, *out) for n, site in split.items()}
            self._sites[key] = self._without_confounds(spec, split)
        return self._sites[key]

    def _without_confounds(
        self, spec: RunSpec, sites: dict[str, Site]
    ) -> dict[str, Site]:
        """Return sites with the effect of the confounds removed from every scan.

        The effect is estimated on the public subjects, or, without a base model, on the sites so far.
        """
        step = None
        if spec.fitted_on:
            fitted_on = [sites[name] for name in spec.fitted_on]
            step = fit_on_training(fitted_on, spec.confounds)
        elif spec.confounds and spec.base_model:
            step = self.public(spec).confounds
        if step is None:
            return sites
        return {name: step.apply(site) for name, site in sites.items()}

    def public(self, spec: RunSpec) -> Public:
        """Return the public subjects of a run and their base model."""
        key = spec.base_model, spec.confounds
        if key not in self._public:
            assert spec.base_model is not None
            self._public[key] = fit_public(spec.base_model, spec.confounds)
        return self._public[key]

    def learner(self, spec: RunSpec) -> Learner:
        """Return the learner of a run; runs with equal learners share one object, which caches inputs."""
        key = learner_key(spec)
        if key not in self._learners:
            import_parts(spec.learner)
            n_rois = self.cohort.n_rois
            target = self.cohort.target
            self._learners[key] = build_learner(spec.learner, n_rois, target=target)
        return self._learners[key]

    def alike(self, spec: RunSpec) -> tuple[RunSpec, Method | None]:
        """Return a value that is equal for runs whose last site can be trained in parallel.

        Such runs may differ in seed, in the sites before the last, and in loss weights of the method
        (`Method.factors`). Runs of a scikit-learn estimator never train in parallel.
        """
        if pipeline_of(spec.learner):
            return replace(spec, order=(), seed=0), None
        named = replace(
            spec.learner, method=Component(spec.learner.method.name), title=""
        )
        shared = replace(spec, order=spec.order[-1:], seed=0, learner=named)
        return shared, self.learner(spec).method.without_factors()

    def evaluator(self, spec: RunSpec) -> Evaluator:
        """Return the evaluator that scores a run's learner on all its sites."""
        key = _site_key(spec), learner_key(spec)
        if key not in self._evaluators:
            sites = self.sites(spec)
            self._evaluators[key] = Evaluator(sites, self.learner(spec), self.device)
        return self._evaluators[key]

    def fit_generator(self, spec: RunSpec) -> None:
        """Fit the generator of the last site and draw synthetic subjects, into the store's cache.

        Nothing is done if the learner uses none.
        """
        if n := self.learner(spec).method.n_synthetic:
            self.loader.synthetic(self.sites(spec)[spec.order[-1]], spec, n)

    def generator_history(self, spec: RunSpec) -> dict[str, list[float]]:
        """Return the terms of the training loss of the last site's generator, by name, for every epoch."""
        if not self.learner(spec).method.n_synthetic:
            return {}
        site = self.sites(spec)[spec.order[-1]]
        generator, state, _ = self.loader.fit_generator(site, spec)
        history = generator.history(state.model)
        return {name: values.tolist() for name, values in history.items()}

    def fit_generators(self, nodes: Sequence[Node]) -> None:
        """Fit the generators of the nodes' last sites in parallel on the device.

        Generators that cannot train in parallel are left out; they are fitted when they are needed.
        """
        generators: dict[Component | None, Generator] = {}
        requests: dict[Component | None, list[Any]] = defaultdict(list)
        for node in nodes:
            last = self.sites(node.spec)[node.spec.order[-1]]
            generator, source, names = self.loader.generator_for(last, node.spec)
            component = node.spec.learner.generator
            generators.setdefault(component, generator)
            requests[component].append((source, names))
        for component, generator in generators.items():
            if generator.in_lanes():
                wanted = requests[component]
                fit_together(generator, wanted, self.store.generators, self.device)

    def job(self, spec: RunSpec, lane: Lane) -> Job:
        """Return the job of training a lane on the last site of a run's order.

        With the leak `select_on_test` it holds the site's test subjects (`peek`), on which an epoch is chosen.
        """
        site = spec.order[-1]
        peek = self.evaluator(spec).peek(site) if spec.leaks.select_on_test else None
        view = self.loader.view(self.sites(spec)[site], spec)
        return Job(lane, view, spec.seed, spec.order, peek)


def _site_key(spec: RunSpec) -> SiteKey:
    """Return everything on which the sites of a run depend."""
    return SiteKey(spec.seed, site_conditions(spec), spec.fitted_on)


def learner_key(spec: RunSpec) -> LearnerKey:
    """Return everything on which the learner of a run depends, except its generator."""
    return LearnerKey(spec.learner.method, spec.learner.model)


def _make_room(cache: dict[Any, Any], most: int) -> None:
    """Delete the oldest entries until there is room for one more of at most `most`."""
    while len(cache) >= most:
        cache.pop(next(iter(cache)))

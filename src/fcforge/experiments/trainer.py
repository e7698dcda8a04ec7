"""Trains nodes of the prefix tree: the dataset, the bank and the lanes of one process."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from fcforge.core.component import Component
from fcforge.core.errors import FCForgeError
from fcforge.core.spec import BaseModelSpec, LearnerSpec, RunSpec
from fcforge.core.subjects import Site
from fcforge.data.cohort import Cohort
from fcforge.data.confounds import fit_on_training
from fcforge.data.splits import make_sites
from fcforge.experiments.config_code import import_parts
from fcforge.experiments.environment import describe
from fcforge.experiments.pipelines import Pipeline, pipeline_of, scores_after
from fcforge.experiments.plan import Node
from fcforge.experiments.public_subjects import Public, fit_public
from fcforge.experiments.run_keys import run_key
from fcforge.experiments.site_loader import (
    PUBLIC,
    SiteLoader,
    site_conditions,
    spec_of_pool,
)
from fcforge.experiments.site_thresholds import without_fold
from fcforge.experiments.store import Store
from fcforge.generators.base import Generator
from fcforge.generators.cache import (
    fit_together,
    is_stored,
    read_tensors,
    write_tensors,
)
from fcforge.methods import Lane, Learner, build_learner
from fcforge.replay.bank import PoolName
from fcforge.replay.state import counted
from fcforge.training.capacity import lanes_that_fit
from fcforge.training.evaluation import Evaluator
from fcforge.training.lanes import Job, shapes
from fcforge.training.loop import learn_site
from fcforge.training.start import pretrain, start_lane

# addresses of the subjects that a state remembers, beside its tensors
POOL = "pool"
ITEM = "item"

AMPLE = 16  # times the lanes there are: memory for them at later sites, too


class SiteKey(NamedTuple):
    """Everything that decides the sites of a dataset, split and without confounds."""

    seed: int
    conditions: str
    fitted_on: tuple[str, ...]


class LearnerKey(NamedTuple):
    """Everything that decides a learner of a dataset, beside its generator."""

    method: Component
    model: Component


class Trainer:
    """Trains nodes of one dataset and writes them into a store.

    Parameters
    ----------
    cohort : Cohort
    store : Store
    device : str
    group : int
        Most lanes trained together. 1 on a CPU; on a GPU fewer where the card holds fewer.
    """

    def __init__(
        self, cohort: Cohort, store: Store, device: str = "cpu", group: int = 1
    ) -> None:
        self.cohort = cohort
        self.store = store
        self.device = device
        self.group = group
        self.loader = SiteLoader(device, store.generators, self.public)
        self._sites: dict[SiteKey, dict[str, Site]] = {}
        self._learners: dict[LearnerKey, Learner] = {}
        self._evaluators: dict[tuple[SiteKey, LearnerKey], Evaluator] = {}
        self._fit: dict[tuple[LearnerKey, int], tuple[int, int]] = {}
        self._public: dict[tuple[BaseModelSpec | None, tuple[str, ...]], Public] = {}

    # -- what a node needs ---------------------------------------------------------------------
    def sites(self, spec: RunSpec) -> dict[str, Site]:
        """Return the sites of a seed, split and without confounds."""
        key = _site_key(spec)
        if key not in self._sites:
            if spec.fitted_on:  # one set of sites for every prefix: keep the last few
                _forget_oldest(self._sites, 6)
                _forget_oldest(self._evaluators, 6)
            split = make_sites(self.cohort, spec.seed, spec)
            if spec.left_out is not None:
                out = (spec.left_out, spec.seed)
                split = {n: without_fold(site, *out) for n, site in split.items()}
            self._sites[key] = self._without_confounds(spec, split)
        return self._sites[key]

    def _without_confounds(
        self, spec: RunSpec, sites: dict[str, Site]
    ) -> dict[str, Site]:
        """Remove the effect of the confounds from every scan.

        It is estimated on the public subjects, or without a base model on the sites so far.
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

    def first_lane(self, spec: RunSpec) -> Lane:
        """Return the lane before the first site: untrained, or trained on the public subjects."""
        learner = self.learner(spec)
        view = self.loader.public_view(spec)
        trained = None
        if view is not None and learner.method.fits:
            model = LearnerSpec(Component("finetune"), spec.learner.model)
            alone = replace(spec, learner=model, order=(), left_out=None)
            path = self.store.generators / f"pretrained-{run_key(alone)}.safetensors"
            if not is_stored(path):
                given = (learner.model, view, spec.seed, spec.training, self.device)
                write_tensors(path, pretrain(*given).named())
            trained = Lane.from_named(read_tensors(path, self.device))
        return start_lane(learner, spec.seed, self.device, view, trained)

    def learner(self, spec: RunSpec) -> Learner:
        """Return the learner of a spec; equal learners share one object and its prepared inputs."""
        key = _learner_key(spec)
        if key not in self._learners:
            import_parts(spec.learner)
            n_rois = self.cohort.n_rois
            target = self.cohort.target
            self._learners[key] = build_learner(spec.learner, n_rois, target=target)
        return self._learners[key]

    def evaluator(self, spec: RunSpec) -> Evaluator:
        """Return the evaluator of a spec's sites and learner."""
        key = _site_key(spec), _learner_key(spec)
        if key not in self._evaluators:
            sites = self.sites(spec)
            self._evaluators[key] = Evaluator(sites, self.learner(spec), self.device)
        return self._evaluators[key]

    def fit_generator(self, spec: RunSpec) -> None:
        """Fit the generator of the last site and draw from it, into the store's cache."""
        if n := self.learner(spec).method.n_synthetic:
            self.loader.synthetic(self.sites(spec)[spec.order[-1]], spec, n)

    def fit_generators(self, nodes: Sequence[Node]) -> None:
        """Fit the generators of the nodes' last sites on this trainer's device, side by side.

        Generators that do not train in lanes are fitted when they are needed.
        """
        alike: dict[Component | None, tuple[Generator, list[Any]]] = {}
        for node in nodes:
            last = self.sites(node.spec)[node.spec.order[-1]]
            generator, *people = self.loader.generator_for(last, node.spec)
            named = node.spec.learner.generator
            alike.setdefault(named, (generator, []))[1].append(people)
        for generator, wanted in alike.values():
            if generator.in_lanes():
                fit_together(generator, wanted, self.store.generators, self.device)

    # -- lanes to and from the store -----------------------------------------------------------
    def load_lane(self, node: Node) -> Lane:
        """Return the lane that is to learn a node's last site."""
        lane = self._parent_lane(node)
        for seen in range(node.depth - node.shown + 1, node.depth):
            # without `fit` the method only takes in the site's subjects
            shown = [self.job(node.spec.prefix(seen), lane)]
            (lane,) = self._learn(node.spec, shown, fit=False)
        return lane

    def _learn(
        self, spec: RunSpec, jobs: Sequence[Job], *, fit: bool = True
    ) -> Sequence[Lane]:
        bank = self.loader.bank
        return learn_site(self.learner(spec), jobs, bank, spec.training, fit=fit)

    def _parent_lane(self, node: Node) -> Lane:
        if node.parent is None:
            return self.first_lane(node.spec)
        tensors = self.store.read_lane(node.parent)
        address = tensors.pop(POOL), tensors.pop(ITEM)
        moved = {name: value.to(self.device) for name, value in tensors.items()}
        state_type = self.learner(node.spec).method.State
        lane = Lane.from_named(moved, state_type)
        meta = self.store.read_meta(node.parent)
        pools = [PoolName.from_json(pool) for pool in meta["pools"]]
        for pool in pools:
            self._ensure_pool(node.spec, pool)
        rows = self.loader.bank.locate(pools, *address)
        return lane._replace(state=self.loader.from_places(lane.state, rows))

    def _ensure_pool(self, spec: RunSpec, pool: PoolName) -> None:
        if pool in self.loader.bank:
            return
        spec = spec_of_pool(spec, pool)
        site = self.sites(spec)[pool.site]
        if pool.kind == "synthetic":
            self.loader.synthetic(site, spec, pool.size)
        else:
            self.loader.view(site, spec)

    def memory_bytes(self, lane: Lane, held: Mapping[PoolName, int]) -> int:
        """Return the bytes that a lane keeps beyond the network.

        A remembered subject counts its FC edges; synthetic ones of a site together count no more
        than the state of their generator, which the run folder holds instead of them.

        Parameters
        ----------
        lane : Lane
        held : mapping
            Number of remembered subjects of each pool.
        """
        total = 0
        for pool, n in held.items():
            taken = n * _edge_bytes(self.cohort.n_rois)
            total += min(taken, self.loader.state_bytes.get(pool, taken))
        return total + sum(v.numel() * v.element_size() for v in counted(lane.state))

    # -- training ------------------------------------------------------------------------------
    def run(self, nodes: Sequence[Node]) -> None:
        """Train nodes of equal depth, in groups of lanes that fit together."""
        waiting: dict[tuple[Any, ...], list[tuple[Node, Lane]]] = {}
        for node in nodes:
            if pipeline := pipeline_of(node.spec.learner):
                self._run_pipeline(node, pipeline)
                continue
            if not node.depth:
                self.write(node, self.first_lane(node.spec), 0.0)
                continue
            lane = self.load_lane(node)
            last = node.spec.order[-1:]
            site = self.sites(node.spec)[last[0]]  # folds differ by a subject
            sizes = (len(site.train), len(site.val))
            alike = replace(node.spec, order=last, seed=0)
            signature = (alike, node.depth, shapes(lane), sizes)
            waiting.setdefault(signature, []).append((node, lane))
        for members in waiting.values():
            self._run_alike(members)

    def _run_alike(self, members: Sequence[tuple[Node, Lane]]) -> None:
        """Train lanes of one shape, as many at once as the device holds."""
        node = members[0][0]
        size = min(self.group, self._lanes_that_fit(members))
        done = 0
        while done < len(members):
            try:
                self.learn_group(members[done : done + size])
            except torch.OutOfMemoryError as error:
                # another program took memory since it was measured; nothing of the group is written
                if size == 1:
                    raise FCForgeError(
                        "the device has no memory for a single lane.",
                        where=f"learner '{node.spec.learner.title}', {'>'.join(node.spec.order)}",
                        do="Free the card, use a smaller batch_size or model, or --device cpu. "
                        "The same command again continues.",
                    ) from error
                size = -(-size // 2)
                torch.cuda.empty_cache()
                continue
            done += size

    def _lanes_that_fit(self, members: Sequence[tuple[Node, Lane]]) -> int:
        """Return the number of lanes that the device holds; it is measured again only where scarce."""
        node, lane = members[0]
        learner = self.learner(node.spec)
        key = _learner_key(node.spec), node.spec.training.batch_size
        depth, lanes = self._fit.get(key, (0, 0))
        if depth != node.depth and lanes < AMPLE * min(len(members), self.group):
            job = self.job(node.spec, lane)
            bank = self.loader.bank
            lanes = lanes_that_fit(learner, job, bank, node.spec.training)
            self._fit[key] = node.depth, lanes
        return lanes

    def learn_group(self, members: Sequence[tuple[Node, Lane]]) -> None:
        """Teach lanes of one shape the last site of their nodes, and store these."""
        spec = members[0][0].spec
        jobs = [self.job(node.spec, lane) for node, lane in members]
        started = time.perf_counter()
        lanes = self._learn(spec, jobs)
        seconds = (time.perf_counter() - started) / len(members)
        for (node, _), lane in zip(members, lanes, strict=True):
            self.write(node, lane, seconds)

    def job(self, spec: RunSpec, lane: Lane) -> Job:
        """Return the job of a lane that is to learn the last site of a spec's order."""
        site = spec.order[-1]
        peek = self.evaluator(spec).peek(site) if spec.leaks.select_on_test else None
        view = self.loader.view(self.sites(spec)[site], spec)
        return Job(lane, view, spec.seed, spec.order, peek)

    def write(self, node: Node, lane: Lane, seconds: float) -> None:
        """Evaluate a lane on every site and store the node."""
        state, rows = self.loader.to_places(lane.state)
        pools, pool, item = self.loader.bank.address(rows)
        held = Counter(pools[k] for k in pool.tolist())
        facts = {
            "seconds": seconds,
            "memory_bytes": self.memory_bytes(lane, held),
            "pools": [list(p) for p in pools],
        }
        stored = None
        if node.depth and node.continued:
            stored = {**lane._replace(state=state).named(), POOL: pool, ITEM: item}
        found = self.evaluator(node.spec).scores(lane)
        self._store_node(node, facts, found, stored)

    def _store_node(self, node: Node, facts: dict[str, Any], *arrays: Any) -> None:
        """Write scores, and tensors where there are some."""
        fixed = {"spec": node.spec.to_json(), "parent": node.parent}
        meta = {**fixed, **facts, "environment": describe(self.device)}
        self.store.write_node(node.key, meta, *arrays)

    def _run_pipeline(self, node: Node, pipeline: Pipeline) -> None:
        """Train an estimator on the public people and the node's sites, and store its scores."""
        spec = node.spec
        started = time.perf_counter()
        sites = self.sites(spec)
        fixed = spec.training.selection == "fixed"
        own = {name: sites[name].learning(with_val=fixed) for name in spec.order}
        public = {PUBLIC: self.public(spec).batch} if spec.base_model else {}
        found = scores_after(
            pipeline, public | own, spec.seed, spec.order, sites, self.cohort.target
        )
        subjects = sum(map(len, own.values())) if pipeline.keeps == "cumulative" else 0
        facts = {
            "seconds": time.perf_counter() - started,
            "memory_bytes": subjects * _edge_bytes(self.cohort.n_rois),
        }
        self._store_node(node, facts, found)


def _site_key(spec: RunSpec) -> SiteKey:
    return SiteKey(spec.seed, site_conditions(spec), spec.fitted_on)


def _learner_key(spec: RunSpec) -> LearnerKey:
    return LearnerKey(spec.learner.method, spec.learner.model)


def _edge_bytes(n_rois: int) -> int:
    """Return the bytes of the FC edges of a subject."""
    return n_rois * (n_rois - 1) // 2 * 4


def _forget_oldest(cache: dict[Any, Any], most: int) -> None:
    while len(cache) >= most:
        cache.pop(next(iter(cache)))

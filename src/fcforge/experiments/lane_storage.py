"""Lanes of the nodes of a run: how they begin, and how they are stored and read.

A lane is one network among several that train in parallel: one order, seed and learner. A node is one site
training of the prefix tree (`fcforge.experiments.plan`). A pool is a named set of subjects in the bank, the
tensors of all subjects on the device.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fcforge.core.component import Component
from fcforge.core.spec import LearnerSpec, RunSpec
from fcforge.experiments.environment import describe
from fcforge.experiments.networks import network_file
from fcforge.experiments.pipelines import pipeline_of
from fcforge.experiments.plan import Node
from fcforge.experiments.run_keys import run_key
from fcforge.experiments.run_parts import RunParts
from fcforge.experiments.site_loader import spec_of_pool
from fcforge.generators.cache import is_stored, read_tensors, write_tensors
from fcforge.methods import Lane
from fcforge.replay.bank import PoolName
from fcforge.replay.state import counted
from fcforge.training.initial_lanes import pretrain, start_lane

# Names of two further tensors in a stored lane: pool of each remembered subject, and its number in the pool.
POOL = "pool"
ITEM = "item"


class LaneStorage:
    """Reads the lane that a node continues from, and writes the lane that it has trained.

    Parameters
    ----------
    parts : RunParts
        Sites, learners and evaluators of the dataset; its store is read and written.
    """

    def __init__(self, parts: RunParts) -> None:
        self.parts = parts
        self.store = parts.store
        self.device = parts.device

    # -- from the store ------------------------------------------------------------------------
    def first_lane(self, spec: RunSpec) -> Lane:
        """Return the lane of a run before its first site: untrained, or trained on public subjects."""
        learner = self.parts.learner(spec)
        view = self.parts.loader.public_view(spec)
        trained = self.pretrained(spec)
        return start_lane(learner, spec.seed, self.device, view, trained)

    def pretrained(self, spec: RunSpec) -> Lane | None:
        """Return the network trained on the public subjects; None if the run or method has none."""
        if not self._begins_pretrained(spec):
            return None
        self.pretrain([spec])
        return Lane.from_named(read_tensors(self._pretrained_path(spec), self.device))

    def _begins_pretrained(self, spec: RunSpec) -> bool:
        """Return whether a run begins with a network trained on public subjects."""
        return spec.base_model is not None and self.parts.learner(spec).method.fits

    def pretrain(self, specs: Iterable[RunSpec], lanes: int = 1) -> None:
        """Train the networks with which runs begin, on the runs' public subjects, and store them.

        Parameters
        ----------
        specs : iterable of RunSpec
            Runs without public subjects, runs of scikit-learn pipelines, and runs whose network is stored are
            skipped.
        lanes : int
            Largest number of seeds that train in parallel.
        """
        # file and run of each network to train, by what such networks share (all but the seed)
        missing: dict[RunSpec, dict[Path, RunSpec]] = {}
        for spec in specs:
            if pipeline_of(spec.learner) or not self._begins_pretrained(spec):
                continue
            path = self._pretrained_path(spec)
            if not is_stored(path):
                shared = replace(_alone(spec), seed=0)
                missing.setdefault(shared, {})[path] = spec
        for alike in missing.values():
            paths = list(alike)
            model = self.parts.learner(alike[paths[0]]).model
            together = lanes if model.lifts else 1
            for i in range(0, len(paths), together):
                group = paths[i : i + together]
                self._pretrain_together({path: alike[path] for path in group})

    def _pretrain_together(self, specs: Mapping[Path, RunSpec]) -> None:
        """Train the networks of runs that differ in their seed alone, and write each to its path."""
        first = next(iter(specs.values()))
        model = self.parts.learner(first).model
        view = self.parts.loader.public_view(first)
        assert view is not None  # the specs have a base model
        seeds = [spec.seed for spec in specs.values()]
        training = _alone(first).training
        trained = pretrain(model, view, seeds, training, self.device)
        for path, lane in zip(specs, trained, strict=True):
            write_tensors(path, lane.named())

    def _pretrained_path(self, spec: RunSpec) -> Path:
        """Return the file of the pretrained network with which a run begins."""
        key = run_key(_alone(spec))
        return self.store.generators / f"pretrained-{key}.safetensors"

    def parent_lane(self, node: Node) -> Lane:
        """Return the lane of a node's parent, or the first lane of a node that has none."""
        if node.parent is None:
            return self.first_lane(node.spec)
        tensors = self.store.read_lane(node.parent)
        addresses = tensors.pop(POOL), tensors.pop(ITEM)  # of the remembered subjects
        moved = {name: value.to(self.device) for name, value in tensors.items()}
        state_type = self.parts.learner(node.spec).method.State
        lane = Lane.from_named(moved, state_type)
        meta = self.store.read_meta(node.parent)
        pools = [PoolName.from_json(pool) for pool in meta["pools"]]
        for pool in pools:
            self._ensure_pool(node.spec, pool)
        rows = self.parts.loader.bank.locate(pools, *addresses)
        return lane._replace(state=self.parts.loader.from_places(lane.state, rows))

    def _ensure_pool(self, spec: RunSpec, pool: PoolName) -> None:
        """Load the subjects of a pool into the bank, if they are not there."""
        if pool in self.parts.loader.bank:
            return
        spec = spec_of_pool(spec, pool)
        site = self.parts.sites(spec)[pool.site]
        if pool.kind == "synthetic":
            self.parts.loader.synthetic(site, spec, pool.size)
        else:
            self.parts.loader.view(site, spec)

    # -- to the store --------------------------------------------------------------------------
    def memory_bytes(self, lane: Lane, held: Mapping[PoolName, int]) -> int:
        """Return the number of bytes that a lane's method keeps beside the network.

        A remembered subject counts with the bytes of its FC edges. The synthetic subjects of a site count with
        no more than the state of their generator, from which they can be drawn again.

        Parameters
        ----------
        lane : Lane
        held : mapping of PoolName to int
            Number of remembered subjects of each pool.
        """
        total = 0
        for pool, n in held.items():
            taken = n * edge_bytes(self.parts.cohort.n_rois)
            total += min(taken, self.parts.loader.state_bytes.get(pool, taken))
        return total + sum(v.numel() * v.element_size() for v in counted(lane.state))

    def write(self, node: Node, lane: Lane, seconds: float, log: Any = None) -> None:
        """Evaluate a trained lane on every site and store its node.

        Parameters
        ----------
        node : Node
        lane : Lane
        seconds : float
            Time of the training.
        log : optional
            Log of the training, as JSON; None stores none.
        """
        state, rows = self.parts.loader.to_places(lane.state)
        # address of each remembered subject: number of its pool in the list `pools`, number in that pool
        pools, pool, item = self.parts.loader.bank.address(rows)
        held = Counter(pools[k] for k in pool.tolist())
        facts = {
            "seconds": seconds,
            "memory_bytes": self.memory_bytes(lane, held),
            "pools": [list(p) for p in pools],
        }
        stored = None
        if node.depth and node.continued:
            stored = {**lane._replace(state=state).named(), POOL: pool, ITEM: item}
        scores = self.parts.evaluator(node.spec).scores(lane)
        network = None
        if node.kept:
            learner = self.parts.learner(node.spec)
            network = network_file(node.spec, learner, lane, self.parts.cohort)
        self.write_node(node, facts, scores, stored, log, network)

    def write_node(self, node: Node, facts: dict[str, Any], *arrays: Any) -> None:
        """Store a node.

        Parameters
        ----------
        node : Node
        facts : dict
            Facts of the training, to which spec, parent and environment are added.
        *arrays
            Scores, then optionally tensors, log and network, as `Store.write_node` takes them.
        """
        fixed = {"spec": node.spec.to_json(), "parent": node.parent}
        meta = {**fixed, **facts, "environment": describe(self.device)}
        self.store.write_node(node.key, meta, *arrays)


def _alone(spec: RunSpec) -> RunSpec:
    """Return the run that identifies a pretrained network: fine-tuning of the model, before any site.

    Runs of different methods and orders share a pretrained network if this run is equal.
    """
    model = LearnerSpec(Component("finetune"), spec.learner.model)
    # these two concern the sites, not the training on public subjects
    training = replace(spec.training, public_replay=0, public_pull=0.0)
    return replace(spec, learner=model, order=(), left_out=None, training=training)


def edge_bytes(n_rois: int) -> int:
    """Return the number of bytes of a subject's FC edges as float32."""
    return n_rois * (n_rois - 1) // 2 * 4

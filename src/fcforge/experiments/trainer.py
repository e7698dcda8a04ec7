"""Training of nodes of the prefix tree, in groups of lanes that fit on the device.

A lane is one network among several that train in parallel: one order, seed and learner. A node is one site
training (`fcforge.experiments.plan`).
"""

import time
from collections.abc import Hashable, Sequence

import torch

from fcforge.core.errors import FCForgeError
from fcforge.core.spec import RunSpec
from fcforge.core.training_log import SiteLog
from fcforge.data.cohort import Cohort
from fcforge.experiments.lane_storage import LaneStorage, edge_bytes
from fcforge.experiments.pipelines import Pipeline, pipeline_of, scores_after
from fcforge.experiments.plan import Node
from fcforge.experiments.run_parts import LearnerKey, RunParts, learner_key
from fcforge.experiments.site_loader import PUBLIC
from fcforge.experiments.store import Store
from fcforge.methods import Lane
from fcforge.training.capacity import lanes_that_fit
from fcforge.training.lanes import Job, shapes
from fcforge.training.loop import learn_site

# If the device holds this many times the lanes of a group, its memory is not measured again at later sites.
AMPLE = 16


class Trainer:
    """Trainer of nodes of one dataset, which writes them into a run folder.

    Parameters
    ----------
    cohort : Cohort
    store : Store
    device : str
    group : int
        Largest number of lanes that train together: 1 on a CPU; on a GPU perhaps fewer, by its memory.

    Attributes
    ----------
    parts : RunParts
        Sites, public subjects, learners and evaluators.
    lanes : LaneStorage
        Reads and writes lanes.
    """

    def __init__(
        self, cohort: Cohort, store: Store, device: str = "cpu", group: int = 1
    ) -> None:
        self.parts = RunParts(cohort, store, device)
        self.lanes = LaneStorage(self.parts)
        self.store = store
        self.device = device
        self.group = group
        # by learner and batch size: depth at which memory was measured, and number of lanes that fit
        self._capacity: dict[tuple[LearnerKey, int], tuple[int, int]] = {}

    def run(self, nodes: Sequence[Node]) -> None:
        """Train nodes and store them; lanes that can train together form a group.

        Parameters
        ----------
        nodes : sequence of Node
            Nodes of equal depth (number of sites), whose parents are stored.
        """
        without_parent = [node.spec for node in nodes if node.parent is None]
        self.lanes.pretrain(without_parent, self.group)
        waiting: dict[Hashable, list[tuple[Node, Lane]]] = {}
        for node in nodes:
            if pipeline := pipeline_of(node.spec.learner):
                self._run_pipeline(node, pipeline)
                continue
            if not node.depth:
                self.lanes.write(node, self.lanes.first_lane(node.spec), 0.0)
                continue
            lane = self.load_lane(node)
            waiting.setdefault(self._signature(node, lane), []).append((node, lane))
        for members in waiting.values():
            self._train_alike(members)

    def _signature(self, node: Node, lane: Lane) -> Hashable:
        """Return a value that is equal for nodes whose lanes can train in one group.

        `lane` is the lane that is to learn the node's last site.
        """
        # part sizes differ by a subject between folds, and lanes of a group must have equal ones
        site = self.parts.sites(node.spec)[node.spec.order[-1]]
        sizes = (len(site.train), len(site.val))
        return self.parts.alike(node.spec), node.depth, shapes(lane), sizes

    def _train_alike(self, members: Sequence[tuple[Node, Lane]]) -> None:
        """Train lanes that fit together, as many at once as the device holds.

        Parameters
        ----------
        members : sequence of (Node, Lane)
            Nodes with the lanes that are to learn their last sites.

        Raises
        ------
        FCForgeError
            If the device has no memory for a single lane.
        """
        node = members[0][0]
        size = min(self.group, self._lanes_that_fit(members))
        done = 0
        while done < len(members):
            try:
                self.learn_group(members[done : done + size])
            except torch.OutOfMemoryError as error:
                # another program has taken memory since it was measured; nothing was written yet
                if size == 1:
                    raise FCForgeError(
                        "the device has no memory for a single lane.",
                        where=f"learner '{node.spec.learner.title}', {'>'.join(node.spec.order)}",
                        do="Free the card, use a smaller batch_size or model, or --device cpu. "
                        "The same command again continues.",
                    ) from error
                size = -(-size // 2)  # half of it, rounded up
                torch.cuda.empty_cache()
                continue
            done += size

    def _lanes_that_fit(self, members: Sequence[tuple[Node, Lane]]) -> int:
        """Return the number of lanes that the device holds; memory is measured again only if scarce.

        Parameters
        ----------
        members : sequence of (Node, Lane)
            Lanes to train together; the first stands for all.
        """
        node, lane = members[0]
        learner = self.parts.learner(node.spec)
        key = learner_key(node.spec), node.spec.training.batch_size
        depth, lanes = self._capacity.get(key, (0, 0))
        if depth != node.depth and lanes < AMPLE * min(len(members), self.group):
            job = self.job(node.spec, lane)
            bank = self.parts.loader.bank
            lanes = lanes_that_fit(learner, job, bank, node.spec.training)
            self._capacity[key] = node.depth, lanes
        return lanes

    def learn_group(self, members: Sequence[tuple[Node, Lane]]) -> None:
        """Train lanes together on the last sites of their nodes, and store the nodes.

        Parameters
        ----------
        members : sequence of (Node, Lane)
            Nodes with the lanes that are to learn their last sites.
        """
        spec = members[0][0].spec
        jobs = []
        for node, lane in members:
            job = self.job(node.spec, lane)
            if node.spec.learner != spec.learner:
                # it differs in its title or in loss weights (`Method.factors`)
                job = job._replace(method=self.parts.learner(node.spec).method)
            jobs.append(job)
        logged = members[0][0].logged
        logs = [SiteLog() for _ in jobs]
        started = time.perf_counter()
        lanes = self._learn(spec, jobs, logs=logs if logged else None)
        seconds = (time.perf_counter() - started) / len(members)
        for (node, _), lane, log in zip(members, lanes, logs, strict=True):
            if logged:
                log.add_history(self.parts.generator_history(node.spec))
            self.lanes.write(node, lane, seconds, log.to_json() if logged else None)

    def job(self, spec: RunSpec, lane: Lane) -> Job:
        """Return the job of training a lane on the last site of a run's order."""
        job = self.parts.job(spec, lane)
        trained = self.lanes.pretrained(spec) if spec.training.public_pull else None
        return job._replace(pretrained=trained.params) if trained else job

    def load_lane(self, node: Node) -> Lane:
        """Return the lane that is to learn a node's last site: its parent's, after the sites in between."""
        lane = self.lanes.parent_lane(node)
        for seen in range(node.depth - node.shown + 1, node.depth):
            # with fit=False the network is not trained: the method only stores subjects
            shown = [self.job(node.spec.prefix(seen), lane)]
            (lane,) = self._learn(node.spec, shown, fit=False)
        return lane

    def _learn(
        self,
        spec: RunSpec,
        jobs: Sequence[Job],
        *,
        fit: bool = True,
        logs: Sequence[SiteLog] | None = None,
    ) -> Sequence[Lane]:
        """Return the lanes after learning their sites (`fcforge.training.loop.learn_site`).

        Parameters
        ----------
        spec : RunSpec
            Its learner and training settings are used.
        jobs : sequence of Job
            Lanes with the sites that they learn.
        fit : bool
            Whether the network is trained; else the method only stores subjects.
        logs : sequence of SiteLog, optional
            Log of each lane, which is filled.
        """
        learner = self.parts.learner(spec)
        bank = self.parts.loader.bank
        return learn_site(learner, jobs, bank, spec.training, fit=fit, logs=logs)

    def _run_pipeline(self, node: Node, pipeline: Pipeline) -> None:
        """Train a scikit-learn estimator on the public subjects and the node's sites, and store its scores."""
        spec = node.spec
        started = time.perf_counter()
        sites = self.parts.sites(spec)
        fixed = spec.training.selection == "fixed"
        learning = {name: sites[name].learning(with_val=fixed) for name in spec.order}
        public = {PUBLIC: self.parts.public(spec).batch} if spec.base_model else {}
        scores = scores_after(
            pipeline,
            public | learning,
            spec.seed,
            spec.order,
            sites,
            self.parts.cohort.target,
        )
        subjects = (
            sum(map(len, learning.values())) if pipeline.keeps == "cumulative" else 0
        )
        facts = {
            "seconds": time.perf_counter() - started,
            "memory_bytes": subjects * edge_bytes(self.parts.cohort.n_rois),
        }
        self.lanes.write_node(node, facts, scores)

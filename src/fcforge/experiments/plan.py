"""Orders form a tree: runs with a common prefix share the training of that prefix.

Every scheduler (worker processes, lanes on a GPU, a Dask cluster) uses the same bookkeeping of it:
which nodes may start, how many are done, and which states are no longer needed. A node's scores
stay; its state is stored only while a later node of the plan waits for it.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import permutations
from typing import Any, Literal

import numpy as np

from fcforge.core.errors import ConfigError
from fcforge.core.formatting import counted
from fcforge.core.names import check_names
from fcforge.core.randomness import numpy_rng
from fcforge.core.spec import LearnerSpec, RunSpec
from fcforge.experiments.pipelines import PIPELINE, TRAITS, Traits, pipeline_of
from fcforge.experiments.run_keys import run_key
from fcforge.experiments.store import MISSING, Store

# -- which orders ------------------------------------------------------------------------------
MOST_ORDERS = 5040  # all orders of 7 sites
Orders = Literal["all"] | int | tuple[tuple[str, ...], ...]
"""All, a number of random ones, or the orders themselves."""


def list_orders(asked: Orders, sites: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the site orders of a config, checked against the dataset's sites."""
    if asked == "all" or isinstance(asked, int):
        return _pick_orders(sites, asked)
    known = f"The dataset has: {', '.join(sites)}."
    if not asked or len(set(asked)) < len(asked):
        raise ConfigError("orders is empty or lists an order twice.", do=known)
    for order in asked:
        check_names(f"site in order {list(order)}:", order, sites)
        if not order or len(set(order)) < len(order):
            what = f"order {list(order)} is empty or repeats a site."
            raise ConfigError(what, do=known)
    return [tuple(order) for order in asked]


def _pick_orders(
    sites: Sequence[str], wanted: Literal["all"] | int
) -> list[tuple[str, ...]]:
    """Return all orders, or that many different random ones, equal on every machine."""
    there_are = math.factorial(len(sites))
    n = there_are if wanted == "all" else wanted
    if not 1 <= n <= there_are:
        what = f"orders = {wanted}, but {len(sites)} sites have {there_are} orders."
        raise ConfigError(what, do=f"Give 1 to {there_are}, or 'all'.")
    if n > MOST_ORDERS:
        what = f"orders = {wanted!r}: of {len(sites)} sites, more than {MOST_ORDERS} orders "
        do = f"Give orders = a number up to {MOST_ORDERS}, or a list of orders."
        raise ConfigError(what + "are too many to run.", do=do)
    rng = numpy_rng(0, "orders", *sites)
    if there_are <= MOST_ORDERS:
        every = list(permutations(sites))
        if wanted == "all":
            return every
        chosen = rng.choice(len(every), n, replace=False)
        return [every[i] for i in np.sort(chosen)]
    found = dict[tuple[str, ...], None]()
    while len(found) < n:  # far fewer than there are: hardly one is drawn twice
        places = rng.permutation(len(sites))
        order = tuple(sites[place] for place in places)
        found[order] = None
    return list(found)


# -- traits of learners, which a run folder keeps for reports ------------------------------------
def traits_of(
    learner: LearnerSpec, known: Mapping[str, Traits] | None = None
) -> Traits:
    """Return the traits of a learner: those `known` of its method, or those of the method's class."""
    pipeline = pipeline_of(learner)
    if pipeline is not None:
        return TRAITS[pipeline.keeps]
    name = learner.method.name
    if known and name in known:
        return known[name]
    from fcforge.methods import METHODS

    method = METHODS[name]
    return Traits(method.depends_on, method.keeps, not method.from_scratch)


def stored_traits(learners: Iterable[LearnerSpec]) -> dict[str, Any]:
    """Return the traits of the learners' methods by name, as a run folder keeps them."""
    own = [learner for learner in learners if learner.method.name != PIPELINE]
    return {learner.method.name: asdict(traits_of(learner)) for learner in own}


def read_traits(stored: Mapping[str, Any]) -> dict[str, Traits]:
    """Return the traits that `stored_traits` has written."""
    return {name: Traits(**said) for name, said in stored.items()}


# -- the tree -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Node:
    """One site training: a learner that has seen ``spec.order[:-1]`` learns ``spec.order[-1]``.

    Attributes
    ----------
    key : str
        Name of the node's folder.
    spec : RunSpec
        Its order is the node's prefix; the empty prefix is the untrained network.
    parent : str or None
        Key of the node to continue from; None starts from the untrained network.
    shown : int
        How many of its last sites the parent has not seen. The model after the last of them is
        wanted, those in between are not (`cumulative`, or a set of sites that no run asks for):
        there the method only takes in the site's subjects.
    continued : bool
        Whether a later node of the plan starts from this one, so that its state is stored.
    """

    key: str
    spec: RunSpec
    parent: str | None
    shown: int = 1
    continued: bool = True

    @property
    def title(self) -> str:
        """Learner and sites so far, for progress."""
        return f"{self.spec.learner.title} {'>'.join(self.spec.order)}"

    @property
    def depth(self) -> int:
        """Number of sites seen."""
        return len(self.spec.order)


def trainings(nodes: Iterable[Node]) -> int:
    """Return the number of nodes that train; untrained networks are only scored."""
    return sum(node.depth > 0 for node in nodes)


def canonical(
    prefix: Sequence[str], depends_on: str, sites: Sequence[str]
) -> tuple[str, ...]:
    """Return the prefix that decides a model: itself, its sorted set, its last site, or all sites."""
    if not prefix:
        return ()
    decide = {"site": prefix[-1:], "set": sorted(prefix), "all": sorted(sites)}
    return tuple(decide.get(depends_on, prefix))


@dataclass(frozen=True)
class Plan:
    """Nodes to train, shallow first, and the nodes that make up each run.

    Attributes
    ----------
    nodes : dict of key to Node
    stages : list of (RunSpec, tuple of node keys)
        For each run the untrained node followed by the node of every stage.
    """

    nodes: dict[str, Node]
    stages: list[tuple[RunSpec, tuple[str, ...]]]

    @property
    def runs(self) -> list[tuple[RunSpec, tuple[str, ...]]]:
        """Runs of the experiment, without those that only fit thresholds."""
        return [(spec, keys) for spec, keys in self.stages if spec.left_out is None]

    def nodes_of_learners(self) -> dict[str, set[str]]:
        """Return the keys of the nodes of every learner's runs, by its title."""
        found: dict[str, set[str]] = defaultdict(set)
        for spec, keys in self.runs:
            found[spec.learner.title].update(keys)
        return found

    @property
    def trainings(self) -> int:
        """Site trainings with shared prefixes (`joint` counts one)."""
        return trainings(self.nodes.values())

    @property
    def words(self) -> str:
        """Numbers of runs and of site trainings, in words."""
        trainings = counted(self.trainings, "site training")
        return f"{counted(len(self.runs), 'run')} = {trainings}"


def make_plan(
    specs: Sequence[RunSpec],
    sites: Sequence[str],
    traits: Mapping[str, Traits] | None = None,
    key_of: Callable[[RunSpec], str] = run_key,
) -> Plan:
    """Return the prefix tree of all runs.

    Parameters
    ----------
    specs : sequence of RunSpec
    sites : sequence of str
        All sites of the dataset.
    traits : mapping of str to Traits, optional
        Traits of methods by name, where they are known without importing the methods.
    key_of : callable
        Returns the key of the node that a spec ends with.

    Examples
    --------
    All 24 orders of four sites need 64 site trainings instead of 96; all 120 orders of five
    sites need 325 instead of 600.
    """
    nodes: dict[str, Node] = {}

    def add(spec: RunSpec, prefix: tuple[str, ...]) -> str:
        own = traits_of(spec.learner, traits)
        node_spec = replace(spec, order=canonical(prefix, own.depends_on, sites))
        key = key_of(node_spec)
        if key not in nodes:
            parent = None
            depth = len(node_spec.order)
            if own.grows and own.depends_on != "site" and depth > 1:
                parent = add(spec, node_spec.order[:-1])
            shown = 1 if own.grows else depth
            nodes[key] = Node(key, node_spec, parent, shown)
        return key

    stages = []
    for spec in specs:
        lengths = range(len(spec.order) + 1)
        keys = tuple(add(spec, spec.order[:n]) for n in lengths)
        stages.append((spec, keys))
    asked = {key for _, keys in stages for key in keys}
    return Plan(_wanted(nodes, asked), stages)


def stored_runs(plan: Plan) -> list[dict[str, Any]]:
    """Return the runs of a plan and the keys of their nodes, as a run folder keeps them.

    Reports read them and compute no key, so that they need neither the methods nor torch.
    """
    return [{**_label(spec), "nodes": list(keys)} for spec, keys in plan.stages]


def read_stored_runs(
    stored: Sequence[Mapping[str, Any]], specs: Sequence[RunSpec]
) -> Plan:
    """Return the plan that `stored_runs` has written; its nodes are known by key and depth.

    Raises
    ------
    ValueError
        If the stored runs are not those of the specs.
    """
    nodes: dict[str, Node] = {}
    stages = []
    for run, spec in zip(stored, specs, strict=True):
        label = {name: run[name] for name in _label(spec)}
        keys = tuple(run["nodes"])
        if label != _label(spec) or len(keys) != len(spec.order) + 1:
            raise ValueError(f"the stored runs do not have {_label(spec)}")
        for depth, key in enumerate(keys):
            nodes.setdefault(key, Node(key, spec.prefix(depth), None))
        stages.append((spec, keys))
    return Plan(nodes, stages)


def _label(spec: RunSpec) -> dict[str, Any]:
    return {
        "learner": spec.learner.title,
        "order": list(spec.order),
        "seed": spec.seed,
        "left_out": spec.left_out,
    }


def _wanted(nodes: Mapping[str, Node], asked: Container[str]) -> dict[str, Node]:
    """Return the nodes that runs ask for or that several others begin with, shallow first.

    A set of sites is learned in one order, whose prefixes few runs ask for: what only one later
    node begins with is left to that node.
    """
    children = Counter(node.parent for node in nodes.values())
    spare = {key for key in nodes if key not in asked and children[key] == 1}
    found = []
    for node in sorted(nodes.values(), key=lambda node: node.depth):
        if node.key in spare:
            continue
        parent = node.parent
        shown = node.shown
        while parent in spare:
            parent = nodes[parent].parent
            shown += 1
        found.append(replace(node, parent=parent, shown=shown))
    parents = {node.parent for node in found}
    return {n.key: replace(n, continued=n.key in parents) for n in found}


Progress = Callable[
    [int, int, str], Any
]  # (site trainings done, in all, what was done last)


def missing_nodes(plan: Plan, store: Store) -> list[Node]:
    """Return the nodes to train, shallow first.

    A node is trained if it is not stored, if its files are not as they were written, or if a node
    to train starts from its lane and the lane is not there.
    """
    written = store.done()
    missing = []
    parents = set[str | None]()
    for key, node in reversed(plan.nodes.items()):
        files = store.verify(key) if key in written else MISSING
        if not files.scores or (key in parents and not files.lane):
            missing.append(node)
            parents.add(node.parent)
    return missing[::-1]


class Work:
    """Plan in training.

    Attributes
    ----------
    store : Store
    todo : list of Node
        What was missing at the beginning, shallow first.
    """

    def __init__(self, plan: Plan, store: Store, progress: Progress) -> None:
        self.todo = missing_nodes(plan, store)
        self.store = store
        self._progress = progress
        self._total = plan.trainings
        self._finished = plan.trainings - trainings(self.todo)
        self._children: dict[str, dict[str, Node]] = defaultdict(dict)
        for node in self.todo:
            if node.parent is not None:
                self._children[node.parent][node.key] = node
        missing = {node.key: node for node in self.todo}
        for key in plan.nodes.keys() - missing.keys() - self._children.keys():
            store.drop_lane(key)  # a killed run may have left it
        for key in missing:
            store.drop(key)
        self._ready = [node for node in self.todo if node.parent not in missing]
        progress(self._finished, self._total, "")

    def take(self) -> Node | None:
        """Return a node whose parent is stored, or None if there is none at the moment.

        The deepest comes first: a chain ends before another begins, so that few states wait.
        """
        if not self._ready:
            return None
        depths = [node.depth for node in self._ready]
        return self._ready.pop(depths.index(max(depths)))

    def done(self, nodes: Sequence[Node], what: str) -> None:
        """Count stored nodes, release their children, and delete states that are no longer needed."""
        for node in nodes:
            waiting = self._children[node.key].values()
            self._ready += waiting
            if not waiting:  # a damaged node whose later nodes are all stored
                self.store.drop_lane(node.key)
            if node.parent is not None:
                self._children[node.parent].pop(node.key)
                if not self._children[node.parent]:
                    self.store.drop_lane(node.parent)
        self._finished += trainings(nodes)
        if self._finished == self._total:
            self.store.drop_subjects()
        self._progress(self._finished, self._total, what)

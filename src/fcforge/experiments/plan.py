"""The prefix tree of an experiment: runs with a common prefix share the training of that prefix."""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fcforge.core.formatting import counted
from fcforge.core.spec import RunSpec
from fcforge.experiments.run_keys import run_key
from fcforge.experiments.traits import Traits, traits_of


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
    logged : bool
        Whether its folder keeps a log of the training (`fcforge.training.logging`).
    kept : bool
        Whether its folder keeps the trained network (`fcforge.experiments.networks`).
    """

    key: str
    spec: RunSpec
    parent: str | None
    shown: int = 1
    continued: bool = True
    logged: bool = False
    kept: bool = False

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
        keys_of_title: dict[str, set[str]] = defaultdict(set)
        for spec, keys in self.runs:
            keys_of_title[spec.learner.title].update(keys)
        return keys_of_title

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
        learner_traits = traits_of(spec.learner, traits)
        node_spec = replace(
            spec, order=canonical(prefix, learner_traits.depends_on, sites)
        )
        key = key_of(node_spec)
        if key not in nodes:
            parent = None
            depth = len(node_spec.order)
            if (
                learner_traits.grows
                and learner_traits.depends_on != "site"
                and depth > 1
            ):
                parent = add(spec, node_spec.order[:-1])
            shown = 1 if learner_traits.grows else depth
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
    wanted = []
    for node in sorted(nodes.values(), key=lambda node: node.depth):
        if node.key in spare:
            continue
        parent = node.parent
        shown = node.shown
        while parent in spare:
            parent = nodes[parent].parent
            shown += 1
        wanted.append(replace(node, parent=parent, shown=shown))
    parents = {node.parent for node in wanted}
    return {n.key: replace(n, continued=n.key in parents) for n in wanted}

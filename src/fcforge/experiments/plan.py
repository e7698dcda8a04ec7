"""The prefix tree of an experiment: runs that begin with the same sites share the training of these.

A run is one learner on one order of sites with one seed. A prefix is the beginning of an order. A node of the
tree is the training of one site, after the sites of its prefix.
"""

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
        Its order is the node's prefix; the empty prefix stands for the untrained network.
    parent : str or None
        Key of the node to continue from; None starts from the untrained network.
    shown : int
        Number of its last sites that the parent has not seen. Only the model after the last of them is
        needed. To those before, the method is shown without training, so that it can store subjects. This is
        more than 1 for learners that train from scratch (`cumulative`), and where no run needs the nodes in
        between.
    continued : bool
        Whether a later node of the plan starts from this one; if so, its state is stored.
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
        """Learner and sites so far, for messages of progress."""
        return f"{self.spec.learner.title} {'>'.join(self.spec.order)}"

    @property
    def depth(self) -> int:
        """Number of sites learned; 0 for the untrained network."""
        return len(self.spec.order)


def trainings(nodes: Iterable[Node]) -> int:
    """Return the number of nodes that are trainings; untrained networks are only evaluated."""
    return sum(node.depth > 0 for node in nodes)


def canonical(
    prefix: Sequence[str], depends_on: str, sites: Sequence[str]
) -> tuple[str, ...]:
    """Return the representative of all prefixes that give the same model.

    Parameters
    ----------
    prefix : sequence of str
        Sites learned, in order.
    depends_on : {"order", "set", "site", "all"}
        What the model depends on (`fcforge.methods.Method`).
    sites : sequence of str
        All sites of the dataset.

    Returns
    -------
    tuple of str
        The prefix itself, its sites sorted, its last site, or all sites.
    """
    if not prefix:
        return ()
    decide = {"site": prefix[-1:], "set": sorted(prefix), "all": sorted(sites)}
    return tuple(decide.get(depends_on, prefix))


@dataclass(frozen=True)
class Plan:
    """Nodes to train, and the nodes that make up each run.

    Attributes
    ----------
    nodes : dict of key to Node
        Nodes with few sites first.
    stages : list of (RunSpec, tuple of str)
        For each run the key of its untrained node, followed by the keys of its nodes after each site.
    """

    nodes: dict[str, Node]
    stages: list[tuple[RunSpec, tuple[str, ...]]]

    @property
    def runs(self) -> list[tuple[RunSpec, tuple[str, ...]]]:
        """Runs of the experiment, without those that only fit thresholds."""
        return [(spec, keys) for spec, keys in self.stages if spec.left_out is None]

    def nodes_of_learners(self) -> dict[str, set[str]]:
        """Return the keys of all nodes of each learner's runs, by the learner's title."""
        keys_of_title: dict[str, set[str]] = defaultdict(set)
        for spec, keys in self.runs:
            keys_of_title[spec.learner.title].update(keys)
        return keys_of_title

    @property
    def trainings(self) -> int:
        """Number of site trainings, shared ones counted once."""
        return trainings(self.nodes.values())

    @property
    def words(self) -> str:
        """Numbers of runs and of site trainings, as text."""
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
        The runs.
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
        """Add the node of a run after the sites of `prefix`, with its parents, and return its key.

        A node has a parent if the learner continues from its state after the sites before, which it does not
        if the model depends on one site alone. The first site continues from the untrained network, which is
        no parent.
        """
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
    """Return the plan that `stored_runs` has written; its nodes have keys and specs, but no parents.

    Parameters
    ----------
    stored : sequence of mapping
        From `stored_runs`.
    specs : sequence of RunSpec
        The runs of the experiment, in the same order.

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
    """Return what distinguishes a run from the others of its experiment, as JSON."""
    return {
        "learner": spec.learner.title,
        "order": list(spec.order),
        "seed": spec.seed,
        "left_out": spec.left_out,
    }


def _wanted(nodes: Mapping[str, Node], asked: Container[str]) -> dict[str, Node]:
    """Return the nodes that are needed, those with few sites first.

    A node is needed if it is part of a run, or if several others start from it. Other nodes are prefixes of a
    sorted set of sites, from which a single node starts: this node then learns their sites, too
    (`Node.shown`).

    Parameters
    ----------
    nodes : mapping of key to Node
    asked : container of str
        Keys of the nodes that are part of runs.
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

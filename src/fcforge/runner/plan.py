"""Orders form a tree: runs with a common prefix share the training of that prefix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fcforge.runner.pipelines import depends_on, pipeline_of
from fcforge.types import RunSpec


@dataclass(frozen=True)
class Node:
    """One site training: a learner that has seen ``spec.order[:-1]`` learns ``spec.order[-1]``.

    Attributes
    ----------
    spec : RunSpec
        Its order is the node's prefix; the empty prefix is the untrained network.
    parent : str or None
        Key of the node to continue from; None starts from the untrained network.
    whole : bool
        All sites are shown first and trained on once (`joint`).
    continued : bool
        Whether a later node of the plan starts from this one, so that its state is stored.
    """

    spec: RunSpec
    parent: str | None
    whole: bool = False
    continued: bool = True

    @property
    def key(self) -> str:
        """Name of the node's folder."""
        return self.spec.key

    @property
    def title(self) -> str:
        """Learner and sites so far, for progress."""
        return f"{self.spec.learner.title} {'>'.join(self.spec.order)}"

    @property
    def depth(self) -> int:
        """Number of sites seen."""
        return len(self.spec.order)


def trainings(nodes: Iterable[Node]) -> int:
    """How many of some nodes train; untrained networks are only scored."""
    return sum(node.depth > 0 for node in nodes)


def canonical(
    prefix: Sequence[str], depends_on: str, sites: Sequence[str], keep_first: bool = False
) -> tuple[str, ...]:
    """Prefix that decides the model: itself, its sorted set, its last site, or all sites.

    `keep_first` leaves the first site where it is: harmonised runs have it as their reference.
    """
    if not prefix:
        return ()
    if depends_on == "site":
        return (prefix[-1],)
    if depends_on not in ("set", "all"):
        return tuple(prefix)
    seen = sorted(prefix if depends_on == "set" else sites)
    return tuple(sorted(seen, key=lambda site: site != prefix[0])) if keep_first else tuple(seen)


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
    def trainings(self) -> int:
        """Site trainings with shared prefixes (`joint` counts one)."""
        return trainings(self.nodes.values())

    @property
    def unshared_trainings(self) -> int:
        """Site trainings if every run were done on its own."""
        return sum(len(keys) - 1 for _, keys in self.stages)

    @property
    def saving(self) -> str:
        """Trainings that shared prefixes save, in words for a line that ends with their number.

        Empty where nothing is saved: few orders of a method that learns a set of sites train
        prefixes that no run asked for.
        """
        unshared = self.unshared_trainings
        return f" ({unshared} without shared prefixes)" if unshared > self.trainings else ""


def make_plan(specs: Sequence[RunSpec], sites: Sequence[str]) -> Plan:
    """Prefix tree of all runs.

    Examples
    --------
    All 24 orders of four sites need 64 site trainings instead of 96; all 120 orders of five
    sites need 325 instead of 600.
    """
    nodes: dict[str, Node] = {}

    def add(spec: RunSpec, prefix: tuple[str, ...]) -> str:
        how = depends_on(spec.learner)
        harmonised = spec.harmonise != "none"
        node_spec = replace(spec, order=canonical(prefix, how, sites, keep_first=harmonised))
        key = node_spec.key
        if key not in nodes:
            parent = None
            stored = pipeline_of(spec.learner) is None  # an estimator is made anew every time
            if stored and len(node_spec.order) > 1 and how in ("order", "set"):
                parent = add(spec, node_spec.order[:-1])
            nodes[key] = Node(node_spec, parent, whole=how == "all" and bool(prefix))
        return key

    stages = [
        (spec, tuple(add(spec, spec.order[:t]) for t in range(len(spec.order) + 1)))
        for spec in specs
    ]
    parents = {node.parent for node in nodes.values()}
    shallow_first = sorted(nodes.items(), key=lambda item: item[1].depth)
    return Plan({k: replace(node, continued=k in parents) for k, node in shallow_first}, stages)

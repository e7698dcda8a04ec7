"""Nodes of a plan that are still to be trained, and their order.

Every scheduler (worker processes, lanes on a GPU, a Dask cluster) uses the same bookkeeping:
which nodes may start, how many are done, and which states are no longer needed. A node's scores
stay; its state is stored only while a later node of the plan waits for it.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from fcforge.experiments.plan import Node, Plan, trainings
from fcforge.experiments.store import MISSING, Store

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

    def done(self, nodes: Sequence[Node], title: str) -> None:
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
        self._progress(self._finished, self._total, title)

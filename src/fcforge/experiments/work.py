"""Nodes of a plan that are still to be trained, and their order.

A node is one site training, its parent the training of the sites before, its depth the number of sites. Every
scheduler (worker processes, lanes on a GPU, a Dask cluster) uses the same bookkeeping: which nodes may start,
how many are done, and which states are no longer needed. A node's scores stay; its state is stored only while
a later node of the plan needs it.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from fcforge.experiments.plan import Node, Plan, trainings
from fcforge.experiments.store import MISSING, Store

# takes the number of site trainings done, their total, and a description of the last
Progress = Callable[[int, int, str], Any]


def missing_nodes(plan: Plan, store: Store) -> list[Node]:
    """Return the nodes to train, those with few sites first.

    A node is to be trained if it is not stored, if its files are damaged, or if a node to train starts from its
    state (lane) and that is not stored.
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
    """Bookkeeping of a plan in training.

    Parameters
    ----------
    plan : Plan
    store : Store
    progress : callable
        Called with the number of site trainings done, their total, and a description of the last one.

    Attributes
    ----------
    todo : list of Node
        Nodes that were missing at the beginning, those with few sites first.
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
            store.drop_lane(key)  # an interrupted run may have left it
        for key in missing:
            store.drop(key)  # it may be damaged
        self._ready = [node for node in self.todo if node.parent not in missing]
        progress(self._finished, self._total, "")

    def take(self) -> Node | None:
        """Return a node whose parent is stored, or None if there is none at the moment.

        Nodes with many sites come first, so that branches of the tree are finished and few states are stored.
        """
        if not self._ready:
            return None
        depths = [node.depth for node in self._ready]
        return self._ready.pop(depths.index(max(depths)))

    def done(self, nodes: Sequence[Node], title: str) -> None:
        """Note that nodes have been stored.

        Their children may start, and states that no other node needs are deleted.

        Parameters
        ----------
        nodes : sequence of Node
        title : str
            Description for the progress.
        """
        for node in nodes:
            children = self._children[node.key].values()
            self._ready += children
            if not children:
                # it was damaged, and all nodes that start from it are stored
                self.store.drop_lane(node.key)
            if node.parent is not None:
                self._children[node.parent].pop(node.key)
                if not self._children[node.parent]:
                    self.store.drop_lane(node.parent)
        self._finished += trainings(nodes)
        if self._finished == self._total:
            self.store.drop_subjects()
        self._progress(self._finished, self._total, title)

"""What is left of a plan: who may start, what to tell, and which states nobody needs any more.

Every scheduler (worker processes, lanes on a GPU, a Dask cluster) does the same bookkeeping. A
node's scores stay; its state is only stored while a later node of the plan waits for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any

from fcforge.runner.plan import Node, Plan, trainings
from fcforge.runner.store import Store

Progress = Callable[[int, int, str], Any]  # (site trainings done, in all, what was done last)


def missing_nodes(plan: Plan, store: Store) -> list[Node]:
    """Nodes that are not in the store yet, shallow first."""
    done = store.done()
    return [node for key, node in plan.nodes.items() if key not in done]


class Work:
    """A plan that is being trained.

    Attributes
    ----------
    todo : list of Node
        What the store did not hold at the beginning, shallow first.
    """

    def __init__(self, plan: Plan, store: Store, progress: Progress) -> None:
        self.todo = missing_nodes(plan, store)
        self._store, self._progress = store, progress
        self._total, self._finished = plan.trainings, plan.trainings - trainings(self.todo)
        self._children: dict[str, dict[str, Node]] = defaultdict(dict)
        for node in self.todo:
            if node.parent is not None:
                self._children[node.parent][node.key] = node
        missing = {node.key: node for node in self.todo}
        for key in plan.nodes.keys() - missing.keys() - self._children.keys():
            store.drop_lane(key)  # a killed run may have left it
        self._ready: list[tuple[int, int, Node]] = []
        self._count = count()
        self._add(node for node in self.todo if node.parent not in missing)
        progress(self._finished, self._total, "")

    def _add(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            heappush(self._ready, (-node.depth, next(self._count), node))

    def take(self) -> Node | None:
        """Hand out a node whose parent is stored, None if there is none at the moment.

        The deepest first: a chain is ended before another is begun, so that few states wait.
        """
        return heappop(self._ready)[2] if self._ready else None

    def done(self, nodes: Sequence[Node], what: str) -> None:
        """Some nodes are stored: say so, and drop states that all children have learned from."""
        for node in nodes:
            self._add(self._children[node.key].values())
            if node.parent is not None:
                self._children[node.parent].pop(node.key)
                if not self._children[node.parent]:
                    self._store.drop_lane(node.parent)
        self._finished += trainings(nodes)
        if self._finished == self._total:
            self._store.drop_subjects()
        self._progress(self._finished, self._total, what)

"""Who was made from whom: capsules as a forest, laid out on rows and columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fcforge.serve.capsules import CapsuleView

MOST_NODES = 240


@dataclass(frozen=True)
class Knot:
    """A capsule in the graph.

    Attributes
    ----------
    id, parent : str
        Capsule ids; parent is empty for the first of a chain.
    label : str
        The site learned last, or "audit".
    column, row : int
        Place; the column is the number of ledger lines before it.
    page : str
        Id of the item whose file lies here; empty when only another one's ledger names it.
    """

    id: str
    parent: str
    label: str
    column: int
    row: int
    page: str


def lineage(views: Sequence[CapsuleView], only: str = "") -> list[Knot]:
    """The forest of all sound capsules, parents before children.

    Parameters
    ----------
    views : sequence of CapsuleView
    only : str
        Id of a capsule: only its own tree.
    """
    labels, parents, pages = _edges(views)
    roots = [i for i in labels if not parents[i]]
    if only:
        roots = [_root_of(only, parents)] if only in labels else []
    children: dict[str, list[str]] = {}
    for child, parent in parents.items():
        if parent:
            children.setdefault(parent, []).append(child)
    placed: list[Knot] = []
    row = 0
    for root in roots:
        waiting = [(root, 0, True)]
        while waiting and len(placed) < MOST_NODES:
            own, column, first = waiting.pop()
            row += not first  # a second child starts a new row
            placed.append(Knot(own, parents[own], labels[own], column, row, pages.get(own, "")))
            below = children.get(own, [])
            waiting += [(c, column + 1, k == 0) for k, c in reversed(list(enumerate(below)))]
        row += 1
    return placed


def _edges(
    views: Sequence[CapsuleView],
) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    labels: dict[str, str] = {}
    parents: dict[str, str] = {}
    pages: dict[str, str] = {}
    for view in views:
        previous = ""
        for own, label in view.ancestry:
            # A ledger can claim anything of its past; the first who names a capsule is believed.
            if own not in labels and own != previous:
                labels[own], parents[own] = label, previous
            previous = own
        if view.ancestry:
            pages.setdefault(view.ancestry[-1][0], view.item.id)
    return labels, parents, pages


def _root_of(own: str, parents: dict[str, str]) -> str:
    seen: set[str] = set()
    while parents[own] and own not in seen:
        seen.add(own)
        own = parents[own]
    return own

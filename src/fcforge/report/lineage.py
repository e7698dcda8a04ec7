"""Which capsule was made from which, as chains with branches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

MOST_CAPSULES = 240


@dataclass(frozen=True)
class Ancestor:
    """A capsule as ledgers name it.

    Attributes
    ----------
    id, parent : str
        Capsule ids; parent is empty for the first of a chain.
    label : str
        The site learned last, or "audit".
    page : str
        Its page; empty when only another one's ledger names it.
    """

    id: str
    parent: str
    label: str
    page: str = ""


@dataclass(frozen=True)
class Chain:
    """Capsules each made from the one before; where several were made from the last: branches."""

    capsules: tuple[Ancestor, ...]
    branches: tuple[Chain, ...] = ()


def lineage(ancestries: Iterable[tuple[str, Iterable[tuple[str, str]]]]) -> list[Chain]:
    """Chains of all capsules.

    Parameters
    ----------
    ancestries : iterable of (page, iterable of (id, label))
        For every capsule that lies here its page and what its ledger names, oldest first, itself
        last.
    """
    known: dict[str, Ancestor] = {}
    pages: dict[str, str] = {}
    for page, chain in ancestries:
        previous = ""
        for own, label in chain:
            # A ledger can claim anything of its past; the first who names a capsule is believed.
            if own != previous and len(known) < MOST_CAPSULES:
                known.setdefault(own, Ancestor(own, previous, label))
            previous = own
        pages.setdefault(previous, page)
    children: dict[str, list[Ancestor]] = {}
    for found in known.values():
        shown = Ancestor(found.id, found.parent, found.label, pages.get(found.id, ""))
        children.setdefault(found.parent, []).append(shown)
    return [_chain(root, children) for root in children.get("", [])]


def _chain(first: Ancestor, children: dict[str, list[Ancestor]]) -> Chain:
    own = [first]
    while len(below := children.get(own[-1].id, [])) == 1:
        own.append(below[0])
    return Chain(tuple(own), tuple(_chain(child, children) for child in below))


def chain_of(chains: Iterable[Chain], own: str) -> list[Chain]:
    """The chains that hold a capsule, with all their branches."""
    return [chain for chain in chains if _holds(chain, own)]


def _holds(chain: Chain, own: str) -> bool:
    return any(c.id == own for c in chain.capsules) or any(_holds(b, own) for b in chain.branches)

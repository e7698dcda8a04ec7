"""What lies below a folder: runs, capsules and audits, and which capsule was made from which."""

from __future__ import annotations

import hashlib
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from zipfile import BadZipFile, ZipFile

from fcforge.capsule.container import CHAIN, MANIFEST, RELEASES
from fcforge.consortium.files import is_consortium
from fcforge.errors import FCForgeError, StoreError
from fcforge.text import printable

MOST_DEPTH, MOST_ENTRIES, MOST_ITEMS = 8, 20_000, 300
MOST_SCORES = 64 << 20  # bytes of one node's scores
MOST_CAPSULES = 240
_ZIP_HEAD = 30 + len(MANIFEST)  # a capsule's first member is its manifest

# What reading somebody's files may raise.
BROKEN = (
    FCForgeError,
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    MemoryError,
    EOFError,
    zlib.error,
    BadZipFile,
)

ItemKind = Literal["run", "capsule", "consortium", "audit"]


def reason(error: BaseException) -> str:
    """What is wrong with a file in one line, without its place on this machine."""
    if isinstance(error, FCForgeError):
        return printable(error.what)
    if isinstance(error, OSError):
        return f"cannot be read ({error.strerror or type(error).__name__})."
    return f"is not as fcforge writes it ({type(error).__name__})."


@dataclass(frozen=True)
class Item:
    """A run folder, a capsule or an audit.

    Attributes
    ----------
    kind : {"run", "capsule", "consortium", "audit"}
    path : Path
    name : str
        Path below the folder, fit to be shown.
    page : str
        File name of its page: readable, and different for every item.
    """

    kind: ItemKind
    path: Path
    name: str
    page: str


def find_items(root: Path) -> tuple[list[Item], bool]:
    """Items below `root` by name, and whether the search was cut short by its limits."""
    items: list[Item] = []
    seen, cut = 0, False
    for folder, names, files in os.walk(root):  # does not follow links
        depth = len(Path(folder).relative_to(root).parts)
        names[:] = (
            sorted(n for n in names if not n.startswith("."))
            if depth < MOST_DEPTH
            else []
        )
        seen += len(names) + len(files)
        cut |= seen > MOST_ENTRIES or len(items) > MOST_ITEMS
        if cut:
            break
        shown = [f for f in sorted(files) if not f.startswith(".")]
        plain = [f for f in shown if not os.path.islink(os.path.join(folder, f))]
        found = list(_items_of(Path(folder), {*names, *plain}, plain))
        for kind, path in found:
            relative = path.relative_to(root).as_posix()
            name = printable(
                relative if relative != "." else root.resolve().name or "/"
            )
            slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60]
            digest = hashlib.sha256(os.fsencode(relative)).hexdigest()[:8]
            items.append(Item(kind, path, name, f"{kind}-{slug}-{digest}.html"))
        if any(path == Path(folder) for _, path in found):
            names[:] = []  # what belongs to an item is not an item
    return sorted(items[:MOST_ITEMS], key=lambda i: i.name), cut


def _items_of(
    folder: Path, names: set[str], files: list[str]
) -> Iterator[tuple[ItemKind, Path]]:
    if "experiment.json" in names:
        yield "run", folder
    elif len(names & {MANIFEST, *CHAIN.parts, *RELEASES.parts}) > 1:
        yield "consortium" if is_consortium(folder) else "capsule", folder
    else:
        for path in (folder / f for f in files if _is_capsule(folder / f)):
            yield "consortium" if is_consortium(path) else "capsule", path
        if "audit.json" in files:
            yield "audit", folder / "audit.json"


def _is_capsule(path: Path) -> bool:
    """By its name, or by the first bytes of a canonical capsule."""
    if path.suffix == ".capsule":
        return True
    try:
        with path.open("rb") as stream:
            head = stream.read(_ZIP_HEAD)
    except OSError:
        return False
    return head[:4] == b"PK\3\4" and head[30:] == MANIFEST.encode()


def require_plain_run(folder: Path) -> None:
    """Raise on links and on sizes that no run writes, before anything of a run folder is read."""
    nodes = folder / "nodes"
    for path in (nodes, *nodes.rglob("*")):
        if path.is_symlink():
            raise StoreError(f"{path.name} is a link; links are not followed.")
        if path.name == "scores.npz":
            with ZipFile(path) as packed:
                if sum(member.file_size for member in packed.infolist()) > MOST_SCORES:
                    raise StoreError(
                        f"the scores of node {path.parent.name} are too large."
                    )


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
    return any(c.id == own for c in chain.capsules) or any(
        _holds(b, own) for b in chain.branches
    )

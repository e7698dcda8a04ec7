"""What lies below a folder: runs, exchange files, audits and judged generators."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from zipfile import ZipFile

from fcforge.messages import FCForgeError, StoreError, printable
from fcforge.studies.judge.summary import PORTRAITS, RECORDS

MOST_SCORES = 64 << 20  # bytes of one node's scores
SUFFIX = ".fcx"

BROKEN = Exception  # whatever reading somebody's file raises: it is said on its page
ItemKind = Literal["run", "exchange", "audit", "judged"]


def reason(error: BaseException) -> str:
    """What is wrong with a file in one line, without its place on this machine."""
    if isinstance(error, FCForgeError):
        return printable(error.what)
    if isinstance(error, ModuleNotFoundError):
        return f"needs the package '{error.name}', which is not installed here."
    if isinstance(error, OSError):
        return f"cannot be read ({error.strerror or type(error).__name__})."
    return f"is not as fcforge writes it ({type(error).__name__})."


@dataclass(frozen=True)
class Item:
    """A run folder, an exchange file, an audit or a folder of judged generators.

    Attributes
    ----------
    kind : {"run", "exchange", "audit", "judged"}
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


def find_items(root: Path) -> list[Item]:
    """Items below `root` by name."""
    items: list[Item] = []
    for folder, names, files in os.walk(root):  # does not follow links
        names[:] = [name for name in names if not name.startswith(".")]
        for kind, path in _items_of(Path(folder), files):
            items.append(_item(kind, path, root))
            if path == Path(folder):
                names.clear()  # what belongs to an item is not an item
    return sorted(items, key=lambda item: item.name)


def _item(kind: ItemKind, path: Path, root: Path) -> Item:
    relative = path.relative_to(root).as_posix()
    name = printable(relative if relative != "." else root.resolve().name or "/")
    hyphened = re.sub(r"[^a-z0-9]+", "-", name.lower())
    slug = hyphened.strip("-")[:60]
    digest = hashlib.sha256(os.fsencode(relative)).hexdigest()
    return Item(kind, path, name, f"{kind}-{slug}-{digest[:8]}.html")


def _items_of(folder: Path, names: list[str]) -> Iterator[tuple[ItemKind, Path]]:
    """Items of one folder; hidden files and links are none."""
    shown = [folder / name for name in sorted(names) if not name.startswith(".")]
    files = {path.name: path for path in shown if not path.is_symlink()}
    if "experiment.json" in files:
        yield "run", folder
    elif files.keys() >= {RECORDS, PORTRAITS}:
        yield "judged", folder
    else:
        for path in files.values():
            if path.suffix == SUFFIX:
                yield "exchange", path
        if "audit.json" in files:
            yield "audit", files["audit.json"]


def require_plain_run(folder: Path) -> None:
    """Raise on links and on sizes that no run writes, before anything of a run folder is read."""
    nodes = folder / "nodes"
    for path in (nodes, *nodes.rglob("*")):
        if path.is_symlink():
            raise StoreError(f"{path.name} is a link; links are not followed.")
        if path.name == "scores.npz":
            with ZipFile(path) as packed:
                size = sum(member.file_size for member in packed.infolist())
            if size > MOST_SCORES:
                what = f"the scores of node {path.parent.name} are too large."
                raise StoreError(what)

"""What lies below a folder: runs, exchange files, audits and judged generators."""

from __future__ import annotations

import hashlib
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from zipfile import BadZipFile, ZipFile

from fcforge.errors import FCForgeError, StoreError
from fcforge.exchange.archive import MANIFEST
from fcforge.studies.judge.summary import PORTRAITS, RECORDS
from fcforge.text import printable

MOST_DEPTH = 8
MOST_ENTRIES = 20_000
MOST_ITEMS = 300
MOST_SCORES = 64 << 20  # bytes of one node's scores
SUFFIX = ".fcx"
_ZIP_HEAD = 30 + len(MANIFEST)  # the first member of an exchange file is its manifest
JUDGED = {RECORDS, PORTRAITS}

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
    ImportError,
    zlib.error,
    BadZipFile,
)

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


def find_items(root: Path) -> tuple[list[Item], bool]:
    """Items below `root` by name, and whether the search was cut short by its limits."""
    items: list[Item] = []
    seen = 0
    for folder, names, files in os.walk(root):  # does not follow links
        place = Path(folder)
        if len(place.relative_to(root).parts) >= MOST_DEPTH:
            names.clear()
        names[:] = sorted(name for name in names if not name.startswith("."))
        seen += len(names) + len(files)
        if seen > MOST_ENTRIES or len(items) > MOST_ITEMS:
            return _by_name(items), True
        found = list(_items_of(place, _plain_files(place, files)))
        items += [_item(kind, path, root) for kind, path in found]
        if any(path == place for _, path in found):
            names.clear()  # what belongs to an item is not an item
    return _by_name(items), False


def _by_name(items: list[Item]) -> list[Item]:
    return sorted(items[:MOST_ITEMS], key=lambda item: item.name)


def _plain_files(folder: Path, files: list[str]) -> list[str]:
    """Names of files that are neither hidden nor links."""
    shown = [name for name in sorted(files) if not name.startswith(".")]
    return [name for name in shown if not (folder / name).is_symlink()]


def _item(kind: ItemKind, path: Path, root: Path) -> Item:
    relative = path.relative_to(root).as_posix()
    name = printable(relative if relative != "." else root.resolve().name or "/")
    hyphened = re.sub(r"[^a-z0-9]+", "-", name.lower())
    slug = hyphened.strip("-")[:60]
    digest = hashlib.sha256(os.fsencode(relative)).hexdigest()
    return Item(kind, path, name, f"{kind}-{slug}-{digest[:8]}.html")


def _items_of(folder: Path, files: list[str]) -> Iterator[tuple[ItemKind, Path]]:
    if "experiment.json" in files:
        yield "run", folder
        return
    if set(files) >= JUDGED:
        yield "judged", folder
        return
    for name in files:
        if _is_exchange(folder / name):
            yield "exchange", folder / name
    if "audit.json" in files:
        yield "audit", folder / "audit.json"


def _is_exchange(path: Path) -> bool:
    """By its name, or by the first bytes of a canonical exchange file."""
    if path.suffix == SUFFIX:
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
                size = sum(member.file_size for member in packed.infolist())
            if size > MOST_SCORES:
                what = f"the scores of node {path.parent.name} are too large."
                raise StoreError(what)

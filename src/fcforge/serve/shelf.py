"""What lies below the served folder: run folders and capsules, found without following a link.

A page names an item by a hash of its relative path, never by the path itself: there is nothing
in a URL that could climb out of the folder.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fcforge.capsule.container import MANIFEST, PARTS, SEAL
from fcforge.errors import StoreError
from fcforge.text import printable

MOST_DEPTH, MOST_ENTRIES, MOST_ITEMS = 8, 20_000, 300
_ZIP_HEAD = 30 + len(MANIFEST)  # a capsule's first member is its manifest
_KEEP_SECONDS = 2.0

Signature = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True)
class Item:
    """A run folder or a capsule.

    Attributes
    ----------
    kind : {"run", "capsule"}
    path : Path
    name : str
        Path below the served folder, fit to be shown.
    id : str
        12 hex digits.
    """

    kind: Literal["run", "capsule"]
    path: Path
    name: str
    id: str


@dataclass(frozen=True)
class Shelf:
    """All items, and whether the search was cut short by its limits."""

    items: tuple[Item, ...]
    cut: bool = False

    def of_kind(self, kind: str) -> list[Item]:
        """Runs or capsules, by name."""
        return [item for item in self.items if item.kind == kind]

    def get(self, kind: str, item_id: str) -> Item | None:
        """The item of that id."""
        return next((i for i in self.items if (i.kind, i.id) == (kind, item_id)), None)


class Finder:
    """Looks below `root`; an answer is kept for two seconds."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._last: tuple[float, Shelf] | None = None

    def look(self) -> Shelf:
        """The items as they are now."""
        now = time.monotonic()
        last = self._last
        if last is None or now - last[0] > _KEEP_SECONDS:
            last = (now, self._search())
            self._last = last
        return last[1]

    def _search(self) -> Shelf:
        walk = _Walk(self.root)
        items: list[Item] = []
        for kind, path in walk:
            if len(items) == MOST_ITEMS:
                return Shelf(tuple(items), cut=True)
            relative = path.relative_to(self.root).as_posix()
            digest = hashlib.sha256(os.fsencode(relative)).hexdigest()[:12]
            shown = printable(relative) if relative != "." else self.root.name or "/"
            items.append(Item(kind, path, shown, digest))
        return Shelf(tuple(sorted(items, key=lambda i: i.name)), walk.cut)


class _Walk:
    """Run folders and capsules below a folder, shallow first; no hidden names, no links."""

    def __init__(self, root: Path) -> None:
        self.root, self.cut = root, False

    def __iter__(self) -> Iterator[tuple[Literal["run", "capsule"], Path]]:
        waiting, seen = [(self.root, 0)], 0
        while waiting:
            folder, depth = waiting.pop(0)
            entries = _entries(folder)
            names = {entry.name for entry in entries}
            seen += len(entries)
            if seen > MOST_ENTRIES:
                self.cut = True
                return
            if "experiment.json" in names:
                yield "run", folder
            elif _is_capsule_folder(names):
                yield "capsule", folder
            else:
                yield from (("capsule", Path(e.path)) for e in entries if _is_capsule_file(e))
                below = [Path(e.path) for e in entries if e.is_dir(follow_symlinks=False)]
                self.cut |= bool(below) and depth == MOST_DEPTH
                waiting += [(path, depth + 1) for path in below if depth < MOST_DEPTH]


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            visible = [e for e in found if not e.name.startswith(".") and not e.is_symlink()]
    except OSError:  # gone, or not ours to read
        return []
    return sorted(visible, key=lambda e: e.name)


def _is_capsule_folder(names: set[str]) -> bool:
    return {MANIFEST, SEAL} <= names or len(names & set(PARTS)) >= 4


def _is_capsule_file(entry: os.DirEntry[str]) -> bool:
    """By its name, or by the first bytes of a canonical capsule."""
    if not entry.is_file(follow_symlinks=False):
        return False
    if entry.name.endswith(".capsule"):
        return True
    try:
        with open(entry.path, "rb") as stream:
            head = stream.read(_ZIP_HEAD)
    except OSError:
        return False
    return head[:4] == b"PK\3\4" and head[30:] == MANIFEST.encode()


def require_inside(root: Path, path: Path) -> None:
    """Raise unless `path` is below `root` and no link leads there."""
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise StoreError("is not there any more.") from error
    if real != root / path.relative_to(root) or not real.is_relative_to(root):
        raise StoreError("is reached through a link; links are not followed.")


def read_inside(root: Path, path: Path, limit: int) -> bytes:
    """Bytes of a regular file below `root` of at most `limit` bytes, no link followed."""
    require_inside(root, path)
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as stream:
        info = os.fstat(stream.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise StoreError(f"{path.name} is not a regular file.")
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise StoreError(f"{path.name} has more than the {limit} bytes shown here.")
    return data


def signature(item: Item) -> Signature:
    """Changes when the item changes: name, time, size and inode of its files and folders."""
    paths = [item.path]
    if item.path.is_dir():
        paths += [item.path / entry.name for entry in _entries(item.path)]
    found = []
    for path in paths:
        try:
            info = path.stat(follow_symlinks=False)
        except OSError:
            continue
        found.append((path.name, info.st_mtime_ns, info.st_size, info.st_ino))
    return tuple(found)

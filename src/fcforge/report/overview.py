"""`fcforge pages`: an overview, with a page for every run, audit and judgement below a folder.

There is no server: open index.html, or mail the folder. Links are relative, and every page is one
file that loads nothing.
"""

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

from fcforge.core.errors import FCForgeError, StoreError
from fcforge.core.files import write_text
from fcforge.core.formatting import counted, printable
from fcforge.evaluation.generator_quality.summary import (
    PORTRAITS,
    RECORDS,
    read_judgement,
)
from fcforge.evaluation.privacy.audit_result import read_audit
from fcforge.experiments.store import BROKEN
from fcforge.report import judge
from fcforge.report.audits import section
from fcforge.report.html import render, sections_page, shortened
from fcforge.report.page_kinds import Page, PageKind, installed_page_kinds
from fcforge.report.run_numbers import run_numbers
from fcforge.report.run_page import page_of, read_folder
from fcforge.report.run_warnings import leaks_on

INDEX = "index.html"
MAX_SCORE_BYTES = 64 << 20  # largest scores file of one node
Say = Callable[[str], object]


class Item(NamedTuple):
    """A thing that has a page.

    Attributes
    ----------
    kind : PageKind
    path : Path
    name : str
        Path below the searched folder, printable.
    page : str
        File name of its page: readable, and different for every item.
    """

    kind: PageKind
    path: Path
    name: str
    page: str


class Card(NamedTuple):
    """Entry of an item in the overview.

    Attributes
    ----------
    item : Item
    summary : sequence of str
        Lines of the entry.
    damaged : bool
        Whether the item could not be read.
    """

    item: Item
    summary: Sequence[str]
    damaged: bool


def write_pages(
    folder: str | Path, out: str | Path | None = None, say: Say = lambda text: None
) -> Path:
    """Write the pages of everything below a folder.

    Parameters
    ----------
    folder : path
        Searched for run folders, judged generators, audits and whatever installed packages have
        pages for. Links are not followed.
    out : path, optional
        Folder to write; FOLDER/pages by default. Pages that an earlier call wrote there for
        things that no longer exist are removed.
    say : callable
        Receives the name of each item before its page is made.

    Returns
    -------
    Path
        The overview.
    """
    root = Path(folder)
    if not root.is_dir():
        hint = "Give an existing folder to search."
        raise FCForgeError("There is no such folder.", where=root, do=hint)
    target = Path(out) if out is not None else root / "pages"
    kinds = page_kinds()
    items = find_items(root, kinds)
    _remove_stale_pages(target, kinds, {item.page for item in items})
    cards: dict[str, list[Card]] = {kind.name: [] for kind in kinds}
    for item in items:
        say(f"{item.kind.name} {item.name}")
        cards[item.kind.name].append(_write(item, target))
    groups = [(kind, cards[kind.name]) for kind in kinds]
    name = root.resolve().name or "/"
    write_text(target / INDEX, render("overview.html.j2", folder=name, groups=groups))
    return target / INDEX


def _remove_stale_pages(
    target: Path, kinds: Sequence[PageKind], current: set[str]
) -> None:
    """Remove pages of these kinds that are not among the `current` file names."""
    for kind in kinds:
        for path in target.glob(f"{kind.name}-*-????????.html"):
            if path.name not in current:
                path.unlink()


# -- search ----------------------------------------------------------------------------------------
def find_items(root: Path, kinds: Sequence[PageKind] | None = None) -> list[Item]:
    """Return everything below a folder that has a page (runs, audits, consortium files), sorted by name.

    Parameters
    ----------
    root : Path
    kinds : sequence of PageKind, optional
        Kinds to search for, by default all.
    """
    searched = page_kinds() if kinds is None else kinds
    items: list[Item] = []
    for directory, names, files in os.walk(root):  # does not follow links
        folder = Path(directory)
        names[:] = [name for name in names if not name.startswith(".")]
        kind_and_path = _items_of(folder, files, searched)
        items += [_item(root, kind, path) for kind, path in kind_and_path]
        if any(path == folder for _, path in kind_and_path):
            names.clear()  # an item's own files are not items
    return sorted(items, key=lambda item: item.name)


def _items_of(
    folder: Path, names: Sequence[str], kinds: Sequence[PageKind]
) -> list[tuple[PageKind, Path]]:
    """Return what has a page in one folder: the folder itself (a run, for example), or files in it.

    Parameters
    ----------
    folder : Path
    names : sequence of str
        Names of the files in it.
    kinds : sequence of PageKind
        Kinds of pages to look for.

    Returns
    -------
    list of (PageKind, Path)
    """
    visible = [folder / name for name in sorted(names) if not name.startswith(".")]
    files = {path.name: path for path in visible if not path.is_symlink()}
    for kind in kinds:
        if kind.is_folder and list(kind.find(folder, files)):
            return [(kind, folder)]
    return [
        (kind, path)
        for kind in kinds
        if not kind.is_folder
        for path in kind.find(folder, files)
    ]


def _item(root: Path, kind: PageKind, path: Path) -> Item:
    """Return an item with a readable, unique file name for its page."""
    relative = path.relative_to(root).as_posix()
    name = printable(relative if relative != "." else root.resolve().name or "/")
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60]
    digest = hashlib.sha256(os.fsencode(relative)).hexdigest()[:8]
    return Item(kind, path, name, f"{kind.name}-{slug}-{digest}.html")


def require_plain_run(folder: Path) -> None:
    """Check a run folder for links and oversized files before any of it is read.

    Raises
    ------
    StoreError
        If the folder holds a link, or scores of a size that no run writes.
    """
    nodes = folder / "nodes"
    for path in (nodes, *nodes.rglob("*")):
        if path.is_symlink():
            raise StoreError(f"{path.name} is a link; links are not followed.")
        if path.name == "scores.npz":
            with ZipFile(path) as packed:
                size = sum(member.file_size for member in packed.infolist())
            if size > MAX_SCORE_BYTES:
                raise StoreError(
                    f"the scores of node {path.parent.name} are too large."
                )


# -- pages -----------------------------------------------------------------------------------------
def _write(item: Item, target: Path) -> Card:
    """Write the page of an item and return its card; a damaged item gets a page that says why."""
    damaged = False
    try:
        page = item.kind.make(item.path, item.name, INDEX)
    except (*BROKEN, FCForgeError, ImportError) as error:
        damaged = True
        label = "Damaged, must not be used."
        if isinstance(error, ImportError):
            label = "Cannot be shown here."
        text = f"{label} Why: {shortened(reason(error), 600)}"
        html = sections_page(item.name, item.kind.name, [], text, INDEX)
        page = Page(html, [text])
    write_text(target / item.page, page.html)
    return Card(item, page.summary, damaged)


def reason(error: Exception) -> str:
    """Return an error as one line without paths of this machine, which others should not see."""
    if isinstance(error, FCForgeError):
        return printable(error.what)
    if isinstance(error, ImportError):
        return f"needs the package '{error.name}', which is not installed here."
    if isinstance(error, OSError):
        return f"cannot be read ({error.strerror or type(error).__name__})."
    return f"is not as fcforge writes it ({type(error).__name__})."


def _run(path: Path, name: str, home: str) -> Page:
    """Return the page of a run folder and its summary."""
    require_plain_run(path)
    results, info = read_folder(path, home=home)
    numbers = run_numbers(results, info)
    expected = max(info.expected or 0, len(results))
    sites = counted(len(results[0].sites), "site")
    summary = [info.title, f"{len(results)} of {expected} runs, {sites}"]
    if leaks_on(results):
        summary.append("Test data leaked into training, on purpose.")
    return Page(page_of(info, numbers), summary)


def _audit(path: Path, name: str, home: str) -> Page:
    """Return the page of an audit.json and its summary."""
    audit = read_audit(path)
    body = section(audit)
    html = sections_page(body.title, "privacy audit", [body], home=home)
    return Page(html, [body.title, *audit.words()])


def _judgement(path: Path, name: str, home: str) -> Page:
    """Return the page of a folder of `fcforge judge` and its summary."""
    judgement = read_judgement(path)
    return Page(judge.page_of(judgement, home), [judgement.title])


KINDS = (
    PageKind(
        "run",
        "Runs",
        "Experiments of `fcforge run`: every learner over many site orders.",
        ("experiment.json",),
        _run,
        is_folder=True,
    ),
    PageKind(
        "judged",
        "Judged generators",
        "Results of `fcforge judge`: fidelity, diversity and use of synthetic FC.",
        (RECORDS, PORTRAITS),
        _judgement,
        is_folder=True,
    ),
    PageKind(
        "audit",
        "Audits",
        "Results of `fcforge audit`: how well attackers can tell who took part.",
        ("audit.json",),
        _audit,
    ),
)


def page_kinds() -> list[PageKind]:
    """Return all kinds of pages: those of fcforge, then those of installed packages."""
    return [*KINDS, *installed_page_kinds()]

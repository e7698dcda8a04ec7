"""Pages as plain files: an overview with a page for everything that lies below a folder.

No server: open index.html, or mail the folder. Links are relative, every page is one file that
loads nothing.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
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
from fcforge.report.run_numbers import run_numbers
from fcforge.report.run_page import page_of, read_folder
from fcforge.report.run_warnings import leaks_on
from fcforge_consortium.records.exchange import open_exchange
from fcforge_consortium.report.page import page_of as exchange_page
from fcforge_consortium.report.page import pictures

INDEX = "index.html"
MOST_SCORES = 64 << 20  # bytes of one node's scores
Say = Callable[[str], object]
Made = tuple[str, Sequence[str]]  # a page, and what the overview says of it


class Item(NamedTuple):
    """A run folder, an exchange file, an audit or a folder of judged generators.

    Attributes
    ----------
    kind : str
        Of `KINDS`.
    path : Path
    name : str
        Path below the folder, fit to be shown.
    page : str
        File name of its page: readable, and different for every item.
    """

    kind: str
    path: Path
    name: str
    page: str


def write_pages(
    folder: str | Path, out: str | Path | None = None, say: Say = lambda text: None
) -> Path:
    """Write the pages of everything below a folder; returns the overview.

    Parameters
    ----------
    folder : path
        Searched for run folders, exchange files, audits and judged generators; links are not
        followed.
    out : path, optional
        Where to write, FOLDER/pages without it. Pages that an earlier call left there for things
        that are gone are removed.
    say : callable
        Told what is being shown.
    """
    root = Path(folder)
    if not root.is_dir():
        do = "Give a folder to look into."
        raise FCForgeError("no such folder.", where=root, do=do)
    to = Path(out) if out is not None else root / "pages"
    items = find_items(root)
    pages = {item.page for item in items}
    cards: dict[str, list[tuple[Item, Sequence[str], bool]]] = {k: [] for k in KINDS}
    for kind in KINDS:
        for path in to.glob(f"{kind}-*-????????.html"):
            if path.name not in pages:
                path.unlink()
    for item in items:
        say(f"{item.kind} {item.name}")
        cards[item.kind].append((item, *_write(item, to)))
    groups = [(kind, *KINDS[kind][1:], found) for kind, found in cards.items()]
    name = root.resolve().name or "/"
    write_text(to / INDEX, render("overview.html.j2", folder=name, groups=groups))
    return to / INDEX


# -- what lies below a folder ----------------------------------------------------------------------
def find_items(root: Path) -> list[Item]:
    """Items below `root` by name."""
    items: list[Item] = []
    for folder, names, files in os.walk(root):  # does not follow links
        names[:] = [name for name in names if not name.startswith(".")]
        for kind, path in _items_of(Path(folder), files):
            relative = path.relative_to(root).as_posix()
            shown = relative if relative != "." else root.resolve().name or "/"
            name = printable(shown)
            hyphened = re.sub(r"[^a-z0-9]+", "-", name.lower())
            slug = hyphened.strip("-")[:60]
            digest = hashlib.sha256(os.fsencode(relative)).hexdigest()
            page = f"{kind}-{slug}-{digest[:8]}.html"
            items.append(Item(kind, path, name, page))
            if path == Path(folder):
                names.clear()  # what belongs to an item is not an item
    return sorted(items, key=lambda item: item.name)


def _items_of(folder: Path, names: list[str]) -> Iterator[tuple[str, Path]]:
    """Items of one folder; hidden files and links are none."""
    shown = [folder / name for name in sorted(names) if not name.startswith(".")]
    files = {path.name: path for path in shown if not path.is_symlink()}
    if "experiment.json" in files:
        yield "run", folder
    elif files.keys() >= {RECORDS, PORTRAITS}:
        yield "judged", folder
    else:
        for name, path in files.items():
            if path.suffix == ".fcx":
                yield "exchange", path
            elif name == "audit.json":
                yield "audit", path


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


# -- their pages -----------------------------------------------------------------------------------
def _write(item: Item, to: Path) -> tuple[Sequence[str], bool]:
    """Write the page of an item; returns its lines in the overview, and whether it is damaged."""
    damaged = False
    try:
        page, lines = KINDS[item.kind][0](item)
    except (*BROKEN, FCForgeError, ImportError) as error:
        damaged = True
        label = "Damaged, must not be used."
        if isinstance(error, ImportError):
            label = "Cannot be shown here."
        lines = [f"{label} Why: {shortened(reason(error), 600)}"]
        page = sections_page(item.name, item.kind, [], lines[0], INDEX)
    write_text(to / item.page, page)
    return lines, damaged


def reason(error: Exception) -> str:
    """What is wrong with a file in one line, without its place on this machine."""
    if isinstance(error, FCForgeError):
        return printable(error.what)
    if isinstance(error, ImportError):
        return f"needs the package '{error.name}', which is not installed here."
    if isinstance(error, OSError):
        return f"cannot be read ({error.strerror or type(error).__name__})."
    return f"is not as fcforge writes it ({type(error).__name__})."


def _run(item: Item) -> Made:
    require_plain_run(item.path)
    results, about = read_folder(item.path, home=INDEX)
    found = run_numbers(results, about)
    asked = max(about.expected or 0, len(results))
    sites = counted(len(results[0].sites), "site")
    lines = [about.title, f"{len(results)} of {asked} runs, {sites}"]
    if leaks_on(results):
        lines.append("Test data leaked into training, on purpose.")
    return page_of(about, found), lines


def _audit(item: Item) -> Made:
    audit = read_audit(item.path)
    shown = section(audit)
    lines = audit.words()
    page = sections_page(shown.title, "privacy audit", [shown], home=INDEX)
    return page, [shown.title, *lines]


def _judged(item: Item) -> Made:
    found = read_judgement(item.path)
    return judge.page_of(found, INDEX), [found.title]


def _exchange(item: Item) -> Made:
    model = open_exchange(item.path).model
    found = model.describe()
    lines = [", ".join(found.sites) or "no hospital yet", found.kind]
    lines += [answer.say for answer in found.answers]
    if found.real_subjects:
        lines.append("Carries real subjects.")
    return exchange_page(found, item.name, INDEX, pictures(model)), lines


KINDS: dict[str, tuple[Callable[[Item], Made], str, str]] = {
    "exchange": (
        _exchange,
        "Exchange files",
        "What travels between hospitals: signed records and what the model is computed from. A "
        "file is shown only after every check of `fcforge consortium verify` has passed.",
    ),
    "run": (
        _run,
        "Runs",
        "Experiments of `fcforge run`: every learner over many site orders.",
    ),
    "judged": (
        _judged,
        "Judged generators",
        "What `fcforge judge` found: fidelity, diversity and use of synthetic FC.",
    ),
    "audit": (
        _audit,
        "Audits",
        "What `fcforge audit` found: how well attackers tell who took part.",
    ),
}

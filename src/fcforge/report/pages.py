"""Pages as plain files: an overview with a page for everything in a folder.

No server: open index.html, or mail the folder. Links are relative, every page is one file that
loads nothing.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from fcforge.exchange.exchange import open_exchange
from fcforge.files import write_text
from fcforge.messages import FCForgeError, counted
from fcforge.report import discovery, judge
from fcforge.report.audits import section
from fcforge.report.contents import contents
from fcforge.report.discovery import BROKEN, Item, ItemKind, reason
from fcforge.report.exchange_file import page_of as exchange_page
from fcforge.report.exchange_file import pictures
from fcforge.report.figures import short
from fcforge.report.rendering import render, sections_page
from fcforge.report.run import page_of, read_folder
from fcforge.report.run_words import leaks_on
from fcforge.report.terminal import interval_text
from fcforge.studies.audit_result import read_audit
from fcforge.studies.judge.summary import read_judgement

INDEX = "index.html"
Say = Callable[[str], object]
Made = tuple[str, Sequence[str]]  # a page, and what the overview says of it


class Listed(NamedTuple):
    """What the overview says of an item, and whether it is damaged."""

    item: Item
    lines: Sequence[str]
    damaged: bool = False


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
    items = discovery.find_items(root)
    listed = []
    for item in items:
        say(f"{item.kind} {item.name}")
        listed.append(_write(item, to))
    _remove_old(to, {item.page for item in items})
    overview = _overview(root.resolve().name or "/", listed)
    write_text(to / INDEX, overview)
    return to / INDEX


def _remove_old(to: Path, pages: set[str]) -> None:
    """Remove pages of things that are gone."""
    for kind in MAKERS:
        for path in to.glob(f"{kind}-*-????????.html"):
            if path.name not in pages:
                path.unlink()


def _write(item: Item, to: Path) -> Listed:
    """Write the page of an item; whatever is wrong with it is said there."""
    try:
        page, lines = MAKERS[item.kind](item)
        shown = Listed(item, lines)
    except BROKEN as error:
        label = "Damaged, must not be used."
        if isinstance(error, ModuleNotFoundError):
            label = "Cannot be shown here."
        why = f"{label} Why: {short(reason(error), 600)}"
        page = sections_page(item.name, item.kind, [], why, INDEX)
        shown = Listed(item, [why], damaged=True)
    write_text(to / item.page, page)
    return shown


def _run(item: Item) -> Made:
    discovery.require_plain_run(item.path)
    results, about = read_folder(item.path, home=INDEX)
    found = contents(results, about)
    asked = max(about.expected or 0, len(results))
    sites = counted(len(results[0].sites), "site")
    lines = [about.title, f"{len(results)} of {asked} runs, {sites}"]
    if found.learners:
        best = found.learners[0]
        shown = interval_text(best.estimates["aaa"])
        lines.append(f"highest {found.words.average}: {best.learner}, {shown}")
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


MAKERS: dict[ItemKind, Callable[[Item], Made]] = {
    "exchange": _exchange,
    "run": _run,
    "judged": _judged,
    "audit": _audit,
}
GROUPS: tuple[tuple[ItemKind, str, str], ...] = (
    (
        "exchange",
        "Exchange files",
        "What travels between hospitals: signed records and what the model is computed from. A "
        "file is shown only after every check of `fcforge verify` has passed.",
    ),
    (
        "run",
        "Runs",
        "Experiments of `fcforge run`: every learner over many site orders.",
    ),
    (
        "judged",
        "Judged generators",
        "What `fcforge judge` found: fidelity, diversity and use of synthetic FC.",
    ),
    (
        "audit",
        "Audits",
        "What `fcforge audit` found: how well attackers tell who took part.",
    ),
)


def _overview(folder: str, listed: Sequence[Listed]) -> str:
    groups = []
    facts = []
    for kind, title, note in GROUPS:
        mine = [entry for entry in listed if entry.item.kind == kind]
        groups.append((kind, title, note, mine))
        facts.append((title.lower(), len(mine), ""))
    damaged = sum(entry.damaged for entry in listed)
    facts.append(("damaged", damaged, ""))
    return render("overview.html.j2", folder=folder, groups=groups, facts=facts)

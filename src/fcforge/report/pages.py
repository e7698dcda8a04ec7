"""Pages as plain files: an overview with a page for everything in a folder.

No server: open index.html, or mail the folder. Links are relative, every page is one file that
loads nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fcforge.errors import FCForgeError
from fcforge.exchange.exchange import Exchange, open_exchange
from fcforge.files import write_text
from fcforge.report import discovery, judge
from fcforge.report.audits import section
from fcforge.report.contents import contents
from fcforge.report.discovery import BROKEN, Item, ItemKind, reason
from fcforge.report.exchange_file import page_of as exchange_page
from fcforge.report.exchange_file import uses_section
from fcforge.report.rendering import Section, render, sections_page
from fcforge.report.run import page_of, read_folder
from fcforge.report.table import Cell, Heading, Table, interval_text
from fcforge.studies.audit_result import read_audit
from fcforge.studies.judge.summary import read_judgement
from fcforge.text import counted

INDEX = "index.html"
Say = Callable[[str], object]


@dataclass(frozen=True)
class Listed:
    """What the overview shows of an item.

    Attributes
    ----------
    item : Item
    title : str
    lines : sequence of str
        What is said of it.
    damage : str
        Why it cannot be shown; empty where it can.
    share : float
        How much of it is done.
    badge : str
        What must not be overlooked.
    """

    item: Item
    title: str = ""
    lines: Sequence[str] = ()
    damage: str = ""
    share: float = 1.0
    badge: str = ""


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
    items, cut = discovery.find_items(root)
    opened = _opened(items)
    listed = []
    for item in items:
        say(f"{item.kind} {item.name}")
        listed.append(_write(item, to, opened))
    _remove_old(to, {item.page for item in items})
    overview = _overview(root.resolve().name or "/", listed, cut)
    write_text(to / INDEX, overview)
    return to / INDEX


def _remove_old(to: Path, pages: set[str]) -> None:
    """Remove pages of things that are gone."""
    for kind in ("run", "exchange", "audit", "judged"):
        for path in to.glob(f"{kind}-*-????????.html"):
            if path.name not in pages:
                path.unlink()


def _opened(items: Sequence[Item]) -> dict[str, Exchange]:
    """Exchange files by page, those that cannot be used left out."""
    found = {}
    for item in items:
        if item.kind == "exchange":
            with suppress(*BROKEN):
                found[item.page] = open_exchange(item.path)
    return found


def _write(item: Item, to: Path, opened: Mapping[str, Exchange]) -> Listed:
    """Write the page of an item; whatever is wrong with it is said there."""
    try:
        if item.kind == "exchange":
            page, shown = _exchange(item, opened)
        else:
            page, shown = {"run": _run, "audit": _audit, "judged": _judged}[item.kind](
                item
            )
    except BROKEN as error:
        label = "Damaged, must not be used."
        if isinstance(error, ModuleNotFoundError):
            label = "Cannot be shown here."
        damage = f"{label} Why: {reason(error)}"
        page = render("damaged.html.j2", item=item, damage=damage, home=INDEX)
        shown = Listed(item, damage=damage)
    write_text(to / item.page, page)
    return shown


def _run(item: Item) -> tuple[str, Listed]:
    discovery.require_plain_run(item.path)
    results, about = read_folder(item.path, home=INDEX)
    found = contents(results, about)
    asked = max(about.expected or 0, len(results))
    sites = counted(len(results[0].sites), "site")
    lines = [f"{len(results)} of {asked} runs, {sites}"]
    learners = [row for row in found.rows if not row.is_majority]
    if learners:
        best = learners[0]
        shown = interval_text(best.estimates["aaa"])
        lines.append(f"highest {found.words.average}: {best.learner}, {shown}")
    if found.leaks:
        lines.append("Test data leaked into training, on purpose.")
    listed = Listed(item, about.title, lines, share=len(results) / asked)
    return page_of(results, about, found), listed


def _audit(item: Item) -> tuple[str, Listed]:
    audit = read_audit(item.path)
    shown = section(audit)
    lines = audit.words()
    page = sections_page(shown.title, "privacy audit", [shown], " ".join(lines), INDEX)
    return page, Listed(item, shown.title, lines)


def _judged(item: Item) -> tuple[str, Listed]:
    found = read_judgement(item.path)
    return judge.page_of(found, INDEX), Listed(item, found.title)


def _exchange(item: Item, opened: Mapping[str, Exchange]) -> tuple[str, Listed]:
    exchange = opened.get(item.page)
    if exchange is None:
        exchange = open_exchange(item.path)  # says why it cannot be used
    model = exchange.model
    found = model.describe()
    more = [uses_section(model), *_files_beside(item, exchange, opened)]
    lines = [found.kind, *(answer.say for answer in found.answers)]
    badge = "carries real subjects" if found.real_subjects else ""
    title = ", ".join(found.sites) or "no hospital yet"
    page = exchange_page(found, item.name, INDEX, more)
    return page, Listed(item, title, lines, badge=badge)


def _files_beside(
    own: Item, exchange: Exchange, opened: Mapping[str, Exchange]
) -> list[Section]:
    """Files of the same exchange below this folder, and how many of all records each holds."""
    root = exchange.root.id
    same = {page: other for page, other in opened.items() if other.root.id == root}
    if len(same) < 2:
        return []
    every = {record.id for other in same.values() for record in other.everything}
    rows = []
    by_length = sorted(same.items(), key=lambda pair: len(pair[1].records))
    for page, other in by_length:
        sites = ", ".join(other.model.sites)
        held = f"{len(other.everything)} of {len(every)}"
        name = other.id[:12]
        link = page
        if page == own.page:
            name += " (this file)"
            link = ""
        rows.append((Cell(name, link=link), sites, held))
    heads = ("file", Heading("hospitals", words=True), "records")
    note = "Files with the same root below this folder; `fcforge merge` joins them."
    return [Section("Files of this exchange", Table.of(heads, rows), note)]


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


def _overview(folder: str, listed: Sequence[Listed], cut: bool) -> str:
    groups = []
    facts = []
    for kind, title, note in GROUPS:
        mine = [entry for entry in listed if entry.item.kind == kind]
        groups.append((kind, title, note, mine))
        facts.append((title.lower(), len(mine), ""))
    damaged = sum(bool(entry.damage) for entry in listed)
    facts.append(("damaged", damaged, ""))
    return render(
        "overview.html.j2", folder=folder, groups=groups, facts=facts, cut=cut
    )

"""Pages as plain files: the report of one run; an overview with a page per run, capsule and audit.

No server: open index.html, or mail the folder. Links are relative, every page is one file that
loads nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fcforge.consortium import read_consortium
from fcforge.errors import FCForgeError
from fcforge.report import discovery
from fcforge.report.audits import section
from fcforge.report.consortium import consortium_answers, consortium_page
from fcforge.report.discovery import BROKEN, Item, reason
from fcforge.report.explaining import stability_section
from fcforge.report.inspect import CapsuleView, capsule_page, view_capsule
from fcforge.report.judge import folder_section
from fcforge.report.rendering import Section, render, sections_page
from fcforge.report.results import as_csv, as_markdown
from fcforge.report.run import About, numbers_of, page_of
from fcforge.runner.collect import collect_some, edge_weights, kept_by
from fcforge.runner.store import Store
from fcforge.stats import Finding, Row
from fcforge.studies.audit_inputs import read_audit
from fcforge.text import counted, with_interval
from fcforge.types import RunResult
from fcforge.writing import write_text

INDEX, KINDS = "index.html", ("run", "capsule", "consortium", "audit")
Say = Callable[[str], object]


@dataclass(frozen=True)
class Listed:
    """A run, an audit or a capsule of releases in the overview.

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
    """

    item: Item
    title: str = ""
    lines: Sequence[str] = ()
    damage: str = ""
    share: float = 1.0


def report_folder(
    folder: Path,
    page: Path,
    *,
    audits: Sequence[Path] = (),
    judged: Sequence[Path] = (),
) -> tuple[list[Row], list[Finding]]:
    """Write the page, table.csv and table.md of a run folder; returns the table and its cautions.

    `audits` are audit.json files of ``fcforge audit --out``, `judged` folders of ``fcforge judge``;
    each becomes a section of the page.
    """
    sections = [*map(folder_section, judged), *(section(read_audit(p)) for p in audits)]
    results, about = read_folder(folder, sections)
    found = numbers_of(results, about)
    ranking = sorted(
        found.rows, key=lambda r: not r.is_majority
    )  # the majority class first
    write_text(page, page_of(results, about, found))
    write_text(folder / "table.csv", as_csv(ranking))
    write_text(folder / "table.md", as_markdown(ranking))
    return ranking, found.findings


def read_folder(
    folder: Path, sections: Sequence[Section] = (), home: str = ""
) -> tuple[list[RunResult], About]:
    """Results of a run folder and what its page says besides them."""
    store = Store(folder)
    results, asked = collect_some(store)
    asked_for = store.read_experiment()
    experiment, names = asked_for["experiment"], tuple(asked_for.get("roi_names", ()))
    edges = stability_section(edge_weights(store), names)
    sections = [*edges, *sections]
    about = About(
        experiment["title"],
        kept_by(store),
        asked,
        experiment,
        None,
        sections,
        home=home,
    )
    return results, about


def write_pages(
    folder: str | Path, out: str | Path | None = None, say: Say = lambda text: None
) -> Path:
    """Write the pages of everything below a folder; returns the overview.

    Parameters
    ----------
    folder : path
        Searched for run folders, capsules and audit.json files; links are not followed.
    out : path, optional
        Where to write, FOLDER/pages without it. Pages that an earlier call left there for things
        that are gone are removed.
    say : callable
        Told what is being shown.
    """
    root = Path(folder)
    if not root.is_dir():
        raise FCForgeError(
            "no such folder.", where=str(root), do="Give a folder to look into."
        )
    to = Path(out) if out is not None else root / "pages"
    items, cut = discovery.find_items(root)
    views = [view_capsule(item) for item in items if item.kind == "capsule"]
    chains = discovery.lineage((v.item.page, v.ancestry) for v in views if v.ancestry)
    others = [_write(item, to, say) for item in items if item.kind != "capsule"]
    for view in views:
        say(f"capsule {view.item.name}")
        own = discovery.chain_of(chains, view.facts.get("id", ""))
        write_text(to / view.item.page, capsule_page(view, own, INDEX))
    for path in (p for kind in KINDS for p in to.glob(f"{kind}-*-????????.html")):
        if path.name not in {item.page for item in items}:  # of a thing that is gone
            path.unlink()
    about = {"folder": root.resolve().name or "/", "cut": cut, "chains": chains}
    write_text(
        to / INDEX, render("overview.html.j2", **about, capsules=views, others=others)
    )
    return to / INDEX


def _write(item: Item, to: Path, say: Say) -> Listed:
    """Write the page of a run or an audit; whatever is wrong with it is said there."""
    say(f"{item.kind} {item.name}")
    try:
        writers = {
            "run": _write_run,
            "audit": _write_audit,
            "consortium": _write_consortium,
        }
        return writers[item.kind](item, to)
    except BROKEN as error:
        view = CapsuleView(item, reason(error))
        write_text(to / item.page, render("damaged.html.j2", view=view, home=INDEX))
        return Listed(item, damage=view.damage)


def _write_run(item: Item, to: Path) -> Listed:
    discovery.require_plain_run(item.path)
    results, about = read_folder(item.path, home=INDEX)
    found = numbers_of(results, about)
    write_text(to / item.page, page_of(results, about, found))
    asked = max(about.expected or 0, len(results))
    lines = [
        f"{len(results)} of {asked} runs, {counted(len(results[0].sites), 'site')}"
    ]
    for best in [r for r in found.rows if not r.is_majority][:1]:
        e = best.estimates["aaa"]
        lines.append(
            f"highest AAA: {best.learner}, {with_interval(e.value, e.low, e.high)}"
        )
    lines += ["Test data leaked into training, on purpose."] if found.leaks else []
    return Listed(item, about.title, lines, share=len(results) / asked)


def _write_consortium(item: Item, to: Path) -> Listed:
    group = read_consortium(item.path)
    write_text(to / item.page, consortium_page(group, item.name, INDEX))
    said = [answer.say for answer in consortium_answers(group)]
    return Listed(item, ", ".join(group.sites) or "no hospital yet", said)


def _write_audit(item: Item, to: Path) -> Listed:
    audit = read_audit(item.path)
    shown = section(audit)
    worst = audit.strongest()
    lines = [worst.short, worst.full] if worst else []
    page = sections_page(shown.title, "privacy audit", [shown], " ".join(lines), INDEX)
    write_text(to / item.page, page)
    return Listed(item, shown.title, lines)

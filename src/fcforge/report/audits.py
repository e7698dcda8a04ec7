"""An audit for people and programs: table, sentences, section of a page, files."""

import json
from pathlib import Path

from fcforge.privacy.release_attacks import KNOWN, SAMPLE
from fcforge.report.frame import Section, spoken, text_lines
from fcforge.report.table import Cell, Heading, Table
from fcforge.studies.audit_result import Audit, AuditRow, highest
from fcforge.text import bracket, number
from fcforge.types import Estimate
from fcforge.writing import write_text

COLUMNS = (
    Heading("release", words=True),
    Heading("attack", words=True),
    Heading(
        "AUC",
        "area under the ROC curve of telling members from others; 0.5 is guessing",
    ),
    Heading(
        "TPR at 1 % FPR", "members found while one outsider in a hundred is accused"
    ),
    Heading("identified", "share of members whose own record the attack points at"),
    Heading(
        "control AUC",
        "the same attack on people nobody trained on; 0.5 unless the split leaks",
    ),
)


def audit_table(audit: Audit) -> Table:
    """One row per attack on every release."""
    rows = []
    for row in audit.rows:
        release = f"{row.release} (reference)" if row.is_reference else row.release
        measures = (row.auc, row.tpr, row.identified, row.control)
        rows.append((release, row.attack, *map(_cell, measures)))
    quiet = frozenset(k for k, row in enumerate(audit.rows) if row.is_reference)
    return Table.of(COLUMNS, rows, quiet=quiet)


def _cell(e: Estimate | None) -> Cell:
    """A dash where the attack links no record to a person."""
    return Cell(number(e.value), (bracket(e.low, e.high),), e.value) if e else Cell("–")


def as_text(audit: Audit) -> str:
    """Aligned table, then what to make of it."""
    return "\n".join([audit_table(audit).text(), "", *sentences(audit)])


def as_markdown(audit: Audit) -> str:
    """The table as Markdown, then the sentences."""
    return (
        "\n".join(
            [audit_table(audit).markdown(), *(f"- {s}" for s in sentences(audit))]
        )
        + "\n"
    )


def as_json(audit: Audit) -> str:
    """All numbers, for programs."""
    return json.dumps({**audit.to_json(), "words": sentences(audit)}, indent=1)


def section(audit: Audit, title: str = "") -> Section:
    """The audit as a section of a page."""
    shown = title or f"Privacy audit: {audit.about['what']}"
    return Section(shown, (*sentences(audit), audit_table(audit)))


def write_files(audit: Audit, folder: Path) -> None:
    """audit.json and audit.md in `folder`, each written whole or not at all."""
    write_text(folder / "audit.json", as_json(audit) + "\n")
    write_text(folder / "audit.md", as_markdown(audit))


def sentences(audit: Audit) -> list[str]:
    """What the numbers say: one sentence per release, then the two it is to be read against.

    An AUC is the share of pairs, one member and one outsider, in which the attack scores the
    member higher; the sentences say it that way, for readers who never met one.
    """
    releases: dict[str, list[AuditRow]] = {}
    for row in sorted(audit.rows, key=lambda row: row.is_reference):
        releases.setdefault(row.release, []).append(row)
    told = [
        (name, rows, audit.surest(rows), highest(rows))
        for name, rows in releases.items()
    ]
    epsilon, about = audit.about.get("epsilon_of_method"), dict(audit.about)
    budget = ""
    if epsilon is not None:
        secret = bool(about.get("noise_is_secret"))
        budget = budget_words(epsilon, about.get("delta_of_method"), secret)
    about.setdefault("not_attacked", ())
    board = None
    if "released" in about:  # the audit of a release
        board = [audit.row(about["released"], attack).auc for attack in (SAMPLE, KNOWN)]
    return text_lines(
        "audit.txt.j2", told=told, about=about, budget=budget, board=board
    )


def budget_words(epsilon: float, delta: float | None, noise_is_secret: bool) -> str:
    """What differential privacy covers in a capsule, and what it does not."""
    return spoken(
        "budget", epsilon=epsilon, delta=delta, noise_is_secret=noise_is_secret
    )

"""An audit for people and programs: table, sentences, section of a page, files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fcforge.capsule import Capsule, seal, with_audit
from fcforge.capsule.signing import read_private
from fcforge.privacy.measures import Measured
from fcforge.report.frame import Section
from fcforge.report.table import Bar, Cell, Column, Table
from fcforge.studies.audit_result import UNTRAINED, Audit, AuditRow
from fcforge.text import bracket, number
from fcforge.writing import write_text

CAUTION = (
    "These are the attacks that were tried, not all there are: a low number does not prove "
    "privacy, and 'no raw scan is stored' does not mean 'private'."
)
COLUMNS = (
    Column("release", words=True),
    Column("attack", words=True),
    Column("AUC", "area under the ROC curve of telling members from others; 0.5 is guessing"),
    Column("TPR at 1 % FPR", "members found while one outsider in a hundred is accused"),
    Column("identified", "share of members whose own record the attack points at"),
    Column(
        "control AUC", "the same attack on people nobody trained on; else than 0.5: the split leaks"
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


def _cell(e: Measured | None) -> Cell:
    """A dash where the attack links no record to a person."""
    return Cell(number(e.value), (bracket(e.low, e.high),), e.value) if e else Cell("–")


def as_text(audit: Audit) -> str:
    """Aligned table, then what to make of it."""
    return "\n".join([audit_table(audit).text(), "", *sentences(audit)])


def as_markdown(audit: Audit) -> str:
    """The table as Markdown, then the sentences."""
    return "\n".join([audit_table(audit).markdown(), *(f"- {s}" for s in sentences(audit))]) + "\n"


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


def record(capsule: Capsule, audit: Audit, out: Path, sign: Path | None = None) -> None:
    """Seal the capsule again with the audit in its ledger."""
    key = read_private(sign) if sign is not None else None
    seal(with_audit(capsule, audit.to_ledger()), out, key=key)


def strongest(audit: Audit) -> tuple[AuditRow, bool] | None:
    """The strongest attack on what is really released, and whether it surely beats chance.

    Of those that do, the one whose AUC is highest at the lower end of its interval; else the
    one with the highest AUC. None where nothing was attacked.
    """
    rows = [row for row in audit.rows if not row.is_reference]
    sure = [row for row in rows if beats_chance(audit, row)]
    if sure:
        return _surest(sure), True
    return (max(rows, key=lambda row: row.auc.value), False) if rows else None


def beats_chance(audit: Audit, row: AuditRow) -> bool:
    """Whether an attack surely beat guessing, and what it does on the untrained row."""
    blind = [r.auc.high for r in audit.rows if (r.release, r.attack) == (UNTRAINED, row.attack)]
    sure = row.auc.low > 0.5 and row.auc.value > max([0.5, *blind])
    return row.release != UNTRAINED and sure


@dataclass(frozen=True)
class AttackVerdict:
    """The strongest attack: whether it beats chance, said in short and in full, and as a bar."""

    beats_chance: bool
    short: str
    full: str
    bar: Bar


def verdict(audit: Audit) -> AttackVerdict | None:
    """What the strongest attack comes to; None where nothing was attacked."""
    found = strongest(audit)
    if found is None:
        return None
    row, sure = found
    start = "An attacker can tell who took part." if sure else "No attack tried told who took part."
    said = (
        "Shown one person who took part and one who did not, the strongest attack "
        f"picks the right one {_in_100(row.auc.value)} times in 100; guessing gets 50."
    )
    name = f"{row.attack}, on {row.release}"
    kind = "leak" if sure else ""
    bar = Bar(name, row.auc.value, row.auc.low, row.auc.high, 0.5, "guessing", kind=kind)
    return AttackVerdict(sure, start, said, bar)


def sentences(audit: Audit) -> list[str]:
    """What the numbers say: one sentence per release, then the two it is to be read against.

    An AUC is the share of pairs, one member and one outsider, in which the attack scores the
    member higher; the sentences say it that way, for readers who never met one.
    """
    releases = dict.fromkeys(row.release for row in audit.rows)
    told = {name: [r for r in audit.rows if r.release == name] for name in releases}
    last = {name: rows for name, rows in told.items() if rows[0].is_reference}
    first = {name: rows for name, rows in told.items() if name not in last}
    out = [_sentence(audit, name, rows) for name, rows in {**first, **last}.items()]
    return [*out, *_remarks(audit), CAUTION]


def _sentence(audit: Audit, release: str, rows: list[AuditRow]) -> str:
    if release == UNTRAINED:
        low, high = min(r.auc.value for r in rows), max(r.auc.value for r in rows)
        return (
            f"For comparison, {release} (never saw anybody audited): {_in_100(low)} to "
            f"{_in_100(high)} times in 100; this is what chance is (AUC {number(low)} to "
            f"{number(high)})."
        )
    name = f"For comparison, {release} (copies its people)" if rows[0].is_reference else release
    found = [r for r in rows if beats_chance(audit, r)]
    if not found:
        row = max(rows, key=lambda r: r.auc.value)
        return (
            f"{name}: no attack tried surely told members from others; the highest, "
            f"'{row.attack}', names the right one of two {_in_100(row.auc.value)} times in 100 "
            f"(AUC {_cell(row.auc).line()})."
        )
    row = _surest(found)
    return (
        f"{name}: an attacker can tell better than chance who was trained on. Shown somebody who "
        f"was and somebody who was not, the strongest attack, '{row.attack}', names the right one "
        f"{_in_100(row.auc.value)} times in 100, where guessing gets 50 (AUC "
        f"{_cell(row.auc).line()}); accusing at most 1 outsider in 100, it finds "
        f"{_in_100(row.tpr.value)} of 100 who were (TPR at 1 % FPR {number(row.tpr.value)})."
    )


def _surest(rows: Iterable[AuditRow]) -> AuditRow:
    """The attack whose AUC is surely highest: by the lower end of its interval."""
    return max(rows, key=lambda row: row.auc.low)


def _in_100(share: float) -> str:
    return f"{100 * share:.0f}"


def _remarks(audit: Audit) -> list[str]:
    """What no attack covers, and what differential privacy does."""
    out = []
    left = audit.about.get("not_attacked")
    if left:
        out.append(f"Released, but no attack tried fits it: {', '.join(left)}.")
    epsilon = audit.about.get("epsilon_of_method")
    if epsilon is not None:
        secret = bool(audit.about.get("noise_is_secret"))
        out.append(budget_words(epsilon, audit.about.get("delta_of_method"), secret))
    return out


def budget_words(epsilon: float, delta: float | None, noise_is_secret: bool) -> str:
    """What differential privacy covers in a capsule, and what it does not."""
    if not noise_is_secret:
        return (
            f"Epsilon {epsilon:g} was asked for, but the noise was drawn from a known seed: there "
            "is no guarantee."
        )
    with_delta = "" if delta is None else f" (delta {delta:g})"
    return (
        f"Differential privacy: method state and network carry epsilon {epsilon:g}{with_delta} per "
        "person, smaller is safer, whatever the attack; synthetic held-out subjects, counts, "
        "accuracies and temperature in the same file are outside that budget."
    )

"""An audit for people and programs: table, sentences, report section, ledger entry."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fcforge.capsule.sealing import seal, with_audit
from fcforge.capsule.signing import read_private
from fcforge.privacy.measures import Measured
from fcforge.report.inspect import budget_words
from fcforge.studies.audit_result import UNTRAINED, Audit, AuditRow
from fcforge.writing import write_text

if TYPE_CHECKING:
    from fcforge.capsule.contents import Capsule
    from fcforge.report import Section

CAUTION = (
    "These are the attacks that were tried, not all there are: a low number is no proof of "
    "privacy, and 'no raw scan is stored' is not 'private'."
)
COLUMNS = ("release", "attack", "AUC", "TPR at 1 % FPR", "identified", "control AUC")


def bracket(estimate: Measured | None) -> str:
    """A measure as ``0.61 [0.55, 0.67]``; a dash where the attack links no record to a person."""
    if estimate is None:
        return "-"
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def cells(row: AuditRow) -> tuple[str, ...]:
    """One row of the table as text."""
    release = f"{row.release} (reference)" if row.is_reference else row.release
    numbers = (row.auc, row.tpr, row.identified, row.control)
    return (release, row.attack, *map(bracket, numbers))


def as_text(audit: Audit) -> str:
    """Aligned table, then what to make of it."""
    table = [COLUMNS, *map(cells, audit.rows)]
    widths = [max(len(line[i]) for line in table) for i in range(len(COLUMNS))]
    lines = [
        "  ".join(f"{c:<{w}}" for c, w in zip(line, widths, strict=True)).rstrip() for line in table
    ]
    return "\n".join([*lines, "", *sentences(audit)])


def as_markdown(audit: Audit) -> str:
    """The table as markdown, then the sentences."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in audit.rows]
    return "\n".join([*lines, "", *(f"- {s}" for s in sentences(audit))]) + "\n"


def as_json(audit: Audit) -> str:
    """All numbers, for programs."""
    return json.dumps({**audit.to_json(), "words": sentences(audit)}, indent=1)


def strongest(rows: Iterable[AuditRow]) -> AuditRow:
    """The attack whose AUC is surely highest: by the lower end of its interval."""
    return max(rows, key=lambda row: row.auc.low)


def beats_chance(audit: Audit, row: AuditRow) -> bool:
    """Whether an attack surely beat guessing, and what it does on the untrained row."""
    blind = [r.auc.high for r in audit.rows if (r.release, r.attack) == (UNTRAINED, row.attack)]
    sure = row.auc.low > 0.5 and row.auc.value > max([0.5, *blind])
    return row.release != UNTRAINED and sure


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
            f"{_in_100(high)} times in 100; this is what chance is (AUC {low:.3f} to {high:.3f})."
        )
    name = f"For comparison, {release} (copies its people)" if rows[0].is_reference else release
    found = [r for r in rows if beats_chance(audit, r)]
    if not found:
        row = max(rows, key=lambda r: r.auc.value)
        return (
            f"{name}: no attack tried surely told members from others; the highest, "
            f"'{row.attack}', names the right one of two {_in_100(row.auc.value)} times in 100 "
            f"(AUC {bracket(row.auc)})."
        )
    row = strongest(found)
    return (
        f"{name}: who was trained on can be told better than chance. Shown somebody who was and "
        f"somebody who was not, the strongest attack, '{row.attack}', names the right one "
        f"{_in_100(row.auc.value)} times in 100, where guessing gets 50 (AUC {bracket(row.auc)}); "
        f"accusing at most 1 outsider in 100, it finds {_in_100(row.tpr.value)} of 100 who were "
        f"(TPR at 1 % FPR {row.tpr.value:.3f})."
    )


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


def ledger_result(audit: Audit) -> dict[str, Any]:
    """The audit as a ledger entry: numbers of every row, no count of people."""
    result: dict[str, Any] = {
        "what": audit.about["what"],
        "site": audit.about.get("site", ""),
        "seed": audit.about["plan"]["seed"],
        "words": sentences(audit),
    }
    for row in audit.rows:
        found = row.to_json()
        result[f"{row.release} / {row.attack}"] = {
            key: found[key] for key in ("auc", "tpr_at_1pct_fpr", "identified", "control_auc")
        }
    if "epsilon_of_method" in audit.about:
        result["epsilon"] = audit.about["epsilon_of_method"]
        result["delta"] = audit.about.get("delta_of_method")
        result["noise_is_secret"] = audit.about["noise_is_secret"]
    return result


def record(capsule: Capsule, audit: Audit, out: Path, sign: Path | None = None) -> None:
    """Seal the capsule again with the audit in its ledger."""
    key = read_private(sign) if sign is not None else None
    seal(with_audit(capsule, ledger_result(audit)), out, key=key)


def write_files(audit: Audit, folder: Path) -> None:
    """audit.json and audit.md in `folder`, each written whole or not at all."""
    write_text(folder / "audit.json", as_json(audit) + "\n")
    write_text(folder / "audit.md", as_markdown(audit))


def section(audit: Audit) -> Section:
    """The audit as a section of the report page (texts escaped)."""
    from markupsafe import Markup

    from fcforge.report import Section

    head = Markup("").join(Markup("<th scope=col>{}</th>").format(c) for c in COLUMNS)
    body = Markup("").join(
        Markup("<tr>{}</tr>").format(
            Markup("").join(Markup("<td>{}</td>").format(c) for c in cells(row))
        )
        for row in audit.rows
    )
    words = Markup("").join(Markup("<p>{}</p>").format(s) for s in sentences(audit))
    table = Markup(
        '<div style="overflow-x:auto"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>'
        "</div>{}"
    )
    return Section(f"Privacy audit: {audit.about['what']}", table.format(head, body, words))

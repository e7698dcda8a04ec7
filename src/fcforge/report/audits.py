"""Output of a privacy audit: table, sentences, section of a page, JSON."""

import json
from pathlib import Path

from fcforge.core.files import write_text
from fcforge.core.formatting import printable
from fcforge.evaluation.privacy.attacks import KNOWN, SAMPLE
from fcforge.evaluation.privacy.audit_result import AuditResult
from fcforge.report.html import Section
from fcforge.report.tables import Heading, Table, interval_cell

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
MEANING = "; ".join(f"{c.title}: {c.help}" for c in COLUMNS if c.help) + "."


def audit_table(audit: AuditResult) -> Table:
    """Return a table with one row per attack on every release."""
    rows = []
    released = audit.about.get("released")
    # the released numbers first, the references last
    ordered = sorted(audit.rows, key=lambda r: (r.is_reference, r.release != released))
    for row in ordered:
        release = f"{row.release} (reference)" if row.is_reference else row.release
        measures = (row.auc, row.tpr, row.identified, row.control)
        rows.append((release, row.attack, *map(interval_cell, measures)))
    quiet = frozenset(k for k, row in enumerate(ordered) if row.is_reference)
    return Table.of(COLUMNS, rows, quiet=quiet, note=MEANING)


def as_text(audit: AuditResult) -> str:
    """Return the table as aligned text, followed by its interpretation in sentences."""
    table = audit_table(audit).text()
    return "\n".join([table, "", *sentences(audit)])


def as_json(audit: AuditResult) -> str:
    """Return all numbers and the sentences as JSON."""
    content = {**audit.to_json(), "words": sentences(audit)}
    return json.dumps(content, indent=1)


def section(audit: AuditResult) -> Section:
    """Return the audit as a section of a page."""
    title = f"Privacy audit: {audit.about['what']}"
    return Section(title, (*sentences(audit), audit_table(audit)))


def write_files(audit: AuditResult, folder: Path) -> None:
    """Write audit.json into a folder, readable by its owner alone.

    The file holds the exact number of people, which signed records do not.
    """
    write_text(folder / "audit.json", as_json(audit) + "\n", private=True)


def sentences(audit: AuditResult) -> list[str]:
    """Return the interpretation of an audit in sentences.

    An AUC is the share of pairs, one member and one outsider, in which the attack scores the
    member higher; the sentences state it in this way, for readers who do not know the term.
    """
    about = audit.about
    lines = audit.words()
    if "released" in about:
        lines += _for_a_board(audit)
    if not_attacked := about.get("not_attacked"):
        lines.append(
            f"Released, but no attack tried fits it: {', '.join(not_attacked)}."
        )
    return [printable(line) for line in (*lines, LAST)]


NO_NOISE = (
    "There is no noise in this release and so no limit to what an attack can find: whoever knows "
    "all others in the release can work out the last."
)
LAST = (
    "These are the attacks that were tried, not all there are: a low number does not prove "
    "privacy, and 'no raw scan is stored' does not mean 'private'."
)


def _in_100(share: float) -> str:
    """Return a share as a whole number in 100."""
    return f"{100 * share:.0f}"


def _for_a_board(audit: AuditResult) -> list[str]:
    """Return sentences about a release for an ethics board: how often an attacker would be right."""
    about = audit.about
    released = about["released"]
    auc_sample = audit.row(released, SAMPLE).auc.value
    auc_known = audit.row(released, KNOWN).auc.value
    ceiling = about["ceilings"][released]
    lines = [
        "For an ethics board: shown one person who is in a release like this and one who is "
        "not, an attacker who has the scans and diagnoses of both, and those of "
        f"{about['reference_people']} other people of the hospital to compare with, is right "
        f"{_in_100(auc_sample)} times in 100; an attacker who has everybody's scans and diagnoses "
        f"and only lacks who took part, {_in_100(auc_known)} times. Guessing is right 50 times.",
        f"Attacked were releases of {about['trained_on']} people each, random parts of the site "
        "with noise as in the release. The release itself has more people, who hide each other "
        "better.",
    ]
    if ceiling >= 1:
        return [*lines, NO_NOISE]
    promise = (
        "Whatever an attacker knows, even who all the others in the release are: no attack is "
        f"right more than {_in_100(ceiling)} times in 100. That is what epsilon "
        f"{about['epsilon']:g} (delta {about['delta']:g}) promises."
    )
    return [*lines, promise]

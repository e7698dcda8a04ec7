"""Page and tables of a run folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fcforge.report.html import write_report
from fcforge.report.tables import as_csv, as_markdown
from fcforge.runner.collect import collect_some, kept_by
from fcforge.runner.store import Store
from fcforge.stats import Finding, Row, findings, rows
from fcforge.writing import write_text

if TYPE_CHECKING:
    from fcforge.report.html import Section


def report_folder(
    folder: Path, page: Path, *, audits: Sequence[Path] = (), judged: Sequence[Path] = ()
) -> tuple[list[Row], list[Finding]]:
    """Write the page, table.csv and table.md of a run folder; returns the table and its cautions.

    `audits` are audit.json files of ``fcforge audit --out``, `judged` folders of ``fcforge judge``;
    each becomes a section of the page.
    """
    store = Store(folder)
    results, asked = collect_some(store)
    keeps = kept_by(store)
    found = rows(results, keeps=keeps)
    data = store.read_experiment()
    write_report(
        results,
        page,
        title=data["experiment"]["title"],
        keeps=keeps,
        expected=asked,
        settings=data["experiment"],
        environment=dict(results[0].environment),
        extra_sections=[*map(judge_section, judged), *map(audit_section, audits)],
    )
    write_text(folder / "table.csv", as_csv(found))
    write_text(folder / "table.md", as_markdown(found))
    return found, findings(results, expected=asked)


def audit_section(path: Path) -> Section:
    """Section of the page for an audit.json."""
    from fcforge.report.audits import section
    from fcforge.studies.audit_inputs import read_audit

    return section(read_audit(path))


def judge_section(folder: Path) -> Any:
    """Section of the page for a folder of `fcforge judge`."""
    from fcforge.report.judge import report_section

    return report_section(folder)

"""Page and tables of a run folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fcforge.report.audits import section as audit_section
from fcforge.report.frame import Section
from fcforge.report.judge import folder_section
from fcforge.report.results import as_csv, as_markdown
from fcforge.report.run import About, numbers_of, page_of
from fcforge.runner.collect import collect_some, kept_by
from fcforge.runner.store import Store
from fcforge.stats import Finding, Row
from fcforge.studies.audit_inputs import read_audit
from fcforge.types import RunResult
from fcforge.writing import write_text


def report_folder(
    folder: Path, page: Path, *, audits: Sequence[Path] = (), judged: Sequence[Path] = ()
) -> tuple[list[Row], list[Finding]]:
    """Write the page, table.csv and table.md of a run folder; returns the table and its cautions.

    `audits` are audit.json files of ``fcforge audit --out``, `judged` folders of ``fcforge judge``;
    each becomes a section of the page.
    """
    sections = [*map(folder_section, judged), *(audit_section(read_audit(p)) for p in audits)]
    results, about = read_folder(folder, sections)
    found = numbers_of(results, about)
    ranking = sorted(found.rows, key=lambda r: not r.is_majority)  # the majority class first
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
    experiment = store.read_experiment()["experiment"]
    about = About(experiment["title"], kept_by(store), asked, experiment, None, sections, home=home)
    return results, about

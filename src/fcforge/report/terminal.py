"""What the commands print besides templates of words: checks of data, studies of runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fcforge.report.results import plain
from fcforge.report.table import interval_table
from fcforge.text import counted, printable

if TYPE_CHECKING:
    from fcforge.studies.check import Verdict
    from fcforge.studies.unseen import Study


def check_lines(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Lines of `fcforge check` and their colours."""
    cohort = verdict.cohort
    yield f"{verdict.what}: {len(cohort)} subjects, {cohort.n_rois} ROIs", ""
    for site, count in verdict.sites().items():
        text = f"  {site}: {count['subjects']} subjects, {count['patients']} patients"
        yield printable(text), ""
    for note in verdict.notes:
        yield printable(f"  {note}"), ""
    for finding in verdict.findings:
        style = "red" if finding.severity == "error" else "yellow"
        yield printable(f"{finding.severity}: {finding}"), style
    errors = sum(f.severity == "error" for f in verdict.findings)
    warnings = len(verdict.findings) - errors
    if verdict.ok:
        yield f"ok, {counted(warnings, 'warning')}" if warnings else "ok", "green"
    else:
        found = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
        yield f"{found}: nothing would be trained", "red"


def study_markdown(study: Study) -> str:
    """A study as a GitHub table under its title."""
    return interval_table(study.title, study.columns, study.rows).markdown()


def study_json(study: Study) -> dict[str, dict[str, dict[str, Any]]]:
    """Plain numbers of a study; null where undefined."""
    keys = ("mean", "low", "high")
    return {
        name: {c: {k: plain(getattr(e, k)) for k in keys} for c, e in cells.items()}
        for name, cells in study.rows.items()
    }

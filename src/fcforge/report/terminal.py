"""What the commands print: checks of data, predictions and capsules, studies of runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fcforge.report.frame import spoken
from fcforge.report.results import plain
from fcforge.report.table import interval_table
from fcforge.text import counted, printable

if TYPE_CHECKING:
    from fcforge.capsule.prediction import Prediction
    from fcforge.capsule.sealing import Check
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


def prediction_text(rows: Sequence[Prediction], sites: Sequence[str]) -> str:
    """How many scans were predicted, how many were not and why."""
    return spoken("prediction", rows=rows, sites=sites)


def verify_text(checks: Sequence[Check], ok: bool) -> str:
    """Every check of a capsule on a line, then what follows from them."""
    return spoken("verify", checks=checks, ok=ok)


def verify_json(checks: Sequence[Check], ok: bool) -> str:
    """The checks of a capsule for a program."""
    return json.dumps({"ok": ok, "checks": [asdict(c) for c in checks]}, indent=1)


def study_markdown(study: Study) -> str:
    """A study as a GitHub table under its title."""
    return interval_table(study.title, study.columns, study.rows).markdown()


def study_json(study: Study) -> dict[str, dict[str, dict[str, Any]]]:
    """Plain numbers of a study; null where undefined."""
    keys = ("mean", "low", "high")
    return {
        name: {c: {k: plain(getattr(e, k), None) for k in keys} for c, e in cells.items()}
        for name, cells in study.rows.items()
    }

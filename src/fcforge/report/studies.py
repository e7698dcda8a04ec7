"""Studies of runs: unseen sites, calibration."""

from typing import Any

from fcforge.report.results import plain
from fcforge.report.table import interval_table
from fcforge.studies.unseen import Study


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

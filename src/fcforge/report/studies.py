"""Studies of runs: unseen sites, calibration, the paper's tables beside ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fcforge.report.contents import curves
from fcforge.report.results import plain
from fcforge.report.table import Table, interval_table
from fcforge.stats import Estimate
from fcforge.studies.tables import Finished, Line, PaperTable
from fcforge.studies.unseen import Study
from fcforge.text import bracket, number, with_interval


def paper_markdown(table: PaperTable, runs: Finished | None = None) -> str:
    """Title, what is behind the numbers, the table, and how our order compares with the paper's.

    With `runs` the accuracy and forgetting after every stage follow.
    """
    parts = [f"## {table.title} ({table.name})", table.about, beside(table)]
    if math.isfinite(table.rank_correlation):
        parts.append(
            f"Spearman's correlation of our AAA with the paper's: "
            f"{number(table.rank_correlation, 2, sign=True)}."
        )
    if runs is not None:
        parts.append(stages(runs))
    return "\n\n".join(parts)


def beside(table: PaperTable) -> str:
    """The paper's AAA and FOR, ours, the paired difference, and AAA with leaks on."""
    compared = any(line.difference for line in table.lines)
    leaky = any(line.leaky for line in table.lines)
    heads = ["learner", "keeps", "paper AAA / FOR", "AAA", "FM", "FOR literal", "final"]
    heads += ["compared with", "difference"] * compared + ["AAA, leaks on"] * leaky
    rows = [_row(line, compared, leaky) for line in table.lines]
    return Table.of([*heads, "time, Base = 1"], rows).markdown().rstrip()


def _row(line: Line, compared: bool, leaky: bool) -> list[str]:
    printed = " / ".join(number(v) for v in line.printed) if line.printed else ""
    row = [line.learner, line.keeps, printed]
    row += [_cell(line.numbers[key]) for key in ("aaa", "fm", "for_literal")]
    row.append(number(line.numbers["acc"].mean))
    if compared:
        row += [_cell(line.against), _difference(line)]
    if leaky:
        row.append(_cell(line.leaky))
    return [*row, number(line.cost, 1) if math.isfinite(line.cost) else ""]


def _cell(e: Estimate | None) -> str:
    return with_interval(e.mean, e.low, e.high) if e else ""


def _difference(line: Line) -> str:
    d = line.difference
    return f"{number(d.difference, sign=True)} {bracket(d.low, d.high, sign=True)}" if d else ""


def stages(runs: Finished, n_draws: int = 200) -> str:
    """Accuracy on the sites so far, and forgetting, after every stage."""
    rows: list[Sequence[str]] = []
    n = 0
    for learner, found in runs.groups.items():
        accuracy, forgetting = curves(found, n_draws)
        n = len(accuracy.mean)
        rows.append([learner, *map(number, accuracy.mean), *map(number, forgetting.mean[1:])])
    heads = [f"accuracy after {t}" for t in range(1, n + 1)]
    heads += [f"forgetting after {t}" for t in range(2, n + 1)]
    return Table.of(["learner", *heads], rows).markdown().rstrip()


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

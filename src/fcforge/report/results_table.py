"""The results table of a run for pages, terminals, CSV and JSON."""

import json
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fcforge.core.estimate import Estimate
from fcforge.core.formatting import counted, duration, memory, no_formula, rounded
from fcforge.evaluation.columns import columns_of
from fcforge.evaluation.tables import Row, records
from fcforge.report.tables import PIPE_WIDTH, Cell, Heading, Table, interval_cell

if TYPE_CHECKING:
    from rich.console import Console


# -- the results of a run: page, terminal and Markdown; numbers as CSV and JSON -------------------
IN_TERMINAL = (
    "aaa",
    "fm",
    "for_literal",
    "mae",
)  # as many columns as 80 characters hold
IN_WIDE_TERMINAL = (*IN_TERMINAL, "auroc")
WIDE = 96  # characters that they need
COSTS = (
    Heading(
        "Keeps",
        "what the method carries from site to site; its memory",
        "memory",
        words=True,
    ),
    Heading("Time", "training time of one run over all sites; number of runs", "runs"),
)


def results_table(
    rows: Sequence[Row],
    levels: Mapping[str, str] | None = None,
    shown: Collection[str] = (),
) -> Table:
    """One row per learner.

    Parameters
    ----------
    rows : sequence of Row
    levels : mapping of learner to {"serious", "caution"}, optional
        Learners with a warning.
    shown : collection of str
        Keys of the columns; where none is named all that are not extra, and the costs.
    """
    columns = []
    for column in columns_of(rows[0].kind):
        if column.key in shown or (not shown and column.shown):
            columns.append(column)
    heads = [Heading(c.title, c.help, f"{c.good} is good") for c in columns]
    if not shown:
        heads += COSTS
    levels = levels or {}
    made = []
    for row in rows:
        flag = f"flag-{levels[row.learner]}" if row.learner in levels else ""
        cells = [Cell(row.learner, look=flag)]
        for column in columns:
            cells.append(interval_cell(row.estimates[column.key]))
        if not shown:
            cells += _costs(row)
        made.append(cells)
    quiet = frozenset(k for k, row in enumerate(rows) if row.is_majority)
    return Table.of(("Learner", *heads), made, quiet=quiet)


def _costs(row: Row) -> tuple[Cell, Cell]:
    """What a learner keeps, and how long its runs take."""
    look = f"keeps keeps-{row.keeps.split()[0]}"
    kept = Cell(row.keeps, (memory(row.memory_bytes),), look)
    below = [counted(row.n_runs, "run")]
    if row.n_left_out:
        below.append(f"{row.n_left_out} diverged")
    return kept, Cell(duration(row.seconds), tuple(below))


def print_table(rows: Sequence[Row], console: "Console | None" = None) -> None:
    """Print the columns that fit to stdout (or `console`); a file gets long names unbroken."""
    from rich.console import Console

    out = console or Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    shown = IN_WIDE_TERMINAL if out.width >= WIDE else IN_TERMINAL
    results_table(rows, shown=shown).print(out)
    meaning = "mean over orders and seeds, [95 % over subjects and trainings], ± SD over orders"
    out.print(meaning, style="dim")


def rows_csv(rows: Sequence[Row]) -> str:
    """CSV with a mean, SD, low and high column per number; empty where undefined."""
    import pandas as pd

    table = pd.DataFrame(_plain_records(rows), dtype=object)
    safe = table.map(lambda v: no_formula(v) if isinstance(v, str) else v)
    return safe.to_csv(index=False, lineterminator="\n")


def rows_json(rows: Sequence[Row]) -> str:
    """JSON list of records; null where undefined."""
    return json.dumps(_plain_records(rows), indent=2, allow_nan=False) + "\n"


def _plain_records(rows: Sequence[Row]) -> list[dict[str, Any]]:
    found = []
    for record in records(rows):
        found.append({name: plain_value(value) for name, value in record.items()})
    return found


def plain_value(value: Any) -> Any:
    """A value every reader of CSV and JSON understands."""
    if isinstance(value, float):
        return rounded(value, 6) if math.isfinite(value) else None
    return value


def study_json(rows: Mapping[str, Mapping[str, Estimate]]) -> dict[str, dict]:
    """Plain numbers of a study of runs; null where undefined."""
    found: dict[str, dict] = {}
    for name, cells in rows.items():
        found[name] = {}
        for column, e in cells.items():
            ends = {"low": plain_value(e.low), "high": plain_value(e.high)}
            found[name][column] = {"mean": plain_value(e.value), **ends}
    return found

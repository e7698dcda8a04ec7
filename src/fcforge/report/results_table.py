"""The results table of a run for pages, terminals, CSV and JSON.

AAA is the average over stages (sites learned so far) of the mean accuracy at these sites.
"""

import json
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fcforge.core.estimate import Estimate
from fcforge.core.formatting import (
    counted,
    duration,
    memory,
    no_formula,
    number,
    rounded,
)
from fcforge.evaluation.columns import Column, columns_of
from fcforge.evaluation.metrics import METRICS
from fcforge.evaluation.tables import Row, records
from fcforge.report.tables import PIPE_WIDTH, Cell, Heading, Table, interval_cell

if TYPE_CHECKING:
    from rich.console import Console


IN_TERMINAL = ("aaa", "fm", "for_literal", "mae")  # columns that fit into 80 characters
IN_WIDE_TERMINAL = (*IN_TERMINAL, "auroc")
WIDE = 96  # characters that IN_WIDE_TERMINAL needs
COSTS = (
    Heading(
        "Keeps",
        "what the method carries from site to site; its memory",
        "memory",
        words=True,
    ),
    Heading("Time", "training time of one run over all sites; number of runs", "runs"),
)
Further = Mapping[str, Mapping[str, float]]  # metrics by learner


def results_table(
    rows: Sequence[Row],
    levels: Mapping[str, str] | None = None,
    shown: Collection[str] = (),
) -> Table:
    """Return the results table, one row per learner.

    Parameters
    ----------
    rows : sequence of Row
    levels : mapping of learner to {"serious", "caution"}, optional
        Learners with a warning.
    shown : collection of str
        Keys of the columns. By default the main columns and the costs.
    """
    columns = [
        column
        for column in columns_of(rows[0].kind)
        if column.key in shown or (not shown and column.shown)
    ]
    heads = [_heading(column) for column in columns]
    if not shown:
        heads += COSTS
    levels = levels or {}
    lines = []
    for row in rows:
        flag = f"flag-{levels[row.learner]}" if row.learner in levels else ""
        cells = [Cell(row.learner, look=flag)]
        cells += [interval_cell(row.estimates[column.key]) for column in columns]
        if not shown:
            cells += _costs(row)
        lines.append(cells)
    return Table.of(("Learner", *heads), lines, quiet=_references(rows))


def further_table(rows: Sequence[Row], further: Further) -> Table:
    """Return the columns that `results_table` leaves out, and further metrics.

    Parameters
    ----------
    rows : sequence of Row
    further : mapping of learner to mapping of metric to float
        Means without intervals, see `fcforge.report.run_numbers.further_metrics`.
    """
    columns = [column for column in columns_of(rows[0].kind) if not column.shown]
    names = list(dict.fromkeys(name for values in further.values() for name in values))
    heads = [_metric_heading(name) for name in names]
    heads += [_heading(column) for column in columns]
    lines = []
    for row in rows:
        values = further.get(row.learner, {})
        cells = [Cell(number(values.get(name, math.nan))) for name in names]
        cells += [interval_cell(row.estimates[column.key]) for column in columns]
        lines.append((row.learner, *cells))
    return Table.of(("Learner", *heads), lines, quiet=_references(rows))


def _heading(column: Column) -> Heading:
    """Return the heading of a column."""
    return Heading(column.title, column.help, f"{column.good} is good")


def _metric_heading(name: str) -> Heading:
    """Return the heading of a metric that has no column of its own."""
    metric = METRICS[name]
    good = "low" if metric.lower_is_better else "high"
    return Heading(metric.title, f"{metric.title}, averaged as AAA", f"{good} is good")


def _references(rows: Sequence[Row]) -> frozenset[int]:
    """Return the numbers of the rows that are majority references."""
    return frozenset(k for k, row in enumerate(rows) if row.is_majority)


def _costs(row: Row) -> tuple[Cell, Cell]:
    """Return the cells for what a learner keeps and for its training time."""
    look = f"keeps keeps-{row.keeps.split()[0]}"
    keeps = Cell(row.keeps, (memory(row.memory_bytes),), look)
    below = [counted(row.n_runs, "run")]
    if row.n_left_out:
        below.append(f"{row.n_left_out} diverged")
    return keeps, Cell(duration(row.seconds), tuple(below))


def print_table(rows: Sequence[Row], console: "Console | None" = None) -> None:
    """Print the most important columns of the results table.

    Parameters
    ----------
    rows : sequence of Row
    console : rich Console, optional
        By default stdout; where that is a file, long names are not broken.
    """
    from rich.console import Console

    out = console or Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    keys = IN_WIDE_TERMINAL if out.width >= WIDE else IN_TERMINAL
    results_table(rows, shown=keys).print(out)
    meaning = "mean over orders and seeds, [95 % over subjects and trainings], ± SD over orders"
    out.print(meaning, style="dim")


# -- CSV and JSON ----------------------------------------------------------------------------------
def rows_csv(rows: Sequence[Row], further: Further | None = None) -> str:
    """Return the results as CSV, one line per learner.

    Every column of the results table gives a mean, SD, low and high; a field is empty where a
    number is undefined.

    Parameters
    ----------
    rows : sequence of Row
    further : mapping of learner to mapping of metric to float, optional
        Metrics to append, one column each.
    """
    import pandas as pd

    table = pd.DataFrame(_plain_records(rows), dtype=object)
    names = dict.fromkeys(n for values in (further or {}).values() for n in values)
    for name in names:
        values = [(further or {}).get(row.learner, {}).get(name) for row in rows]
        table[name] = pd.Series([plain_value(v) for v in values], dtype=object)
    safe = table.map(lambda v: no_formula(v) if isinstance(v, str) else v)
    return safe.to_csv(index=False, lineterminator="\n")


def rows_json(rows: Sequence[Row]) -> str:
    """Return the results as a JSON list of records; null where a number is undefined."""
    return json.dumps(_plain_records(rows), indent=2, allow_nan=False) + "\n"


def _plain_records(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the records of the rows with plain values."""
    return [
        {name: plain_value(value) for name, value in record.items()}
        for record in records(rows)
    ]


def plain_value(value: Any) -> Any:
    """Return a value that every reader of CSV and JSON understands: NaN becomes None."""
    if isinstance(value, float):
        return rounded(value, 6) if math.isfinite(value) else None
    return value


def study_json(rows: Mapping[str, Mapping[str, Estimate]]) -> dict[str, dict]:
    """Return estimates by row and column as nested dicts of numbers; None where undefined."""
    return {
        name: {
            column: {
                "mean": plain_value(estimate.value),
                "low": plain_value(estimate.low),
                "high": plain_value(estimate.high),
            }
            for column, estimate in cells.items()
        }
        for name, cells in rows.items()
    }

"""The results of a run as one table: page, terminal and Markdown; numbers as CSV and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fcforge.report.run_words import Finding
from fcforge.report.table import PIPE_WIDTH, Cell, Heading, Table
from fcforge.stats import Estimate, Row
from fcforge.stats.table import Column, columns_of, records
from fcforge.text import (
    bracket,
    counted,
    duration,
    memory,
    no_formula,
    number,
    printable,
    rounded,
)

if TYPE_CHECKING:
    from rich.console import Console

# From how wide a terminal on: columns with an interval, columns with the mean alone.
LAYOUTS = (
    (
        150,
        ("aaa", "acc", "bacc", "auroc", "mae", "spearman", "fm", "for_literal", "bwt"),
        (),
    ),
    (
        110,
        ("aaa", "acc", "mae", "fm"),
        ("bacc", "auroc", "spearman", "for_literal", "bwt"),
    ),
    (0, ("aaa", "fm"), ("acc", "auroc", "mae")),
)
KEPT = {
    "nothing": "nothing",
    "statistics": "statistics",
    "synthetic subjects": "synthetic",
    "real subjects": "real",
}


def everything(rows: Sequence[Row]) -> tuple[str, ...]:
    """Keys of all columns that are not extra."""
    columns = columns_of(rows[0].kind)
    return tuple(column.key for column in columns if column.shown == "yes")


def results_table(
    rows: Sequence[Row],
    shown: Sequence[str] = (),
    bare: Collection[str] = (),
    levels: Mapping[str, str] | None = None,
    *,
    spread: bool = True,
) -> Table:
    """One row per learner; the best mean of a column is marked.

    Parameters
    ----------
    rows : sequence of Row
    shown : sequence of str
        Keys of the columns; `everything` where none is named.
    bare : collection of str
        Columns without interval and spread.
    levels : mapping of learner to {"serious", "caution"}, optional
        Learners with a warning; a serious one is never the best.
    spread : bool
        Whether the SD over orders is among the cells.
    """
    levels = levels or {}
    best = best_of(rows, but={k for k, level in levels.items() if level == "serious"})
    shown = shown or everything(rows)
    columns = [c for c in columns_of(rows[0].kind) if c.key in shown]
    made = []
    for row in rows:
        cells = [name_cell(row.learner, levels)]
        for key in (c.key for c in columns):
            is_best = row.learner in best[key]
            cells.append(_cell(row, key, key in bare, spread, is_best))
        if "intransigence" in shown:
            cells.append(Cell(number(row.intransigence), value=row.intransigence))
        made.append((*cells, *_costs(row)))
    quiet = frozenset(k for k, row in enumerate(rows) if row.is_majority)
    heads = (*_heads(columns, "intransigence" in shown), *END_HEADS)
    first = columns[0].title
    return Table(heads, tuple(made), quiet=quiet, sortable=True, falling_by=first)


def _costs(row: Row) -> tuple[Cell, Cell]:
    """What a learner keeps, and how long its runs take."""
    look = f"keeps keeps-{KEPT.get(row.keeps, 'other')}"
    size = memory(row.memory_bytes)
    kept = Cell(row.keeps, (size,), row.memory_bytes, look)
    below = [counted(row.n_runs, "run")]
    if row.n_left_out:
        below.append(f"{row.n_left_out} diverged")
    return kept, Cell(duration(row.seconds), tuple(below), row.seconds)


INTRANSIGENCE = Heading(
    "INT",
    "intransigence: accuracy that the cumulative (else joint) learner of the same model has more "
    "when a site has just been learned",
    "low is good",
)
END_HEADS = (
    Heading(
        "Keeps",
        "what the method carries from site to site; its memory",
        "memory",
        words=True,
    ),
    Heading("Time", "training time of one run over all sites; number of runs", "runs"),
)


def _heads(columns: Sequence[Column], intransigence: bool) -> list[Heading]:
    heads = [Heading("Learner", words=True)]
    for c in columns:
        way = f"{c.good} is good"
        falling = c.good == "high"
        heads.append(Heading(c.title, c.help, way, falling=falling))
    return [*heads, INTRANSIGENCE] if intransigence else heads


def name_cell(learner: str, levels: Mapping[str, str]) -> Cell:
    """A learner's name, flagged where there is a warning."""
    return Cell(learner, look=f"flag-{levels[learner]}" if learner in levels else "")


def _cell(row: Row, key: str, bare: bool, spread: bool, best: bool) -> Cell:
    e = row.estimates[key]
    look = "best" if best else ""
    below = [] if bare else [bracket(e.low, e.high)]
    if not bare and spread and math.isfinite(e.sd_orders):
        below.append(f"± {number(e.sd_orders)}")
    return Cell(number(e.value), tuple(filter(None, below)), e.value, look)


def best_of(rows: Sequence[Row], but: Collection[str] = ()) -> dict[str, set[str]]:
    """Learners with the best mean of each column, the majority class and `but` aside."""
    best: dict[str, set[str]] = {}
    shown = [r for r in rows if not r.is_majority and r.learner not in but]
    for c in columns_of(rows[0].kind):
        means = {r.learner: r.estimates[c.key].value for r in shown}
        known = {k: rounded(v, 3) for k, v in means.items() if math.isfinite(v)}
        best_end = max if c.good == "high" else min
        top = best_end(known.values(), default=None)
        best[c.key] = {k for k, v in known.items() if v == top}
    return best


def print_table(rows: Sequence[Row], console: Console | None = None) -> None:
    """Print the table to stdout (or `console`): a narrow one gets fewer columns, not cut ones."""
    from rich.console import Console

    out = console or Console()
    width = out.width if out.is_terminal or console else PIPE_WIDTH
    out = out if console or out.is_terminal else Console(width=width)
    _, full, bare = next(layout for layout in LAYOUTS if width >= layout[0])
    results_table(rows, (*full, *bare), bare, spread=False).print(out)
    out.print(
        "mean over orders and seeds, [95 % over subjects and trainings]", style="dim"
    )


def print_findings(found: Sequence[Finding], console: Console | None = None) -> None:
    """Print warnings, serious ones first, to stderr (or to `console`)."""
    from rich.console import Console
    from rich.text import Text

    out = console or Console(stderr=True)
    for f in found:
        line = Text(
            f"{f.level}: ", style="bold red" if f.level == "serious" else "yellow"
        )
        said = printable(f"{f.learner} {f.text}".strip())
        out.print(line.append(said, style=""), soft_wrap=True)


def as_markdown(rows: Sequence[Row]) -> str:
    """GitHub table of every column."""
    return results_table(rows).markdown()


def as_csv(rows: Sequence[Row]) -> str:
    """CSV with a mean, SD, low and high column per number; empty where undefined."""
    import pandas as pd

    table = pd.DataFrame(_plain(rows), dtype=object)
    safe = table.map(lambda v: no_formula(v) if isinstance(v, str) else v)
    return safe.to_csv(index=False, lineterminator="\n")


def as_json(rows: Sequence[Row]) -> str:
    """JSON list of records; null where undefined."""
    return json.dumps(_plain(rows), indent=2, allow_nan=False) + "\n"


def _plain(rows: Sequence[Row]) -> list[dict[str, Any]]:
    found = []
    for record in records(rows):
        found.append({name: plain(value) for name, value in record.items()})
    return found


def plain(value: Any) -> Any:
    """A value every reader of CSV and JSON understands."""
    if isinstance(value, float):
        return rounded(value, 6) if math.isfinite(value) else None
    return value


def study_json(rows: Mapping[str, Mapping[str, Estimate]]) -> dict[str, dict]:
    """Plain numbers of a study of runs; null where undefined."""
    return {
        name: {column: _ends(e) for column, e in cells.items()}
        for name, cells in rows.items()
    }


def _ends(e: Estimate) -> dict[str, float | None]:
    return {"mean": plain(e.value), "low": plain(e.low), "high": plain(e.high)}

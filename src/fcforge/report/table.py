"""One table for every reader: a terminal, Markdown and a page show the same cells."""

from __future__ import annotations

import io
import json
import math
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fcforge.messages import (
    bracket,
    counted,
    duration,
    memory,
    no_formula,
    number,
    printable,
    rounded,
    with_interval,
)
from fcforge.stats import Row
from fcforge.stats.table import Column, columns_of, records
from fcforge.types import Estimate

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from fcforge.studies.stored_runs import Study

PIPE_WIDTH = 140  # columns where the terminal is a file


def in_a_row(cell: str) -> str:
    """Text that ends neither its cell nor the table: no line break, bars and tags escaped."""
    line = " ".join(cell.split())
    line = line.replace("\\", "\\\\").replace("|", "\\|")
    return re.sub("<(?=[A-Za-z/!?])", r"\\<", line)


@dataclass(frozen=True)
class Cell:
    """What stands in one place of a table.

    Attributes
    ----------
    text : str
    below : tuple of str
        Smaller lines under it: an interval, a spread.
    look : str
        Classes of the page's style: ``best``, ``bad``, ``keeps-nothing`` ...
    link : str
        Page beside this one that it leads to.
    """

    text: str
    below: tuple[str, ...] = ()
    look: str = ""
    link: str = ""

    def rich(self) -> Text:
        """For a terminal: the best bold, smaller lines dim; nothing is read as markup."""
        from rich.text import Text

        shown = Text(
            printable(self.text), "bold" if "best" in self.look.split() else ""
        )
        for line in self.below:
            shown.append(f"\n{printable(line)}", "dim")
        return shown

    def line(self) -> str:
        """All of it on one line."""
        tail = [f" {b}" if b[:1] in "[±" else f", {b}" for b in self.below]
        return printable("".join([self.text, *tail]))


def interval_text(e: Estimate) -> str:
    """Value and interval on one line."""
    return with_interval(e.value, e.low, e.high)


@dataclass(frozen=True)
class Heading:
    """A heading; `help` is its meaning, `below` small print, a column of `words` may wrap."""

    title: str
    help: str = ""
    below: str = ""
    words: bool = False


@dataclass(frozen=True)
class Table:
    """Columns and rows of cells; the first column names the row.

    Attributes
    ----------
    columns : tuple of Heading
    rows : tuple of tuple of Cell
    title, note : str
    quiet : frozenset of int
        Rows that are a reference, not a competitor.
    """

    columns: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    note: str = ""
    quiet: frozenset[int] = frozenset()

    @classmethod
    def of(
        cls, heads: Iterable[str | Heading], rows: Iterable[Sequence[Any]], **rest: Any
    ) -> Table:
        """A table from plain texts."""
        columns = tuple(Heading(h) if isinstance(h, str) else h for h in heads)
        made = []
        for row in rows:
            made.append(tuple(Cell(c) if isinstance(c, str) else c for c in row))
        return cls(columns, tuple(made), **rest)

    def markdown(self) -> str:
        """GitHub table, title and note around it."""
        lines = [f"{self.title}\n"] if self.title else []
        rows = [[in_a_row(c.title) for c in self.columns]]
        for row in self.rows:
            rows.append([in_a_row(cell.line()) for cell in row])
        made = [f"| {' | '.join(row)} |" for row in rows]
        rule = "|" + "---|" * len(self.columns)
        lines += [made[0], rule, *made[1:]]
        if self.note:
            lines.append(f"\n{self.note}")
        return "\n".join(lines) + "\n"

    def text(self, width: int = PIPE_WIDTH) -> str:
        """Aligned lines without colours."""
        from rich.console import Console

        out = io.StringIO()
        self.print(Console(file=out, width=width, color_system=None))
        lines = [line.rstrip() for line in out.getvalue().splitlines()]
        return "\n".join(lines).strip("\n")

    def print(self, console: Console) -> None:
        """Print it: the best of a column bold, smaller lines dim."""
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        found = RichTable(
            box=box.SIMPLE_HEAD, caption=self.note or None, pad_edge=False
        )
        for k, column in enumerate(self.columns):
            words = column.words or not k
            side: Any = "left" if words else "right"
            title = Text(printable(column.title))
            found.add_column(title, justify=side, overflow="fold", no_wrap=not words)
        for k, row in enumerate(self.rows):
            cells = [cell.rich() for cell in row]
            found.add_row(*cells, style="italic" if k in self.quiet else "")
        console.print(found)


def interval_cell(e: Estimate | None, look: str = "") -> Cell:
    """A number above its interval and spread, where these have a width; a dash for nothing."""
    if e is None:
        return Cell("–")
    below = []
    if e.high - e.low >= 0.001:
        below.append(bracket(e.low, e.high))
    if math.isfinite(e.sd_orders):
        below.append(f"± {number(e.sd_orders)}")
    return Cell(number(e.value), tuple(below), look)


def interval_table(study: Study) -> Table:
    """One row per name, one column per key; nothing where a row lacks it."""
    columns = study.columns
    lines = []
    for name, found in study.rows.items():
        cells = [interval_cell(found[c]) if c in found else "" for c in columns]
        lines.append((name, *cells))
    return Table.of(("learner", *columns), lines, title=study.title)


# -- the results of a run: page, terminal and Markdown; numbers as CSV and JSON -------------------
IN_TERMINAL = ("aaa", "fm", "auroc", "mae")  # as many columns as 80 characters hold
INTRANSIGENCE = Heading(
    "INT",
    "intransigence: accuracy that the cumulative (else joint) learner of the same model has more "
    "when a site has just been learned",
    "low is good",
)
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
    """One row per learner; the best mean of a column is marked.

    Parameters
    ----------
    rows : sequence of Row
    levels : mapping of learner to {"serious", "caution"}, optional
        Learners with a warning; a serious one is never the best.
    shown : collection of str
        Keys of the columns; where none is named all that are not extra, and the costs.
    """
    columns = []
    for column in columns_of(rows[0].kind):
        if column.key in shown or (not shown and column.shown == "yes"):
            columns.append(column)
    heads = [Heading(c.title, c.help, f"{c.good} is good") for c in columns]
    stars = any(math.isfinite(row.intransigence) for row in rows)
    if not shown:
        heads += [*[INTRANSIGENCE] * stars, *COSTS]
    levels = levels or {}
    sound = [row for row in rows if levels.get(row.learner) != "serious"]
    best = {c.key: best_of(sound, c) for c in columns}
    made = []
    for row in rows:
        flag = f"flag-{levels[row.learner]}" if row.learner in levels else ""
        cells = [Cell(row.learner, look=flag)]
        for key, names in best.items():
            look = "best" if row.learner in names else ""
            cells.append(interval_cell(row.estimates[key], look))
        if not shown:
            lost = Cell(number(row.intransigence))
            cells += [*[lost] * stars, *_costs(row)]
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


def best_of(rows: Sequence[Row], column: Column) -> set[str]:
    """Learners with the best mean of a column, the majority class aside."""
    known = {}
    for row in rows:
        mean = row.estimates[column.key].value
        if math.isfinite(mean) and not row.is_majority:
            known[row.learner] = rounded(mean, 3)
    best_end = max if column.good == "high" else min
    top = best_end(known.values(), default=None)
    return {learner for learner, mean in known.items() if mean == top}


def print_table(rows: Sequence[Row], console: Console | None = None) -> None:
    """Print the columns that fit to stdout (or `console`); a file gets long names unbroken."""
    from rich.console import Console

    out = console or Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    results_table(rows, shown=IN_TERMINAL).print(out)
    meaning = "mean over orders and seeds, [95 % over subjects and trainings], ± SD over orders"
    out.print(meaning, style="dim")


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
    found: dict[str, dict] = {}
    for name, cells in rows.items():
        found[name] = {}
        for column, e in cells.items():
            ends = {"low": plain(e.low), "high": plain(e.high)}
            found[name][column] = {"mean": plain(e.value), **ends}
    return found

"""One table for every reader: a terminal, Markdown and a page show the same cells."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fcforge.exchange.description import Bar
from fcforge.stats import Row
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
    with_interval,
)
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
    value : float, optional
        What a click on the heading sorts by; the text without it.
    look : str
        Classes of the page's style: ``best``, ``bad``, ``keeps-nothing`` ...
    link : str
        Page beside this one that it leads to.
    """

    text: str
    below: tuple[str, ...] = ()
    value: float | None = None
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


def interval_text(e: Estimate | Bar) -> str:
    """Value and interval on one line."""
    return with_interval(e.value, e.low, e.high)


@dataclass(frozen=True)
class Heading:
    """A heading: `below` says which way is good, `falling` which way the first click sorts."""

    title: str
    help: str = ""
    below: str = ""
    falling: bool = False
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
    sortable : bool
        Whether a page lets the reader sort it.
    falling_by : str
        Title of the column the rows are sorted by, best first.
    """

    columns: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    note: str = ""
    quiet: frozenset[int] = frozenset()
    sortable: bool = False
    falling_by: str = ""

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

    def markdown(self, escaped: Callable[[str], str] = in_a_row) -> str:
        """GitHub table, title and note around it."""
        lines = [f"{self.title}\n"] if self.title else []
        rows = [[in_a_row(c.title) for c in self.columns]]
        for row in self.rows:
            rows.append([escaped(cell.line()) for cell in row])
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


def interval_cell(e: Estimate | None, *, digits: int = 3) -> Cell:
    """A number above its interval, where that has a width to show; a dash for nothing."""
    if e is None:
        return Cell("–")
    below: tuple[str, ...] = ()
    if e.high - e.low >= 10.0**-digits:
        below = (bracket(e.low, e.high, digits=digits),)
    return Cell(number(e.value, digits), below, e.value)


def interval_table(study: Study) -> Table:
    """One row per name, one column per key; nothing where a row lacks it."""
    columns = study.columns
    lines = []
    for name, found in study.rows.items():
        cells = [interval_cell(found[c]) if c in found else "" for c in columns]
        lines.append((name, *cells))
    return Table.of(("learner", *columns), lines, title=study.title)


# -- the results of a run: page, terminal and Markdown; numbers as CSV and JSON -------------------
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
    look = f"keeps keeps-{row.keeps.split()[0]}"
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
    found = {}
    for name, cells in rows.items():
        found[name] = {column: _ends(e) for column, e in cells.items()}
    return found


def _ends(e: Estimate) -> dict[str, float | None]:
    return {"mean": plain(e.value), "low": plain(e.low), "high": plain(e.high)}

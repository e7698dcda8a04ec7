"""One table for every reader: a terminal, Markdown and a page show the same cells."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fcforge.exchange.description import Bar
from fcforge.text import bracket, number, printable, with_interval
from fcforge.types import Estimate

if TYPE_CHECKING:
    from rich.console import Console

    from fcforge.studies.unseen import Study

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

    def line(self) -> str:
        """All of it on one line."""
        tail = [f" {b}" if b[:1] in "[±" else f", {b}" for b in self.below]
        return printable("".join([self.text, *tail]))


def interval_text(e: Estimate | Bar) -> str:
    """Value and interval on one line."""
    return with_interval(e.value, e.low, e.high)


def bar_text(bar: Bar) -> str:
    """Name, value and interval of a bar on one line."""
    shown = interval_text(bar)
    small = f", {bar.small}" if bar.small else ""
    return printable(f"{bar.name}: {shown}{small}")


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
            # Text, not str: a label may hold what rich would read as markup.
            cells = [
                Text(
                    printable(c.text), style="bold" if "best" in c.look.split() else ""
                ).append("".join(f"\n{printable(b)}" for b in c.below), style="dim")
                for c in row
            ]
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

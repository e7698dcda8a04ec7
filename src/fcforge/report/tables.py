"""Tables of results for terminals, pages and files."""

import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fcforge.core.estimate import Estimate
from fcforge.core.formatting import bracket, number, printable, with_interval

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from fcforge.evaluation.study import Study


PIPE_WIDTH = 140  # columns where the terminal is a file


def in_a_row(cell: str) -> str:
    """Return text that ends neither its cell nor the table: no line break, bars and tags escaped."""
    line = " ".join(cell.split())
    line = line.replace("\\", "\\\\").replace("|", "\\|")
    return re.sub("<(?=[A-Za-z/!?])", r"\\<", line)


@dataclass(frozen=True)
class Cell:
    """Cell of a table.

    Attributes
    ----------
    text : str
    below : tuple of str
        Smaller lines under it: an interval, a spread.
    look : str
        Classes of the page's style: ``bad``, ``keeps-nothing`` ...
    link : str
        Page beside this one that it leads to.
    """

    text: str
    below: tuple[str, ...] = ()
    look: str = ""
    link: str = ""

    def rich(self) -> "Text":
        """Return rich text with smaller lines dim; nothing is read as markup."""
        from rich.text import Text

        shown = Text(printable(self.text))
        for line in self.below:
            shown.append(f"\n{printable(line)}", "dim")
        return shown

    def line(self) -> str:
        """Return the cell on one line."""
        tail = [f" {b}" if b[:1] in "[±" else f", {b}" for b in self.below]
        return printable("".join([self.text, *tail]))


def interval_text(e: Estimate) -> str:
    """Return the value and interval on one line."""
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
    ) -> "Table":
        """Return a table from plain texts."""
        columns = tuple(Heading(h) if isinstance(h, str) else h for h in heads)
        made = []
        for row in rows:
            made.append(tuple(Cell(c) if isinstance(c, str) else c for c in row))
        return cls(columns, tuple(made), **rest)

    def markdown(self) -> str:
        """Return GitHub table, title and note around it."""
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
        """Return aligned lines without colours."""
        from rich.console import Console

        out = io.StringIO()
        self.print(Console(file=out, width=width, color_system=None))
        lines = [line.rstrip() for line in out.getvalue().splitlines()]
        return "\n".join(lines).strip("\n")

    def print(self, console: "Console") -> None:
        """Print it."""
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


def interval_cell(e: Estimate | None) -> Cell:
    """Return a number above its interval and spread, where these have a width; a dash for nothing."""
    if e is None:
        return Cell("–")
    below = []
    if e.high - e.low >= 0.001:
        below.append(bracket(e.low, e.high))
    if math.isfinite(e.sd_orders):
        below.append(f"± {number(e.sd_orders)}")
    return Cell(number(e.value), tuple(below))


def interval_table(study: "Study") -> Table:
    """Return a study as a table: one row per name, one column per key."""
    columns = study.columns
    lines = []
    for name, found in study.rows.items():
        cells = [interval_cell(found[c]) if c in found else "" for c in columns]
        lines.append((name, *cells))
    return Table.of(("learner", *columns), lines, title=study.title)

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


PIPE_WIDTH = 140  # characters per line where output goes to a file or pipe


def in_a_row(cell: str) -> str:
    """Return text for a cell of a Markdown table: on one line, with bars and HTML tags escaped."""
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
        Lines in small print below the text: an interval, a spread.
    look : str
        CSS classes: ``bad``, ``keeps-nothing`` ...
    link : str
        Page in the same folder that the cell links to.
    """

    text: str
    below: tuple[str, ...] = ()
    look: str = ""
    link: str = ""

    def rich(self) -> "Text":
        """Return the cell for a terminal, lines below dim; square brackets are not read as markup."""
        from rich.text import Text

        rich_text = Text(printable(self.text))
        for line in self.below:
            rich_text.append(f"\n{printable(line)}", "dim")
        return rich_text

    def line(self) -> str:
        """Return the cell on one line."""
        tail = [f" {b}" if b[:1] in "[±" else f", {b}" for b in self.below]
        return printable("".join([self.text, *tail]))


def interval_text(e: Estimate) -> str:
    """Return the value and interval on one line."""
    return with_interval(e.value, e.low, e.high)


@dataclass(frozen=True)
class Heading:
    """Heading of a column.

    Attributes
    ----------
    title : str
    help : str
        Meaning of the column, shown at the pointer.
    below : str
        Small print below the title.
    words : bool
        Whether the cells are words, which may wrap; numbers may not.
    """

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
        Numbers of the rows that are a reference, set in italics.
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
        """Make a table from headings and cells that may be plain texts; `rest` as in the class."""
        columns = tuple(Heading(h) if isinstance(h, str) else h for h in heads)
        cell_rows = []
        for row in rows:
            cell_rows.append(tuple(Cell(c) if isinstance(c, str) else c for c in row))
        return cls(columns, tuple(cell_rows), **rest)

    def markdown(self) -> str:
        """Return the table in GitHub's Markdown, after its title and before its note."""
        lines = [f"{self.title}\n"] if self.title else []
        rows = [[in_a_row(c.title) for c in self.columns]]
        for row in self.rows:
            rows.append([in_a_row(cell.line()) for cell in row])
        printed_rows = [f"| {' | '.join(row)} |" for row in rows]
        rule = "|" + "---|" * len(self.columns)
        lines += [printed_rows[0], rule, *printed_rows[1:]]
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
        """Print the table to a terminal, with bold and dim parts."""
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        rich_table = RichTable(
            box=box.SIMPLE_HEAD, caption=self.note or None, pad_edge=False
        )
        for k, column in enumerate(self.columns):
            words = column.words or not k
            side: Any = "left" if words else "right"
            title = Text(printable(column.title))
            rich_table.add_column(
                title, justify=side, overflow="fold", no_wrap=not words
            )
        for k, row in enumerate(self.rows):
            cells = [cell.rich() for cell in row]
            rich_table.add_row(*cells, style="italic" if k in self.quiet else "")
        console.print(rich_table)


def interval_cell(e: Estimate | None) -> Cell:
    """Return a cell with a value, its interval and its SD over orders; a dash for None."""
    if e is None:
        return Cell("–")
    below = []
    if e.high - e.low >= 0.001:
        below.append(bracket(e.low, e.high))
    if math.isfinite(e.sd_orders):
        below.append(f"± {number(e.sd_orders)}")
    return Cell(number(e.value), tuple(below))


def interval_table(study: "Study") -> Table:
    """Return a study as a table: one row per learner, one column per key."""
    columns = study.columns
    rows = []
    for name, estimates in study.rows.items():
        cells = [interval_cell(estimates[c]) if c in estimates else "" for c in columns]
        rows.append((name, *cells))
    return Table.of(("learner", *columns), rows, title=study.title)

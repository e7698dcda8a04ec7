"""The results table for a terminal, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from fcforge.stats import COLUMNS, Estimate, Finding, Row
from fcforge.stats.table import records
from fcforge.text import bracket, duration, memory, no_formula, number, with_interval

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from fcforge.studies.unseen import Study

# From how wide a terminal on: columns with an interval, columns with the mean alone, the rest.
LAYOUTS = (
    (
        170,
        ("aaa", "acc", "bacc", "auroc", "fm", "for_literal", "bwt"),
        (),
        ("keeps", "memory", "time", "runs"),
    ),
    (
        130,
        ("aaa", "acc", "fm"),
        ("bacc", "auroc", "for_literal", "bwt"),
        ("keeps", "memory", "runs"),
    ),
    (0, ("aaa", "fm"), ("acc", "auroc"), ("keeps",)),
)


def _runs(row: Row) -> str:
    return f"{row.n_runs} ({row.n_left_out} diverged)" if row.n_left_out else str(row.n_runs)


def _ends(row: Row, short: bool) -> dict[str, str]:
    """Privacy, memory, time and number of runs, as text."""
    return {
        "keeps": row.keeps.removesuffix(" subjects") if short else row.keeps,
        "memory": memory(row.memory_bytes),
        "time": duration(row.seconds),
        "runs": _runs(row),
    }


def terminal_table(rows: Sequence[Row], width: int = 160) -> Table:
    """Rich table: mean above its 95 % interval; the best learner of a column is bold.

    Parameters
    ----------
    rows : sequence of Row
    width : int
        Columns of the terminal; a narrow one gets fewer numbers rather than cut ones.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    _, long, plain, ends = next(x for x in LAYOUTS if width >= x[0])
    caption = "mean over orders and seeds, [95 % over subjects]"
    table = Table(box=box.SIMPLE_HEAD, caption=caption, collapse_padding=True, pad_edge=False)
    longest = max(len(r.learner) for r in rows)
    table.add_column("learner", overflow="fold", min_width=min(longest, 15))
    shown = [c for c in COLUMNS if c.key in long + plain]
    for c in shown:
        title = f"{c.title} {'↑' if c.higher_is_better else '↓'}"
        table.add_column(title, justify="right", no_wrap=True)
    for title in ends:
        table.add_column(title, justify="left" if title == "keeps" else "right", no_wrap=True)
    best = best_of(rows)
    for row in rows:
        cells = []
        for c in shown:
            e = row.estimates[c.key]
            cell = Text(number(e.mean), style="bold" if row.learner in best[c.key] else "")
            below = f"\n{bracket(e.low, e.high)}" if c.key in long else ""
            cells.append(cell.append(below, style="dim"))
        tail = [Text(_ends(row, short=width < 130)[k]) for k in ends]
        # Text, not str: a label may hold what rich would read as markup.
        table.add_row(Text(row.learner), *cells, *tail, style="italic" if row.is_majority else "")
    return table


def print_table(rows: Sequence[Row], console: Console | None = None) -> None:
    """Print the terminal table to stdout (or to `console`); a pipe has room for all columns."""
    from rich.console import Console

    out = console or Console()
    if console is None and not out.is_terminal:
        out = Console(width=140)
    out.print(terminal_table(rows, out.width))


def print_findings(found: Sequence[Finding], console: Console | None = None) -> None:
    """Print warnings, serious ones first, to stderr (or to `console`)."""
    from rich.console import Console
    from rich.text import Text

    out = console or Console(stderr=True)
    for f in found:
        line = Text(f"{f.level}: ", style="bold red" if f.level == "serious" else "yellow")
        out.print(line.append(f"{f.learner} {f.text}".strip(), style=""), soft_wrap=True)


def best_of(rows: Sequence[Row], but: Collection[str] = ()) -> dict[str, set[str]]:
    """Learners with the best mean of each column, the majority class and `but` aside."""
    best: dict[str, set[str]] = {}
    shown = [r for r in rows if not r.is_majority and r.learner not in but]
    for c in COLUMNS:
        means = {r.learner: r.estimates[c.key].mean for r in shown}
        known = {k: round(v, 3) for k, v in means.items() if math.isfinite(v)}
        top = (max if c.higher_is_better else min)(known.values(), default=None)
        best[c.key] = {k for k, v in known.items() if v == top}
    return best


def _interval(e: Estimate) -> str:
    return with_interval(e.mean, e.low, e.high)


def as_markdown(rows: Sequence[Row]) -> str:
    """GitHub table of every column, means with intervals."""
    heads = ["learner", "keeps", *(c.title for c in COLUMNS), "memory", "time", "runs"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for r in rows:
        cells = [r.learner, r.keeps, *(_interval(r.estimates[c.key]) for c in COLUMNS)]
        cells += [memory(r.memory_bytes), duration(r.seconds), _runs(r)]
        # A cell that holds a bar or a line break would end the cell or the table.
        safe = (" ".join(c.split()).replace("\\", "\\\\").replace("|", "\\|") for c in cells)
        lines.append("| " + " | ".join(safe) + " |")
    return "\n".join(lines) + "\n"


def study_markdown(study: Study) -> str:
    """GitHub table of a study under its title."""
    lines = [f"{study.title}\n", "| learner | " + " | ".join(study.columns) + " |"]
    lines.append("|" + "---|" * (len(study.columns) + 1))
    for learner, cells in study.rows.items():
        found = [cells.get(c) for c in study.columns]
        shown = [with_interval(e.mean, e.low, e.high) if e else "" for e in found]
        name = " ".join(learner.split()).replace("|", "\\|")
        lines.append("| " + " | ".join([name, *shown]) + " |")
    return "\n".join(lines) + "\n"


def study_json(study: Study) -> dict[str, dict[str, dict[str, float | None]]]:
    """Plain numbers of a study; null where undefined."""

    def plain(e: Estimate) -> dict[str, Any]:
        return {k: _plain(getattr(e, k), None) for k in ("mean", "low", "high")}

    return {k: {c: plain(e) for c, e in cells.items()} for k, cells in study.rows.items()}


def as_csv(rows: Sequence[Row]) -> str:
    """CSV with a mean, SD, low and high column per number; empty where undefined."""
    out = io.StringIO()
    found = records(rows)
    writer = csv.DictWriter(out, list(found[0]), lineterminator="\n")
    writer.writeheader()
    for record in found:
        writer.writerow({k: _plain(v, "") for k, v in record.items()})
    return out.getvalue()


def as_json(rows: Sequence[Row]) -> str:
    """JSON list of records; null where undefined."""
    found = [{k: _plain(v, None) for k, v in r.items()} for r in records(rows)]
    return json.dumps(found, indent=2, allow_nan=False) + "\n"


def _plain(value: str | float | int, missing: str | None) -> str | float | int | None:
    """A value every reader of CSV and JSON understands; no cell a spreadsheet would run."""
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else missing
    return no_formula(value) if isinstance(value, str) and missing == "" else value

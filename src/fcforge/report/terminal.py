"""What commands print: tables and plain lines, none of which a foreign name can break.

One table for every reader: a terminal, Markdown and a page show the same cells.
"""

import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fcforge.messages import (
    bracket,
    counted,
    duration,
    memory,
    number,
    people,
    printable,
    with_interval,
)
from fcforge.metrics import METRICS
from fcforge.types import Estimate

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from fcforge.exchange.description import Description, PlainTable
    from fcforge.exchange.exchange import Exchange
    from fcforge.exchange.model import Learned
    from fcforge.exchange.prediction import Evaluation, Prediction
    from fcforge.exchange.records import Record
    from fcforge.exchange.verification import Check
    from fcforge.requests import LearnRequest
    from fcforge.runner.collect import RunProgress
    from fcforge.runner.plan import Plan
    from fcforge.runner.timing import Cost
    from fcforge.studies.check import Verdict
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
        Classes of the page's style: ``bad``, ``keeps-nothing`` ...
    link : str
        Page beside this one that it leads to.
    """

    text: str
    below: tuple[str, ...] = ()
    look: str = ""
    link: str = ""

    def rich(self) -> "Text":
        """For a terminal: smaller lines dim; nothing is read as markup."""
        from rich.text import Text

        shown = Text(printable(self.text))
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
    ) -> "Table":
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
    """A number above its interval and spread, where these have a width; a dash for nothing."""
    if e is None:
        return Cell("–")
    below = []
    if e.high - e.low >= 0.001:
        below.append(bracket(e.low, e.high))
    if math.isfinite(e.sd_orders):
        below.append(f"± {number(e.sd_orders)}")
    return Cell(number(e.value), tuple(below))


def interval_table(study: "Study") -> Table:
    """One row per name, one column per key; nothing where a row lacks it."""
    columns = study.columns
    lines = []
    for name, found in study.rows.items():
        cells = [interval_cell(found[c]) if c in found else "" for c in columns]
        lines.append((name, *cells))
    return Table.of(("learner", *columns), lines, title=study.title)


# -- lines -----------------------------------------------------------------------------------------
def joined(lines: Sequence[str]) -> str:
    """Lines as one text, each without what cannot be seen."""
    return "\n".join(map(printable, lines))


def cost_text(cost: "Cost", plan: "Plan", jobs: int) -> str:
    """What a run would cost."""
    workers = counted(jobs, "idle CPU worker")
    return joined(
        [
            f"site trainings  {plan.trainings}",
            f"still to do     {cost.todo}",
            f"estimated time  {duration(cost.seconds)} of training on {workers}",
            f"estimated disk  {memory(cost.disk)}",
        ]
    )


def status_text(found: "RunProgress") -> str:
    """How much of a run is done."""
    width = max(map(len, found.learners))
    done = f"{found.trained} of {found.trainings} site trainings done"
    lines = [f"{found.title}: {done}"]
    for title, runs in found.learners.items():
        lines.append(f"  {title:<{width}}  {runs['done']}/{runs['asked']} runs")
    lines.append(f"  {memory(found.disk)} in {found.folder}")
    return joined(lines)


def check_text(verdict: "Verdict") -> str:
    """What `fcforge check` prints."""
    cohort = verdict.cohort
    lines = [f"{verdict.what}: {len(cohort)} subjects, {cohort.n_rois} ROIs"]
    if len(cohort):
        lines.append(f"  {verdict.target}")
    for site, count in verdict.sites().items():
        people = ", ".join(f"{n} {who}" for who, n in count.items())
        lines.append(f"  {site}: {people}")
    lines += [f"  {note}" for note in verdict.notes]
    lines += [f"{found.severity}: {found}" for found in verdict.complaints]
    told = Counter(finding.severity for finding in verdict.complaints)
    counts = [counted(n, severity) for severity, n in told.items()]
    end = ["ok", *counts] if verdict.ok else [*counts, "nothing would be trained"]
    return joined([*lines, ", ".join(end)])


def prediction_text(rows: "Sequence[Prediction]") -> str:
    """How many scans were answered."""
    told = Counter(row.status for row in rows)
    parts = [f"{n} {status}" for status, n in told.items()]
    return printable(f"{counted(len(rows), 'scan')}: {', '.join(parts)}.")


def verify_text(checks: "Sequence[Check]") -> str:
    """Every check and what it comes to."""
    lines = [
        f"{'ok ' if check.ok else 'BAD'}  {check.name}: {check.detail}"
        for check in checks
    ]
    good = all(check.ok for check in checks)
    return joined([*lines, "intact" if good else "DO NOT USE THIS FILE"])


# -- a hospital's step -----------------------------------------------------------------------------
def continued_text(before: "Exchange", asked: "LearnRequest") -> str:
    """What a hospital is about to continue: whose it is, what was agreed, and what it costs."""
    from fcforge.exchange.keys import read_keyring

    found = before.model.describe()
    keyring = read_keyring()
    signers = []
    for author, keys in before.key_lines.items():
        signers.append(f"{author}: {keyring.said(keys[-1]) if keys[-1] else 'nobody'}")
    named = before.root.policy.keepers
    keepers = [f"{one.name}: {keyring.said(one.key)}" for one in named]
    return joined(
        [
            f"About to continue exchange {before.id[:16]}: {found.kind}.",
            f"  sites so far: {', '.join(found.sites) or 'none'}",
            f"  signed by: {'; '.join(signers)}",
            f"  keepers: {'; '.join(keepers) or 'none'}",
            f"  model: {found.model}",
            *(f"  {name}: {value}" for name, value in found.facts.items()),
            f"  each person of this site spends: {before.model.promise(asked)}",
        ]
    )


BELOW_CHANCE = (
    "WARNING: that is below chance. With few people that can be bad luck; but if patients and "
    "controls are swapped in these files, this teaches the opposite. Check which diagnosis means "
    "patient (--positive) before you share it."
)


def learned_text(done: "Learned") -> str:
    """What was found at the site and what is about to leave, before anything is written."""
    lines = _before_lines(done) if done.before else []
    for record in done.new:
        payload = done.exchange.payloads.get(record.payload, b"")
        n_bytes = len(record.line) + len(payload)
        lines.append(f"{record.title}: {memory(n_bytes)} leave.")
    if done.receipt.epsilon is None:
        lines.append("No noise is added: no promise of privacy is made.")
    else:
        budget = f"epsilon {done.receipt.epsilon:g} (delta {done.receipt.delta:g})"
        lines.append(f"Each person spends {budget}.")
    return joined(lines)


def _before_lines(done: "Learned") -> list[str]:
    """How the model that came in does at the site."""
    before = done.before
    n = people(int(before["people"]))
    came = f"site '{done.receipt.site}': {n}. The model that came in reaches"
    if "majority" not in before:
        told = [f"{METRICS[k].title} {before[k]:.3g}" for k in list(before)[:-1]]
        return [f"{came} {', '.join(told)} here."]
    line = (
        f"{came} accuracy {number(before['accuracy'])} here (majority class "
        f"{number(before['majority'])}), AUROC {number(before['auroc'])}."
    )
    two = done.exchange.root.policy.target.kind == "two classes"
    return [line, BELOW_CHANCE] if two and before["auroc"] < 0.5 else [line]


def evaluation_text(found: "Evaluation") -> str:
    """Metrics with intervals, one row per model, and the majority class."""
    first_row = next(iter(found.rows.values()))
    names = [METRICS[name].title for name in first_row]
    rows: list[Sequence[str]] = []
    for title, row in found.rows.items():
        intervals = map(interval_text, row.values())
        rows.append((title, *intervals))
    who = people(found.people)
    if found.majority is not None:
        empty = [""] * (len(names) - 1)
        rows.append(["majority class", number(found.majority), *empty])
        who += f", {counted(found.patients, 'patient')}"
    first = f"{who}; abstained from {found.abstained}. 95 % intervals over people."
    table = Table.of(("model", *names), rows).text()
    return "\n".join([first, table, *map(printable, found.notes)])


# -- an exchange file ------------------------------------------------------------------------------
def described_text(found: "Description") -> str:
    """What `fcforge inspect` prints."""
    lines = [
        f"Exchange {found.id[:16]}: {found.kind}",
        f"  hospitals: {', '.join(found.sites) or 'none in the model'}",
        f"  model: {found.model}",
        *(f"  {name}: {value}" for name, value in found.facts.items()),
        "",
    ]
    for answer in found.answers:
        said = (answer.say, *answer.more)
        lines += [answer.question, *(f"  {text}" for text in said), ""]
    for table in found.tables:
        if table.rows:
            shown = plain_table(table).text().splitlines()
            lines += [f"{table.title}:", *shown, table.note, ""]
    return joined(lines).rstrip()


def records_text(records: "Sequence[Record]") -> str:
    """Single records in full: title, then every field."""
    lines = []
    for record in records:
        signed = f"key {record.key[:16]}" if record.key else "nobody"
        lines.append(f"{record.title}, {record.time}, signed by {signed}")
        for name, value in record.model_dump().items():
            lines.append(f"  {name}: {json.dumps(value, ensure_ascii=False)}")
    return joined(lines)


def as_json(found: Any) -> str:
    """Anything said here, for programs; null where undefined."""
    known = json.loads(json.dumps(found), parse_constant=lambda constant: None)
    return json.dumps(known, indent=1)


def plain_table(table: "PlainTable") -> Table:
    """A table of a description, to be shown."""
    heads = [Heading(title, words=True) for title in table.columns]
    return Table.of(heads, table.rows)

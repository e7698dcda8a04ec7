"""Text that the consortium's commands print."""

import json
from collections import Counter
from collections.abc import Sequence

from fcforge.core.formatting import counted, memory, number, people, printable
from fcforge.evaluation.metrics import METRICS
from fcforge.report.tables import Heading, Table, interval_text
from fcforge.report.text import printable_lines
from fcforge_consortium.aggregation.rounds import Share
from fcforge_consortium.contributions.prediction import Evaluation, Prediction
from fcforge_consortium.operations.verification import Check
from fcforge_consortium.options import ContinueRequest
from fcforge_consortium.records.exchange import Exchange
from fcforge_consortium.records.keyring import read_keyring
from fcforge_consortium.records.kinds import Record
from fcforge_consortium.report.describe import describe, promise
from fcforge_consortium.report.description import Description, PlainTable
from fcforge_consortium.step_result import StepResult

BELOW_CHANCE = (
    "WARNING: that is below chance. With few people that can be bad luck. If patients and controls "
    "are swapped in these files, the model learns the opposite: check which diagnosis means patient "
    "(--positive) before you share it."
)


def prediction_text(rows: Sequence[Prediction]) -> str:
    """Return how many scans have an answer, and how many have none for which reason."""
    by_status = Counter(row.status for row in rows)
    parts = [f"{n} {status}" for status, n in by_status.items()]
    return printable(f"{counted(len(rows), 'scan')}: {', '.join(parts)}.")


def verify_text(checks: Sequence[Check]) -> str:
    """Return every check of a file and the verdict."""
    lines = [
        f"{'ok ' if check.ok else 'BAD'}  {check.name}: {check.detail}"
        for check in checks
    ]
    good = all(check.ok for check in checks)
    return printable_lines([*lines, "intact" if good else "DO NOT USE THIS FILE"])


# -- a hospital's step -----------------------------------------------------------------------------
def continued_text(before: Exchange, request: ContinueRequest) -> str:
    """Return a summary of the file that a hospital is about to add to.

    Parameters
    ----------
    before : Exchange
        The file: its authors, its agreed settings.
    request : ContinueRequest
        The planned step, whose cost is shown.
    """
    description = describe(before)
    keyring = read_keyring()
    signers = []
    for author, keys in before.key_lines.items():
        signers.append(f"{author}: {keyring.label(keys[-1]) if keys[-1] else 'nobody'}")
    cards = before.root.policy.aggregators
    aggregators = [f"{card.name}: {keyring.label(card.key)}" for card in cards]
    return printable_lines(
        [
            f"About to continue file {before.id[:16]}: {description.kind}.",
            f"  sites so far: {', '.join(description.sites) or 'none'}",
            f"  signed by: {'; '.join(signers)}",
            f"  aggregators: {'; '.join(aggregators) or 'none'}",
            f"  model: {description.model}",
            *(f"  {name}: {value}" for name, value in description.facts.items()),
            f"  each person of this site spends: {promise(before, request)}",
        ]
    )


def step_text(done: StepResult) -> str:
    """Return a summary of a hospital's step: quality of the received model, bytes that leave, budget."""
    lines = _before_lines(done) if done.before else []
    for record in done.new:
        payload = done.exchange.payloads.get(record.payload, b"")
        n_bytes = len(record.line) + len(payload)
        lines.append(f"{record.title}: {memory(n_bytes)} leave.")
    if done.entry.epsilon is None:
        lines.append("No noise is added: no promise of privacy is made.")
    else:
        budget = f"epsilon {done.entry.epsilon:g} (delta {done.entry.delta:g})"
        lines.append(f"Each person spends {budget}.")
    return printable_lines(lines)


def _before_lines(done: StepResult) -> list[str]:
    """Return lines about the received model's quality at the hospital, before its step."""
    before = done.before
    n = people(int(before["people"]))
    came = f"site '{done.entry.site}': {n}. The model that came in reaches"
    if "majority" not in before:  # a numeric target
        metrics = [name for name in before if name != "people"]
        parts = [f"{METRICS[name].title} {before[name]:.3g}" for name in metrics]
        return [f"{came} {', '.join(parts)} here."]
    line = (
        f"{came} accuracy {number(before['accuracy'])} here (majority class "
        f"{number(before['majority'])}), AUROC {number(before['auroc'])}."
    )
    two = done.exchange.root.policy.target.kind == "two classes"
    return [line, BELOW_CHANCE] if two and before["auroc"] < 0.5 else [line]


def evaluation_text(evaluation: Evaluation) -> str:
    """Return a table of metrics with intervals, one row per model, and the majority class."""
    first_row = next(iter(evaluation.rows.values()))
    names = [METRICS[name].title for name in first_row]
    rows: list[Sequence[str]] = []
    for title, row in evaluation.rows.items():
        intervals = map(interval_text, row.values())
        rows.append((title, *intervals))
    who = people(evaluation.people)
    if evaluation.majority is not None:
        empty = [""] * (len(names) - 1)
        rows.append(["majority class", number(evaluation.majority), *empty])
        who += f", {counted(evaluation.patients, 'patient')}"
    abstained = evaluation.abstained
    first = f"{who}; abstained from {abstained}. 95 % intervals over people."
    table = Table.of(("model", *names), rows).text()
    return "\n".join([first, table, *map(printable, evaluation.notes)])


# -- files -----------------------------------------------------------------------------------------
def described_text(description: Description) -> str:
    """Return the description of a whole file as `fcforge consortium inspect` prints it."""
    lines = [
        f"File {description.id[:16]}: {description.kind}",
        f"  hospitals: {', '.join(description.sites) or 'none in the model'}",
        f"  model: {description.model}",
        *(f"  {name}: {value}" for name, value in description.facts.items()),
        "",
    ]
    for answer in description.answers:
        sentences = (answer.say, *answer.more)
        lines += [answer.question, *(f"  {text}" for text in sentences), ""]
    for table in description.tables:
        if table.rows:
            shown = plain_table(table).text().splitlines()
            lines += [f"{table.title}:", *shown, table.note, ""]
    return printable_lines(lines).rstrip()


def share_text(share: Share) -> str:
    """Return the description of a hospital's share for one aggregator, and its notice."""
    notice = share.notice
    budget = f"epsilon {notice.epsilon:g}, delta {notice.delta:g}"
    if notice.mechanism == "none":
        budget = "no noise"
    first = [
        f"Share of '{notice.site}' for aggregator '{share.aggregator}', round '{notice.round}', "
        "encrypted.",
        "Nobody can read it alone: its aggregator sees uniformly random numbers, which only the "
        "other aggregator's shares turn into the sum over all hospitals of the round.",
        f"Planned for the sum: {budget}.",
    ]
    return printable_lines([*first, "", records_text([notice])])


def records_text(records: Sequence[Record]) -> str:
    """Return single records in full: title, then every field."""
    lines = []
    for record in records:
        signed = f"key {record.key[:16]}" if record.key else "nobody"
        lines.append(f"{record.title}, {record.time}, signed by {signed}")
        for name, value in record.model_dump().items():
            lines.append(f"  {name}: {json.dumps(value, ensure_ascii=False)}")
    return printable_lines(lines)


def plain_table(table: PlainTable) -> Table:
    """Return a table of a description in the form that pages and the terminal show."""
    heads = [Heading(title, words=True) for title in table.columns]
    return Table.of(heads, table.rows)

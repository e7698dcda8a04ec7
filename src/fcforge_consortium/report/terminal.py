"""Text that the consortium's commands print."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fcforge.core.formatting import counted, memory, number, people, printable
from fcforge.evaluation.metrics import METRICS

if TYPE_CHECKING:
    from fcforge_consortium.contributions.prediction import Evaluation, Prediction
    from fcforge_consortium.model import Learned
    from fcforge_consortium.options import ContinueRequest
    from fcforge_consortium.records.exchange import Exchange
    from fcforge_consortium.records.kinds import Record
    from fcforge_consortium.records.verification import Check
    from fcforge_consortium.report.description import Description, PlainTable
from fcforge.report.tables import Heading, Table, interval_text
from fcforge.report.text import printable_lines


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
    return printable_lines([*lines, "intact" if good else "DO NOT USE THIS FILE"])


# -- a hospital's step -----------------------------------------------------------------------------
def continued_text(before: "Exchange", asked: "ContinueRequest") -> str:
    """What a hospital is about to continue: whose it is, what was agreed, and what it costs."""
    from fcforge_consortium.records.keys import read_keyring

    found = before.model.describe()
    keyring = read_keyring()
    signers = []
    for author, keys in before.key_lines.items():
        signers.append(f"{author}: {keyring.said(keys[-1]) if keys[-1] else 'nobody'}")
    named = before.root.policy.keepers
    keepers = [f"{one.name}: {keyring.said(one.key)}" for one in named]
    return printable_lines(
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
    return printable_lines(lines)


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
    """What `fcforge consortium inspect` prints."""
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
    return printable_lines(lines).rstrip()


def records_text(records: "Sequence[Record]") -> str:
    """Single records in full: title, then every field."""
    lines = []
    for record in records:
        signed = f"key {record.key[:16]}" if record.key else "nobody"
        lines.append(f"{record.title}, {record.time}, signed by {signed}")
        for name, value in record.model_dump().items():
            lines.append(f"  {name}: {json.dumps(value, ensure_ascii=False)}")
    return printable_lines(lines)


def plain_table(table: "PlainTable") -> Table:
    """A table of a description, to be shown."""
    heads = [Heading(title, words=True) for title in table.columns]
    return Table.of(heads, table.rows)

"""What an exchange file says of itself: plain values, decided here and only shown by reports.

A model describes itself (`Model.describe`). Four questions are answered of every file, in the same
words whatever the model: who signed it, what travels, does it work on real people, and can an
attacker tell who took part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from fcforge.exchange.records import AttackRow, Record
from fcforge.text import counted, memory
from fcforge.types import Target

if TYPE_CHECKING:
    from fcforge.exchange.exchange import Exchange
    from fcforge.exchange.model import Model

Level = Literal["good", "warn", "alarm", ""]  # "" where nothing follows

SIGNED = "Who signed it?"
TRAVELS = "What travels?"
WORKS = "Does it work on real people?"
ATTACKED = "Can an attacker tell who took part?"
COMMONEST = "always naming the commonest class"


@dataclass(frozen=True)
class Answer:
    """A question, its answer in a sentence, and what more there is to say."""

    question: str
    kind: Level
    say: str
    more: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlainTable:
    """Rows of text under headings."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Description:
    """All that is said of an exchange file.

    Attributes
    ----------
    kind : str
        "releases around a public start", "chain of hospitals".
    id : str
        Of the exchange.
    model : str
        What computes an answer, in a phrase.
    sites : tuple of str
        Hospitals, in order where there is one.
    answers : tuple of Answer
        To the four questions.
    facts : mapping of str to str
        Short ones, for the head of a page.
    tables : tuple of PlainTable
        People and sites, who wrote what, and whatever else is tabular.
    settings : mapping
        The contract all hospitals share, nested, in plain values.
    real_subjects : bool
        Whether somebody's scans are inside.
    """

    kind: str
    id: str
    model: str
    sites: tuple[str, ...]
    answers: tuple[Answer, ...]
    facts: Mapping[str, str] = field(default_factory=dict)
    tables: tuple[PlainTable, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    real_subjects: bool = False


def described(
    of: "Model",
    answers: tuple[Answer, ...],
    facts: Mapping[str, str],
    tables: tuple[PlainTable, ...],
    settings: Mapping[str, Any],
    **more: Any,
) -> Description:
    """What a model says of itself, with what is said of every exchange alike.

    Parameters
    ----------
    of : Model
    answers : tuple of Answer
        To all questions but the first.
    facts, tables
        The model's own.
    settings : mapping
        Of the root.
    **more
        The other fields of a description.
    """
    exchange = of.exchange
    policy = exchange.root.policy
    about = {"disorder": policy.disorder or "not said", **learned(policy.target)}
    return Description(
        id=exchange.id,
        answers=(who_signed(exchange.root, exchange.records), *answers),
        facts={**about, **facts},
        tables=(*tables, parts_table(exchange), records_table(of)),
        settings={**settings, "policy": policy.model_dump()},
        **more,
    )


# -- answers ---------------------------------------------------------------------------------------
def learned(target: Target) -> dict[str, str]:
    """The fact that says what is learned of a person."""
    if target.kind == "two classes":
        return {"patients are called": target.classes[1]}
    if target.kind == "number":
        return {"learned": str(target)}
    return {"groups": ", ".join(target.classes)}


def who_signed(root: Record, records: Sequence[Record]) -> Answer:
    """Whether every author signed what it wrote."""
    if not records:
        maker = f"Its maker signed it, key {root.key[:16]}."
        made = maker if root.key else "Nobody signed the start."
        return Answer(SIGNED, "", "No hospital has given anything yet.", (made,))
    unsigned = sorted({record.site for record in records if not record.key})
    if unsigned:
        say = f"Not everybody: {', '.join(unsigned)} did not sign."
        if not any(record.key for record in records):
            say = "Nobody signed it."
        why = "Whoever had the file could have made what is not signed."
        return Answer(SIGNED, "warn", say, (why,))
    signed = [root, *records] if root.key else records
    keys = {record.site: record.key[:16] for record in signed}
    authors = counted(len(keys), "author")
    more: tuple[str, ...] = (
        f"Keys: {', '.join(f'{site} {key}' for site, key in sorted(keys.items()))}.",
        "`fcforge verify --trust KEY.pub` tells whether a key is the sender's.",
    )
    say = f"Everybody signed what is theirs ({authors})."
    if not root.key:
        say = f"{authors} signed what is theirs; nobody signed what they began with."
        more = (f"Their signatures name it by its id: {root.id}.", *more)
    return Answer(SIGNED, "good", say, more)


def strongest(attacks: Sequence[AttackRow]) -> AttackRow | None:
    """The attack that got furthest, those first that beat chance; None without one."""
    rows = [row for row in attacks if not row.reference]
    return max(rows, key=lambda row: (row.beats_chance, row.auc), default=None)


RECORDS = (
    "Budget: what each person behind a record spends. Of a round each hospital writes a notice "
    "that it gave, and each of the two keepers its half of the sum."
)


# -- tables of any exchange ------------------------------------------------------------------------
def parts_table(exchange: "Exchange") -> PlainTable:
    """Bytes and numbers of each author's part, counted from the file."""
    rows = []
    for site in sorted({record.site for record in exchange.everything}):
        mine = [record for record in exchange.everything if record.site == site]
        size = sum(len(record.line) for record in mine)
        numbers = 0
        for record in mine:
            if record.payload in exchange.payloads:
                size += len(exchange.payloads[record.payload])
                numbers += sum(array.size for array in exchange.arrays(record).values())
        rows.append((site, str(len(mine)), memory(size), str(numbers)))
    columns = ("author", "records", "size", "numbers in arrays")
    return PlainTable("What the file holds of whom", columns, tuple(rows))


def records_table(model: "Model") -> PlainTable:
    """Who wrote what, when, signed by which key, and what its people spend."""
    rows = []
    for record in model.exchange.everything:
        signed = f"key {record.key[:16]}" if record.key else "not signed"
        time = record.time[:16].replace("T", " ")
        known = (record.title, time, model.cost(record), signed)
        rows.append((*known, record.fcforge, record.id[:12]))
    columns = ("record", "time (UTC)", "budget", "signature", "fcforge", "id")
    return PlainTable("Records", columns, tuple(rows), RECORDS)

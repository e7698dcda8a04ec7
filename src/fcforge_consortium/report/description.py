"""The description of a consortium file in plain values, which pages and terminal text show.

Four questions are answered for every file, in the same words whatever its model: who signed it,
what travels, does it work on real people, and can an attacker tell who took part.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fcforge.core.formatting import counted, memory
from fcforge.core.target import Target
from fcforge_consortium.records.exchange import Exchange
from fcforge_consortium.records.kinds import Record
from fcforge_consortium.records.policy import Policy

Level = Literal["good", "warn", "alarm", ""]  # "" where nothing follows

SIGNED = "Who signed it?"
TRAVELS = "What travels?"
WORKS = "Does it work on real people?"
ATTACKED = "Can an attacker tell who took part?"
COMMONEST = "always predicting the commonest class"
RECORDS = (
    "Budget: epsilon and delta of each person behind a record. For a round, each hospital writes "
    "a notice of its contribution, and each of the two aggregators a closing record (the set of "
    "hospitals) and an aggregate share."
)
# Settings of a policy in words, in the order of the page.
POLICY_WORDS = {
    "disorder": "disorder",
    "control": "controls are called",
    "patient": "patients are called",
    "others": "further groups",
    "number": "number that is learned",
    "max_epsilon": "largest epsilon that a person may spend in all",
    "max_delta": "largest delta that a person may spend in all",
    "fewest_people": "fewest people of a contribution",
    "most_people": "most people of a contribution",
    "most_planned": "most people, as a multiple of the plan per hospital",
    "fewest_hospitals": "fewest hospitals of a round",
    "exact_allowed": "exact contributions without noise allowed",
    "aggregators": "aggregators",
}


@dataclass(frozen=True)
class Answer:
    """A question, its answer in a sentence, and further sentences.

    Attributes
    ----------
    question : str
    kind : {"good", "warn", "alarm", ""}
        Level at which the answer is shown; empty for one that is neither good nor bad.
    say : str
        The answer.
    more : tuple of str
        Further sentences.
    """

    question: str
    kind: Level
    say: str
    more: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlainTable:
    """Rows of text under headings, with a title and a note below."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Description:
    """The plain values that describe a consortium file.

    Attributes
    ----------
    kind : str
        "contributions to a base model", or "chain of hospitals".
    id : str
        SHA-256 of the file's set of records.
    model : str
        The model that predicts, in a phrase.
    sites : tuple of str
        Hospitals, in order where there is one.
    answers : tuple of Answer
        Answers to the four questions.
    facts : mapping of str to str
        Short facts by name, for the head of a page.
    tables : tuple of PlainTable
        Hospitals, records and whatever else is tabular.
    settings : mapping
        The settings that all hospitals share, in words, nested, in plain values.
    real_subjects : bool
        Whether somebody's scans are inside.
    """

    kind: str
    id: str
    model: str
    sites: tuple[str, ...]
    answers: tuple[Answer, ...]
    facts: Mapping[str, str]
    tables: tuple[PlainTable, ...]
    settings: Mapping[str, Any]
    real_subjects: bool = False


def describe_file(
    exchange: Exchange,
    cost: Callable[[Any], str],
    *,
    answers: tuple[Answer, ...],
    facts: Mapping[str, str],
    tables: tuple[PlainTable, ...],
    settings: Mapping[str, Any],
    words: Mapping[str, str],
    **more: Any,
) -> Description:
    """Return the description of a file: what its model adds, and what all files share.

    Parameters
    ----------
    exchange : Exchange
    cost : callable
        Returns the budget of a record in words.
    answers : tuple of Answer
        Answers to all questions but the first, "Who signed it?", which all files share.
    facts : mapping of str to str
        Facts of this kind of model.
    tables : tuple of PlainTable
        Tables of this kind of model.
    settings : mapping
        Settings of the base model or the chain.
    words : mapping of str to str
        Names of these settings in words.
    **more
        The other fields of a `Description`.

    Returns
    -------
    Description
    """
    policy = exchange.root.policy
    about = {"disorder": policy.disorder or "not stated", **target_facts(policy.target)}
    return Description(
        id=exchange.id,
        answers=(who_signed(exchange.root, exchange.records), *answers),
        facts={**about, **facts},
        tables=(*tables, records_table(exchange, cost)),
        settings=in_words(settings, words) | policy_in_words(policy),
        **more,
    )


def in_words(settings: Mapping[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    """Return settings under their names in words; a name without words stays."""
    return {words.get(name, name): value for name, value in settings.items()}


def policy_in_words(policy: Policy) -> dict[str, Any]:
    """Return the settings of a policy under their names in words."""
    values = policy.model_dump()
    values["aggregators"] = [
        f"{one.name} (key {one.key[:16]})" for one in policy.aggregators
    ]
    if policy.number is not None:
        values["number"] = str(policy.target)
        del values["control"], values["patient"]
    return in_words(values, POLICY_WORDS)


def target_facts(target: Target) -> dict[str, str]:
    """Return the fact that names what is learned of a person."""
    if target.kind == "two classes":
        return {"patients are called": target.classes[1]}
    if target.kind == "number":
        return {"learned": str(target)}
    return {"groups": ", ".join(target.classes)}


def who_signed(root: Record, records: Sequence[Record]) -> Answer:
    """Answer whether every author signed its records.

    Parameters
    ----------
    root : Record
        The base model, or the root of a chain.
    records : sequence of Record
        The others.
    """
    if not records:
        maker = f"Its maker signed it, key {root.key[:16]}."
        made = maker if root.key else "Nobody signed the base model."
        return Answer(SIGNED, "", "No hospital has contributed yet.", (made,))
    unsigned = sorted({record.site for record in records if not record.key})
    if unsigned:
        say = f"Not everybody: {', '.join(unsigned)} did not sign."
        why = "Anybody who had the file could have made an unsigned record."
        return Answer(SIGNED, "warn", say, (why,))
    keys = {record.site: record.key[:16] for record in (root, *records) if record.key}
    more = [
        f"Keys: {', '.join(f'{site} {key}' for site, key in sorted(keys.items()))}.",
        "`fcforge consortium verify --trust KEY.pub` checks whether a key is the sender's.",
    ]
    if not root.key:
        more.append(f"Nobody signed the record that they all build on: {root.id}.")
    say = f"Everybody signed their own records ({counted(len(keys), 'author')})."
    return Answer(SIGNED, "good", say, tuple(more))


def records_table(exchange: Exchange, cost: Callable[[Any], str]) -> PlainTable:
    """Return a table of all records: time, budget, signature, and how much each one holds.

    Parameters
    ----------
    exchange : Exchange
    cost : callable
        Returns the budget of a record in words.
    """
    rows = []
    for record in exchange.everything:
        signed = f"key {record.key[:16]}" if record.key else "not signed"
        time = record.time[:16].replace("T", " ")
        data = exchange.payloads.get(record.payload, b"")
        arrays = exchange.arrays(record).values() if data else ()
        numbers = sum(array.size for array in arrays)
        size = memory(len(record.line) + len(data))
        rows.append(
            (
                *(record.title, time, cost(record), signed),
                *(record.fcforge, record.id[:12], size, str(numbers)),
            )
        )
    columns = ("record", "time (UTC)", "budget", "signature", "fcforge", "id")
    counts = ("size", "numbers in arrays")
    return PlainTable("Records", (*columns, *counts), tuple(rows), RECORDS)

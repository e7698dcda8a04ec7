"""What an exchange file says of itself: plain values, decided here and only shown by reports.

A model describes itself (`Model.describe`), a chain by itself, releases around a start here. Four
questions are answered of every file, in the same words whatever the model: who signed it, what
travels, does it work on real people, and can an attacker tell who took part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fcforge.core.formatting import counted, memory, percent, some
from fcforge.core.target import Target
from fcforge.evaluation.metrics import METRICS
from fcforge_consortium.contributions import vectors as vector
from fcforge_consortium.privacy.noise import ceiling, ceiling_of, epsilon_of
from fcforge_consortium.records.kinds import Expected, Record, Spending, Withdrawal

if TYPE_CHECKING:
    from fcforge_consortium.contributions.model import Releases
    from fcforge_consortium.model import Model

Level = Literal["good", "warn", "alarm", ""]  # "" where nothing follows

SIGNED = "Who signed it?"
TRAVELS = "What travels?"
WORKS = "Does it work on real people?"
ATTACKED = "Can an attacker tell who took part?"
COMMONEST = "always naming the commonest class"
CERTAIN = 1.96  # standard deviations of a 95 % interval
WAYS = ("epsilon", "two keepers", "noise by each hospital", "attacks right at most")
# What gains are measured by, of each kind of target.
ORDERED = {
    "two classes": "AUROC",
    "more classes": "Mean AUROC of the groups",
    "number": "Share of pairs of people in the right order",
}


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
    facts: Mapping[str, str]
    tables: tuple[PlainTable, ...]
    settings: Mapping[str, Any]
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
        tables=(*tables, records_table(of)),
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
        why = "Whoever had the file could have made what is not signed."
        return Answer(SIGNED, "warn", say, (why,))
    keys = {record.site: record.key[:16] for record in (root, *records) if record.key}
    more = [
        f"Keys: {', '.join(f'{site} {key}' for site, key in sorted(keys.items()))}.",
        "`fcforge consortium verify --trust KEY.pub` tells whether a key is the sender's.",
    ]
    if not root.key:
        more.append(f"Nobody signed what they began with, which they name: {root.id}.")
    say = f"Everybody signed what is theirs ({counted(len(keys), 'author')})."
    return Answer(SIGNED, "good", say, tuple(more))


RECORDS = (
    "Budget: what each person behind a record spends. Of a round each hospital writes a notice "
    "that it gave, and each of the two keepers its half of the sum."
)


def records_table(model: "Model") -> PlainTable:
    """Who wrote what, when, signed by which key, what its people spend, and how much it holds."""
    exchange = model.exchange
    rows = []
    for record in exchange.everything:
        signed = f"key {record.key[:16]}" if record.key else "not signed"
        time = record.time[:16].replace("T", " ")
        known = (record.title, time, model.cost(record), signed)
        data = exchange.payloads.get(record.payload, b"")
        arrays = exchange.arrays(record).values() if data else ()
        numbers = sum(array.size for array in arrays)
        size = memory(len(record.line) + len(data))
        rows.append((*known, record.fcforge, record.id[:12], size, str(numbers)))
    columns = ("record", "time (UTC)", "budget", "signature", "fcforge", "id")
    counted_from = ("size", "numbers in arrays")
    return PlainTable("Records", (*columns, *counted_from), tuple(rows), RECORDS)


# -- releases around a start -----------------------------------------------------------------------
def describe_releases(model: "Releases") -> Description:
    """All that is said of such an exchange."""
    root = model.exchange.root
    given = model.exchange.of(Spending)
    exact = sorted({record.site for record in given if record.mechanism == "none"})
    patients = f" ({root.patients} patients)" if root.policy.target.classes else ""
    return described(
        model,
        answers=(_travels(model, exact), works(root.expected), attacked(model, exact)),
        facts={
            "public people": f"{root.people}{patients}",
            "removed from every scan": ", ".join(root.removes) or "nothing",
        },
        tables=(_hospitals(model), *_worth(model)),
        settings=root.settings,
        kind="releases around a public start",
        sites=model.hospitals,
        model="one linear head on the matrix logarithm of a scan",
    )


def _travels(model: "Releases", exact: list[str]) -> Answer:
    """What is in the file; `exact` are sites that gave numbers without noise."""
    say = "A public start alone."
    if model.given:
        sets = f"{counted(len(model.given), 'set')} of {model.size} numbers"
        say = f"A public start and {sets} ({some(g.name for g in model.given)})."
    more: tuple[str, ...] = (
        f"By its description the start was made from {model.exchange.root.people} public people; "
        "a hospital that shares an id with them is refused.",
        "The head is not in the file: whoever opens it computes it from the releases.",
    )
    if gone := sorted({w.site for w in model.exchange.of(Withdrawal)}):
        more += (f"Withdrawn, and no longer in the model: {', '.join(gone)}.",)
    return Answer(TRAVELS, "alarm" if exact else "good", say, more)


def works(expected: Expected) -> Answer:
    """What a public start alone does at public sites that it has not seen."""
    more = (
        f"Measured on {expected.people} people at public sites it has not seen. What the hospitals "
        "add is measured at home: `fcforge consortium evaluate`.",
    )
    if expected.number:
        told = []
        for name in (name for name in METRICS if name in expected.number):
            value, low, high = expected.number[name]
            told.append(f"{METRICS[name].title} {value:.2f} [{low:.2f}, {high:.2f}]")
        say = f"The public start alone: {', '.join(told)}."
        low = expected.number.get("r2", (0.0, 0.0, 0.0))[1]
        return Answer(WORKS, "good" if low > 0 else "warn", say, more)
    line = expected.majority
    if expected.accuracy is None or line is None:
        say = "Not known: the public people are too few to tell."
        return Answer(WORKS, "warn", say)
    value, low, high = expected.accuracy
    right = f"{percent(value)} [{percent(low)}, {percent(high)}]"
    say = f"The public start alone is right for {right}; {COMMONEST} gets {percent(line)}."
    return Answer(WORKS, "good" if low > line else "warn", say, more)


def attacked(model: "Releases", exact: list[str]) -> Answer:
    """What differential privacy promises, whatever the attack; nothing without it."""
    if not model.given:  # perhaps notices of rounds whose sums are not there
        return Answer(ATTACKED, "", "Nothing that people gave is in the file.")
    if exact:
        say = f"Nothing is promised at {', '.join(exact)}: the numbers are exact."
        more = ("Treat this file as patient data.",)
        return Answer(ATTACKED, "alarm", say, more)
    return _promised(model)


def _promised(model: "Releases") -> Answer:
    worst = max(model.exchange.of(Spending), key=model.spent)
    epsilon, delta = model.spent(worst)
    bound = ceiling_of(epsilon, delta)
    replaced = vector.noise_units(epsilon, delta) / vector.REPLACED
    two = model.target.kind == "two classes"
    asked = "patient or control?" if two else f"which {model.target.name}?"
    more = (
        "That is for one person who took part and one who did not, whatever else the attacker "
        f"knows: differential privacy, epsilon {epsilon:g} (delta {delta:g}), the most that a "
        f"person of any hospital has spent (at {worst.site}).",
        f"For '{asked}' of somebody who is known to have taken part (one person "
        f"replaced) it means epsilon {epsilon_of(replaced, delta):.3g}: right at most "
        f"{100 * ceiling(replaced):.0f} times in 100.",
    )
    level: Level = "good" if epsilon <= 1 else "warn"
    right = f"No attack can be right more than {100 * bound:.0f} times in 100"
    return Answer(ATTACKED, level, f"{right}; guessing gets 50.", more)


def _hospitals(model: "Releases") -> PlainTable:
    """One row per hospital: what its part holds, of about how many people, and what it does."""
    moved = model.influence()
    outliers = model.outliers()
    rows = []
    for name in sorted(moved):
        parts = [given for given in model.given if given.name == name]
        counts = [model.head_count(given) for given in parts]
        spread = CERTAIN * sum(sd**2 for _, sd in counts) ** 0.5
        about = f"about {sum(n for n, _ in counts):.0f} ± {spread:.0f}"
        flag = "more of one mind than people are: ask" if name in outliers else ""
        rows.append((name, about, f"{moved[name]:.3f}", flag))
    what = "log odds" if model.target.classes else "the number"
    scaled = "" if model.target.classes else "; its limits are -1 and +1"
    return PlainTable(
        "What each hospital gave",
        ("hospital or round", "people", f"moves {what} by", ""),
        tuple(rows),
        f"People are counted with noise. Without a hospital or a round, {what} of public people "
        f"would move by so much (standard deviation{scaled}).",
    )


def _worth(model: "Releases") -> list[PlainTable]:
    """What the plan would bring, told from the public people alone; nothing where unknown."""
    plan = model.exchange.root.plan
    found = model.exchange.root.worth
    if found is None:
        return []
    gains = {
        (row.epsilon, row.keepers): f"{row.gain:+.3f} ± {row.error:.3f}"
        for row in found.rows
    }
    rows = []
    for epsilon in dict.fromkeys(row.epsilon for row in found.rows):
        budget = "none (exact)" if epsilon is None else f"{epsilon:g}"
        both = [gains.get((epsilon, keepers), "") for keepers in (True, False)]
        rows.append((budget, *both, f"{100 * ceiling_of(epsilon):.0f} in 100"))
    note = (
        f"{ORDERED[model.target.kind]} above that of the public head ({found.public:.3f}), for "
        f"{plan.people} people of {plan.hospitals} hospitals: public sites were dealt into "
        "public people and hospitals, with the plan's noise (± standard error). Everybody's "
        f"data in one place would add {found.pooled:+.3f}."
    )
    return [PlainTable("What sums would add", WAYS, tuple(rows), note)]


def cost_of_release(model: "Releases", record: Record) -> str:
    """What people behind a record spend, in words."""
    if not isinstance(record, Spending):
        return ""
    if record.mechanism == "none":
        return "none: exact"
    epsilon, delta = model.spent(record)
    spent = f"{epsilon:g} and {delta:g} in all"
    return f"epsilon {record.epsilon:g}, delta {record.delta:g} ({spent})"

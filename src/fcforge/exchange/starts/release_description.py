"""What releases and sums around a start say of themselves, every figure counted from the file."""

from typing import TYPE_CHECKING

from fcforge.exchange import description
from fcforge.exchange.description import Answer, Description, Level, PlainTable
from fcforge.exchange.records import (
    Audit,
    Expected,
    Record,
    Spending,
    Start,
    Withdrawal,
)
from fcforge.metrics import METRICS
from fcforge.privacy.noise import ceiling, ceiling_of, epsilon_of
from fcforge.releases import vector
from fcforge.text import counted, percent, some

if TYPE_CHECKING:
    from fcforge.exchange.starts.releases import Releases

CERTAIN = 1.96  # standard deviations of a 95 % interval
WORTH = "What sums would add"  # title of a table


def describe(model: "Releases") -> Description:
    """All that is said of such an exchange."""
    root = model.exchange.root
    given = model.exchange.of(Spending)
    exact = sorted({record.site for record in given if record.mechanism == "none"})
    return description.described(
        model,
        answers=(_travels(model, exact), works(root.expected), attacked(model, exact)),
        facts={
            "public people": _public(root),
            "removed from every scan": ", ".join(root.removes) or "nothing",
        },
        tables=(_hospitals(model), *_worth(model)),
        settings=root.settings,
        kind="releases around a public start",
        sites=model.hospitals,
        model="one linear head on the matrix logarithm of a scan",
    )


def _public(root: Start) -> str:
    """How many public people, and how many of them are patients or have other disorders."""
    who = "patients" if len(root.policy.target.classes) == 2 else "not controls"
    counted = f" ({root.patients} {who})" if root.policy.target.classes else ""
    return f"{root.people}{counted}"


def _travels(model: "Releases", exact: list[str]) -> Answer:
    """What is in the file; `exact` are sites that gave numbers without noise."""
    say = "A public start alone."
    if model.given:
        sets = f"{counted(len(model.given), 'set')} of {model.size} numbers"
        say = f"A public start and {sets} ({some(g.name for g in model.given)})."
    more = [
        f"By its description the start was made from {model.exchange.root.people} public people; "
        "a hospital that shares an id with them is refused.",
        "The head is not in the file: whoever opens it computes it from the releases.",
    ]
    if exact:
        more.append(f"WARNING: exact numbers without noise from {', '.join(exact)}.")
    if gone := sorted({w.site for w in model.exchange.of(Withdrawal)}):
        more.append(f"Withdrawn, and no longer in the model: {', '.join(gone)}.")
    level: Level = "alarm" if exact else "good"
    return Answer(description.TRAVELS, level, say, tuple(more))


def works(expected: Expected) -> Answer:
    """What a public start alone does at public sites that it has not seen."""
    asked = description.WORKS
    more = (
        f"Measured on {expected.people} people at public sites it has not seen. What the hospitals "
        "add is measured at home: `fcforge evaluate`.",
    )
    if expected.number:
        told = []
        for name in (name for name in METRICS if name in expected.number):
            value, low, high = expected.number[name]
            told.append(f"{METRICS[name].title} {value:.2f} [{low:.2f}, {high:.2f}]")
        say = f"The public start alone: {', '.join(told)}."
        low = expected.number.get("r2", (0.0, 0.0, 0.0))[1]
        return Answer(asked, "good" if low > 0 else "warn", say, more)
    line = expected.majority
    if expected.accuracy is None or line is None:
        say = "Not known: the public people are too few to tell."
        return Answer(asked, "warn", say)
    commonest = description.COMMONEST
    value, low, high = expected.accuracy
    right = f"{percent(value)} [{percent(low)}, {percent(high)}]"
    say = f"The public start alone is right for {right}; {commonest} gets {percent(line)}."
    return Answer(asked, "good" if low > line else "warn", say, more)


def attacked(model: "Releases", exact: list[str]) -> Answer:
    """What differential privacy promises, whatever the attack; nothing without it."""
    asked = description.ATTACKED
    if not model.given:  # perhaps notices of rounds whose sums are not there
        return Answer(asked, "", "Nothing that people gave is in the file.")
    audits = [
        f"{audit.site} attacked {audit.what} on {audit.time[:10]}: {_strongest(audit)}"
        for audit in model.exchange.of(Audit)
    ]
    if exact:
        say = f"Nothing is promised at {', '.join(exact)}: the numbers are exact."
        return Answer(
            asked, "alarm", say, ("Treat this file as patient data.", *audits)
        )
    return _promised(model, audits)


def _promised(model: "Releases", audits: list[str]) -> Answer:
    worst = max(model.exchange.of(Spending), key=model.spent)
    epsilon, delta = model.spent(worst)
    bound = ceiling_of(epsilon, delta)
    replaced = vector.noise_units(epsilon, delta) / vector.REPLACED
    asked = f"which {model.target.name}?"
    if model.target.kind == "two classes":
        asked = "patient or control?"
    more = (
        "That is for one person who took part and one who did not, whatever else the attacker "
        f"knows: differential privacy, epsilon {epsilon:g} (delta {delta:g}), the most that a "
        f"person of any hospital has spent (at {worst.site}).",
        f"For '{asked}' of somebody who is known to have taken part (one person "
        f"replaced) it means epsilon {epsilon_of(replaced, delta):.3g}: right at most "
        f"{100 * ceiling(replaced):.0f} times in 100.",
        *audits,
    )
    level: Level = "good" if epsilon <= 1 else "warn"
    right = f"No attack can be right more than {100 * bound:.0f} times in 100"
    return Answer(description.ATTACKED, level, f"{right}; guessing gets 50.", more)


def _strongest(audit: Audit) -> str:
    worst = description.strongest(audit.rows)
    if worst is None:
        return "nothing was attacked."
    surely = "" if worst.beats_chance else ", not beyond chance"
    return f"'{worst.attack}' reaches AUC {worst.auc:.2f}{surely}."


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
    local = {row.epsilon: row for row in found.rows if not row.keepers}
    rows = []
    for row in found.rows:
        if row.keepers:
            budget = "none (exact)" if row.epsilon is None else f"{row.epsilon:g}"
            right = f"{100 * ceiling_of(row.epsilon):.0f} in 100"
            both = (f"{r.gain:+.3f} ± {r.error:.3f}" for r in (row, local[row.epsilon]))
            rows.append((budget, *both, right))
    columns = ("epsilon", "two keepers", "noise by each hospital")
    note = (
        f"{_ordered(model)} above that of the public head ({found.public:.3f}), for "
        f"{plan.people} people of {plan.hospitals} hospitals: public sites were dealt into "
        "public people and hospitals, with the plan's noise (± standard error). Everybody's "
        f"data in one place would add {found.pooled:+.3f}."
    )
    last = "attacks right at most"
    return [PlainTable(WORTH, (*columns, last), tuple(rows), note)]


def _ordered(model: "Releases") -> str:
    """What gains are measured by."""
    if model.target.kind == "number":
        return "Share of pairs of people in the right order"
    return "AUROC" if model.target.kind == "two classes" else "Mean AUROC of the groups"


def cost(model: "Releases", record: Record) -> str:
    """What people behind a record spend, in words."""
    if not isinstance(record, Spending):
        return ""
    if record.mechanism == "none":
        return "none: exact"
    epsilon, delta = model.spent(record)
    spent = f"{epsilon:g} and {delta:g} in all"
    return f"epsilon {record.epsilon:g}, delta {record.delta:g} ({spent})"

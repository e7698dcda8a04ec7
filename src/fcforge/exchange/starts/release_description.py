"""What releases and sums around a start say of themselves, every figure counted from the file."""

from typing import TYPE_CHECKING

from fcforge.exchange import description
from fcforge.exchange.description import Answer, Description, Passage, PlainTable
from fcforge.exchange.records import Audit, Notice, Record, Release, Withdrawal
from fcforge.privacy.accounting import ceiling_of
from fcforge.releases import vector

if TYPE_CHECKING:
    from fcforge.exchange.starts.releases import Releases

CERTAIN = 1.96  # standard deviations of a 95 % interval
WORTH = "What sums would add"  # title of a table
PER_ROW = 5  # numbers of a release on one line
SHOWN = 100  # of the numbers of a release


# What the settings of a start are, for somebody who reads its page.
SETTINGS = {
    "axes": "directions that a release says all about",
    "gamma": "weight of all other directions",
    "directions": "directions told apart",
    "even": "variances shrunk towards equal ones",
    "shrink": "FC shrunk towards the identity",
    "penalty": "ridge penalty of the public head per feature",
    "pull": "pull towards the public head",
    "clip": "quantile at which a person's part is clipped",
}


def describe(model: "Releases") -> Description:
    """All that is said of such an exchange."""
    root = model.exchange.root
    policy = root.policy
    return Description(
        kind="releases around a public start",
        id=model.exchange.id,
        model="one linear head on the matrix logarithm of a scan",
        sites=model.hospitals,
        answers=_answers(model),
        facts={
            "disorder": policy.disorder or "not said",
            "patients are called": policy.patient,
            "public people": f"{root.people} ({root.patients} patients)",
            "removed from every scan": ", ".join(root.removes) or "nothing",
        },
        tables=(
            _hospitals(model),
            description.parts_table(model.exchange),
            _records(model),
            *_worth(model),
        ),
        passages=tuple(_numbers(model)),
        settings={
            "start": {SETTINGS.get(k, k): v for k, v in root.settings.items()},
            "policy": policy.model_dump(),
        },
    )


def _answers(model: "Releases") -> tuple[Answer, ...]:
    exchange = model.exchange
    expected = exchange.root.expected
    exact = sorted({r.site for r in model.spending if r.mechanism == "none"})
    withdrawn = sorted({w.site for w in exchange.of(Withdrawal)})
    people = exchange.root.people
    return (
        description.who_signed(exchange.records),
        description.releases_travel(
            model.size, len(model.given), people, exact, withdrawn
        ),
        description.works_at_unseen_sites(
            expected.accuracy, expected.majority, expected.people
        ),
        _attacked(model, exact),
    )


def _attacked(model: "Releases", exact: list[str]) -> Answer:
    """What differential privacy promises, whatever the attack; nothing without it."""
    if not model.given:
        return description.nobody_took_part()
    audits = [
        f"{audit.site} attacked {audit.what} on {audit.time[:10]}: {_strongest(audit)}"
        for audit in model.exchange.of(Audit)
    ]
    if exact:
        return description.exact_numbers(exact, audits)
    worst = max(model.spending, key=model.spent)
    budget = model.spent(worst)
    noise = vector.noise_units(*budget)
    replaced = vector.promises(noise, budget[1])["replace one person"]
    known = (
        "For 'patient or control?' of somebody who is known to have taken part (one person "
        f"replaced) it means epsilon {replaced.epsilon:.3g}: right at most "
        f"{100 * replaced.ceiling:.0f} times in 100."
    )
    bound = ceiling_of(*budget)
    return description.promised_privacy(worst.site, *budget, bound, [known, *audits])


def _strongest(audit: Audit) -> str:
    rows = [row for row in audit.rows if not row.reference]
    if not rows:
        return "nothing was attacked."
    worst = max(rows, key=lambda row: row.auc)
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
    return PlainTable(
        "What each hospital gave",
        ("hospital or round", "people", "moves log odds by", ""),
        tuple(rows),
        "People are counted with noise; how far log odds move without a hospital is a standard "
        "deviation over the public people.",
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
    return [
        PlainTable(
            WORTH,
            (
                "epsilon",
                "two keepers",
                "noise by each hospital",
                "attacks right at most",
            ),
            tuple(rows),
            f"AUROC above that of the public head ({found.public:.3f}), for {plan.people} people "
            f"of {plan.hospitals} hospitals: public sites were dealt into public people and "
            "hospitals, with the plan's noise (± standard error). Everybody's data in one place "
            f"would add {found.pooled:+.3f}.",
        )
    ]


def _records(model: "Releases") -> PlainTable:
    """Who wrote what, when and signed by which key."""
    rows = []
    for record in model.exchange.everything:
        signed = f"key {record.key[:12]}" if record.key else "not signed"
        rows.append(
            (record.title, record.time, _budget(model, record), signed, record.id[:12])
        )
    columns = ("record", "time", "budget", "signature", "id")
    return PlainTable("Records", columns, tuple(rows))


def _budget(model: "Releases", record: Record) -> str:
    if not isinstance(record, Release | Notice):
        return ""
    if record.mechanism == "none":
        return "none: exact"
    epsilon, delta = model.spent(record)
    spent = f"{epsilon:g} and {delta:g} in all"
    return f"epsilon {record.epsilon:g}, delta {record.delta:g} ({spent})"


def _numbers(model: "Releases") -> list[Passage]:
    """Numbers that left a hospital, in units of the grid: all, or the first of many."""
    passages = []
    for given in model.given:
        shown = [str(number) for number in given.numbers[:SHOWN]]
        lines = [
            " ".join(shown[k : k + PER_ROW]) for k in range(0, len(shown), PER_ROW)
        ]
        left = len(given.numbers) - SHOWN
        if left > 0:
            lines.append(f"and {left} more")
        passages.append(Passage(f"Numbers of {given.name}", tuple(lines)))
    return passages

"""The description of a file with a base model and the contributions of hospitals."""

from fcforge.core.formatting import abbreviated, percent
from fcforge.evaluation.metrics import METRICS
from fcforge_consortium.base_model import vectors as vector
from fcforge_consortium.contributions.contribution import asked_budget
from fcforge_consortium.contributions.model import LEAST_AGREEMENT, ContributionModel
from fcforge_consortium.options import ContributeRequest
from fcforge_consortium.privacy.noise import ceiling, ceiling_of, epsilon_of
from fcforge_consortium.records.exchange import Exchange
from fcforge_consortium.records.kinds import (
    Charged,
    ExpectedQuality,
    Notice,
    Record,
    Withdrawal,
)
from fcforge_consortium.report.description import (
    ATTACKED,
    COMMONEST,
    TRAVELS,
    WORKS,
    Answer,
    Description,
    Level,
    PlainTable,
    describe_file,
)

NORMAL_95 = 1.96  # standard deviations of a 95 % interval
EXPECTED_GAIN = "Expected gain of a round"  # title of a table
GAIN_COLUMNS = (
    "epsilon",
    "round of two aggregators",
    "noise by each hospital",
    "attacks right at most",
)
# The measure of gains for each kind of target.
GAIN_MEASURE = {
    "two classes": "AUROC",
    "more classes": "Mean AUROC of the groups",
    "number": "Share of pairs of people in the right order",
}
SETTINGS_WORDS = {
    "axes": "directions with full weight in a contribution",
    "gamma": "weight of all other directions",
    "directions": "directions with a variance of their own",
    "even": "shrinkage of variances towards equal ones",
    "shrink": "shrinkage of FC towards the identity",
    "penalty": "ridge penalty of the base model per feature",
    "pull": "pull towards the base model",
    "clip": "quantile at which the vector of a person is clipped",
}


def describe_contributions(model: ContributionModel) -> Description:
    """Return the description of a base model with contributions.

    Parameters
    ----------
    model : ContributionModel

    Returns
    -------
    Description
    """
    exchange = model.exchange
    root = exchange.root
    given = exchange.of(Charged)
    exact = sorted({record.site for record in given if record.mechanism == "none"})
    patients = f" ({root.patients} patients)" if root.policy.target.classes else ""
    return describe_file(
        exchange,
        lambda record: budget_in_words(model, record),
        answers=(_travels(model, exact), _works(model), attacked(model, exact)),
        facts={
            "public people": f"{root.people}{patients}",
            "removed from every scan": ", ".join(root.removes) or "nothing",
        },
        tables=(_hospitals(model), *_expected_gain(model)),
        settings=root.settings,
        words=SETTINGS_WORDS,
        kind="contributions to a base model",
        sites=model.hospitals,
        model="one linear model on the matrix logarithm of a scan",
    )


# -- answers ---------------------------------------------------------------------------------------
def _travels(model: ContributionModel, exact: list[str]) -> Answer:
    """Answer the question "What travels?".

    Parameters
    ----------
    model : ContributionModel
    exact : list of str
        Sites whose contributions have no noise.
    """
    say = "A base model alone."
    if model.given:
        count = len(model.given)
        sets = f"{count} set{'s' * (count > 1)} of {model.size} numbers"
        say = f"A base model and {sets} ({abbreviated(given.name for given in model.given)})."
    people = model.exchange.root.people
    more: tuple[str, ...] = (
        f"According to its description the base model was trained on {people} public people; "
        "a hospital that shares a person with them is refused.",
        "The consortium's model is not in the file: it is computed from the contributions "
        "whenever the file is opened.",
    )
    if model.exchange.of(Notice):
        more += (
            "What each hospital gave to a round left it in two encrypted shares, which are not in "
            "this file. No aggregator can read a share alone; both aggregators together could.",
        )
    if gone := sorted({w.site for w in model.exchange.of(Withdrawal)}):
        more += (f"Withdrawn, and no longer in the model: {', '.join(gone)}.",)
    more += model.absent()
    return Answer(TRAVELS, "alarm" if exact else "good", say, more)


def _works(model: ContributionModel) -> Answer:
    """Answer "Does it work on real people?": quality of the base model, and whether contributions oppose it."""
    alone = works(model.exchange.root.expected)
    if not model.given or model.agreement >= LEAST_AGREEMENT:
        return alone
    say = (
        "The contributions together turn the base model round (agreement "
        f"{model.agreement:+.2f}): do not use the model."
    )
    more = (
        "Hospitals that turn it only together need not be marked one by one: ask all of them, "
        "those with the lowest agreement alone first.",
    )
    return Answer(WORKS, "alarm", say, (*more, alone.say, *alone.more))


def works(expected: ExpectedQuality) -> Answer:
    """Answer how well the base model alone does at public sites that it has not seen.

    Parameters
    ----------
    expected : ExpectedQuality
        Metrics from when the base model was made.
    """
    more = (
        f"Measured on {expected.people} people at public sites it has not seen. Each hospital "
        "measures at home how much the contributions add: `fcforge consortium evaluate`.",
    )
    if expected.number:
        parts = []
        for name, metric in METRICS.items():
            if name in expected.number:
                value, low, high = expected.number[name]
                parts.append(f"{metric.title} {value:.2f} [{low:.2f}, {high:.2f}]")
        say = f"The base model alone: {', '.join(parts)}."
        low = expected.number.get("r2", (0.0, 0.0, 0.0))[1]
        return Answer(WORKS, "good" if low > 0 else "warn", say, more)
    majority = expected.majority
    if expected.accuracy is None or majority is None:
        say = "Not known: the public people are too few to tell."
        return Answer(WORKS, "warn", say)
    value, low, high = expected.accuracy
    right = f"{percent(value)} [{percent(low)}, {percent(high)}]"
    say = (
        f"The base model alone is right for {right}; {COMMONEST} gets "
        f"{percent(majority)}."
    )
    return Answer(WORKS, "good" if low > majority else "warn", say, more)


def attacked(model: ContributionModel, exact: list[str]) -> Answer:
    """Answer "Can an attacker tell who took part?" by the bound of differential privacy.

    Parameters
    ----------
    model : ContributionModel
    exact : list of str
        Sites whose contributions have no noise.
    """
    if not model.given:  # perhaps notices of rounds whose sums are not there
        return Answer(ATTACKED, "", "No contribution is in the model.")
    if exact:
        say = f"Nothing is promised at {', '.join(exact)}: the numbers are exact."
        return Answer(ATTACKED, "alarm", say, ("Treat this file as patient data.",))
    worst = max(model.exchange.of(Charged), key=model.spent)
    epsilon, delta = model.spent(worst)
    bound = ceiling_of(epsilon, delta)
    # the same noise, in units of the most that replacing one person can change
    replaced = vector.noise_units(epsilon, delta) / vector.REPLACED
    two = model.target.kind == "two classes"
    question = "patient or control?" if two else f"which {model.target.name}?"
    more = (
        "This compares one person who took part with one who did not, whatever else the attacker "
        f"knows: differential privacy, epsilon {epsilon:g} (delta {delta:g}), the largest budget "
        f"that a hospital has spent (at {worst.site}).",
        f"For '{question}' of somebody who is known to have taken part (one person replaced) it "
        f"means epsilon {epsilon_of(replaced, delta):.3g}: right at most "
        f"{100 * ceiling(replaced):.0f} times in 100.",
        "This is the bound of the mechanism. Audits of real people stay at their hospital.",
    )
    level: Level = "good" if epsilon <= 1 else "warn"
    right = f"No attack can be right more than {100 * bound:.0f} times in 100"
    return Answer(ATTACKED, level, f"{right}; guessing gets 50.", more)


# -- tables ----------------------------------------------------------------------------------------
def _hospitals(model: ContributionModel) -> PlainTable:
    """Return one row per hospital or round: people, and how far it moves the model."""
    moved = model.influence()
    without, alone = model.agreement_without, model.agreement_alone
    outliers = {*model.outliers(), *model.turning()}
    rows = []
    for name in sorted(moved):
        counts = [model.head_count(summand) for summand in model.given_by[name]]
        spread = NORMAL_95 * sum(sd**2 for _, sd in counts) ** 0.5
        about = f"about {sum(n for n, _ in counts):.0f} ± {spread:.0f}"
        flag = "more one-sided than real people: ask" if name in outliers else ""
        effect = (f"{moved[name]:.3f}", f"{without[name]:+.2f}", f"{alone[name]:+.2f}")
        rows.append((name, about, *effect, flag))
    output = "log odds" if model.target.classes else "the number"
    scaled = "" if model.target.classes else "; its limits are -1 and +1"
    return PlainTable(
        "Contributions",
        (
            "hospital or round",
            "people",
            f"moves {output} by",
            "agreement without",
            "agreement alone",
            "",
        ),
        tuple(rows),
        f"People are counted with noise. Without a hospital or a round, {output} of public people "
        f"would move by so much (standard deviation{scaled}). Agreement: correlation with the base "
        f"model's scores over public people; {model.agreement:+.2f} with everything. A contribution "
        f"without which it is much higher, or with which alone it is below {LEAST_AGREEMENT:+.2f}, "
        "turns the model round. Nobody can look inside a round: its hospitals are judged together.",
    )


def _expected_gain(model: ContributionModel) -> list[PlainTable]:
    """Return the table of the plan's expected gain, from public people alone; empty if unknown."""
    plan = model.exchange.root.plan
    expected = model.exchange.root.expected_gain
    if expected is None:
        return []
    gains = {
        (row.epsilon, row.aggregators): f"{row.gain:+.3f} ± {row.error:.3f}"
        for row in expected.rows
    }
    rows = []
    for epsilon in dict.fromkeys(row.epsilon for row in expected.rows):
        budget = "none (exact)" if epsilon is None else f"{epsilon:g}"
        both = [gains.get((epsilon, together), "") for together in (True, False)]
        rows.append((budget, *both, f"{100 * ceiling_of(epsilon):.0f} in 100"))
    note = (
        f"{GAIN_MEASURE[model.target.kind]} above that of the base model alone "
        f"({expected.public:.3f}), for {plan.people} people of {plan.hospitals} hospitals: public "
        "sites were divided into public people and hospitals, with the plan's noise (± standard "
        f"error). Everybody's data in one place would add {expected.pooled:+.3f}."
    )
    return [PlainTable(EXPECTED_GAIN, GAIN_COLUMNS, tuple(rows), note)]


# -- budgets ---------------------------------------------------------------------------------------
def budget_in_words(model: ContributionModel, record: Record) -> str:
    """Return the budget of the people behind a record; empty if it has none."""
    if not isinstance(record, Charged):
        return ""
    if record.mechanism == "none":
        return "none: exact"
    epsilon, delta = model.spent(record)
    spent = f"{epsilon:g} and {delta:g} in all"
    return f"epsilon {record.epsilon:g}, delta {record.delta:g} ({spent})"


def promise(exchange: Exchange, request: ContributeRequest) -> str:
    """Return the budget that each person of a contribution would spend, in words."""
    epsilon, delta = asked_budget(request)
    if epsilon is None:
        return "everything: exact sums promise nothing"
    policy = exchange.root.policy
    most = f"at most epsilon {policy.max_epsilon:g}, delta {policy.max_delta:g}"
    spent = f"epsilon {epsilon:g} (delta {delta:g}); policy: {most} in all"
    warning = exchange.root.hopeless(epsilon, bool(request.round))
    return f"{spent}; {warning}" if warning else spent

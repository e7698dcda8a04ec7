"""What a chain says of itself, every figure counted from the file."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scipy.stats import binomtest

from fcforge.core.formatting import counted, memory, percent
from fcforge.methods import METHODS
from fcforge_consortium.chains.step import SMALL_CELL
from fcforge_consortium.records.kinds import SplitCounts, Step
from fcforge_consortium.report import description
from fcforge_consortium.report.description import Answer, Description, Level, PlainTable

if TYPE_CHECKING:
    from fcforge_consortium.chains.chain import Chain

SEALED = "WARNING: sealed with --allow-real-subjects: this file is patient data."
NOT_PRIVATE = "No raw scan is stored. That is not the same as private: see the audit."
GIVEN_AWAY = "Exact statistics give away who was added to them: treat as patient data."
# Second moments without noise: leverage finds every member (docs/privacy.md).
EXACT = ("analytic",)
KEPT = {
    "nothing": "only; no subject, real or synthetic",
    "statistics": "and summary statistics of each site's subjects",
    "synthetic subjects": "and synthetic subjects made by a generator",
    "real subjects": "and REAL SUBJECTS of earlier sites",
}


def describe(chain: "Chain") -> Description:
    """All that is said of a chain."""
    settings = chain.settings
    method = METHODS[settings.learner.method.name].title
    return description.described(
        chain,
        answers=(travels(chain), works(chain.steps), NO_PROMISE),
        facts={"ROIs": str(settings.n_rois), "temperature": f"{chain.temperature:.3g}"},
        tables=(_people(chain.steps), _held_out(chain.steps)),
        settings=settings.to_json(),
        kind="chain of hospitals",
        sites=chain.sites,
        model=f"{method} on {settings.learner.model.name}",
        real_subjects=settings.copies_real,
    )


NO_PROMISE = Answer(
    description.ATTACKED,
    "warn",
    "Nothing is promised: a chain adds no noise.",
    (
        "Each hospital can attack its own step at home, on its own people: "
        "`fcforge consortium audit`. The result stays there.",
    ),
)


# -- what travels ----------------------------------------------------------------------------------
def travels(chain: "Chain") -> Answer:
    """What is in the file."""
    settings = chain.settings
    state = chain.state
    n_params = sum(p.numel() for p in state.lane.params.values())
    held_out = counted(len(state.held_out), "synthetic held-out subject")
    arrays = state.lane.state.values()
    size = memory(sum(value.nbytes for value in arrays))
    more = [
        f"{n_params} network parameters; method state: {counted(len(arrays), 'array')}, {size}.",
        f"{counted(len(state.remembered), 'remembered subject')}.",
        f"{held_out}, never trained on.",
    ]
    level: Level = "good" if settings.keeps == "nothing" else "warn"
    if settings.copies_real:
        level = "alarm"
        more.append(SEALED)
    else:
        more.append(NOT_PRIVATE)
    if settings.learner.method.name in EXACT:
        level = "alarm"
        more.append(GIVEN_AWAY)
    say = f"The network {KEPT[settings.keeps]}."
    return Answer(description.TRAVELS, level, say, tuple(more))


# -- how good it is --------------------------------------------------------------------------------
def works(steps: Sequence[Step]) -> Answer:
    """What each hospital measured on real people of its own when it had just learned."""
    tests = [step for step in steps if step.own_test is not None]
    if not tests:
        say = "Not known: no hospital kept real test subjects."
        return Answer(description.WORKS, "warn", say)
    told = [own_test(step) for step in tests]
    words, beyond = told[-1]
    n_good = sum(good for _, good in told)
    more = (
        "Better than the commonest class, beyond chance, at "
        f"{n_good} of {counted(len(tests), 'site')}. Each hospital measured its own test "
        "subjects when it had just learned."
    )
    level: Level = "good" if beyond else "warn"
    say = f"At {tests[-1].site} right for {words}."
    return Answer(description.WORKS, level, say, (more,))


def own_test(step: Step) -> tuple[str, bool]:
    """How often a hospital is right about its own test subjects; whether surely beyond chance."""
    share = step.own_test
    counts = step.counts.test
    if share is None:
        return "none tested", False
    if counts.controls is None or counts.patients is None:
        return f"{percent(share)} (rounded, few in a class)", False
    n = counts.controls + counts.patients
    low, high = binomtest(round(share * n), n).proportion_ci(method="wilson")
    majority = max(counts.controls, counts.patients) / n
    words = f"{percent(share)} [{percent(low)}, {percent(high)}] of {n}"
    return f"{words}; {description.COMMONEST} gets {percent(majority)}", low > majority


# -- tables ----------------------------------------------------------------------------------------
def _people(steps: Sequence[Step]) -> PlainTable:
    rows = []
    for step in steps:
        rows.append(
            (
                step.site,
                step.time[:10],
                people(step.counts.learning),
                people(step.counts.test),
                own_test(step)[0],
                ", ".join(step.flags) or "none",
            )
        )
    columns = ("site", "date", "learned", "tested", "right", "accepted by name")
    return PlainTable("Hospitals", columns, tuple(rows))


def people(counts: SplitCounts) -> str:
    """Patients and controls, small counts as they were written: not at all."""
    shown = []
    for number, who in ((counts.patients, "patients"), (counts.controls, "controls")):
        few = f"fewer than {SMALL_CELL}"
        shown.append(f"{few if number is None else number} {who}")
    return ", ".join(shown)


def _held_out(steps: Sequence[Step]) -> PlainTable:
    rows = []
    for own in steps:
        found = [step.held_out.get(own.site) for step in steps]
        cells = ["-" if share is None else percent(share) for share in found]
        rows.append((own.site, *cells))
    columns = ("tested on", *(f"after {step.site}" for step in steps))
    return PlainTable(
        "Accuracy on synthetic held-out subjects",
        columns,
        tuple(rows),
        "They are easier than real ones: read a change over time, not a rate.",
    )

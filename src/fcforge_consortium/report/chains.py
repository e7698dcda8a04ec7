"""The description of a chain for pages and terminal: every number is computed from the file."""

from collections.abc import Sequence

from scipy.stats import binomtest

from fcforge.core.formatting import counted, memory, percent
from fcforge.methods import METHODS
from fcforge.replay.state import named
from fcforge_consortium.chains.chain import Chain
from fcforge_consortium.chains.counts import SMALL_CELL
from fcforge_consortium.records.kinds import Record, SplitCounts, Step
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

SEALED = "WARNING: made with --allow-real-subjects: this file is patient data."
NOT_PRIVATE = (
    "No raw scan is stored. That is not the same as private: "
    "`fcforge consortium audit` measures what the file gives away."
)
GIVEN_AWAY = (
    "Exact statistics reveal who was added to them: treat this file as patient data."
)
# Second moments without noise: leverage finds every member (docs/privacy.md).
EXACT = ("analytic",)
KEPT = {
    "nothing": "alone",
    "statistics": "and summary statistics of each site's subjects",
    "synthetic subjects": "and synthetic subjects made by a generator",
    "real subjects": "and REAL SUBJECTS of earlier sites",
}
MEASURED = (
    "Synthetic subjects travel, by which later hospitals measure what is forgotten."
)
SETTINGS_WORDS = {
    "n_rois": "ROIs",
    "roi_names": "names of the ROIs",
    "held_out": "synthetic held-out subjects of each site",
    "held_out_generator": "generator of held-out subjects",
    "calibrate": "probabilities calibrated on",
    "test_fraction": "share of people tested",
    "val_fraction": "share of the others for validation",
}
NO_PROMISE = Answer(
    ATTACKED,
    "warn",
    "Nothing is promised: a chain adds no noise.",
    (
        "Each hospital can attack its own step at home, on its own people: "
        "`fcforge consortium audit`. The result stays there.",
    ),
)


def describe_chain(chain: Chain) -> Description:
    """Return the description of a chain.

    Parameters
    ----------
    chain : Chain

    Returns
    -------
    Description
    """
    settings = chain.settings
    method = METHODS[settings.learner.method.name].title
    return describe_file(
        chain.exchange,
        budget_in_words,
        answers=(travels(chain), works(chain.steps), NO_PROMISE),
        facts={"ROIs": str(settings.n_rois), "temperature": f"{chain.temperature:.3g}"},
        tables=(_people(chain.steps), _held_out(chain.steps)),
        settings=settings.to_json(),
        words=SETTINGS_WORDS,
        kind="chain of hospitals",
        sites=chain.sites,
        model=f"{method} on {settings.learner.model.name}",
        real_subjects=settings.copies_real,
    )


def budget_in_words(record: Record) -> str:
    """Return the budget of the people behind a record: a chain adds no noise."""
    return "none: exact" if record.committed else ""


# -- answers ---------------------------------------------------------------------------------------
def travels(chain: Chain) -> Answer:
    """Answer the question "What travels?"."""
    settings = chain.settings
    state = chain.state
    n_params = sum(p.numel() for p in state.lane.params.values())
    held_out = counted(len(state.held_out), "synthetic held-out subject")
    arrays = named(state.lane.state).values()
    size = memory(sum(value.nbytes for value in arrays))
    more = [
        f"{n_params} network parameters; method state: {counted(len(arrays), 'array')}, {size}.",
        f"{counted(len(state.remembered), 'remembered subject')}.",
        f"{held_out}, never trained on.",
    ]
    alone = settings.keeps == "nothing" and not len(state.held_out)
    level: Level = "good" if alone else "warn"
    if settings.copies_real:
        level = "alarm"
        more.append(SEALED)
    else:
        more.append(NOT_PRIVATE)
    if settings.learner.method.name in EXACT:
        level = "alarm"
        more.append(GIVEN_AWAY)
    say = f"The network {KEPT[settings.keeps]}."
    if len(state.held_out):
        say += f" {MEASURED}"
    return Answer(TRAVELS, level, say, tuple(more))


def works(steps: Sequence[Step]) -> Answer:
    """Answer "Does it work on real people?" by each hospital's accuracy on its own test subjects."""
    tests = [step for step in steps if step.own_test is not None]
    if not tests:
        say = "Not known: no hospital kept real test subjects."
        return Answer(WORKS, "warn", say)
    results = [own_test(step) for step in tests]
    words, beyond = results[-1]
    n_good = sum(good for _, good in results)
    more = (
        "Better than the commonest class, beyond chance, at "
        f"{n_good} of {counted(len(tests), 'site')}. Each hospital measured its own test "
        "subjects right after its step."
    )
    level: Level = "good" if beyond else "warn"
    say = f"At {tests[-1].site} right for {words}."
    return Answer(WORKS, level, say, (more,))


def own_test(step: Step) -> tuple[str, bool]:
    """Return the accuracy on a hospital's own test subjects.

    Returns
    -------
    words : str
        The accuracy with its interval, for readers.
    beyond_chance : bool
        Whether the interval lies above the share of the commonest class.
    """
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
    return f"{words}; {COMMONEST} gets {percent(majority)}", low > majority


# -- tables ----------------------------------------------------------------------------------------
def _people(steps: Sequence[Step]) -> PlainTable:
    """Return one row per hospital: its people, its accuracy and its accepted warnings."""
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
    columns = ("site", "date", "learned", "tested", "right", "accepted warnings")
    return PlainTable("Hospitals", columns, tuple(rows))


def people(counts: SplitCounts) -> str:
    """Return patients and controls in words; small counts are not in the file."""
    shown = []
    for number, who in ((counts.patients, "patients"), (counts.controls, "controls")):
        suppressed = f"fewer than {SMALL_CELL}"
        shown.append(f"{suppressed if number is None else number} {who}")
    return ", ".join(shown)


def _held_out(steps: Sequence[Step]) -> PlainTable:
    """Return the accuracy on every site's synthetic held-out subjects after every step."""
    rows = []
    for site_step in steps:
        shares = [step.held_out.get(site_step.site) for step in steps]
        cells = ["-" if share is None else percent(share) for share in shares]
        rows.append((site_step.site, *cells))
    columns = ("tested on", *(f"after {step.site}" for step in steps))
    return PlainTable(
        "Accuracy on synthetic held-out subjects",
        columns,
        tuple(rows),
        "They are easier than real ones: read the change over time, not the rate.",
    )

"""What a chain says of itself, every figure counted from the file."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fcforge.exchange import description
from fcforge.exchange.chains.chain_arrays import State
from fcforge.exchange.chains.chain_step import SMALL_CELL
from fcforge.exchange.description import (
    Answer,
    Bar,
    Description,
    Level,
    Passage,
    PlainTable,
)
from fcforge.exchange.records import Audit, SplitCounts, Step
from fcforge.methods import METHODS
from fcforge.studies.audit_result import TIMES, TOLD
from fcforge.text import counted, memory, percent

if TYPE_CHECKING:
    from fcforge.exchange.chains.chain import Chain

SEALED = "WARNING: sealed with --allow-real-subjects: this file is patient data."
NOT_PRIVATE = "No raw scan is stored. That is not the same as private: see the audit."
GIVEN_AWAY = "Exact statistics give away who was added to them: treat as patient data."
MOST_ARRAYS = 4  # that are named one by one
# Second moments without noise: leverage finds every member (docs/privacy.md).
EXACT = ("analytic",)
KEPT = {
    "nothing": "only; no subject, real or synthetic",
    "statistics": "and summary statistics of each site's subjects",
    "synthetic subjects": "and synthetic subjects made by a generator",
    "real subjects": "and REAL SUBJECTS of earlier sites",
}
# What the settings of a chain are, for somebody who reads its page.
SETTINGS = {
    "n_rois": "ROIs",
    "roi_names": "names of the ROIs",
    "held_out": "synthetic held-out subjects of each site",
    "held_out_generator": "generator of held-out subjects",
    "calibrate": "probabilities calibrated on",
    "test_fraction": "share of people tested",
    "val_fraction": "share of the others for validation",
}


def describe(chain: "Chain") -> Description:
    """All that is said of a chain."""
    settings = chain.settings
    method = METHODS[settings.learner.method.name].title
    return description.described(
        chain,
        answers=(travels(chain), works(own_tests(chain.steps)), _attacked(chain)),
        facts={"ROIs": str(settings.n_rois), "temperature": f"{chain.temperature:.3g}"},
        tables=(_people(chain.steps), _held_out(chain.steps)),
        settings=settings.to_json(),
        words=SETTINGS,
        kind="chain of hospitals",
        sites=chain.sites,
        model=f"{method} on {settings.learner.model.name}",
        passages=tuple(_audit(chain, audit) for audit in chain.exchange.of(Audit)),
        real_subjects=settings.copies_real,
    )


def current_audits(chain: "Chain") -> list[Audit]:
    """Audits of what travels now, not of a state before the last site."""
    last = chain.steps[-1].id if chain.steps else ""
    return [audit for audit in chain.exchange.of(Audit) if last in audit.parents]


def _attacked(chain: "Chain") -> Answer:
    """The strongest of all attacks that hospitals recorded on what travels now."""
    audits = current_audits(chain)
    worst = description.strongest([row for audit in audits for row in audit.rows])
    if worst is None:
        say = "Not measured: no audit is recorded in this file."
        how = "Each hospital can, on its own data: `fcforge audit`."
        return Answer(description.ATTACKED, "warn", say, (how,))
    more = [TIMES.format(100 * worst.auc)]
    audited = {audit.site for audit in audits}
    if missing := [site for site in chain.sites if site not in audited]:
        more.append(f"Not audited as it travels now: {', '.join(missing)}.")
    bar = Bar(
        f"{worst.attack}, on {worst.release}",
        worst.auc,
        line=0.5,
        line_is="guessing",
        kind="leak" if worst.beats_chance else "",
    )
    level: Level = "alarm" if worst.beats_chance else "good"
    say = TOLD[worst.beats_chance]
    return Answer(description.ATTACKED, level, say, tuple(more), (bar,))


# -- what travels ----------------------------------------------------------------------------------
def travels(chain: "Chain") -> Answer:
    """What is in the file."""
    settings = chain.settings
    state = chain.state
    n_params = sum(p.numel() for p in state.lane.params.values())
    held_out = counted(len(state.held_out), "synthetic held-out subject")
    more = [
        f"{n_params} network parameters; method state: {_state_words(state)}.",
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


def _state_words(state: State) -> str:
    """The state's arrays, largest first."""
    by_size = sorted(state.lane.state.items(), key=lambda item: -item[1].nbytes)
    words = []
    for name, value in by_size[:MOST_ARRAYS]:
        shape = "x".join(map(str, value.shape)) or "1"
        words.append(f"{name} {shape}, {memory(value.nbytes)}")
    if rest := by_size[MOST_ARRAYS:]:
        size = memory(sum(value.nbytes for _, value in rest))
        words.append(f"{len(rest)} more arrays, {size}")
    return "; ".join(words) or "none"


# -- how good it is --------------------------------------------------------------------------------
def works(tests: Sequence[Bar]) -> Answer:
    """What each hospital measured on real people of its own when it had just learned."""
    asked = description.WORKS
    if not tests:
        return Answer(asked, "warn", "Not known: no hospital kept real test subjects.")
    last = tests[-1]
    against = ", rounded"
    if math.isfinite(last.line):
        against = f"; {last.line_is} gets {percent(last.line)}"
    right = f"Right for {percent(last.value)} of the real test subjects of {last.name}"
    n_good = sum(test.beyond for test in tests)
    more = (
        "Better than the commonest class, beyond chance, at "
        f"{n_good} of {counted(len(tests), 'site')}. Each hospital measured its own test "
        "subjects when it had just learned."
    )
    level: Level = "good" if last.beyond else "warn"
    return Answer(asked, level, f"{right}{against}.", (more,), tuple(tests))


def own_tests(steps: Sequence[Step]) -> list[Bar]:
    """What each hospital measured on its own real test subjects when it had just learned."""
    bars = []
    for step in steps:
        if step.own_test is not None:
            bars.append(_bar(step.site, step.own_test, step.counts.test))
    return bars


def _bar(site: str, accuracy: float, counts: SplitCounts) -> Bar:
    """An accuracy with its interval and the commonest class, where counts are known."""
    if counts.controls is None or counts.patients is None:
        small = f"rounded, fewer than {SMALL_CELL} in a class: no interval"
        return Bar(site, accuracy, small=small)
    n = counts.controls + counts.patients
    low, high = wilson(accuracy, n)
    majority = max(counts.controls, counts.patients) / n
    small = f"{n} test subjects"
    return Bar(site, accuracy, low, high, majority, description.COMMONEST, small)


def wilson(share: float, n: int, z: float = 1.959964) -> tuple[float, float]:
    """95 % interval of a share of n people (Wilson 1927).

    Examples
    --------
    >>> [round(x, 3) for x in wilson(0.5, 10)]
    [0.237, 0.763]
    """
    spread = z * z / n
    middle = (share + spread / 2) / (1 + spread)
    variance = share * (1 - share) / n + spread / (4 * n)
    half = z / (1 + spread) * math.sqrt(variance)
    return middle - half, middle + half


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
                ", ".join(step.flags) or "none",
            )
        )
    columns = ("site", "date", "learned", "tested", "accepted by name")
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


def _audit(chain: "Chain", audit: Audit) -> Passage:
    """What a hospital found when it attacked the chain."""
    title = f"Audit by {audit.site}, {audit.time[:10]}"
    if audit not in current_audits(chain):
        title += ", before the last step"
    lines = []
    for row in audit.rows:
        surely = "beats chance" if row.beats_chance else "not beyond chance"
        lines.append(f"{row.attack}, on {row.release}: AUC {row.auc:.2f}, {surely}")
    if audit.not_attacked:
        lines.append(f"Not attacked: {', '.join(audit.not_attacked)}.")
    return Passage(title, tuple(lines))

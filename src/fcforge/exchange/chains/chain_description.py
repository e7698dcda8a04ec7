"""What a chain says of itself, every figure counted from the file."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch.nn.functional as F
from torch import Tensor

from fcforge.exchange import description
from fcforge.exchange.chains.chain_arrays import State, Subjects
from fcforge.exchange.chains.chain_step import SMALL_CELL
from fcforge.exchange.description import Answer, Bar, Description, Passage, PlainTable
from fcforge.exchange.records import Audit, SplitCounts, Step
from fcforge.methods import METHODS
from fcforge.text import counted, memory, percent

if TYPE_CHECKING:
    from fcforge.exchange.chains.chain import Chain

MOST_ARRAYS = 4  # that are named one by one
# Second moments without noise: leverage finds every member (docs/privacy.md).
EXACT = ("analytic",)
# Real subjects of ABIDE correlate 0.54 to 0.70 with their site's mean pattern.
SCAN_LIKE = 0.4


def describe(chain: "Chain") -> Description:
    """All that is said of a chain."""
    settings = chain.settings
    policy = chain.exchange.root.policy
    method = METHODS[settings.learner.method.name].title
    return Description(
        kind="chain of hospitals",
        id=chain.exchange.id,
        model=f"{method} on {settings.learner.model.name}",
        sites=chain.sites,
        answers=_answers(chain),
        facts={
            "disorder": policy.disorder or "not said",
            "patients are called": policy.patient,
            "ROIs": str(settings.n_rois),
            "temperature": f"{chain.temperature:.3g}",
        },
        tables=(
            _people(chain.steps),
            _held_out(chain.steps),
            description.parts_table(chain.exchange),
            description.records_table(chain.exchange),
        ),
        passages=tuple(_audit(chain, audit) for audit in chain.exchange.of(Audit)),
        settings={"chain": settings.to_json(), "policy": policy.model_dump()},
        curves=_curves(chain.steps),
        real_subjects=chain.holds_real,
    )


def _answers(chain: "Chain") -> tuple[Answer, ...]:
    audits = current_audits(chain)
    audited = {audit.site for audit in audits}
    rows = [row for audit in audits for row in audit.rows]
    missing = [site for site in chain.sites if site not in audited]
    return (
        description.who_signed(chain.exchange.records),
        _travels(chain),
        description.works_at_home([*own_tests(chain.steps)]),
        description.strongest_attack(rows, missing),
    )


def current_audits(chain: "Chain") -> list[Audit]:
    """Audits of what travels now, not of a state before the last site."""
    last = chain.steps[-1].id if chain.steps else ""
    return [audit for audit in chain.exchange.of(Audit) if last in audit.parents]


# -- what travels ----------------------------------------------------------------------------------
def _travels(chain: "Chain") -> Answer:
    state = chain.state
    n_params = sum(p.numel() for p in state.lane.params.values())
    real = int(state.remembered.real.sum())
    held_out = counted(len(state.held_out), "synthetic held-out subject")
    lines = [
        f"{n_params} network parameters; method state: {_state_words(state)}.",
        f"{len(state.remembered) - real} synthetic and {real} real remembered subjects.",
        f"{held_out}, never trained on.",
    ]
    exact = chain.settings.learner.method.name in EXACT
    return description.chain_travels(
        chain.settings.keeps, lines, exact=exact, real_subjects=chain.holds_real
    )


def _state_words(state: State) -> str:
    """The state's arrays, largest first, and how many of their rows look like scans."""
    by_size = sorted(state.lane.state.items(), key=lambda item: -item[1].nbytes)
    patterns = mean_patterns(state.held_out)
    words = []
    for name, value in by_size[:MOST_ARRAYS]:
        shape = "x".join(map(str, value.shape)) or "1"
        alike = rows_like(value, patterns)
        like = f", {alike} rows like scans" if alike else ""
        words.append(f"{name} {shape}, {memory(value.nbytes)}{like}")
    if rest := by_size[MOST_ARRAYS:]:
        size = memory(sum(value.nbytes for _, value in rest))
        words.append(f"{len(rest)} more arrays, {size}")
    return "; ".join(words) or "none"


def mean_patterns(subjects: Subjects) -> Tensor:
    """Mean edges (S, E) of each site's subjects, centred."""
    means = subjects.upper.new_zeros(0, subjects.upper.shape[1])
    for place in subjects.site.unique().tolist():
        mine = subjects.upper[subjects.site == place]
        means = F.pad(means, (0, 0, 0, 1))
        means[-1] = mine.mean(0)
    return means - means.mean(1, keepdim=True)


def rows_like(value: Tensor, patterns: Tensor) -> int:
    """Rows as long as an FC has edges that correlate with some site's mean pattern.

    Rows of learned weights do not; scans do.
    """
    n_edges = patterns.shape[1]
    if not len(patterns) or n_edges not in value.shape:
        return 0
    rows = value.movedim(value.shape.index(n_edges), -1).reshape(-1, n_edges).float()
    rows = rows - rows.mean(1, keepdim=True)
    r = F.normalize(rows, dim=1) @ F.normalize(patterns, dim=1).T
    return int((r.amax(1) > SCAN_LIKE).sum())


# -- how good it is --------------------------------------------------------------------------------
def own_tests(steps: Sequence[Step]) -> list[Bar]:
    """What each hospital measured on its own real test subjects when it had just learned."""
    found = []
    for step in steps:
        own = step.metrics.own_test
        if own is not None and own.accuracy is not None:
            found.append(_bar(step.site, own.accuracy, step.counts.test))
    return found


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
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return middle - half, middle + half


def _curves(steps: Sequence[Step]) -> Mapping[str, list[float]]:
    """Accuracy on each site's synthetic held-out set after every step; NaN before it."""
    return {
        step.site: [_accuracy(later, step.site) for later in steps] for step in steps
    }


def _accuracy(step: Step, site: str) -> float:
    found = step.metrics.held_out.get(site)
    return math.nan if found is None or found.accuracy is None else found.accuracy


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
    for site, values in _curves(steps).items():
        cells = [percent(value) if value == value else "-" for value in values]
        rows.append((site, *cells))
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
    lines: list[Any] = []
    for row in audit.rows:
        surely = "beats chance" if row.beats_chance else "not beyond chance"
        lines.append(f"{row.attack}, on {row.release}: AUC {row.auc:.2f}, {surely}")
    if audit.not_attacked:
        lines.append(f"Not attacked: {', '.join(audit.not_attacked)}.")
    return Passage(title, tuple(lines))

"""What a reader must know before believing a table: leaks, gaps, constant predictors."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fcforge.metrics import finite
from fcforge.metrics.runs import WORDS, constant_predictor
from fcforge.stats.compare import Comparison
from fcforge.stats.resampling import pair_of
from fcforge.stats.table import group
from fcforge.text import bracket, counted, number
from fcforge.types import RunResult

FEW_SEEDS = 3
ONE_CLASS_SHARE = 0.05
"""A learner is flagged when this share of its tests at learned sites names one class throughout."""


@dataclass(frozen=True)
class Finding:
    """One warning: how bad, about which learner (empty: the whole experiment), what."""

    level: Literal["serious", "caution"]
    learner: str
    text: str


def leaks_on(results: Sequence[RunResult]) -> dict[str, tuple[str, ...]]:
    """Leak switches that are on, by learner title; empty when the experiment is clean."""
    found: dict[str, tuple[str, ...]] = {}
    for r in results:
        title = r.spec.learner.title
        active = r.spec.leaks.active()
        if active:
            found[title] = tuple(dict.fromkeys((*found.get(title, ()), *active)))
    return found


def _constant(runs: Sequence[RunResult]) -> Iterator[str]:
    one = 0
    flat = 0
    cells = 0
    for r in runs if runs[0].spec.learner.method.name != "majority" else ():
        flags = constant_predictor(r)
        learned = np.tri(len(r.spec.order), dtype=bool)
        one += int(flags["one_class"][learned].sum())
        flat += int(flags["flat"][learned].sum())
        cells += int(learned.sum())
    if cells and one >= ONE_CLASS_SHARE * cells:
        yield (
            f"calls everybody the same in {one} of {cells} tests at sites it had learned "
            f"({one / cells:.0%}); low forgetting means little for a learner that never learned."
        )
    elif flat:
        yield f"gives everybody the same score in {flat} of {cells} tests at sites it had learned."


def _serious(
    results: Sequence[RunResult], expected: int | None
) -> Iterator[tuple[str, str]]:
    for title, active in leaks_on(results).items():
        yield title, f"was run with test data leaking in: {', '.join(active)}."
    if expected is not None and len(results) < expected:
        missing = f"{expected - len(results)} of {expected} runs are missing"
        yield "", f"{missing}: the numbers are provisional."
    asked = len(set(map(pair_of, results)))
    for title, runs in group(results).items():
        own = set(map(pair_of, runs))
        if len(own) < asked:
            lacks = f"lacks {asked - len(own)} of {asked}"
            yield title, f"{lacks} (order, seed) pairs that others have."
        if len(own) < len(runs):
            twice = "has more than one run of the same order and seed"
            yield title, f"{twice}: give each a title."
        if bad := [r.spec for r in runs if not finite(r)]:
            first = f"e.g. seed {bad[0].seed}, order {' → '.join(bad[0].order)}"
            some = f"{len(bad)} of {len(runs)} runs diverged"
            text = f"{some} (scores that are not finite, {first}); they are left out of its "
            yield title, text + "numbers, which flatters it."
        for text in _constant([r for r in runs if finite(r)] or runs):
            yield title, text


def findings(
    results: Sequence[RunResult],
    *,
    expected: int | None = None,
    against_majority: Mapping[str, Comparison] | None = None,
) -> list[Finding]:
    """All warnings of an experiment, serious ones first.

    Parameters
    ----------
    results : sequence of RunResult
        Without the computed majority reference.
    expected : int, optional
        Number of runs that were asked for.
    against_majority : mapping of learner title to Comparison, optional
        AAA of each learner minus that of the majority class of each site.
    """
    found = [Finding("serious", *said) for said in _serious(results, expected)]
    for title, c in (against_majority or {}).items():
        if c.low <= 0:
            word = "below" if c.high < 0 else "not distinguishable from"
            gap = (
                f"{number(c.difference, sign=True)} {bracket(c.low, c.high, sign=True)}"
            )
            said = WORDS[results[0].kind]
            text = f"is {word} {said.naive}: {said.average} {gap}."
            found.append(Finding("caution", title, text))
    seeds = len({r.spec.seed for r in results})
    if seeds < FEW_SEEDS:
        text = (
            f"only {counted(seeds, 'seed')}: differences may come from one lucky split."
        )
        found.append(Finding("caution", "", text))
    return found

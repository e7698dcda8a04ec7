"""Warnings that a reader needs before believing the results of a run."""

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

import numpy as np

from fcforge.core.formatting import bracket, counted, number
from fcforge.core.result import RunResults
from fcforge.evaluation.comparison import Comparison
from fcforge.evaluation.forgetting import constant_predictor, finite
from fcforge.evaluation.majority import WORDS, is_majority
from fcforge.evaluation.resampling import pair_of
from fcforge.evaluation.tables import by_learner

FEW_SEEDS = 3
ONE_CLASS_SHARE = 0.05


# -- what a reader must know before believing a table ---------------------------------------------
class RunWarning(NamedTuple):
    """One warning: how bad, about which learner (empty: the whole experiment), what."""

    level: Literal["serious", "caution"]
    learner: str
    text: str

    def __str__(self) -> str:
        return f"{self.level}: " + f"{self.learner} {self.text}".strip()


def leaks_on(results: RunResults) -> dict[str, tuple[str, ...]]:
    """Return leak switches that are on, by learner title; empty when the experiment is clean."""
    specs = [r.spec for r in results if r.spec.leaks.active()]
    return {spec.learner.title: tuple(spec.leaks.active()) for spec in specs}


def run_warnings(
    results: RunResults,
    *,
    expected: int | None = None,
    against_majority: Mapping[str, Comparison] | None = None,
) -> list[RunWarning]:
    """Return all warnings of an experiment, serious ones first.

    Parameters
    ----------
    results : sequence of RunResult
        Without the computed majority reference.
    expected : int, optional
        Number of runs that were asked for.
    against_majority : mapping of learner title to Comparison, optional
        AAA of each learner minus that of the majority class of each site.
    """
    found = [
        RunWarning("serious", *said) for said in _serious_warnings(results, expected)
    ]
    said = WORDS[results[0].kind]
    for title, c in (against_majority or {}).items():
        if c.low <= 0:
            word = "below" if c.high < 0 else "not distinguishable from"
            text = f"is {word} {said.naive}: {said.average} differs by {difference_text(c)}."
            found.append(RunWarning("caution", title, text))
    seeds = len({r.spec.seed for r in results})
    if seeds < FEW_SEEDS:
        few = (
            f"only {counted(seeds, 'seed')}: differences may come from one lucky split."
        )
        found.append(RunWarning("caution", "", few))
    return found


def difference_text(c: Comparison) -> str:
    """Return a difference with its interval, both signed."""
    return f"{number(c.difference, sign=True)} {bracket(c.low, c.high, sign=True)}"


def _serious_warnings(
    results: RunResults, expected: int | None
) -> Iterator[tuple[str, str]]:
    for title, active in leaks_on(results).items():
        yield title, f"was run with test data leaking in: {', '.join(active)}."
    if expected is not None and len(results) < expected:
        missing = f"{expected - len(results)} of {expected} runs are missing"
        yield "", f"{missing}: the numbers are provisional."
    asked = len(set(map(pair_of, results)))
    for title, runs in by_learner(results).items():
        own = len(set(map(pair_of, runs)))
        if own < asked:
            lacks = f"lacks {asked - own} of {asked}"
            yield title, f"{lacks} (order, seed) pairs that others have."
        if bad := [r.spec for r in runs if not finite(r)]:
            first = f"e.g. seed {bad[0].seed}, order {' → '.join(bad[0].order)}"
            some = f"{len(bad)} of {len(runs)} runs diverged"
            text = f"{some} (scores that are not finite, {first}); they are left out of its "
            yield title, text + "numbers, which flatters it."
        if text := _single_class_warning([r for r in runs if finite(r)] or runs):
            yield title, text


def _single_class_warning(runs: RunResults) -> str:
    """Return a warning about a learner that predicts a single class; empty if it does not."""
    if is_majority(runs[0]):
        return ""
    one = 0
    cells = 0
    for r in runs:
        learned = np.tri(len(r.spec.order), dtype=bool)
        one += int(constant_predictor(r)[learned].sum())
        cells += int(learned.sum())
    if one < ONE_CLASS_SHARE * cells:
        return ""
    return (
        f"predicts a single class in {one} of {cells} tests at sites it had learned "
        f"({one / cells:.0%}); where nothing was learned, low forgetting means little."
    )

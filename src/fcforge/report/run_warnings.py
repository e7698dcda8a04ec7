"""Warnings that a reader needs before believing the results of a run.

AAA is the average over stages (sites learned so far) of the mean accuracy at these sites.
"""

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


class RunWarning(NamedTuple):
    """A warning about a run.

    Attributes
    ----------
    level : {"serious", "caution"}
    learner : str
        Title of the learner; empty for the whole experiment.
    text : str
        Rest of the sentence that begins with the learner.
    """

    level: Literal["serious", "caution"]
    learner: str
    text: str

    def __str__(self) -> str:
        return f"{self.level}: " + f"{self.learner} {self.text}".strip()


def leaks_on(results: RunResults) -> dict[str, tuple[str, ...]]:
    """Return the names of the leak switches that are on, by learner title; empty without leaks."""
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
    warnings = [
        RunWarning("serious", learner, text)
        for learner, text in _serious_warnings(results, expected)
    ]
    wording = WORDS[results[0].kind]
    for title, c in (against_majority or {}).items():
        if c.low <= 0:
            word = "below" if c.high < 0 else "not distinguishable from"
            text = f"is {word} {wording.naive}: {wording.average} differs by {difference_text(c)}."
            warnings.append(RunWarning("caution", title, text))
    seeds = len({r.spec.seed for r in results})
    if seeds < FEW_SEEDS:
        text = (
            f"only {counted(seeds, 'seed')}: differences may come from one lucky split."
        )
        warnings.append(RunWarning("caution", "", text))
    return warnings


def difference_text(c: Comparison) -> str:
    """Return a difference with its interval, both signed."""
    return f"{number(c.difference, sign=True)} {bracket(c.low, c.high, sign=True)}"


def _serious_warnings(
    results: RunResults, expected: int | None
) -> Iterator[tuple[str, str]]:
    """Yield (learner title, text) of each serious warning: leaks, missing and diverged runs, one class."""
    for title, active in leaks_on(results).items():
        yield title, f"was run with test data leaking in: {', '.join(active)}."
    if expected is not None and len(results) < expected:
        missing = f"{expected - len(results)} of {expected} runs are missing"
        yield "", f"{missing}: the numbers are provisional."
    n_pairs = len(set(map(pair_of, results)))
    for title, runs in by_learner(results).items():
        n_of_learner = len(set(map(pair_of, runs)))
        if n_of_learner < n_pairs:
            lacks = f"lacks {n_pairs - n_of_learner} of {n_pairs}"
            yield title, f"{lacks} (order, seed) pairs that others have."
        if bad := [r.spec for r in runs if not finite(r)]:
            first = f"e.g. seed {bad[0].seed}, order {' → '.join(bad[0].order)}"
            diverged = f"{len(bad)} of {len(runs)} runs diverged"
            text = f"{diverged} (scores that are not finite, {first}); they are left out of its "
            yield title, text + "numbers, which flatters it."
        if text := _single_class_warning([r for r in runs if finite(r)] or runs):
            yield title, text


def _single_class_warning(runs: RunResults) -> str:
    """Return a warning about a learner that predicts a single class; empty if it does not."""
    if is_majority(runs[0]):
        return ""
    n_single = 0
    n_cells = 0
    for r in runs:
        learned = np.tri(len(r.spec.order), dtype=bool)  # by stage and position
        n_single += int(constant_predictor(r)[learned].sum())
        n_cells += int(learned.sum())
    if n_single < ONE_CLASS_SHARE * n_cells:
        return ""
    return (
        f"predicts a single class in {n_single} of {n_cells} tests at sites it had learned "
        f"({n_single / n_cells:.0%}); where nothing was learned, low forgetting means little."
    )

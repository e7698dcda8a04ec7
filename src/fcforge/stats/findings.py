"""What a reader must know before believing a table: leaks, gaps, constant predictors."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fcforge.metrics import constant_predictor, finite
from fcforge.stats.compare import Comparison
from fcforge.stats.table import group
from fcforge.text import bracket, counted, number
from fcforge.types import RunResult

FEW_SEEDS = 3
ONE_CLASS_SHARE = 0.05
"""A learner is flagged when this share of its learned cells gets one class throughout."""


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
        title, active = r.spec.learner.title, r.spec.leaks.active()
        if active:
            found[title] = tuple(dict.fromkeys((*found.get(title, ()), *active)))
    return found


def _constant(runs: Sequence[RunResult]) -> Iterator[str]:
    one, flat, cells = 0, 0, 0
    for r in runs if runs[0].spec.learner.method.name != "majority" else ():
        flags, learned = constant_predictor(r), np.tri(len(r.spec.order), dtype=bool)
        one += int(flags["one_class"][learned].sum())
        flat += int(flags["flat"][learned].sum())
        cells += int(learned.sum())
    if cells and one >= ONE_CLASS_SHARE * cells:
        yield (
            f"calls everybody the same in {one} of {cells} learned cells ({one / cells:.0%}); "
            "low forgetting means little for a learner that never learned."
        )
    elif flat:
        yield f"gives identical scores to all subjects in {flat} of {cells} learned cells."


def _diverged(runs: Sequence[RunResult]) -> Iterator[str]:
    if bad := [r.spec for r in runs if not finite(r)]:
        yield (
            f"{len(bad)} of {len(runs)} runs diverged (scores that are not finite, e.g. seed "
            f"{bad[0].seed}, order {' → '.join(bad[0].order)}); they are left out of its "
            "numbers, which flatters it."
        )


def _gaps(runs: Sequence[RunResult], asked: int) -> Iterator[str]:
    own = {(r.spec.seed, r.spec.order) for r in runs}
    if len(own) < asked:
        yield f"lacks {asked - len(own)} of {asked} (order, seed) pairs that others have."
    if len(own) < len(runs):
        yield "has more than one run of the same order and seed: give each setting a label."


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
        AAA of each learner minus the majority class's.
    """
    groups, done = group(results), len(results)
    serious = [
        (title, f"was run with test data leaking in: {', '.join(active)}.")
        for title, active in leaks_on(results).items()
    ]
    if expected is not None and done < expected:
        text = f"{expected - done} of {expected} runs are missing: the numbers are provisional."
        serious.append(("", text))
    asked = len({(r.spec.seed, r.spec.order) for r in results})
    serious += [(title, text) for title, runs in groups.items() for text in _gaps(runs, asked)]
    for title, runs in groups.items():
        good = [r for r in runs if finite(r)] or runs
        serious += [(title, text) for text in (*_diverged(runs), *_constant(good))]
    cautions = []
    for title, c in (against_majority or {}).items():
        if c.low <= 0:
            word = "below" if c.high < 0 else "not distinguishable from"
            gap = f"{number(c.difference, sign=True)} {bracket(c.low, c.high, sign=True)}"
            text = f"is {word} always naming the commonest class: AAA {gap}."
            cautions.append((title, text))
    seeds = len({r.spec.seed for r in results})
    if seeds < FEW_SEEDS:
        text = f"only {counted(seeds, 'seed')}: differences may come from one lucky split."
        cautions.append(("", text))
    return [Finding("serious", *said) for said in serious] + [
        Finding("caution", *said) for said in cautions
    ]

"""What a reader must know before believing a table: leaks, gaps, constant predictors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fcforge.metrics import constant_predictor, finite
from fcforge.stats.compare import Comparison
from fcforge.stats.table import group
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


def _constant(title: str, runs: Sequence[RunResult]) -> list[Finding]:
    if runs[0].spec.learner.method.name == "majority":
        return []
    one, flat, cells = 0, 0, 0
    for r in runs:
        flags = constant_predictor(r)
        learned = np.tri(len(r.spec.order), dtype=bool)
        one += int(flags["one_class"][learned].sum())
        flat += int(flags["flat"][learned].sum())
        cells += int(learned.sum())
    found = []
    if one >= ONE_CLASS_SHARE * cells:
        text = (
            f"calls everybody the same in {one} of {cells} learned cells ({one / cells:.0%}); "
            "low forgetting means little for a learner that never learned."
        )
        found.append(Finding("serious", title, text))
    elif flat:
        text = f"gives identical scores to all subjects in {flat} of {cells} learned cells."
        found.append(Finding("serious", title, text))
    return found


def _diverged(title: str, runs: Sequence[RunResult]) -> list[Finding]:
    bad = [r for r in runs if not finite(r)]
    if not bad:
        return []
    text = (
        f"{len(bad)} of {len(runs)} runs diverged (scores that are not finite, e.g. seed "
        f"{bad[0].spec.seed}, order {' → '.join(bad[0].spec.order)}); they are left out of its "
        "numbers, which flatters it."
    )
    return [Finding("serious", title, text)]


def _gaps(groups: Mapping[str, list[RunResult]], expected: int | None) -> list[Finding]:
    done = sum(map(len, groups.values()))
    found = []
    if expected is not None and done < expected:
        text = f"{expected - done} of {expected} runs are missing: the numbers are provisional."
        found.append(Finding("serious", "", text))
    asked = {(r.spec.seed, r.spec.order) for runs in groups.values() for r in runs}
    for title, runs in groups.items():
        own = {(r.spec.seed, r.spec.order) for r in runs}
        missing = len(asked) - len(own)
        if missing:
            text = f"lacks {missing} of {len(asked)} (order, seed) pairs that others have."
            found.append(Finding("serious", title, text))
        if len(own) < len(runs):
            text = "has more than one run of the same order and seed: give each setting a label."
            found.append(Finding("serious", title, text))
    return found


def _few_seeds(groups: Mapping[str, list[RunResult]]) -> list[Finding]:
    seeds = {r.spec.seed for runs in groups.values() for r in runs}
    if len(seeds) >= FEW_SEEDS:
        return []
    noun = "seed" if len(seeds) == 1 else "seeds"
    text = f"only {len(seeds)} {noun}: differences may come from one lucky split."
    return [Finding("caution", "", text)]


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
    groups = group(results)
    found = [
        Finding("serious", title, f"was run with test data leaking in: {', '.join(active)}.")
        for title, active in leaks_on(results).items()
    ]
    found += _gaps(groups, expected)
    for title, runs in groups.items():
        found += _diverged(title, runs) + _constant(title, [r for r in runs if finite(r)] or runs)
    for title, c in (against_majority or {}).items():
        if c.low <= 0:
            word = "below" if c.high < 0 else "not distinguishable from"
            text = (
                f"is {word} always naming the commonest class: AAA {c.difference:+.3f} "
                f"[{c.low:+.3f}, {c.high:+.3f}]."
            )
            # A sign in front of digits is a minus, as in the tables; a label keeps its hyphens.
            found.append(Finding("caution", title, text.replace("-", "\N{MINUS SIGN}")))
    found += _few_seeds(groups)
    return sorted(found, key=lambda f: f.level != "serious")

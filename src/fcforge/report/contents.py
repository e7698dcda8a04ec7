"""The numbers behind the page, computed once from the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from fcforge.metrics import accuracy_curve, finite, forgetting_curve, score_matrix
from fcforge.report.figures import Curve, curve_panel, span
from fcforge.stats import (
    Comparer,
    Comparison,
    Estimate,
    Row,
    bootstrap,
    findings,
    group,
    leaks_on,
    longest,
    means,
    per_site,
    rows,
    with_majority,
)
from fcforge.stats.bootstrap import interval
from fcforge.stats.findings import Finding
from fcforge.types import RunResult


@dataclass(frozen=True)
class Forest:
    """Differences of all learners from one reference (or from each one's own).

    The permutation p-value is left out against the majority class, see `fcforge.stats.compare`.
    """

    title: str
    note: str
    items: tuple[tuple[str, str, Comparison], ...]
    with_p: bool
    limits: tuple[float, float]


@dataclass(frozen=True)
class Matrices:
    """A learner's two heatmaps: by position in the order, and by the site that came last."""

    learner: str
    by_position: np.ndarray
    by_last_site: np.ndarray


@dataclass(frozen=True)
class Contents:
    """All that the page shows, in plain data."""

    rows: list[Row]
    findings: list[Finding]
    leaks: dict[str, tuple[str, ...]]
    forests: list[Forest]
    against_majority: dict[str, Comparison]
    accuracy_panels: list[tuple[str, Markup]]
    forgetting_panels: list[tuple[str, Markup]]
    matrices: list[Matrices]
    heat_limits: tuple[float, float]
    sites: dict[str, dict[str, Estimate]]
    more: dict[str, dict[str, dict[str, float]]]
    n_draws: int


MORE_METRICS = ("sensitivity", "specificity", "precision", "f1", "brier", "ece")


def curves(runs: Sequence[RunResult], n_draws: int) -> tuple[Curve, Curve]:
    """Accuracy on the sites so far, and forgetting, over the stages."""
    n = len(runs[0].spec.order)

    def statistic(full: np.ndarray) -> np.ndarray:
        a = full[..., 1:, :]
        return np.concatenate([accuracy_curve(a), forgetting_curve(a)], axis=-1)

    points, draws = bootstrap(runs, "accuracy", statistic, n_draws=n_draws)
    mean = points.mean(0)
    low, high = interval(mean, draws)
    return Curve(mean[:n], low[:n], high[:n]), Curve(mean[n:], low[n:], high[n:])


def _matrices(learner: str, runs: Sequence[RunResult]) -> Matrices:
    found = np.stack([score_matrix(r) for r in runs])
    sites = [s for s in runs[0].sites if any(s in r.spec.order for r in runs)]
    by_last = np.full((len(sites), len(sites)), np.nan)
    for j, last in enumerate(sites):
        ends = [(m[-1], r.spec.order) for m, r in zip(found, runs, strict=True)]
        ends = [(row, order) for row, order in ends if order[-1] == last]
        for i, site in enumerate(sites):
            values = [row[order.index(site)] for row, order in ends if site in order]
            if values:
                by_last[j, i] = np.mean(values)
    return Matrices(learner, found.mean(0), by_last)


def _panels(found: Mapping[str, Curve], majority: str, what: str) -> list[tuple[str, Markup]]:
    reference = found.get(majority)
    learners = {k: c for k, c in found.items() if k != majority}
    values = [x for c in learners.values() for x in (c.low, c.high)]
    if reference is not None:
        values.append(reference.mean)
    limits = span(values)
    panels = []
    for title, own in learners.items():
        others = [c for k, c in learners.items() if k != title]
        stages = ", ".join(f"{v:.3f}" for v in own.mean if np.isfinite(v))
        label = f"{what} of {title} over the stages: {stages}"
        panels.append((title, curve_panel(own, others, reference, limits, label)))
    return panels


def _forest(
    groups: Mapping[str, list[RunResult]],
    partner: Mapping[str, str],
    title: str,
    note: str,
    comparer: Comparer,
) -> Forest | None:
    items = []
    for learner, reference in partner.items():
        shared = {(r.spec.seed, r.spec.order) for r in groups[reference]}
        if any((r.spec.seed, r.spec.order) in shared for r in groups[learner]):
            found = comparer.compare(groups[learner], groups[reference])
            items.append((learner, reference, found))
    if not items:
        return None
    with_p = all(groups[k][0].spec.learner.method.name != "majority" for k in partner.values())
    limits = span([np.array([c.low, c.high, 0.0]) for _, _, c in items])
    return Forest(title, note, tuple(items), with_p, limits)


def _own_finetune(groups: Mapping[str, list[RunResult]]) -> dict[str, str]:
    """Each learner's fine-tuning partner: on its own model, else the first there is."""
    specs = {k: runs[0].spec.learner for k, runs in groups.items()}
    tuned = {s.model.name: k for k, s in reversed(specs.items()) if s.method.name == "finetune"}
    if not tuned:
        return {}
    first = next(k for k, s in specs.items() if s.method.name == "finetune")
    return {
        k: tuned.get(s.model.name, first)
        for k, s in specs.items()
        if s.method.name not in ("finetune", "majority")
    }


def _forests(
    groups: dict[str, list[RunResult]], ranking: Sequence[Row], n: int
) -> tuple[list[Forest], dict[str, Comparison]]:
    learners = [r.learner for r in ranking if not r.is_majority and r.learner in groups]
    majority = next(r.learner for r in ranking if r.is_majority)
    tuned = _own_finetune(groups)
    best = learners[0]
    asked = [
        (
            dict.fromkeys(learners, majority),
            "Against the majority class",
            "Is a learner better than always naming the commonest class?",
        ),
        (
            {k: tuned[k] for k in learners if k in tuned},
            "Against fine-tuning",
            "What does a method add to plain fine-tuning of the same model (where it was run)?",
        ),
        (
            {k: best for k in learners if k != best},
            f"Against the highest AAA, {best}",
            "The best of many looks better than it is; read the intervals.",
        ),
    ]
    comparer = Comparer(n_draws=n)
    forests = [_forest(groups, partner, title, note, comparer) for partner, title, note in asked]
    first = forests[0]
    vs_majority = {k: c for k, _, c in first.items} if first else {}
    return [f for f in forests if f is not None], vs_majority


def contents(
    results: Sequence[RunResult],
    *,
    keeps: Mapping[str, str],
    expected: int | None,
    n_draws: int,
) -> Contents:
    """Everything the page shows about `results`."""
    everything = with_majority(results)
    usable = {k: [r for r in v if finite(r)] for k, v in group(everything).items()}
    groups = {k: v for k, v in usable.items() if v}
    ranking = rows(everything, keeps=keeps, n_draws=n_draws)
    ranking.sort(key=lambda r: -np.nan_to_num(r.estimates["aaa"].mean, nan=-1.0))
    majority = next(r.learner for r in ranking if r.is_majority)
    shown = [r.learner for r in ranking if r.learner in groups]
    forests: list[Forest] = []
    vs_majority: dict[str, Comparison] = {}
    if shown != [majority]:
        forests, vs_majority = _forests(groups, ranking, n_draws)
    found = {k: curves(longest(groups[k]), n_draws) for k in shown}
    heat = [_matrices(k, longest(groups[k])) for k in shown]
    return Contents(
        rows=ranking,
        findings=findings(results, expected=expected, against_majority=vs_majority),
        leaks=leaks_on(results),
        forests=forests,
        against_majority=vs_majority,
        accuracy_panels=_panels({k: c[0] for k, c in found.items()}, majority, "accuracy"),
        forgetting_panels=_panels({k: c[1] for k, c in found.items()}, majority, "forgetting"),
        matrices=[m for m in heat if m.learner != majority],
        heat_limits=span([x for m in heat for x in (m.by_position, m.by_last_site)]),
        sites={k: per_site(groups[k], n_draws=n_draws) for k in shown},
        more={
            k: {name: means(groups[k], name, ("aaa", "acc", "fm")) for name in MORE_METRICS}
            for k in shown
        },
        n_draws=n_draws,
    )

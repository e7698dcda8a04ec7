"""The numbers behind the page of a run, computed once from its results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fcforge import stats
from fcforge.metrics import (
    accuracy_curve,
    cell_values,
    finite,
    forgetting_curve,
    score_matrix,
)
from fcforge.report.figures import span
from fcforge.stats import Comparison, Estimate, Finding, Row
from fcforge.stats.resampling import interval
from fcforge.types import RunResult

MORE_METRICS = ("sensitivity", "specificity", "precision", "f1", "brier", "ece")
MORE = ("aaa", "acc", "fm")
Groups = Mapping[str, list[RunResult]]


class Curve(NamedTuple):
    """A learner's mean over the stages with its band; each of shape (T,)."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Matrices(NamedTuple):
    """A learner's accuracy by position in the order, and by the site that came last."""

    learner: str
    by_position: np.ndarray
    by_last_site: np.ndarray


@dataclass(frozen=True)
class Contents:
    """All that the page shows, in plain data; learners by falling AAA."""

    rows: list[Row]
    findings: list[Finding]
    leaks: dict[str, tuple[str, ...]]
    forests: dict[str, list[tuple[str, str, Comparison]]]
    accuracy: dict[str, Curve]
    forgetting: dict[str, Curve]
    since: dict[str, dict[str, np.ndarray]]
    matrices: list[Matrices]
    sites: dict[str, dict[str, Estimate]]
    more: dict[str, dict[str, dict[str, float]]]

    @property
    def majority(self) -> str:
        """Title of the majority class."""
        return next(
            r.learner for r in self.rows if r.is_majority and r.learner in self.sites
        )

    @property
    def against_majority(self) -> dict[str, Comparison]:
        """Difference of every learner from the majority class."""
        return {k: c for k, _, c in self.forests.get("majority", ())}

    def limits(self, against: str) -> tuple[float, float]:
        """Common axis of all differences from one reference, zero on it."""
        return span(
            [np.array([c.low, c.high, 0.0]) for _, _, c in self.forests[against]]
        )

    @property
    def heat_limits(self) -> tuple[float, float]:
        """Common colour scale of the matrices."""
        return span(
            [x for m in self.matrices for x in (m.by_position, m.by_last_site)]
            or [_NONE]
        )


_NONE = np.array([])


def curves(runs: Sequence[RunResult], n_draws: int) -> tuple[Curve, Curve]:
    """Accuracy on the sites so far, and forgetting, over the stages."""
    n = len(runs[0].spec.order)

    def statistic(full: np.ndarray) -> np.ndarray:
        a = full[..., 1:, :]
        return np.concatenate([accuracy_curve(a), forgetting_curve(a)], axis=-1)

    points, draws = stats.bootstrap(runs, "accuracy", statistic, n_draws=n_draws)
    mean = points.mean(0)
    low, high = interval(mean, draws)
    return Curve(mean[:n], low[:n], high[:n]), Curve(mean[n:], low[n:], high[n:])


def since_learned(runs: Sequence[RunResult]) -> dict[str, np.ndarray]:
    """Accuracy at every site k sites after it was learned, k = 1 - T .. T - 1, mean over runs.

    Negative k: not learned yet. Shape (2 T - 1,), NaN where no run has it.
    """
    most = max(len(run.spec.order) for run in runs)
    sums = {site: np.zeros((2, 2 * most - 1)) for site in runs[0].sites}
    for run in runs:
        for at, site in enumerate(run.spec.order):
            values = cell_values(run.scores[site], run.y[site], "accuracy")  # (T,)
            place = np.arange(len(values)) - at + most - 1
            sums[site][0, place] += values
            sums[site][1, place] += 1
    with np.errstate(invalid="ignore", divide="ignore"):
        return {site: s[0] / s[1] for site, s in sums.items() if s[1].any()}


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


def _forests(
    groups: Groups, learners: Sequence[str], majority: str, n_draws: int
) -> dict[str, list[tuple[str, str, Comparison]]]:
    """Learner, partner and difference against the majority class, fine-tuning, and the best."""
    comparer, forests = stats.Comparer(n_draws=n_draws), {}
    # fine-tuning on a learner's own model, else the first there is
    specs = {k: runs[0].spec.learner for k, runs in groups.items()}
    tuned = {
        s.model.name: k
        for k, s in reversed(specs.items())
        if s.method.name == "finetune"
    }
    first = next((k for k, s in specs.items() if s.method.name == "finetune"), "")
    others = [
        k
        for k in learners
        if tuned and specs[k].method.name not in ("finetune", "majority")
    ]
    partners = {
        "majority": dict.fromkeys(learners, majority),
        "finetune": {k: tuned.get(specs[k].model.name, first) for k in others},
        "best": dict.fromkeys(learners[1:], *learners[:1]),
    }
    for against, asked in partners.items():
        pairs = [
            p for p in asked.items() if _pairs(groups[p[0]]) & _pairs(groups[p[1]])
        ]
        found = stats.holm([comparer.compare(groups[a], groups[b]) for a, b in pairs])
        if pairs:
            forests[against] = [
                (*pair, c) for pair, c in zip(pairs, found, strict=True)
            ]
    return forests


def _pairs(runs: Sequence[RunResult]) -> set[tuple[int, tuple[str, ...]]]:
    return {(r.spec.seed, r.spec.order) for r in runs}


def contents(
    results: Sequence[RunResult],
    *,
    keeps: Mapping[str, str],
    expected: int | None,
    n_draws: int,
) -> Contents:
    """Everything the page shows about `results`."""
    everything = stats.with_majority(results)
    ranking = stats.rows(everything, keeps=keeps, n_draws=n_draws)
    ranking.sort(key=lambda r: -np.nan_to_num(r.estimates["aaa"].value, nan=-1.0))
    usable = {
        k: [r for r in v if finite(r)] for k, v in stats.group(everything).items()
    }
    groups = {r.learner: usable[r.learner] for r in ranking if usable.get(r.learner)}
    majority = next(r.learner for r in ranking if r.is_majority and r.learner in groups)
    learners = [k for k in groups if k != majority]
    forests = _forests(groups, learners, majority, n_draws)
    against = {k: c for k, _, c in forests.get("majority", ())}
    found = {k: curves(stats.longest(runs), n_draws) for k, runs in groups.items()}
    more = {
        k: {m: stats.means(v, m, MORE) for m in MORE_METRICS} for k, v in groups.items()
    }
    shared: dict[str, Any] = {"rows": ranking, "forests": forests, "more": more}
    return Contents(
        **shared,
        findings=stats.findings(results, expected=expected, against_majority=against),
        leaks=stats.leaks_on(results),
        accuracy={k: c[0] for k, c in found.items()},
        forgetting={k: c[1] for k, c in found.items()},
        since={k: since_learned(groups[k]) for k in learners},
        matrices=[_matrices(k, stats.longest(groups[k])) for k in learners],
        sites={k: stats.per_site(runs, n_draws=n_draws) for k, runs in groups.items()},
    )

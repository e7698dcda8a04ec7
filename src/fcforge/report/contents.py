"""The numbers behind the page of a run, computed once from its results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fcforge import stats
from fcforge.metrics import accuracy_curve, finite, forgetting_curve, score_matrix
from fcforge.metrics.cells import METRICS, PRIMARY
from fcforge.report.rendering import Section
from fcforge.report.run_words import Finding, findings, leaks_on
from fcforge.stats import Comparison, Estimate, Row
from fcforge.stats.resampling import N_DRAWS, interval, pair_of
from fcforge.stats.table import WORDS, Words, is_majority
from fcforge.types import Kind, RunResult, RunResults

MORE_METRICS = ("sensitivity", "specificity", "precision", "f1", "brier", "ece")
MORE = ("aaa", "acc", "fm")
Groups = Mapping[str, list[RunResult]]


class Curve(NamedTuple):
    """A mean over stages with its band; each of shape (T,)."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Difference(NamedTuple):
    """A learner minus a reference, paired over orders, seeds and subjects."""

    learner: str
    reference: str
    found: Comparison


@dataclass(frozen=True)
class About:
    """What the page says besides the results.

    Attributes
    ----------
    title : str
    keeps : mapping of learner title to what its method keeps between sites
    expected : int, optional
        Number of runs that were asked for; fewer results are shown as missing.
    settings : mapping, optional
        Shown as they are; by default those of the first run.
    sections : sequence of Section
        Placed before the settings.
    n_draws : int
        Bootstrap draws and permutations.
    home : str
        Address of the overview this page belongs to; empty without one.
    """

    title: str = "fcforge report"
    keeps: Mapping[str, str] = field(default_factory=dict)
    expected: int | None = None
    settings: Mapping[str, Any] | None = None
    sections: Sequence[Section] = ()
    n_draws: int = N_DRAWS
    home: str = ""


@dataclass(frozen=True)
class Contents:
    """All that the page shows, in plain data; learners by falling AAA.

    `forests` holds differences from the baseline and from fine-tuning; `curves` accuracy and
    forgetting over the stages; `matrices` accuracy by stage and position, mean over the orders.
    """

    kind: Kind
    rows: list[Row]
    findings: list[Finding]
    leaks: dict[str, tuple[str, ...]]
    forests: dict[str, list[Difference]]
    curves: dict[str, tuple[Curve, Curve]]
    matrices: dict[str, np.ndarray]
    sites: dict[str, dict[str, Estimate]]
    more: dict[str, dict[str, dict[str, float]]]

    @property
    def words(self) -> Words:
        """What things are called; `own` is the baseline that a learner must beat."""
        return WORDS[self.kind]

    @property
    def against_baseline(self) -> dict[str, Comparison]:
        """Difference of every learner from the baseline."""
        return {d.learner: d.found for d in self.forests.get("baseline", ())}

    @property
    def levels(self) -> dict[str, str]:
        """The worst level of the warnings about each learner."""
        return {found.learner: found.level for found in reversed(self.findings)}

    @property
    def competing(self) -> list[Row]:
        """Learners with usable scores and no serious warning, by falling AAA."""
        usable = [row for row in self.rows if row.n_runs and not row.is_majority]
        return [row for row in usable if self.levels.get(row.learner) != "serious"]

    @property
    def ahead(self) -> list[str]:
        """Those whose whole interval lies above the baseline."""
        above = {k for k, c in self.against_baseline.items() if c.low > 0}
        return [row.learner for row in self.competing if row.learner in above]


def contents(results: RunResults, about: About) -> Contents:
    """The numbers of the page."""
    n_draws = about.n_draws
    everything = stats.with_majority(results, own=True)
    ranking = stats.rows(everything, keeps=about.keeps, n_draws=n_draws)
    ranking.sort(key=lambda r: -np.nan_to_num(r.estimates["aaa"].value, nan=-1.0))
    groups = _usable(everything, ranking)
    learners = [k for k, runs in groups.items() if not is_majority(runs[0])]
    kind = results[0].kind
    forests = _forests(groups, learners, kind, n_draws)
    against = {d.learner: d.found for d in forests.get("baseline", ())}
    whole = {k: stats.longest(runs) for k, runs in groups.items()}
    return Contents(
        kind=kind,
        rows=ranking,
        findings=findings(results, expected=about.expected, against_majority=against),
        leaks=leaks_on(results),
        forests=forests,
        curves={k: curves(runs, n_draws) for k, runs in whole.items()},
        matrices={k: _mean_matrix(whole[k]) for k in learners},
        sites={k: stats.per_site(v, PRIMARY[kind]) for k, v in groups.items()},
        more={k: _more(runs) for k, runs in groups.items()},
    )


def _usable(results: RunResults, ranking: Sequence[Row]) -> dict[str, list[RunResult]]:
    """Runs with finite scores by learner, in the order of the ranking."""
    groups = stats.group([run for run in results if finite(run)])
    ranked = [row.learner for row in ranking]
    return {learner: groups[learner] for learner in ranked if learner in groups}


def _more(runs: RunResults) -> dict[str, dict[str, float]]:
    kind = runs[0].kind
    fitting = [metric for metric in MORE_METRICS if kind in METRICS[metric].kinds]
    return {metric: stats.means(runs, metric, MORE) for metric in fitting}


def curves(runs: RunResults, n_draws: int) -> tuple[Curve, Curve]:
    """Primary metric on the sites so far, and forgetting, over the stages."""
    n = len(runs[0].spec.order)
    main = PRIMARY[runs[0].kind]

    def statistic(full: np.ndarray) -> np.ndarray:
        a = full[..., 1:, :]
        both = [accuracy_curve(a), forgetting_curve(a)]
        return np.concatenate(both, axis=-1)

    points, draws = stats.bootstrap(runs, main, statistic, n_draws=n_draws)
    mean = points.mean(0)
    low, high = interval(mean, draws)
    accuracy = Curve(mean[:n], low[:n], high[:n])
    forgetting = Curve(mean[n:], low[n:], high[n:])
    return accuracy, forgetting


def _mean_matrix(runs: RunResults) -> np.ndarray:
    main = PRIMARY[runs[0].kind]
    return np.mean([score_matrix(run, main) for run in runs], axis=0)


def _forests(
    groups: Groups, learners: Sequence[str], kind: Kind, n_draws: int
) -> dict[str, list[Difference]]:
    """Differences against the baseline, and against fine-tuning of the same model."""
    comparer = stats.Comparer(PRIMARY[kind], n_draws=n_draws)
    specs = {k: groups[k][0].spec.learner for k in learners}
    tuned = {s.model.name: k for k, s in specs.items() if s.method.name == "finetune"}
    partners = {
        "baseline": dict.fromkeys(learners, WORDS[kind].own),
        "finetune": {k: tuned.get(specs[k].model.name, k) for k in learners},
    }
    forests = {}
    for against, asked in partners.items():
        pairs = []
        for one, other in asked.items():
            ours = set(map(pair_of, groups[one]))
            theirs = set(map(pair_of, groups[other]))
            if one != other and ours & theirs:
                pairs.append((one, other))
        compared = [comparer.compare(groups[a], groups[b]) for a, b in pairs]
        if pairs:
            both = zip(pairs, stats.holm(compared), strict=True)
            forests[against] = [Difference(*pair, c) for pair, c in both]
    return forests

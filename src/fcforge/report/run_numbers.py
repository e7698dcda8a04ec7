"""The numbers behind the page of a run, each computed once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fcforge.core.result import RunResult, RunResults
from fcforge.evaluation.comparison import Comparer, Comparison, holm
from fcforge.evaluation.forgetting import (
    accuracy_curve,
    finite,
    forgetting_curve,
    score_matrix,
)
from fcforge.evaluation.majority import WORDS, Wording, is_majority, with_majority
from fcforge.evaluation.metrics import PRIMARY
from fcforge.evaluation.resampling import N_DRAWS, bootstrap, interval, pair_of
from fcforge.evaluation.tables import Row, by_learner, results_rows
from fcforge.report.run_warnings import RunWarning, run_warnings

Groups = Mapping[str, list[RunResult]]


class Curve(NamedTuple):
    """A mean over stages with its band; each of shape (T,)."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class RunInfo:
    """What the page says besides the results.

    Attributes
    ----------
    title : str
    keeps : mapping of learner title to what its method keeps between sites
    expected : int, optional
        Number of runs that were asked for; fewer results are shown as missing.
    settings : mapping
        Shown as they are.
    n_draws : int
        Bootstrap draws and permutations.
    home : str
        Address of the overview this page belongs to; empty without one.
    """

    title: str = "fcforge report"
    keeps: Mapping[str, str] = field(default_factory=dict)
    expected: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    n_draws: int = N_DRAWS
    home: str = ""


@dataclass(frozen=True)
class RunNumbers:
    """What the page is made from: the references first, then learners by falling AAA.

    Attributes
    ----------
    results : sequence of RunResult
    groups : mapping of learner to its runs with finite scores
    rows : list of Row
    findings : list of Finding
    forests : mapping
        Differences of learners from the ``baseline``, and from ``finetune`` of the same model.
    """

    results: RunResults
    groups: Groups
    rows: list[Row]
    warnings: list[RunWarning]
    forests: Mapping[str, Mapping[str, Comparison]]

    @property
    def words(self) -> Wording:
        """What things are called; `own` is the baseline that a learner must beat."""
        return WORDS[self.results[0].kind]

    @property
    def learners(self) -> list[Row]:
        """Learners with usable scores, the references aside."""
        return [row for row in self.rows if row.n_runs and not row.is_majority]

    @property
    def levels(self) -> dict[str, str]:
        """The worst level of the warnings about each learner."""
        return {found.learner: found.level for found in reversed(self.warnings)}


def run_numbers(results: RunResults, about: RunInfo) -> RunNumbers:
    """The numbers of the page."""
    everything = with_majority(results, own=True)
    learner_rows = results_rows(everything, keeps=about.keeps, n_draws=about.n_draws)
    found = by_learner([run for run in everything if finite(run)])
    groups = {row.learner: found[row.learner] for row in learner_rows if row.n_runs}
    forests = _paired_differences(groups, about.n_draws)
    said = run_warnings(
        results, expected=about.expected, against_majority=forests["baseline"]
    )
    return RunNumbers(results, groups, learner_rows, said, forests)


def curves(runs: RunResults, n_draws: int) -> tuple[Curve, Curve]:
    """Primary metric on the sites so far, and forgetting, over the stages."""
    n = len(runs[0].spec.order)
    main = PRIMARY[runs[0].kind]

    def statistic(full: np.ndarray) -> np.ndarray:
        a = full[..., 1:, :]
        both = [accuracy_curve(a), forgetting_curve(a)]
        return np.concatenate(both, axis=-1)

    points, draws = bootstrap(runs, main, statistic, n_draws=n_draws)
    mean = points.mean(0)
    low, high = interval(mean, draws)
    accuracy = Curve(mean[:n], low[:n], high[:n])
    forgetting = Curve(mean[n:], low[n:], high[n:])
    return accuracy, forgetting


def mean_matrix(runs: RunResults) -> np.ndarray:
    """Primary metric by stage and position, mean over orders and seeds."""
    main = PRIMARY[runs[0].kind]
    return np.mean([score_matrix(run, main) for run in runs], axis=0)


def _paired_differences(
    groups: Groups, n_draws: int
) -> dict[str, dict[str, Comparison]]:
    """Differences against the baseline, and against fine-tuning of the same model."""
    specs = {k: v[0].spec.learner for k, v in groups.items() if not is_majority(v[0])}
    tuned = {s.model.name: k for k, s in specs.items() if s.method.name == "finetune"}
    kind = next(iter(groups.values()))[0].kind
    partners = {
        "baseline": dict.fromkeys(specs, WORDS[kind].own),
        "finetune": {k: tuned.get(s.model.name, k) for k, s in specs.items()},
    }
    comparer = Comparer(PRIMARY[kind], n_draws=n_draws)
    forests = {}
    for against, asked in partners.items():
        compared = {}
        for one, other in asked.items():
            ours = set(map(pair_of, groups[one]))
            theirs = set(map(pair_of, groups[other]))
            if one != other and ours & theirs:
                compared[one] = comparer.compare(groups[one], groups[other])
        corrected = holm(list(compared.values()))
        forests[against] = dict(zip(compared, corrected, strict=True))
    return forests

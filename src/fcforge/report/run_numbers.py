"""The numbers behind the page of a run, each computed once.

T is the number of sites of a run.
AAA is the average over stages (sites learned so far) of the mean accuracy at these sites.
"""

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
from fcforge.evaluation.metrics import METRICS, PRIMARY, Limits, cell_values
from fcforge.evaluation.resampling import (
    N_DRAWS,
    bootstrap,
    interval,
    means,
    pair_of,
    subject_weights,
)
from fcforge.evaluation.tables import Row, by_learner, results_rows
from fcforge.report.run_warnings import RunWarning, run_warnings
from fcforge.report.training_curves import Logged

SITE_DRAWS = 200  # bootstrap draws behind the band of each site
Groups = Mapping[str, list[RunResult]]


class Curve(NamedTuple):
    """A mean over stages and its 95 % band, each of shape (T,)."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class RunInfo:
    """Information that a run's page shows beside the results.

    Attributes
    ----------
    title : str
    keeps : mapping of learner title to what its method keeps between sites
    expected : int, optional
        Number of runs that were asked for; fewer results are shown as missing.
    settings : mapping
        Settings of the experiment.
    n_draws : int
        Bootstrap draws and permutations.
    home : str
        Address of the overview this page belongs to; empty without one.
    logged : mapping of learner title to Logged
        Numbers of the training, of learners that have a log.
    sentences : tuple of str
        Sentences beneath the title: those of the demo.
    """

    title: str = "fcforge report"
    keeps: Mapping[str, str] = field(default_factory=dict)
    expected: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    n_draws: int = N_DRAWS
    home: str = ""
    logged: Mapping[str, Logged] = field(default_factory=dict)
    sentences: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunNumbers:
    """The numbers of a run's page; references first, then learners by falling AAA.

    Attributes
    ----------
    results : sequence of RunResult
    groups : mapping of learner to its runs with finite scores
    rows : list of Row
        Rows of the results table.
    warnings : list of RunWarning
    forests : mapping of reference to mapping of learner to Comparison
        Differences (as in a forest plot) of learners from the ``baseline``, which is the majority
        class of each site, from ``finetune`` of the same model, and from the ``reference`` that the
        config names, if it names one.
    further : mapping of learner to mapping of metric to float
        Metrics without a column of their own, see `further_metrics`.
    """

    results: RunResults
    groups: Groups
    rows: list[Row]
    warnings: list[RunWarning]
    forests: Mapping[str, Mapping[str, Comparison]]
    further: Mapping[str, Mapping[str, float]]

    @property
    def words(self) -> Wording:
        """Names of metrics and references for this kind of target."""
        return WORDS[self.results[0].kind]

    @property
    def learners(self) -> list[Row]:
        """Rows of the learners with usable scores, without the references."""
        return [row for row in self.rows if row.n_runs and not row.is_majority]

    @property
    def levels(self) -> dict[str, str]:
        """Worst level of the warnings about each learner."""
        return {warning.learner: warning.level for warning in reversed(self.warnings)}


def run_numbers(results: RunResults, about: RunInfo) -> RunNumbers:
    """Compute the numbers of a run's page.

    Parameters
    ----------
    results : sequence of RunResult
        Without references, which are computed here.
    about : RunInfo
    """
    with_references = with_majority(results, per_site=True)
    rows = results_rows(with_references, keeps=about.keeps, n_draws=about.n_draws)
    finite_runs = by_learner([run for run in with_references if finite(run)])
    groups = {row.learner: finite_runs[row.learner] for row in rows if row.n_runs}
    reference = str(about.settings.get("reference", ""))
    forests = _paired_differences(groups, about.n_draws, reference)
    warnings = run_warnings(
        results, expected=about.expected, against_majority=forests["baseline"]
    )
    further = further_metrics(groups)
    return RunNumbers(results, groups, rows, warnings, forests, further)


def curves(runs: RunResults, n_draws: int) -> tuple[Curve, Curve]:
    """Return two curves over the stages: the mean metric at the sites learned so far, and forgetting.

    Parameters
    ----------
    runs : sequence of RunResult
        Runs of one learner.
    n_draws : int
        Number of bootstrap draws for the intervals.
    """
    n = len(runs[0].spec.order)
    main = PRIMARY[runs[0].kind]

    def statistic(full: np.ndarray) -> np.ndarray:
        """Return both curves of one draw, end to end, from scores by stage and position."""
        a = full[..., 1:, :]  # without stage 0, before any site
        both_curves = [accuracy_curve(a), forgetting_curve(a)]
        return np.concatenate(both_curves, axis=-1)

    points, draws = bootstrap(runs, main, statistic, n_draws=n_draws)
    mean = points.mean(0)
    limits = METRICS[main].limits, METRICS[main].limits_of_differences
    low, high = interval(mean, draws, np.repeat(limits, n, axis=0).T)
    accuracy = Curve(mean[:n], low[:n], high[:n])
    forgetting = Curve(mean[n:], low[n:], high[n:])
    return accuracy, forgetting


def mean_matrix(runs: RunResults) -> np.ndarray:
    """Return the primary metric by stage and position (T, T), mean over orders and seeds."""
    main = PRIMARY[runs[0].kind]
    return np.mean([score_matrix(run, main) for run in runs], axis=0)


def _paired_differences(
    groups: Groups, n_draws: int, reference: str
) -> dict[str, dict[str, Comparison]]:
    """Return paired differences of each learner from up to three others, by what these are.

    They are the baseline, fine-tuning and the learner whose title is `reference`. Runs are paired by
    (order, seed). Without such a pair in common there is no difference.
    """
    specs = {k: v[0].spec.learner for k, v in groups.items() if not is_majority(v[0])}
    tuned = {s.model.name: k for k, s in specs.items() if s.method.name == "finetune"}
    kind = next(iter(groups.values()))[0].kind
    partners = {
        "baseline": dict.fromkeys(specs, WORDS[kind].own),
        "finetune": {k: tuned.get(s.model.name, k) for k, s in specs.items()},
        "reference": dict.fromkeys(specs, reference) if reference in specs else {},
    }
    comparer = Comparer(PRIMARY[kind], n_draws=n_draws)
    forests = {}
    for against, partner_of in partners.items():
        compared = {}
        for learner, partner in partner_of.items():
            pairs = set(map(pair_of, groups[learner]))
            partner_pairs = set(map(pair_of, groups[partner]))
            if learner != partner and pairs & partner_pairs:
                compared[learner] = comparer.compare(groups[learner], groups[partner])
        corrected = holm(list(compared.values()))
        forests[against] = dict(zip(compared, corrected, strict=True))
    return forests


# -- hospital by hospital --------------------------------------------------------------------------
def learned_sites(runs: RunResults) -> list[str]:
    """Return the sites that some run learned, in the dataset's order."""
    learned = {site for run in runs for site in run.spec.order}
    return [site for site in runs[0].sites if site in learned]


def site_curves(runs: RunResults, n_draws: int = SITE_DRAWS) -> dict[str, Curve]:
    """Return the primary metric at every site before and after it was learned.

    Parameters
    ----------
    runs : sequence of RunResult
        Runs of one learner.
    n_draws : int
        Bootstrap draws of the bands, over the site's test subjects.

    Returns
    -------
    dict of site to Curve
        Each of shape (2 T - 1,): entry ``T - 1 + k`` is k sites after the site was learned,
        negative k before it. NaN where no run has that distance.
    """
    longest = max(len(run.spec.order) for run in runs)
    width = 2 * longest - 1
    metric = PRIMARY[runs[0].kind]
    sites = learned_sites(runs)
    # row 0: the values; the other rows: the draws
    sums = {site: np.zeros((n_draws + 1, width)) for site in sites}
    counts = {site: np.zeros(width) for site in sites}
    for run in runs:
        for position, site in enumerate(run.spec.order):
            truth = run.truth(site)
            weights = subject_weights(site, run.subject_ids[site], run.y[site], n_draws)
            scores = run.scores[site]
            values = cell_values(scores, truth, metric)  # (T,)
            draws = cell_values(scores, truth, metric, weights)  # (T, n_draws)
            distance = np.arange(len(values)) - position + longest - 1
            sums[site][0, distance] += values
            sums[site][1:, distance] += draws.T
            counts[site][distance] += 1
    limits = METRICS[metric].limits
    return {site: _mean_curve(sums[site], counts[site], limits) for site in sites}


def _mean_curve(sums: np.ndarray, counts: np.ndarray, limits: Limits) -> Curve:
    """Return the mean and interval, within limits, of summed values (row 0) and draws (other rows)."""
    with np.errstate(invalid="ignore", divide="ignore"):
        values = sums / counts
    low, high = interval(values[0], values[1:], limits)
    return Curve(values[0], low, high)


def change_by_site(runs: RunResults) -> np.ndarray:
    """Return how much the metric fell at each hospital, by the hospital that was learned last.

    Parameters
    ----------
    runs : sequence of RunResult
        Runs of one learner over orders of one length.

    Returns
    -------
    ndarray of shape (n_sites, n_sites)
        Entry (i, j): final value at site i minus its value just after site i was learned, mean
        over the runs whose last site is j. NaN for i = j and where there is no such run.
    """
    metric = PRIMARY[runs[0].kind]
    sites = learned_sites(runs)
    changes: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        matrix = score_matrix(run, metric)
        order = run.spec.order
        for position, site in enumerate(order[:-1]):
            change = float(matrix[-1, position] - matrix[position, position])
            changes.setdefault((site, order[-1]), []).append(change)
    return np.array(
        [
            [np.mean(changes.get((site, last), [np.nan])) for last in sites]
            for site in sites
        ]
    )


# -- further metrics -------------------------------------------------------------------------------
FURTHER_METRICS = ("sensitivity", "specificity", "precision", "f1", "brier", "ece")


def further_metrics(groups: Groups) -> dict[str, dict[str, float]]:
    """Return the metrics that have no column in the results table, averaged over the stages like AAA.

    Parameters
    ----------
    groups : mapping of learner to its runs with finite scores

    Returns
    -------
    dict of learner to dict of metric to float
        Means over orders and seeds; empty for targets that these metrics are not defined for.
    """
    return {
        learner: {
            name: means(runs, name, ("aaa",))["aaa"]
            for name in FURTHER_METRICS
            if runs[0].kind in METRICS[name].kinds
        }
        for learner, runs in groups.items()
    }

"""Paired comparison of two learners on the same orders, seeds and subjects.

T is the number of sites of a run.
AAA is the average over stages (sites learned so far) of the mean accuracy at these sites.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from fcforge.core.errors import DataError
from fcforge.core.estimate import Estimate
from fcforge.core.result import RunResult, RunResults
from fcforge.evaluation import resampling
from fcforge.evaluation.forgetting import Runs, limits_of, summaries_of
from fcforge.evaluation.metrics import metric_named, swapped_values


@dataclass(frozen=True)
class Comparison:
    """Difference of two learners, A minus B, in one summary (for example the AAA).

    Attributes
    ----------
    difference : float
        Mean over the shared (order, seed) pairs of A minus B.
    low, high : float
        95 % bootstrap interval over subjects and trainings; both learners get the same draws.
    p_value : float
        Two-sided permutation test over subjects, see `compare`.
    p_holm : float
        The p-value corrected for all comparisons of its table (`holm`); NaN before that.
    holm_at_floor : bool
        Whether `p_holm` is only an upper bound, because it comes from a p-value at its floor
        (`at_floor`): that of this comparison or a smaller one of the table.
    n_draws : int
        Permutations behind the p-value; 0 for another test.
    """

    difference: float
    low: float
    high: float
    p_value: float
    p_holm: float = np.nan
    holm_at_floor: bool = False
    n_draws: int = 0

    @property
    def at_floor(self) -> bool:
        """Whether no permutation was as extreme as the difference: the p-value is an upper bound then."""
        return self.n_draws > 0 and self.p_value <= 1 / (1 + self.n_draws)


def holm(comparisons: Sequence[Comparison]) -> list[Comparison]:
    r"""Return comparisons of one table with Holm's (1979) p-values.

    The k-th smallest of m becomes :math:`\max_{j\le k} \min(1, (m - j + 1)\,p_{(j)})`: the chance
    of one or more false findings in the table stays below the level.
    """
    corrected = list(comparisons)
    largest = 0.0
    at_floor = False
    by_p = np.argsort([c.p_value for c in comparisons], kind="stable")
    for place, k in enumerate(by_p):
        raised = min((len(corrected) - place) * corrected[k].p_value, 1.0)
        if not raised <= largest:  # a p-value that is NaN makes NaN of those after it
            largest = raised
            at_floor = corrected[k].at_floor
        corrected[k] = replace(corrected[k], p_holm=largest, holm_at_floor=at_floor)
    return corrected


def _pairs(a: RunResults, b: RunResults) -> tuple[list[RunResult], list[RunResult]]:
    """Return the runs of both learners with a common (seed, order), at equal positions.

    Raises
    ------
    DataError
        If there is none, or if runs of a pair were tested on different subjects.
    """
    of_pair = {resampling.pair_of(r): r for r in b}
    left = [r for r in a if resampling.pair_of(r) in of_pair]
    right = [of_pair[resampling.pair_of(r)] for r in left]
    if not left:
        raise DataError(
            "the two learners share no (order, seed) pair.",
            do="Run both on the same orders.",
        )
    for x, y in zip(left, right, strict=True):
        if x.subject_ids != y.subject_ids:
            raise DataError(
                f"seed {x.spec.seed} was tested on different subjects by the two learners.",
                do="Compare learners of one dataset and one split.",
            )
    return left, right


def compare(
    results_a: RunResults, results_b: RunResults, **settings: Any
) -> Comparison:
    """Return the difference A - B over the orders and seeds both have, with interval and p-value.

    The p-value is that of a permutation test whose unit is the **subject**, not the run: orders
    and seeds of one experiment share subjects and trainings, so flipping the sign of each run's
    difference would count the same evidence many times. In each permutation every subject
    tosses one coin and, on heads, exchanges its scores between A and B in all orders, stages
    and seeds at once; under the null hypothesis that A and B are exchangeable for every subject
    the result is distributed like the observed difference. ``p = (1 + k) / (1 + n_draws)``
    where k permutations are at least as far from 0. It generalises to new subjects of these sites,
    given the trainings that were run; the interval also covers other trainings, so call a
    difference established where both exclude chance.

    Exchangeability is more than equal accuracy. Where A and B err on different classes (the
    extreme: B always names one class) the test is conservative, and the interval, which holds
    the class sizes fixed, may exclude 0 although p is large.

    Parameters
    ----------
    results_a, results_b : sequence of RunResult
    **settings
        metric, summary and n_draws of `Comparer`.

    Returns
    -------
    Comparison
    """
    return Comparer(**settings).compare(results_a, results_b)


class _Drawn(NamedTuple):
    """Runs tested on the same people, their summary (n_runs,) and its draws (n_runs, n_draws)."""

    batch: Runs
    points: np.ndarray
    draws: np.ndarray


def _comparison(
    points: np.ndarray, draws: np.ndarray, nulls: np.ndarray, largest: float
) -> Comparison:
    """Return the comparison of two learners from their differences.

    Parameters
    ----------
    points : ndarray of shape (n_pairs,)
        A minus B of each (seed, order).
    draws : ndarray of shape (n_draws,)
        Mean difference in each bootstrap draw.
    nulls : ndarray of shape (n_draws,)
        Mean difference in each permutation.
    largest : float
        Largest possible difference, which the interval does not exceed.
    """
    difference = points.mean()
    low, high = resampling.interval(difference, draws, (-largest, largest))
    # Rounding must not make an exactly equal permutation look smaller.
    extreme = (np.abs(nulls) >= abs(difference) - 1e-6).sum()
    return Comparison(
        difference=float(difference),
        low=float(low),
        high=float(high),
        p_value=float((1 + extreme) / (1 + len(nulls))),
        n_draws=len(nulls),
    )


@dataclass(frozen=True)
class Comparer:
    """`compare` for many pairs: a run's bootstrap draws are computed once.

    Attributes
    ----------
    metric : str
        A name of `fcforge.evaluation.metrics.METRICS`.
    summary : str
        A name of `fcforge.evaluation.forgetting.SUMMARIES`.
    n_draws : int
        Number of bootstrap draws, and of permutations.
    """

    metric: str = "accuracy"
    summary: str = "aaa"
    n_draws: int = resampling.N_DRAWS
    # The runs are kept beside their draws, so that their ids cannot be given to others.
    _known: dict[tuple[int, ...], _Drawn] = field(default_factory=dict)

    def compare(self, results_a: RunResults, results_b: RunResults) -> Comparison:
        """Return the difference A - B, see `compare`."""
        left, right = _pairs(results_a, results_b)
        place = {id(x): k for k, x in enumerate(left)}
        # difference in each permutation, summed over runs
        nulls = np.zeros(self.n_draws)
        for runs in resampling.split_runs(left):
            rows = [place[id(r)] for r in runs]
            a = self._drawn(runs)
            b = self._drawn([right[k] for k in rows])
            both = a.batch.beside(b.batch)
            swapped = self._swapped(a.batch, b.batch)
            value = self._reduce(both.stack(swapped))  # (n_runs, 2, n_draws)
            nulls += (value[:, 0] - value[:, 1]).sum(0)
        points, draws = self._differences(left, right)
        return _comparison(points, draws.mean(0), nulls / len(left), self._largest)

    def change(
        self,
        first: tuple[RunResults, RunResults],
        second: tuple[RunResults, RunResults],
    ) -> Estimate:
        """Return how much larger one difference is than another: (A - B) minus (C - D).

        All four have the same orders, seeds and subjects and get the same bootstrap draws. For
        example A and B are two learners, C and D the same two with other thresholds.

        Parameters
        ----------
        first, second : pair of sequence of RunResult
            Runs of A and of B, and runs of C and of D.

        Returns
        -------
        Estimate
            With its 95 % bootstrap interval over subjects and trainings.
        """
        a, b = _pairs(*first)
        c, d = _pairs(*second)
        # for its errors: A and C must have been tested on the same subjects
        _pairs(a, c)
        pairs = [[resampling.pair_of(r) for r in runs] for runs in (a, c)]
        if sorted(pairs[0]) != sorted(pairs[1]):
            raise DataError(
                "the two differences have other orders or seeds.",
                do="Compare learners of one experiment.",
            )
        first_points, first_draws = self._differences(a, b)
        second_points, second_draws = self._differences(c, d)
        value = first_points.mean() - second_points.mean()
        draws = first_draws.mean(0) - second_draws.mean(0)
        limits = -2 * self._largest, 2 * self._largest
        low, high = resampling.interval(value, draws, limits)
        return Estimate(float(value), float(low), float(high))

    @property
    def _largest(self) -> float:
        """Largest possible difference between two learners' summaries."""
        low, high = limits_of(self.metric, self.summary)
        return high - low

    def _differences(
        self, left: list[RunResult], right: list[RunResult]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return A minus B of paired runs (n_runs,) and its weighted draws (n_runs, n_draws)."""
        place = {id(x): k for k, x in enumerate(left)}
        points = np.empty(len(left))
        draws = np.empty((len(left), self.n_draws))
        for runs in resampling.split_runs(left):
            rows = [place[id(r)] for r in runs]
            a, b = self._drawn(runs), self._drawn([right[k] for k in rows])
            points[rows] = a.points - b.points
            draws[rows] = a.draws - b.draws
        return points, draws * resampling.training_weights(left, self.n_draws)

    def _drawn(self, runs: list[RunResult]) -> _Drawn:
        """Return runs with their summary and its bootstrap draws, computed once per set of runs."""
        key = tuple(map(id, runs))
        if key not in self._known:
            batch = Runs.of(runs)
            points = self._reduce(batch.values(self.metric))
            weights = resampling.weights_of(batch, self.n_draws)
            draws = self._reduce(batch.values(self.metric, weights))
            self._known[key] = _Drawn(batch, points, draws)
        return self._known[key]

    def _swapped(self, a: Runs, b: Runs) -> Callable[[str, np.ndarray], np.ndarray]:
        """Return a function that computes cells of A and B after each permutation's exchanges.

        A cell is an entry of a score matrix: the metric at one site after one stage.

        The function takes a site and m pairs of row numbers (`Runs.beside`) and returns
        (m, 2, n_draws): the metric of A and of B.
        """
        metric = metric_named(self.metric)
        ids = a.runs[0].subject_ids

        def cells(site: str, pairs: np.ndarray) -> np.ndarray:
            """Return the cells (m, 2, n_draws) of m pairs of score vectors at a site."""
            ours = a.features(site, metric)
            theirs = b.features(site, metric)
            coin = resampling.subject_draws("swap", site, ids[site], self.n_draws)
            swapped = swapped_values(
                ours[:, pairs[:, 0]], theirs[:, pairs[:, 1]], metric, coin < 0.5
            )
            return np.stack(swapped, axis=1)

        return cells

    def _reduce(self, full: np.ndarray) -> np.ndarray:
        """Return the summary (...) of score matrices (..., T + 1, T)."""
        values = summaries_of(full, self.metric, (self.summary,))
        return values[self.summary]

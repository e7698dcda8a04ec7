"""Paired comparison of two learners on the same orders, seeds and subjects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fcforge.errors import DataError
from fcforge.metrics import metric_named, stack, summaries_of
from fcforge.metrics.cells import cell_values, swapped_values
from fcforge.randomness import numpy_rng
from fcforge.stats.bootstrap import N_DRAWS, interval, split_batches, subject_weights
from fcforge.types import RunResult


@dataclass(frozen=True)
class Comparison:
    """A minus B in one summary.

    Attributes
    ----------
    difference : float
        Mean over the shared (order, seed) pairs of A minus B.
    low, high : float
        95 % bootstrap interval over subjects; both learners get the same draws.
    p_value : float
        Two-sided permutation test over subjects, see `compare`.
    n_pairs : int
        (order, seed) pairs that both learners finished.
    wins : float
        Share of pairs in which A has the larger value (a tie counts half).
    """

    difference: float
    low: float
    high: float
    p_value: float
    n_pairs: int
    wins: float


def _pairs(
    a: Sequence[RunResult], b: Sequence[RunResult]
) -> tuple[list[RunResult], list[RunResult]]:
    at = {(r.spec.seed, r.spec.order): r for r in b}
    left = [r for r in a if (r.spec.seed, r.spec.order) in at]
    right = [at[r.spec.seed, r.spec.order] for r in left]
    if not left:
        raise DataError(
            "the two learners share no (order, seed) pair.", do="Run both on the same orders."
        )
    for x, y in zip(left, right, strict=True):
        if any(tuple(x.subject_ids[s]) != tuple(y.subject_ids[s]) for s in x.sites):
            raise DataError(
                f"seed {x.spec.seed} was tested on different subjects by the two learners.",
                do="Compare learners of one dataset and one split.",
            )
    return left, right


@lru_cache(maxsize=16384)
def _coins(seed: int, site: str, subject: str, n_draws: int) -> np.ndarray:
    return numpy_rng(seed, "swap", site, subject).random(n_draws) < 0.5


def _swaps(site: str, ids: Sequence[str], n_draws: int, seed: int) -> np.ndarray:
    """Coins per subject, shared by all seeds in which it is tested. (n_draws, n)."""
    return np.stack([_coins(seed, site, s, n_draws) for s in ids], axis=1)


def compare(
    results_a: Sequence[RunResult],
    results_b: Sequence[RunResult],
    *,
    metric: str = "accuracy",
    summary: str = "aaa",
    n_draws: int = N_DRAWS,
    seed: int = 0,
) -> Comparison:
    """Difference A - B over the orders and seeds both have, with interval and p-value.

    The p-value is that of a permutation test whose unit is the **subject**, not the run: orders
    and seeds of one experiment share subjects and trainings, so flipping the sign of each run's
    difference would count the same evidence many times. In each permutation every subject
    tosses one coin and, on heads, exchanges its scores between A and B in all orders, stages
    and seeds at once; under the null hypothesis that A and B are exchangeable for every subject
    the result is distributed like the difference that was seen. ``p = (1 + k) / (1 + n_draws)``
    where k permutations are at least as far from 0. Like the interval, it speaks of new
    subjects from these sites, not of new sites.

    Parameters
    ----------
    results_a, results_b : sequence of RunResult
    metric, summary : str
    n_draws, seed : int

    Returns
    -------
    Comparison
    """
    lower = metric_named(metric).lower_is_better

    def reduce(full: np.ndarray) -> np.ndarray:
        return summaries_of(full, lower_is_better=lower, names=(summary,))[summary]

    left, right = _pairs(results_a, results_b)
    partner = {id(x): y for x, y in zip(left, right, strict=True)}
    points, draws, nulls = [], np.zeros(n_draws), np.zeros(n_draws)
    for batch in split_batches(left):
        both = [*batch, *(partner[id(r)] for r in batch)]
        cells = _PairCells(batch[0], metric, len(batch), n_draws, seed)

        def gap(cell: Callable[[str, np.ndarray], np.ndarray], both: list = both) -> np.ndarray:
            value = reduce(stack(both, cell))
            half = len(value) // 2
            return value[:half] - value[half:]

        points.append(gap(cells.plain))
        draws += gap(cells.weighted).sum(0)
        nulls += gap(cells.swapped).sum(0)
    return _conclude(np.concatenate(points), draws / len(left), nulls / len(left))


@dataclass(frozen=True)
class _PairCells:
    """Cells of A's runs followed by B's: as they are and bootstrapped, or with exchanges."""

    first: RunResult
    metric: str
    n_runs: int
    n_draws: int
    seed: int

    def plain(self, site: str, p: np.ndarray) -> np.ndarray:
        return cell_values(p, self.first.labels[site], self.metric)

    def weighted(self, site: str, p: np.ndarray) -> np.ndarray:
        y, ids = self.first.labels[site], self.first.subject_ids[site]
        w = subject_weights(site, ids, y, self.n_draws, self.seed)
        return cell_values(p, y, self.metric, w)

    def swapped(self, site: str, p: np.ndarray) -> np.ndarray:
        y, ids, n = self.first.labels[site], self.first.subject_ids[site], self.n_runs
        swap = _swaps(site, ids, self.n_draws, self.seed)
        return np.concatenate(swapped_values(p[:n], p[n:], y, self.metric, swap))


def _conclude(points: np.ndarray, draws: np.ndarray, nulls: np.ndarray) -> Comparison:
    difference = points.mean()
    low, high = interval(difference, draws)
    # Rounding must not make an exactly equal permutation look smaller.
    extreme = np.abs(nulls) >= abs(difference) - 1e-6
    return Comparison(
        difference=float(difference),
        low=float(low),
        high=float(high),
        p_value=float((1 + extreme.sum()) / (1 + len(nulls))),
        n_pairs=len(points),
        wins=float((points > 0).mean() + (points == 0).mean() / 2),
    )

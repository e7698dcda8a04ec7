r"""p-values and intervals of differences in AAA, from what each tested person adds to them.

The test and the bootstrap are those of `fcforge.evaluation.comparison`, with so many permutations (100,000)
and draws (10,000) that the printed digits do not hang on chance. In a permutation every subject tosses
one coin and, on heads, exchanges its scores between two learners in all orders, stages and seeds. Accuracy and
AUROC (by DeLong's placements) are sums over subjects whose denominators an exchange leaves alone,
and so is their average along the way. So a subject moves the difference of two learners by
:math:`\pm d_i`, whatever the others do, and a permutation is one row of a product:

.. math:: \Delta = \sum_i d_i, \qquad \Delta_\pi = \sum_i s_{\pi i} d_i, \quad s = \pm 1.

A bootstrap draw weighs people, and the weights of each class of a site's test part sum to its number of
people, so that denominators do not change. So it is a product, too: :math:`\Delta_b = \sum_i w_{bi} d_i`.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from fcforge.core.estimate import Estimate
from fcforge.core.randomness import numpy_rng
from fcforge.core.result import RunResult
from fcforge.evaluation.metrics import features_of, metric_named
from fcforge.evaluation.resampling import (
    interval,
    pair_of,
    subject_weights,
    training_weights,
)

N_PERMUTATIONS = 100_000
AT_ONCE = 10_000
N_DRAWS = 10_000
Person = tuple[str, str]  # site, id
# What people add to a run, by its address and the metric; the run is kept, so that its address stays its own.
_KNOWN: dict[tuple[int, str], tuple[RunResult, dict[Person, float]]] = {}


def shares(run: RunResult, metric: str) -> dict[Person, float]:
    """Return what each tested person adds to a run's accuracy or AUROC, averaged over stages."""
    key = id(run), metric
    if key not in _KNOWN:
        _KNOWN[key] = run, _shares(run, metric)
    return _KNOWN[key][1]


def _shares(run: RunResult, metric: str) -> dict[Person, float]:
    """Compute `shares`."""
    stages = np.arange(1, len(run.spec.order) + 1)
    results = {}
    for place, site in enumerate(run.spec.order):
        right = _at_site(run, site, metric)[place:]  # (stages that know the site, n)
        share_of_each = right.T @ (1 / stages[place:]) / len(stages)
        results |= {
            (site, who): float(share)
            for who, share in zip(run.subject_ids[site], share_of_each, strict=True)
        }
    return results


def _at_site(run: RunResult, site: str, metric: str) -> np.ndarray:
    """Return what each of n people of a site adds to its value after each stage, (stages, n)."""
    of = features_of(run.scores[site], run.y[site], metric_named(metric))
    if metric == "accuracy":
        return of[:2].sum(0) / of.shape[-1]
    above, patients, below, controls = of
    half = above / patients.sum(-1, keepdims=True)
    return half + below / controls.sum(-1, keepdims=True)


def p_values(
    pairs: Sequence[tuple[Sequence[RunResult], Sequence[RunResult]]],
    metric: str = "accuracy",
) -> list[float]:
    """Two-sided p of every A minus B, over the (order, seed) pairs that both have."""
    moves = [_moves(a, b, metric) for a, b in pairs]
    people = sorted({who for of_pair in moves for who in of_pair})
    d = np.array([[of_pair.get(who, 0.0) for of_pair in moves] for who in people])
    # Rounding must not make an exactly equal permutation look smaller.
    least = np.abs(d.sum(0)) - 1e-6
    rng = numpy_rng(0, "exchanged")
    extreme = np.zeros(len(pairs))
    for _ in range(N_PERMUTATIONS // AT_ONCE):
        coins = rng.integers(0, 2, (AT_ONCE, len(people)), dtype=np.int8)
        nulls = np.abs((2.0 * coins - 1) @ d)
        extreme += (~(nulls < least)).sum(0)  # a difference that is NaN: p is 1
    return ((1 + extreme) / (1 + N_PERMUTATIONS)).tolist()


def _moves(
    a: Sequence[RunResult], b: Sequence[RunResult], metric: str
) -> dict[Person, float]:
    """Return how far each person moves the sum over runs of A minus B."""
    others = {pair_of(r): r for r in b}
    results: dict[Person, float] = defaultdict(float)
    for run in a:
        other = others.get(pair_of(run))
        if other is not None:
            for sign, one in ((1, run), (-1, other)):
                for who, share in shares(one, metric).items():
                    results[who] += sign * share
    return results


def intervals(
    pairs: Sequence[tuple[Sequence[RunResult], Sequence[RunResult]]],
    metric: str = "accuracy",
    n_draws: int = N_DRAWS,
) -> list[Estimate]:
    """Return every A minus B with its 95 % bootstrap interval over subjects and trainings."""
    estimates = []
    for a, b in pairs:
        value, draws = _resampled(a, b, metric, n_draws)
        low, high = interval(value, draws, (-1.0, 1.0))
        estimates.append(Estimate(value, float(low), float(high)))
    return estimates


def change(
    first: tuple[Sequence[RunResult], Sequence[RunResult]],
    second: tuple[Sequence[RunResult], Sequence[RunResult]],
    n_draws: int = N_DRAWS,
) -> Estimate:
    """Return (A - B) minus (C - D) in accuracy, all four resampled by the same draws."""
    here, before = (_resampled(*pair, "accuracy", n_draws) for pair in (first, second))
    value = here[0] - before[0]
    low, high = interval(value, here[1] - before[1], (-2.0, 2.0))
    return Estimate(value, float(low), float(high))


def _resampled(
    a: Sequence[RunResult], b: Sequence[RunResult], metric: str, n_draws: int
) -> tuple[float, np.ndarray]:
    """Return A minus B, averaged over runs, and its draws (n_draws,)."""
    others = {pair_of(r): r for r in b}
    left = [r for r in a if pair_of(r) in others]
    by_seed: dict[int, list[RunResult]] = defaultdict(list)
    for run in left:
        by_seed[run.spec.seed].append(run)
    trainings = dict(
        zip((r.spec.seed for r in left), training_weights(left, n_draws), strict=True)
    )
    value, draws = 0.0, np.zeros(n_draws)
    for seed, runs in by_seed.items():
        beside = [others[pair_of(r)] for r in runs]
        if any(r.subject_ids != runs[0].subject_ids for r in (*runs, *beside)):
            raise ValueError(f"two learners tested other people with seed {seed}.")
        moves = _moves(runs, beside, metric)
        weighed = np.zeros(n_draws)
        for site, ids in runs[0].subject_ids.items():
            d = np.array([moves[site, who] for who in ids])
            weights = subject_weights(site, ids, runs[0].y[site], n_draws)
            weighed += weights @ d
            value += float(d.sum())
        draws += trainings[seed] * weighed
    return value / len(left), draws / len(left)

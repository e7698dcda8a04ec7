r"""Bootstrap intervals of differences in AAA, from what each tested person moves them by (`person_shares`).

The bootstrap is that of `fcforge.evaluation.comparison`, with so many draws (10,000) that the printed digits
do not hang on chance. A draw weighs people, and the weights of each class of a site's test part sum to
its number of people, so that the denominators of accuracy and AUROC do not change. So it is a product:
:math:`\Delta_b = \sum_i w_{bi} d_i`.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from person_shares import moves

from fcforge.core.estimate import Estimate
from fcforge.core.result import RunResult
from fcforge.evaluation.resampling import (
    interval,
    pair_of,
    subject_weights,
    training_weights,
)

N_DRAWS = 10_000


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
        moved = moves(runs, beside, metric)
        weighed = np.zeros(n_draws)
        for site, ids in runs[0].subject_ids.items():
            d = np.array([moved[site, who] for who in ids])
            weights = subject_weights(site, ids, runs[0].y[site], n_draws)
            weighed += weights @ d
            value += float(d.sum())
        draws += trainings[seed] * weighed
    return value / len(left), draws / len(left)

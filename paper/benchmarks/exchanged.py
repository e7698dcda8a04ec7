r"""p-values of the permutation test over subjects with a hundred thousand permutations.

The test is that of `fcforge.evaluation.comparison`: in a permutation every subject tosses one coin and, on
heads, exchanges its scores between two learners in all orders, stages and seeds. Accuracy and
AUROC (by DeLong's placements) are sums over subjects whose denominators an exchange leaves alone,
and so is their average along the way. So a subject moves the difference of two learners by
:math:`\pm d_i`, whatever the others do, and a permutation is one row of a product:

.. math:: \Delta = \sum_i d_i, \qquad \Delta_\pi = \sum_i s_{\pi i} d_i, \quad s = \pm 1.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from fcforge.core.randomness import numpy_rng
from fcforge.core.result import RunResult
from fcforge.evaluation.metrics import features_of, metric_named
from fcforge.evaluation.resampling import pair_of

N_PERMUTATIONS = 100_000
AT_ONCE = 10_000
Person = tuple[str, str]  # site, id


def shares(run: RunResult, metric: str) -> dict[Person, float]:
    """Return what each tested person adds to a run's accuracy or AUROC, averaged over stages."""
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
    known = {id(r): shares(r, metric) for both in pairs for runs in both for r in runs}
    moves = [_moves(a, b, known) for a, b in pairs]
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
    a: Sequence[RunResult],
    b: Sequence[RunResult],
    known: Mapping[int, Mapping[Person, float]],
) -> dict[Person, float]:
    """Return how far each person moves the sum over runs of A minus B."""
    others = {pair_of(r): r for r in b}
    results: dict[Person, float] = defaultdict(float)
    for run in a:
        other = others.get(pair_of(run))
        if other is not None:
            for sign, one in ((1, run), (-1, other)):
                for who, share in known[id(one)].items():
                    results[who] += sign * share
    return results

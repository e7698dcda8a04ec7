r"""p-values of differences in AAA, from what each tested person moves them by (`person_shares`).

The test is that of `fcforge.evaluation.comparison`, with so many permutations (100,000) that the printed
digits do not hang on chance. In a permutation every subject tosses one coin and, on heads, exchanges
its scores between two learners in all orders, stages and seeds. The denominators of accuracy and AUROC
are left alone by an exchange. So a permutation is one row of a product:

.. math:: \Delta = \sum_i d_i, \qquad \Delta_\pi = \sum_i s_{\pi i} d_i, \quad s = \pm 1.
"""

from collections.abc import Sequence

import numpy as np
from person_shares import moves

from fcforge.core.randomness import numpy_rng
from fcforge.core.result import RunResult

N_PERMUTATIONS = 100_000
AT_ONCE = 10_000


def p_values(
    pairs: Sequence[tuple[Sequence[RunResult], Sequence[RunResult]]],
    metric: str = "accuracy",
) -> list[float]:
    """Two-sided p of every A minus B, over the (order, seed) pairs that both have."""
    moved = [moves(a, b, metric) for a, b in pairs]
    people = sorted({who for of_pair in moved for who in of_pair})
    d = np.array([[of_pair.get(who, 0.0) for of_pair in moved] for who in people])
    # Rounding must not make an exactly equal permutation look smaller.
    least = np.abs(d.sum(0)) - 1e-6
    rng = numpy_rng(0, "exchanged")
    extreme = np.zeros(len(pairs))
    for _ in range(N_PERMUTATIONS // AT_ONCE):
        coins = rng.integers(0, 2, (AT_ONCE, len(people)), dtype=np.int8)
        nulls = np.abs((2.0 * coins - 1) @ d)
        extreme += (~(nulls < least)).sum(0)  # a difference that is NaN: p is 1
    return ((1 + extreme) / (1 + N_PERMUTATIONS)).tolist()

"""Permutations as sums over subjects: the same test as the product's, by hand and beside it."""

from itertools import product

import numpy as np
import permutation_p_values
import pytest

from fake_runs import fake_learner, run
from fcforge.evaluation.comparison import compare


def test_p_value_of_every_exchange_by_hand():
    """Six people, A knows five and B two: one of four exchanges is as extreme."""
    y = np.array([0, 1, 0, 1, 0, 1])
    right = np.where(y == 1, 0.9, 0.1)
    a = run({"A": [np.where(np.arange(6) < 5, right, 1 - right)]}, {"A": y})
    b = run({"A": [np.where(np.arange(6) < 2, right, 1 - right)]}, {"A": y})
    sums = [
        abs(sum(signs)) for signs in product((1, -1), repeat=3)
    ]  # they agree on others
    exact = np.mean([total >= 3 for total in sums])
    assert exact == 0.25
    found = permutation_p_values.p_values([([a], [b]), ([a], [a])])
    assert found == pytest.approx([exact, 1], abs=0.005)


@pytest.mark.parametrize("metric", ["accuracy", "auroc"])
def test_it_is_the_test_of_compare(metric):
    a = fake_learner("a", skill=1.2, seeds=(0,))
    b = fake_learner("b", skill=1.2, seeds=(0,))
    theirs = compare(a, b, metric=metric, n_draws=2000).p_value
    spread = (theirs * (1 - theirs) / 2000) ** 0.5
    assert 0.001 < theirs < 0.999
    assert permutation_p_values.p_values([(a, b)], metric)[0] == pytest.approx(
        theirs, abs=4 * spread
    )


def test_a_difference_that_is_not_defined_is_no_finding():
    y = np.zeros(6, dtype=int)  # no patient: no AUROC
    a, b = (run({"A": [np.linspace(low, 0.9, 6)]}, {"A": y}) for low in (0.1, 0.2))
    assert permutation_p_values.p_values([([a], [b])], "auroc") == [1]

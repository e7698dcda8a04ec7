"""Permutations as sums over subjects: the same test as the product's, by hand and beside it."""

from dataclasses import replace
from itertools import product

import exchanged
import numpy as np
import pytest

from fake_runs import fake_learner, run
from fcforge.evaluation.comparison import Comparer, compare
from fcforge.evaluation.forgetting import summary


@pytest.mark.parametrize("metric", ["accuracy", "auroc"])
def test_what_people_add_makes_the_average_along_the_way(metric):
    for one in fake_learner("a", skill=1.1)[:3]:
        added = exchanged.shares(one, metric)
        assert sum(added.values()) == pytest.approx(summary(one, metric)["aaa"])
        assert len(added) == sum(len(ids) for ids in one.subject_ids.values())


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
    found = exchanged.p_values([([a], [b]), ([a], [a])])
    assert found == pytest.approx([exact, 1], abs=0.005)


@pytest.mark.parametrize("metric", ["accuracy", "auroc"])
def test_it_is_the_test_of_compare(metric):
    a = fake_learner("a", skill=1.2, seeds=(0,))
    b = fake_learner("b", skill=1.2, seeds=(0,))
    theirs = compare(a, b, metric=metric, n_draws=2000).p_value
    spread = (theirs * (1 - theirs) / 2000) ** 0.5
    assert 0.001 < theirs < 0.999
    assert exchanged.p_values([(a, b)], metric)[0] == pytest.approx(
        theirs, abs=4 * spread
    )


def test_a_difference_that_is_not_defined_is_no_finding():
    y = np.zeros(6, dtype=int)  # no patient: no AUROC
    a, b = (run({"A": [np.linspace(low, 0.9, 6)]}, {"A": y}) for low in (0.1, 0.2))
    assert exchanged.p_values([([a], [b])], "auroc") == [1]


@pytest.mark.parametrize("metric", ["accuracy", "auroc"])
def test_intervals_are_those_of_compare(metric):
    """With as many draws they are the same to rounding."""
    a = fake_learner("a", skill=1.2, seeds=(0, 1, 2))
    b = fake_learner("b", skill=1.0, seeds=(0, 1, 2))
    theirs = compare(a, b, metric=metric, n_draws=500)
    ours = exchanged.intervals([(a, b)], metric, n_draws=500)[0]
    expected = (theirs.difference, theirs.low, theirs.high)
    assert (ours.value, ours.low, ours.high) == pytest.approx(expected, abs=1e-9)


def test_a_change_of_differences_is_that_of_the_product():
    a, b, c, d = (
        fake_learner("x", skill=skill, seeds=(0, 1, 2))
        for skill in (1.4, 1.0, 1.2, 0.9)
    )
    theirs = Comparer(n_draws=500).change((a, b), (c, d))
    ours = exchanged.change((a, b), (c, d), n_draws=500)
    expected = (theirs.value, theirs.low, theirs.high)
    assert (ours.value, ours.low, ours.high) == pytest.approx(expected, abs=1e-9)


def test_learners_that_tested_other_people_are_not_compared():
    a = fake_learner("a", skill=1.2, seeds=(0,))
    others = [
        replace(
            r,
            subject_ids={
                s: tuple(f"{i}x" for i in ids) for s, ids in r.subject_ids.items()
            },
        )
        for r in a
    ]
    with pytest.raises(ValueError, match="other people with seed 0"):
        exchanged.intervals([(a, others)])

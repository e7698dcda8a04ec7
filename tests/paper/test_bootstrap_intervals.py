"""The bootstrap as sums over subjects: the same intervals as the product's."""

from dataclasses import replace

import bootstrap_intervals
import pytest

from fake_runs import fake_learner
from fcforge.evaluation.comparison import Comparer, compare


@pytest.mark.parametrize("metric", ["accuracy", "auroc"])
def test_intervals_are_those_of_compare(metric):
    """With as many draws they are the same to rounding."""
    a = fake_learner("a", skill=1.2, seeds=(0, 1, 2))
    b = fake_learner("b", skill=1.0, seeds=(0, 1, 2))
    theirs = compare(a, b, metric=metric, n_draws=500)
    ours = bootstrap_intervals.intervals([(a, b)], metric, n_draws=500)[0]
    expected = (theirs.difference, theirs.low, theirs.high)
    assert (ours.value, ours.low, ours.high) == pytest.approx(expected, abs=1e-9)


def test_a_change_of_differences_is_that_of_the_product():
    a, b, c, d = (
        fake_learner("x", skill=skill, seeds=(0, 1, 2))
        for skill in (1.4, 1.0, 1.2, 0.9)
    )
    theirs = Comparer(n_draws=500).change((a, b), (c, d))
    ours = bootstrap_intervals.change((a, b), (c, d), n_draws=500)
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
        bootstrap_intervals.intervals([(a, others)])

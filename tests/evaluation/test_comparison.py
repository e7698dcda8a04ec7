"""Comparisons are paired, their p-values uniform under the null and corrected for their number."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from fake_runs import fake_learner, run
from fcforge.core.errors import DataError
from fcforge.evaluation.comparison import Comparer, Comparison, compare, holm
from fcforge.evaluation.forgetting import summary
from fcforge.evaluation.resampling import estimate


def test_comparison_is_paired():
    """B errs on three subjects more than A: the paired interval is far narrower than two."""
    rng = np.random.default_rng(3)
    y = np.tile([0, 1], 50)
    right = rng.random(100) < 0.65
    also_wrong = right.copy()
    also_wrong[np.flatnonzero(right)[:6]] = False
    runs = []
    for hits in (right, also_wrong):
        p = np.where(hits, y * 0.8 + 0.1, 0.9 - y * 0.8)
        runs.append(run({"A": [p]}, {"A": y}))
    c = compare(runs[:1], runs[1:], summary="acc")
    single = estimate(runs[:1], names=("acc",))["acc"]
    assert c.difference == pytest.approx(0.06)
    assert c.low > 0
    assert c.high - c.low < 0.6 * (single.high - single.low)
    # Six subjects differ, all the same way: 2 of 2**6 sign patterns are as extreme.
    assert c.p_value == pytest.approx(2 / 64, abs=0.02)
    back = compare(runs[1:], runs[:1], summary="acc")
    assert (back.difference, back.low) == pytest.approx((-c.difference, -c.high))


def test_permutation_p_is_uniform_under_the_null():
    rng, p_values = np.random.default_rng(4), []
    y = np.tile([0, 1], 30)
    for k in range(200):
        ids = {"A": tuple(f"{k}-{i}" for i in range(60))}
        pair = [run({"A": [rng.random(60)]}, {"A": y}, subject_ids=ids) for _ in "ab"]
        p_values.append(compare(pair[:1], pair[1:], summary="acc", n_draws=199).p_value)
    assert np.mean(np.array(p_values) <= 0.05) <= 0.09
    assert 0.4 < np.mean(p_values) < 0.65


def test_compare_uses_shared_pairs_only():
    a = fake_learner("a", skill=1.5, seeds=(0, 1))
    b = fake_learner("b", skill=0.8, seeds=(1, 2))
    c = compare(a, b, n_draws=100)
    assert c.low > 0
    with pytest.raises(DataError, match="share no"):
        compare(a, fake_learner("c", seeds=(7,)))
    moved = [
        replace(r, subject_ids={s: r.subject_ids[s][::-1] for s in r.sites}) for r in a
    ]
    with pytest.raises(DataError, match="different subjects"):
        compare(a, moved)


def test_compare_equals_difference_of_means():
    a = fake_learner("a", forgets=0.3, seeds=(0, 1))
    b = fake_learner("b", forgets=0.1, seeds=(0, 1))
    c = compare(a, b, metric="auroc", summary="fm", n_draws=50)
    gap = np.mean([summary(r, "auroc")["fm"] for r in a])
    gap -= np.mean([summary(r, "auroc")["fm"] for r in b])
    assert c.difference == pytest.approx(gap)


def test_a_comparer_gives_what_compare_gives():
    a, b, c = (
        fake_learner(t, skill=k, seeds=(0, 1))
        for t, k in (("a", 1), ("b", 1.2), ("c", 0.8))
    )
    comparer = Comparer(n_draws=60)
    for x, y in ((a, b), (a, c), (b, c), (a, b)):
        again = asdict(compare(x, y, n_draws=60))
        assert asdict(comparer.compare(x, y)) == pytest.approx(again, nan_ok=True)


def test_a_change_of_a_difference_is_paired():
    """A gain that other thresholds take away: +.06 with one half, 0 with the learners' own."""
    y = np.tile([0, 1], 50)
    good = y * 0.8 + 0.1
    high = (
        0.42 + 0.2 * good
    )  # same order, three controls and no patient on the wrong side
    high[np.flatnonzero(y == 0)[:6]] += 0.07
    one, other, cut = (run({"A": [p]}, {"A": y}) for p in (good, high, good))
    comparer = Comparer(summary="acc")
    first, second = ([one], [other]), ([one], [cut])
    found = comparer.change(first, second)
    plain = comparer.compare(*first)
    assert found.value == pytest.approx(plain.difference)
    assert found.value == pytest.approx(0.06)
    assert (found.low, found.high) == pytest.approx((plain.low, plain.high))
    assert comparer.change(first, first).high == 0.0
    with pytest.raises(DataError, match="share no"):
        comparer.change(first, ([run({"A": [good]}, {"A": y}, seed=1)],) * 2)


def test_holm_by_hand():
    made = [Comparison(0, 0, 0, p, 1, 0.5) for p in (0.04, 0.01, 0.03, 0.5)]
    assert [c.p_holm for c in holm(made)] == pytest.approx([0.09, 0.04, 0.09, 0.5])
    assert [c.p_value for c in holm(made)] == [0.04, 0.01, 0.03, 0.5]
    assert holm([]) == []


def test_a_corrected_p_value_inherited_from_a_bound_is_a_bound():
    """Three times the floor of 99 permutations is more than twice the next p-value."""
    made = [Comparison(0, 0, 0, p, 1, 0.5, n_draws=99) for p in (0.4, 0.01, 0.0125)]
    found = holm(made)
    assert [c.p_holm for c in found] == pytest.approx([0.4, 0.03, 0.03])
    assert [c.holm_at_floor for c in found] == [False, True, True]
    assert [c.at_floor for c in found] == [False, True, False]


def test_holm_never_exceeds_one_nor_changes_the_order():
    made = [Comparison(0, 0, 0, p, 1, 0.5) for p in (0.6, 0.7, 0.5)]
    assert [c.p_holm for c in holm(made)] == [1, 1, 1]


def test_a_difference_of_noisy_trainings_has_a_wide_interval():
    """A is better on two seeds of three by luck: subjects alone would call that certain."""
    y = np.tile([0, 1], 40)
    right, wrong = (
        np.where(y == 1, 0.9, 0.1),
        np.where(np.arange(80) % 4 == 0, 1 - y, y) * 0.8 + 0.1,
    )
    a = [run({"A": [p]}, {"A": y}, seed=k) for k, p in enumerate((right, right, wrong))]
    b = [run({"A": [p]}, {"A": y}, seed=k) for k, p in enumerate((wrong, wrong, right))]
    c = compare(a, b, summary="acc")
    assert c.difference == pytest.approx(0.25 / 3)
    assert c.low < 0 < c.high


def test_a_p_value_that_no_permutation_reached_is_a_bound():
    y = np.tile([0, 1], 50)
    right = run({"A": [y * 0.8 + 0.1]}, {"A": y})
    wrong = run({"A": [0.9 - y * 0.8]}, {"A": y})
    found = compare([right], [wrong], n_draws=99)
    assert (found.p_value, found.at_floor) == (0.01, True)
    assert holm([found, found])[0].holm_at_floor
    same = compare([right], [right], n_draws=99)
    assert (same.p_value, same.at_floor) == (1.0, False)
    assert not Comparison(0.1, 0.0, 0.2, 0.0001, 5, 0.5).at_floor  # a t test

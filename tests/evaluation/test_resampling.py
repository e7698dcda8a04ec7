"""Intervals cover other subjects and trainings; forgetting without the luck of a maximum."""

from dataclasses import replace

import numpy as np
import pytest

from fake_runs import SITES, fake_learner, run
from fcforge.evaluation.forgetting import limits_of, summary
from fcforge.evaluation.metrics import UNLIMITED
from fcforge.evaluation.pooled import pooled_estimate
from fcforge.evaluation.resampling import (
    at_site,
    estimate,
    halves,
    interval,
    measure,
    per_site,
    subject_weights,
    training_weights,
)


def test_weights_belong_to_the_subject():
    y = np.array([0, 0, 1, 1])
    w = subject_weights("A", ["s1", "s2", "s3", "s4"], y, 500)
    assert w[:, :2].sum(1) == pytest.approx(2)
    assert w[:, 2:].sum(1) == pytest.approx(2)
    assert (w >= 0).all()
    # The ratio of two subjects of a class survives any change of the others.
    v = subject_weights("A", ["s4", "s9", "s3"], np.array([1, 0, 1]), 500)
    assert v[:, 0] / v[:, 2] == pytest.approx(w[:, 3] / w[:, 2])
    other_site = subject_weights("B", ["s1", "s2", "s3", "s4"], y, 500)
    assert not np.allclose(other_site, w)


def test_interval_covers_the_truth():
    """300 toy experiments with accuracy .7: about 95 % of the intervals hold it."""
    rng, covered, widths = np.random.default_rng(0), [], []
    y = np.repeat([0, 1], [40, 40])
    for k in range(300):
        right = rng.random(80) < 0.7
        p = np.where(right, y * 0.8 + 0.1, 0.9 - y * 0.8)
        ids = {"A": tuple(f"{k}-{i}" for i in range(80))}
        e = estimate(
            [run({"A": [p]}, {"A": y}, subject_ids=ids)], names=("acc",), n_draws=300
        )["acc"]
        covered.append(e.low <= 0.7 <= e.high)
        widths.append(e.high - e.low)
    assert 0.90 <= np.mean(covered) <= 0.98
    assert np.mean(widths) == pytest.approx(2 * 1.96 * np.sqrt(0.21 / 80), rel=0.08)


def test_mean_and_sd_over_orders():
    runs = fake_learner("x", forgets=0.3)
    e = estimate(runs, n_draws=50)
    by_hand = {}
    for r in runs:
        by_hand.setdefault(r.spec.order, []).append(summary(r)["fm"])
    means = [np.mean(v) for v in by_hand.values()]
    assert len(means) == 24
    assert e["fm"].value == pytest.approx(np.mean(means))
    assert e["fm"].sd_orders == pytest.approx(np.std(means, ddof=1))
    assert e["fm"].low < e["fm"].value < e["fm"].high


def test_more_seeds_of_the_same_split_do_not_shrink_the_interval():
    """Runs that repeat the same answers of the same subjects are no new evidence."""
    one = fake_learner("x", seeds=(0,), orders=[SITES])
    many = [replace(r, spec=replace(r.spec, seed=s)) for r in one for s in range(10)]
    a = estimate(one, names=("aaa",), n_draws=200)["aaa"]
    b = estimate(many, names=("aaa",), n_draws=200)["aaa"]
    assert (b.low, b.high) == pytest.approx((a.low, a.high))


def test_per_site():
    runs = fake_learner("x", skill=1.2, forgets=0.3)
    found = per_site(runs)
    assert list(found) == list(SITES)
    assert np.mean([e.value for e in found.values()]) == pytest.approx(
        estimate(runs, names=("acc",), n_draws=2)["acc"].value
    )
    assert all(e.low < e.value < e.high for e in found.values())


def test_training_weights_give_the_variance_of_a_mean():
    """Gamma of shape (n - 2) / n: the variance of a weighted mean of n numbers is s^2 / n."""
    values = np.array([0.3, 0.9, 0.4, 0.7, 0.2])
    runs = [run({"A": [[0.9, 0.1]]}, {"A": [1, 0]}, seed=k) for k in range(5)]
    weights = training_weights(runs, 40_000)
    assert weights.mean(0) == pytest.approx(1)
    means = (weights * values[:, None]).mean(0)
    assert means.mean() == pytest.approx(values.mean(), abs=0.005)
    assert means.var() == pytest.approx(values.var(ddof=1) / 5, rel=0.05)
    assert (training_weights(runs[:2], 10) == 1).all()


def test_folds_of_one_repeat_weigh_alike():
    runs = [run({"A": [[0.9, 0.1]]}, {"A": [1, 0]}, seed=k) for k in range(6)]
    runs = [replace(r, spec=replace(r.spec, folds=2)) for r in runs]
    weights = training_weights(runs, 50)
    assert (weights[::2] == weights[1::2]).all()
    assert not np.allclose(weights[0], weights[2])


def test_interval_covers_the_truth_of_noisy_trainings():
    """Five trainings whose accuracy is .7 give or take .08, on the same subjects."""
    rng, covered, narrow = np.random.default_rng(1), [], []
    y = np.repeat([0, 1], [60, 60])
    for k in range(150):
        ids = {"A": tuple(f"{k}-{i}" for i in range(120))}
        runs = []
        for seed in range(5):
            right = rng.random(120) < 0.7 + 0.08 * rng.normal()
            p = np.where(right, y * 0.8 + 0.1, 0.9 - y * 0.8)
            runs.append(run({"A": [p]}, {"A": y}, seed=seed, subject_ids=ids))
        e = estimate(runs, names=("acc",), n_draws=300)["acc"]
        covered.append(e.low <= 0.7 <= e.high)
        alone = estimate(runs[:2], names=("acc",), n_draws=300)["acc"]
        narrow.append(alone.low <= 0.7 <= alone.high)
    assert np.mean(covered) >= 0.88
    assert np.mean(narrow) < 0.86  # over subjects alone


def test_halves_hold_half_of_each_class():
    y = np.array([0, 0, 0, 1, 1, 1, 1])
    half = halves("A", tuple("abcdefg"), tuple(y.tolist()), 400)
    assert set(half[:, :3].sum(1)) == {1, 2}  # odd: rounded up as often as down
    assert half[:, :3].sum(1).mean() == pytest.approx(1.5, abs=0.1)
    assert (half[:, 3:].sum(1) == 2).all()
    assert half.mean(0) == pytest.approx(np.full(7, 0.5), abs=0.1)


def test_forgetting_of_coins_is_luck_and_nothing_else():
    """Scores that know nothing: FM is above zero, its unbiased form is not."""
    rng, y = np.random.default_rng(2), np.tile([0, 1], 15)
    labels = dict.fromkeys("ABCD", y)
    runs = [
        run({s: rng.random((4, 30)) for s in "ABCD"}, labels, seed=k, order="ABCD")
        for k in range(400)
    ]
    found = estimate(runs, names=("fm", "fm_split"), n_draws=20)
    assert found["fm"].value > 0.035
    assert abs(found["fm_split"].value) < 0.015
    width = found["fm"].high - found["fm"].low
    assert found["fm_split"].high - found["fm_split"].low == pytest.approx(width)


def test_true_forgetting_is_kept():
    """Everything right, then half of it: both forms say .5."""
    y = np.tile([0, 1], 10)
    right, half = (
        np.where(y == 1, 0.9, 0.1),
        np.where(np.arange(20) < 10, y, 1 - y) * 0.8 + 0.1,
    )
    one = run(
        {"A": [right, right, half], "B": [right] * 3, "C": [right] * 3},
        dict.fromkeys("ABC", y),
    )
    found = estimate([one], names=("fm", "fm_split"), n_draws=10)
    assert found["fm"].value == pytest.approx(0.25)
    assert found["fm_split"].value == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize("turned", [False, True])
def test_an_interval_ends_where_its_metric_does(turned):
    """Two people of forty on the wrong side: draws lie close to the end, shifted ones beyond."""
    y = np.repeat([0, 1], 20)
    p = np.linspace(0.01, 0.99, 40)
    p[[0, 20]] = (0.52, 0.48)
    ids = [f"s{i}" for i in range(40)]
    found = measure(1 - p if turned else p, y, ids)
    for name in ("accuracy", "auroc", "brier", "ece"):
        assert 0 <= found[name].low <= found[name].value <= found[name].high <= 1, name
    assert found["auroc"].value == pytest.approx(0.005 if turned else 0.995)


def near_perfect_runs():
    """Three seeds, right about nearly everybody at both sites."""
    y = np.repeat([0, 1], [12, 12])
    rng = np.random.default_rng(0)
    runs = []
    for seed in range(3):
        p = 1 / (1 + np.exp(3.5 - 7 * y + 2.6 * rng.normal(size=(2, 24))))
        scores = {"A": p, "B": p}
        runs.append(run(scores, {"A": y, "B": y}, seed=seed))
    return runs


def test_intervals_end_where_the_metric_does():
    runs = near_perfect_runs()
    for metric in ("auroc", "accuracy", "brier"):
        found = [*estimate(runs, metric, ("acc", "aaa")).values()]
        found += [at_site(runs, "A", metric), pooled_estimate(runs, "accuracy")]
        for e in found:
            assert 0 <= e.low <= e.value <= e.high <= 1, (metric, e)
    uncut = at_site(runs, "A", "auroc", limits=UNLIMITED)
    assert uncut.high > 1.001  # else this test would show nothing
    assert at_site(runs, "A", "auroc").high == 1
    assert at_site(runs, "A", "auroc").low == uncut.low


def test_limits_of_differences():
    assert limits_of("auroc", "aaa") == (0, 1)
    assert limits_of("auroc", "fm") == (-1, 1)
    assert limits_of("spearman", "bwt") == (-2, 2)
    assert limits_of("r2", "fm_split") == (-np.inf, np.inf)
    draws = np.array([[-2.0, -2.0], [0.5, 0.5], [2.0, 2.0]])
    limits = np.array([[0.0, -1.0], [1.0, 1.0]])
    ends = interval(np.array([0.5, 0.5]), draws, limits)
    assert ends.tolist() == [[0, -1], [1, 1]]

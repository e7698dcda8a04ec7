"""Intervals cover, comparisons are paired, the table is honest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fake_runs import KEEPS, SITES, fake_experiment, fake_learner, run
from fcforge import metrics as m
from fcforge import stats
from fcforge.errors import DataError
from fcforge.types import Component, Leaks, LearnerSpec


def test_weights_belong_to_the_subject():
    y = np.array([0, 0, 1, 1])
    w = stats.subject_weights("A", ["s1", "s2", "s3", "s4"], y, 500)
    assert w[:, :2].sum(1) == pytest.approx(2)
    assert w[:, 2:].sum(1) == pytest.approx(2)
    assert (w >= 0).all()
    # The ratio of two subjects of a class survives any change of the others.
    v = stats.subject_weights("A", ["s4", "s9", "s3"], np.array([1, 0, 1]), 500)
    assert v[:, 0] / v[:, 2] == pytest.approx(w[:, 3] / w[:, 2])
    other_site = stats.subject_weights("B", ["s1", "s2", "s3", "s4"], y, 500)
    assert not np.allclose(other_site, w)


def test_interval_covers_the_truth():
    """300 toy experiments with accuracy .7: about 95 % of the intervals hold it."""
    rng, covered, widths = np.random.default_rng(0), [], []
    y = np.repeat([0, 1], [40, 40])
    for k in range(300):
        right = rng.random(80) < 0.7
        p = np.where(right, y * 0.8 + 0.1, 0.9 - y * 0.8)
        ids = {"A": tuple(f"{k}-{i}" for i in range(80))}
        e = stats.estimate(
            [run({"A": [p]}, {"A": y}, subject_ids=ids)], names=("acc",), n_draws=300
        )["acc"]
        covered.append(e.low <= 0.7 <= e.high)
        widths.append(e.high - e.low)
    assert 0.90 <= np.mean(covered) <= 0.98
    assert np.mean(widths) == pytest.approx(2 * 1.96 * np.sqrt(0.21 / 80), rel=0.08)


def test_mean_and_sd_over_orders():
    runs = fake_learner("x", forgets=0.3)
    e = stats.estimate(runs, n_draws=50)
    by_hand = {}
    for r in runs:
        by_hand.setdefault(r.spec.order, []).append(m.summary(r)["fm"])
    means = [np.mean(v) for v in by_hand.values()]
    assert len(means) == 24
    assert e["fm"].mean == pytest.approx(np.mean(means))
    assert e["fm"].sd_orders == pytest.approx(np.std(means, ddof=1))
    assert e["fm"].low < e["fm"].mean < e["fm"].high


def test_more_seeds_of_the_same_split_do_not_shrink_the_interval():
    """Runs that repeat the same answers of the same subjects are no new evidence."""
    one = fake_learner("x", seeds=(0,), orders=[SITES])
    many = [replace(r, spec=replace(r.spec, seed=s)) for r in one for s in range(10)]
    a = stats.estimate(one, names=("aaa",), n_draws=200)["aaa"]
    b = stats.estimate(many, names=("aaa",), n_draws=200)["aaa"]
    assert (b.low, b.high) == pytest.approx((a.low, a.high))


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
    c = stats.compare(runs[:1], runs[1:], summary="acc")
    single = stats.estimate(runs[:1], names=("acc",))["acc"]
    assert c.difference == pytest.approx(0.06)
    assert c.low > 0
    assert c.high - c.low < 0.6 * (single.high - single.low)
    # Six subjects differ, all the same way: 2 of 2**6 sign patterns are as extreme.
    assert c.p_value == pytest.approx(2 / 64, abs=0.02)
    back = stats.compare(runs[1:], runs[:1], summary="acc")
    assert (back.difference, back.low) == pytest.approx((-c.difference, -c.high))


def test_permutation_p_is_uniform_under_the_null():
    rng, p_values = np.random.default_rng(4), []
    y = np.tile([0, 1], 30)
    for k in range(200):
        ids = {"A": tuple(f"{k}-{i}" for i in range(60))}
        pair = [run({"A": [rng.random(60)]}, {"A": y}, subject_ids=ids) for _ in "ab"]
        p_values.append(stats.compare(pair[:1], pair[1:], summary="acc", n_draws=199).p_value)
    assert np.mean(np.array(p_values) <= 0.05) <= 0.09
    assert 0.4 < np.mean(p_values) < 0.65


def test_compare_uses_shared_pairs_only():
    a = fake_learner("a", skill=1.5, seeds=(0, 1))
    b = fake_learner("b", skill=0.8, seeds=(1, 2))
    c = stats.compare(a, b, n_draws=100)
    assert c.n_pairs == 24
    assert c.low > 0
    assert c.wins == 1.0
    with pytest.raises(DataError, match="share no"):
        stats.compare(a, fake_learner("c", seeds=(7,)))
    moved = [replace(r, subject_ids={s: r.subject_ids[s][::-1] for s in r.sites}) for r in a]
    with pytest.raises(DataError, match="different subjects"):
        stats.compare(a, moved)


def test_compare_equals_difference_of_means():
    a = fake_learner("a", forgets=0.3, seeds=(0, 1))
    b = fake_learner("b", forgets=0.1, seeds=(0, 1))
    c = stats.compare(a, b, metric="auroc", summary="fm", n_draws=50)
    gap = np.mean([m.summary(r, "auroc")["fm"] for r in a])
    gap -= np.mean([m.summary(r, "auroc")["fm"] for r in b])
    assert c.difference == pytest.approx(gap)


def test_per_site():
    runs = fake_learner("x", skill=1.2, forgets=0.3)
    found = stats.per_site(runs, n_draws=200)
    assert list(found) == list(SITES)
    assert np.mean([e.mean for e in found.values()]) == pytest.approx(
        stats.estimate(runs, names=("acc",), n_draws=2)["acc"].mean
    )
    assert all(e.low < e.mean < e.high for e in found.values())


def test_table_has_the_majority_row_and_all_columns():
    df = stats.table(fake_experiment(seeds=(0,)), keeps=KEEPS, n_draws=50)
    assert df.learner[0] == "majority class"
    assert df.aaa[0] == pytest.approx(1 - np.mean(0.4), abs=0.06)
    assert list(df.learner[1:]) == list(df[1:].sort_values("aaa", ascending=False).learner)
    for c in stats.COLUMNS:
        assert {c.key, f"{c.key}_low", f"{c.key}_high", f"{c.key}_sd"} <= set(df)
    at = df.set_index("learner")
    assert at.keeps["cumulative/gcn"] == "real subjects"
    assert at.fm["finetune/gcn"] > at.fm["FORGE/gcn"] > at.fm["cumulative/gcn"]
    assert at.memory_bytes["ewc/gcn"] == 420_000
    assert at.seconds["ewc/gcn"] == 4.0
    assert at.intransigence["cumulative/gcn"] == 0
    assert np.isnan(at.intransigence["analytic ridge"])


def test_majority_is_not_added_twice():
    runs = fake_learner("x", seeds=(0,))
    own = LearnerSpec(Component("majority"), Component("none"), title="mine")
    own_runs = [replace(r, spec=replace(r.spec, learner=own)) for r in runs]
    assert len(stats.with_majority([*runs, *own_runs])) == 48
    assert len(stats.with_majority(runs)) == 48
    with pytest.raises(DataError, match="no finished run"):
        stats.with_majority([])


def texts(results, **kwargs):
    return "\n".join(f"{f.learner}: {f.text}" for f in stats.findings(results, **kwargs))


def test_findings_name_what_is_wrong():
    good = fake_learner("good", skill=1.5)
    assert texts(good, expected=72) == ""
    assert "only 1 seed" in texts(fake_learner("good", seeds=(0,), skill=1.5))
    assert "28 of 100 runs are missing" in texts(good, expected=100)
    stuck = fake_learner("stuck", constant=True)
    assert "stuck: calls everybody the same in 720 of 720" in texts([*good, *stuck])
    assert "good: calls" not in texts([*good, *stuck])
    leaky = fake_learner("leaky", skill=1.5, leaks=Leaks(select_on_test=True))
    assert "leaky: was run with test data leaking in: select_on_test" in texts([*good, *leaky])
    assert stats.leaks_on([*good, *leaky]) == {"leaky": ("select_on_test",)}
    assert "lacks 2 of 72 (order, seed) pairs" in texts([*good, *leaky[2:]])


def test_diverged_runs_are_counted_and_left_out():
    good = fake_learner("x", skill=1.5)
    broken = {s: v.copy() for s, v in good[0].scores.items()}
    broken["UM"][2, 5] = np.nan
    runs = [replace(good[0], scores=broken), *good[1:]]
    assert "1 of 72 runs diverged" in texts(runs)
    row = stats.rows(runs, n_draws=20)[1]
    assert (row.n_runs, row.n_left_out) == (71, 1)
    assert np.isfinite(row.estimates["aaa"].mean)


def test_worse_than_majority_is_said():
    runs = fake_learner("weak", skill=0.1)
    majority = stats.group(stats.with_majority(runs))["majority class"]
    c = stats.compare(runs, majority, n_draws=200)
    assert "weak: is below always naming the commonest class" in texts(
        runs, against_majority={"weak": c}
    )


def test_duplicate_runs_of_one_title_are_named():
    runs = fake_learner("x", skill=1.5)
    assert "more than one run" in texts([*runs, runs[0]])


def test_further_metrics_on_request():
    runs = fake_learner("x", forgets=0.3, seeds=(0, 1))
    df = stats.table(runs, metrics=("brier", "sensitivity"), n_draws=30).set_index("learner")
    assert df.brier["x"] == pytest.approx(np.mean([m.summary(r, "brier")["aaa"] for r in runs]))
    assert df.brier_fm["x"] == pytest.approx(np.mean([m.summary(r, "brier")["fm"] for r in runs]))
    assert df.sensitivity_low["x"] < df.sensitivity["x"] < df.sensitivity_high["x"]
    assert stats.means(runs, "brier", ("fm",))["fm"] == pytest.approx(df.brier_fm["x"])


def test_a_comparer_gives_what_compare_gives():
    a, b, c = (
        fake_learner(t, skill=k, seeds=(0, 1)) for t, k in (("a", 1), ("b", 1.2), ("c", 0.8))
    )
    comparer = stats.Comparer(n_draws=60)
    for x, y in ((a, b), (a, c), (b, c), (a, b)):
        assert comparer.compare(x, y) == stats.compare(x, y, n_draws=60)

"""Metrics by hand, against scikit-learn, and on the golden matrix of methods.md."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sk

from fake_runs import SITES, fake_learner, run
from fcforge import metrics as m
from fcforge.errors import ConfigError

GOLDEN = np.array([[0.70, 0.55, 0.50], [0.80, 0.75, 0.60], [0.58, 0.70, 0.78]])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("aaa", (0.70 + 0.775 + 0.686666666666) / 3),
        ("acc", 0.686666666666),
        ("bwt", -0.085),
        ("fm", 0.135),
        ("for_literal", 0.030),
        ("for_triangular", 0.090),
    ],
)
def test_golden_matrix(name, value):
    assert getattr(m, name)(GOLDEN) == pytest.approx(value, abs=1e-9)


def test_golden_transfer_and_intransigence():
    assert m.aaa(GOLDEN) == pytest.approx(0.72056, abs=5e-6)
    assert m.fwt(GOLDEN, np.full(3, 0.5)) == pytest.approx(0.075)
    assert m.intransigence(GOLDEN, np.array([0.72, 0.78, 0.80])) == pytest.approx(0.0233333333)


def test_golden_curves():
    assert m.accuracy_curve(GOLDEN) == pytest.approx([0.70, 0.775, 0.686666666666])
    curve = m.forgetting_curve(GOLDEN)
    assert np.isnan(curve[0])
    # After two sites: .70 -> .80 is a gain, so forgetting is negative.
    assert curve[1:] == pytest.approx([-0.10, 0.135])


def test_summaries_broadcast_over_leading_axes():
    stacked = np.stack([GOLDEN, GOLDEN + 0.1, GOLDEN * 0])
    for name in ("aaa", "acc", "bwt", "fm", "for_literal", "for_triangular"):
        f = getattr(m, name)
        assert f(stacked) == pytest.approx([float(f(x)) for x in stacked])


def test_undefined_column_is_left_out_and_other_nan_is_not():
    wide = np.insert(np.insert(GOLDEN, 1, GOLDEN[0], axis=0), 1, np.nan, axis=1)
    # A site without patients changes no mean over the other sites at the end.
    assert m.acc(wide) == pytest.approx(0.686666666666)
    assert m.fm(wide) == pytest.approx(0.135)
    broken = GOLDEN.copy()
    broken[2, 0] = np.nan
    assert np.isnan(m.acc(broken))
    assert np.isnan(m.fm(broken))
    assert np.isnan(m.aaa(np.full((3, 3), np.nan)))


def test_one_site_has_no_forgetting():
    a = np.array([[0.8]])
    assert m.aaa(a) == m.acc(a) == pytest.approx(0.8)
    for f in (m.fm, m.for_literal, m.for_triangular, m.bwt):
        assert np.isnan(f(a))


@given(st.integers(2, 6), st.integers(0, 10_000))
def test_forgetting_is_at_least_minus_backward_transfer(n, seed):
    a = np.random.default_rng(seed).random((n, n))
    assert m.fm(a) >= -m.bwt(a) - 1e-12
    assert m.for_triangular(a) == pytest.approx((n - 1) / n * m.fm(a))
    assert m.forgetting_curve(a)[-1] == pytest.approx(m.fm(a))
    assert m.accuracy_curve(a).mean() == pytest.approx(m.aaa(a))


ORACLES = {
    "accuracy": lambda y, p: sk.accuracy_score(y, p > 0.5),
    "balanced_accuracy": lambda y, p: sk.balanced_accuracy_score(y, p > 0.5),
    "auroc": sk.roc_auc_score,
    "sensitivity": lambda y, p: sk.recall_score(y, p > 0.5),
    "specificity": lambda y, p: sk.recall_score(1 - y, p <= 0.5),
    "f1": lambda y, p: sk.f1_score(y, p > 0.5),
    "precision": lambda y, p: sk.precision_score(y, p > 0.5, zero_division=0),
    "brier": sk.brier_score_loss,
}


@pytest.mark.parametrize("metric", ORACLES)
def test_cells_agree_with_sklearn(metric):
    rng = np.random.default_rng(0)
    for n in (5, 31, 60):
        y = (np.arange(n) % 3 == 0).astype(int)
        p = np.round(rng.random((4, n)), 1)  # rounding makes ties
        expected = [ORACLES[metric](y, row) for row in p]
        assert m.cell_values(p, y, metric) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("metric", [*ORACLES, "ece"])
def test_integer_weights_equal_repeated_subjects(metric):
    rng = np.random.default_rng(1)
    y = np.array([0, 1, 0, 1, 1, 0, 0, 1])
    p = rng.random(8)
    w = np.array([[1, 2, 0, 1, 3, 2, 1, 0]])
    found = m.cell_values(p, y, metric, w)[0]
    repeated = m.cell_values(np.repeat(p, w[0]), np.repeat(y, w[0]), metric)
    # AUROC moves to first order only.
    assert found == pytest.approx(repeated, abs=0.06 if metric == "auroc" else 1e-12)


def test_auroc_weights_have_delong_variance():
    rng = np.random.default_rng(2)
    y = np.repeat([0, 1], [30, 20])
    p = rng.normal(size=50) + y
    wins = (p[y == 1][:, None] > p[y == 0]).astype(float)
    delong = wins.mean(1).var(ddof=0) / 20 + wins.mean(0).var(ddof=0) / 30
    w = rng.exponential(size=(20_000, 50))
    for c in (0, 1):
        w[:, y == c] *= (y == c).sum() / w[:, y == c].sum(1, keepdims=True)
    assert m.cell_values(p, y, "auroc", w).var() == pytest.approx(delong, rel=0.08)


def test_ece_by_hand():
    # Bin (.1, .2]: mean score .15 against 1/2 patients; bin (.8, .9]: .85 against 1/1.
    p, y = np.array([0.12, 0.18, 0.85]), np.array([0, 1, 1])
    assert m.cell_values(p, y, "ece") == pytest.approx((abs(0.30 - 1) + abs(0.85 - 1)) / 3)


def test_one_class_and_broken_scores_are_undefined():
    y = np.zeros(4, dtype=int)
    p = np.array([0.1, 0.2, 0.7, 0.4])
    for metric in ("auroc", "sensitivity", "balanced_accuracy"):
        assert np.isnan(m.cell_values(p, y, metric))
    assert m.cell_values(p, y, "accuracy") == 0.75
    p[0] = np.nan
    for metric in m.METRICS:
        assert np.isnan(m.cell_values(p, np.array([0, 1, 0, 1]), metric)), metric


def test_unknown_metric_names_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'accuracy'"):
        m.cell_values(np.ones(2), np.array([0, 1]), "acuracy")


def two_site_run(order):
    scores = {"A": [[0.9, 0.1, 0.8, 0.2], [0.9, 0.9, 0.8, 0.2]], "B": [[0.4, 0.6], [0.9, 0.1]]}
    labels = {"A": [1, 0, 1, 0], "B": [1, 0]}
    initial = {"A": np.full(4, 0.6), "B": np.full(2, 0.6)}
    return run(scores, labels, order=order, initial=initial, train_positive={"A": 0.7, "B": 0.4})


def test_columns_follow_arrival():
    ab, ba = two_site_run("AB"), two_site_run("BA")
    assert m.score_matrix(ab).tolist() == [[1.0, 0.0], [0.75, 1.0]]
    assert m.score_matrix(ba).tolist() == [[0.0, 1.0], [1.0, 0.75]]
    assert m.score_matrix_with_initial(ab, "accuracy")[0].tolist() == [0.5, 0.5]


def test_summary_of_a_run_by_hand():
    s = m.summary(two_site_run("AB"), a_star=np.array([1.0, 0.5]))
    expected = {"acc": 0.875, "aaa": 0.9375, "fm": 0.25, "bwt": -0.25, "for_triangular": 0.125}
    expected |= {"for_literal": (0.25 - 1.0) / 2, "fwt": 0.0 - 0.5, "intransigence": -0.25}
    assert s == pytest.approx(expected)


def test_majority_baseline_of_forward_transfer():
    # B's training part has 40 % patients: everybody control, half right.
    s = m.summary(two_site_run("AB"), baseline="majority")
    assert s["fwt"] == pytest.approx(0.0 - 0.5)
    s = m.summary(two_site_run("BA"), "sensitivity", baseline="majority")
    assert s["fwt"] == pytest.approx(1.0 - 1.0)  # A: 70 % patients, everybody patient


def test_lower_is_better_keeps_the_meaning_of_forgetting():
    """Brier rises from .025 to .225 at A: that is forgetting of +.2."""
    s = m.summary(two_site_run("AB"), "brier")
    before = (0.01 + 0.01 + 0.04 + 0.04) / 4
    after = (0.01 + 0.81 + 0.04 + 0.04) / 4
    assert s["fm"] == pytest.approx(after - before, abs=1e-6)
    assert s["bwt"] == pytest.approx(before - after, abs=1e-6)
    assert s["acc"] == pytest.approx((after + 0.01) / 2, abs=1e-6)


def test_constant_predictor_is_seen():
    flags = m.constant_predictor(fake_learner("x", constant=True, seeds=(0,))[0])
    assert flags["one_class"].all()
    assert flags["flat"].all()
    flags = m.constant_predictor(fake_learner("x", skill=1.5, seeds=(0,))[0])
    assert not flags["one_class"].any()
    assert not flags["flat"].any()
    shifted = run({"A": [[0.6, 0.7, 0.9]]}, {"A": [0, 1, 1]})
    flags = m.constant_predictor(shifted)
    assert flags["one_class"].tolist() == [[True]]
    assert flags["flat"].tolist() == [[False]]


def test_majority_follows_the_sites_learned_so_far():
    result = two_site_run("AB")
    majority = m.majority_result(result)
    # After A: .7 -> patients. After A and B: (4 * .7 + 2 * .4) / 6 = .6 -> patients.
    assert majority.scores["B"][:, 0] == pytest.approx([0.7, 0.6])
    majority = m.majority_result(two_site_run("BA"))
    assert majority.scores["A"][:, 0] == pytest.approx([0.4, 0.6])
    assert m.score_matrix(majority).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert majority.spec.learner.title == "majority class"
    assert m.score_matrix(majority, "auroc").tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_diverged_run_is_seen():
    scores = {"A": [[0.1, np.nan]]}
    assert not m.finite(run(scores, {"A": [0, 1]}))
    assert m.finite(run({"A": [[0.1, 0.2]]}, {"A": [0, 1]}))


def test_order_of_some_sites_only():
    result = run(
        {s: [[0.9, 0.1], [0.1, 0.9]] for s in SITES},
        {s: [1, 0] for s in SITES},
        order=("UM", "NYU"),
    )
    assert m.score_matrix(result).tolist() == [[1, 1], [0, 0]]


def test_all_orders_of_one_stack_equal_single_runs():
    runs = fake_learner("x", forgets=0.4, seeds=(0,), orders=list(permutations(SITES))[::7])
    labels = runs[0].y
    stacked = m.stack(runs, lambda s, p: m.cell_values(p, labels[s], "auroc"))
    for r, matrix in zip(runs, stacked, strict=True):
        assert matrix[1:] == pytest.approx(m.score_matrix(r, "auroc"))

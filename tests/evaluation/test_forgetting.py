"""Continual-learning summaries by hand, on the golden matrix of methods.md."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_runs import SITES, fake_learner, run, two_site_run
from fcforge.evaluation import forgetting as m
from fcforge.evaluation.metrics import cell_values

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
    assert m.intransigence(GOLDEN, np.array([0.72, 0.78, 0.80])) == pytest.approx(
        0.0233333333
    )


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


def test_split_forgetting_by_hand():
    """The best stage of site 1 is the second on `a`: measured on `b` it lost .6 - .5."""
    a = GOLDEN
    b = np.array([[0.9, 0.5, 0.5], [0.6, 0.7, 0.6], [0.5, 0.9, 0.8]])
    assert m.fm_split(a, b) == pytest.approx(((0.6 - 0.5) + (0.7 - 0.9)) / 2)
    assert m.fm_split(a, a) == pytest.approx(m.fm(a))
    assert m.fm_split(np.stack([a, a]), np.stack([b, a])).shape == (2,)
    assert np.isnan(m.fm_split(np.ones((1, 1)), np.ones((1, 1))))


# -- the matrices of runs ------------------------------------------------------------------------
def test_columns_follow_arrival():
    ab, ba = two_site_run("AB"), two_site_run("BA")
    assert m.score_matrix(ab).tolist() == [[1.0, 0.0], [0.75, 1.0]]
    assert m.score_matrix(ba).tolist() == [[0.0, 1.0], [1.0, 0.75]]
    assert m.Runs.of([ab]).values("accuracy")[0, 0].tolist() == [0.5, 0.5]


def test_summary_of_a_run_by_hand():
    s = m.summary(two_site_run("AB"))
    expected = {
        "acc": 0.875,
        "aaa": 0.9375,
        "fm": 0.25,
        "bwt": -0.25,
        "for_triangular": 0.125,
    }
    expected |= {"for_literal": (0.25 - 1.0) / 2, "fwt": 0.0 - 0.5}
    assert s == pytest.approx(expected)


def test_lower_is_better_keeps_the_meaning_of_forgetting():
    """Brier rises from .025 to .225 at A: that is forgetting of +.2."""
    s = m.summary(two_site_run("AB"), "brier")
    before = (0.01 + 0.01 + 0.04 + 0.04) / 4
    after = (0.01 + 0.81 + 0.04 + 0.04) / 4
    assert s["fm"] == pytest.approx(after - before, abs=1e-6)
    assert s["bwt"] == pytest.approx(before - after, abs=1e-6)
    assert s["acc"] == pytest.approx((after + 0.01) / 2, abs=1e-6)


def test_constant_predictor_is_seen():
    same = fake_learner("x", constant=True, seeds=(0,))[0]
    assert m.constant_predictor(same).all()
    skilled = fake_learner("x", skill=1.5, seeds=(0,))[0]
    assert not m.constant_predictor(skilled).any()
    shifted = run({"A": [[0.6, 0.7, 0.9]]}, {"A": [0, 1, 1]})
    assert m.constant_predictor(shifted).tolist() == [[True]]


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
    runs = fake_learner(
        "x", forgets=0.4, seeds=(0,), orders=list(permutations(SITES))[::7]
    )
    labels = runs[0].y
    stacked = m.Runs.of(runs).stack(lambda s, p: cell_values(p, labels[s], "auroc"))
    for r, matrix in zip(runs, stacked, strict=True):
        assert matrix[1:] == pytest.approx(m.score_matrix(r, "auroc"))


def test_equal_scores_of_orders_are_held_once():
    runs = [two_site_run("AB"), two_site_run("AB"), two_site_run("BA")]
    batch = m.Runs.of(runs)
    assert (batch.place["A"][0] == batch.place["A"][1]).all()
    assert len(batch.scores["A"]) == len({row.tobytes() for row in batch.scores["A"]})
    for k, r in enumerate(runs):
        stages = np.vstack([r.initial["A"], r.scores["A"]])
        assert (batch.scores["A"][batch.place["A"][k]] == stages).all()


def test_a_partner_stands_beside_each_run():
    left, right = [two_site_run("AB"), two_site_run("BA")], [two_site_run("AB")] * 2
    ours, theirs = m.Runs.of(left), m.Runs.of(right)
    both = ours.beside(theirs)
    mine, other = both.scores["B"][both.place["B"][1, 2]]
    assert ours.scores["B"][mine].tolist() == left[1].scores["B"][1].tolist()
    assert theirs.scores["B"][other].tolist() == right[1].scores["B"][1].tolist()

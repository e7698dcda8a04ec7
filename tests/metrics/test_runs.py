"""Matrices and references of whole runs."""

from itertools import permutations

import numpy as np
import pytest

from fake_runs import SITES, fake_learner, run
from fcforge import metrics as m


def two_site_run(order):
    scores = {
        "A": [[0.9, 0.1, 0.8, 0.2], [0.9, 0.9, 0.8, 0.2]],
        "B": [[0.4, 0.6], [0.9, 0.1]],
    }
    labels = {"A": [1, 0, 1, 0], "B": [1, 0]}
    initial = {"A": np.full(4, 0.6), "B": np.full(2, 0.6)}
    return run(
        scores, labels, order=order, initial=initial, train_mean={"A": 0.7, "B": 0.4}
    )


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
    flags = m.runs.constant_predictor(fake_learner("x", constant=True, seeds=(0,))[0])
    assert flags["one_class"].all()
    assert flags["flat"].all()
    flags = m.runs.constant_predictor(fake_learner("x", skill=1.5, seeds=(0,))[0])
    assert not flags["one_class"].any()
    assert not flags["flat"].any()
    shifted = run({"A": [[0.6, 0.7, 0.9]]}, {"A": [0, 1, 1]})
    flags = m.runs.constant_predictor(shifted)
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
    runs = fake_learner(
        "x", forgets=0.4, seeds=(0,), orders=list(permutations(SITES))[::7]
    )
    labels = runs[0].y
    stacked = m.Runs.of(runs).stack(lambda s, p: m.cell_values(p, labels[s], "auroc"))
    for r, matrix in zip(runs, stacked, strict=True):
        assert matrix[1:] == pytest.approx(m.score_matrix(r, "auroc"))


def test_own_majority_is_the_same_at_every_stage():
    own = m.majority_result(two_site_run("AB"), own=True)
    assert own.scores["A"][:, 0] == pytest.approx([0.7, 0.7])
    assert own.scores["B"][:, 0] == pytest.approx([0.4, 0.4])
    assert m.summary(own)["fm"] == 0


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

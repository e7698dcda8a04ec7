"""AUC, TPR at 1 % FPR, intervals: hand-computed cases and scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from fcforge.evaluation.privacy.measures import (
    auc,
    identification,
    mean_auc,
    membership,
    tpr_at_fpr,
)


def test_auc_by_hand_and_by_sklearn() -> None:
    # pairs: 3>2, 3>1, 1<2, 1=1 -> (1 + 1 + 0 + 0.5) / 4
    one = np.ones(2)
    assert auc(np.array([3.0, 1.0]), np.array([2.0, 1.0]), one, one) == 0.625
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 9, 40).astype(float), rng.integers(0, 7, 30).astype(float)
    p, q = rng.exponential(size=40), rng.exponential(size=30)
    y, s = np.r_[np.ones(40), np.zeros(30)], np.r_[a, b]
    assert auc(a, b, np.ones(40), np.ones(30)) == pytest.approx(roc_auc_score(y, s))
    expected = roc_auc_score(y, s, sample_weight=np.r_[p, q])
    assert auc(a, b, p, q) == pytest.approx(expected)


def test_tpr_at_one_percent_allows_one_false_alarm_in_a_hundred() -> None:
    outsiders = np.arange(1.0, 101.0)
    members = np.array([99.5, 99.0, 100.5, 50.0])
    alike = (np.ones(4), np.ones(100))
    # one of 100 may be flagged: threshold 99; only 99.5 and 100.5 are above it
    assert tpr_at_fpr(members, outsiders, *alike) == 0.5
    # none of 99 may: threshold 99 is the largest of them
    assert tpr_at_fpr(members, outsiders[:99], np.ones(4), np.ones(99)) == 0.5
    # a fifth may: threshold 80
    assert tpr_at_fpr(members, outsiders, *alike, 0.2) == 0.75
    assert tpr_at_fpr(members, np.full(100, 99.5), *alike) == 0.25  # ties are not above


def test_tpr_counts_weights() -> None:
    outsiders, weight = np.array([3.0, 2.0, 1.0]), np.array([0.01, 0.495, 0.495])
    members = np.array([2.5, 0.0])
    # 3.0 may be flagged
    assert tpr_at_fpr(members, outsiders, np.ones(2), weight) == 0.5
    assert tpr_at_fpr(members, outsiders, np.ones(2), np.ones(3)) == 0.0


def test_interval_holds_the_truth_and_shrinks() -> None:
    rng = np.random.default_rng(1)
    member = np.tile(np.r_[np.ones(60, int), np.zeros(60, int)], (4, 1))
    scores = rng.standard_normal((4, 120)) + member
    area, tpr = membership(scores, member, np.random.default_rng(0))
    truth = 0.7602  # Phi(1 / sqrt 2)
    assert area.low < truth < area.high
    assert area.high - area.low < 0.2
    assert 0.0 <= tpr.low <= tpr.value <= tpr.high <= 1.0
    one, _ = membership(scores[:1, :20], member[:1, 50:70], np.random.default_rng(0))
    assert one.high - one.low > area.high - area.low


def test_nobody_identified_still_leaves_room() -> None:
    member = np.ones((1, 30), int)
    none = identification(np.zeros((1, 30)), member, np.random.default_rng(0))
    # Clopper-Pearson: 1 - 0.025^(1/30)
    assert (none.value, none.low) == (0.0, 0.0)
    assert none.high == pytest.approx(0.1157, abs=1e-4)
    everyone = identification(np.ones((1, 30)), member, np.random.default_rng(0))
    assert everyone.low == pytest.approx(1 - 0.1157, abs=1e-4)
    half = np.r_[np.ones(15), np.zeros(15)][None]
    assert identification(half, member, np.random.default_rng(0)).value == 0.5


def test_mean_auc_is_the_weighted_mean_of_each_worlds_auc() -> None:
    rng = np.random.default_rng(2)
    scores = rng.integers(0, 5, (3, 20)).astype(float)
    member = rng.integers(-1, 2, (3, 20))
    subject, world = rng.exponential(size=(4, 20)), rng.exponential(size=(4, 3))
    found = mean_auc(scores, member, subject, world)
    for b in range(4):
        each = [
            auc(s[m == 1], s[m == 0], subject[b, m == 1], subject[b, m == 0])
            for s, m in zip(scores, member, strict=True)
        ]
        assert found[b] == pytest.approx(np.average(each, weights=world[b]))

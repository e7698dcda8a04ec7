"""One cell's metrics against scikit-learn, and under weights."""

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr
from sklearn import metrics as sk

from fcforge.core.errors import ConfigError
from fcforge.evaluation.metrics import METRICS, average_ranks, cell_values

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
        assert cell_values(p, y, metric) == pytest.approx(expected, abs=1e-12)


def test_ranks_are_those_of_scipy():
    values = np.round(
        np.random.default_rng(3).random((5, 2, 40)), 1
    )  # rounding makes ties
    np.testing.assert_array_equal(average_ranks(values), rankdata(values, axis=-1))
    assert average_ranks(np.zeros((2, 0))).shape == (2, 0)
    unknown = average_ranks(np.array([[np.nan, 0.2, np.nan], [0.1, 0.3, 0.2]]))
    np.testing.assert_array_equal(unknown, [[2.5, 1, 2.5], [1, 3, 2]])


@pytest.mark.parametrize("metric", [*ORACLES, "ece"])
def test_integer_weights_equal_repeated_subjects(metric):
    rng = np.random.default_rng(1)
    y = np.array([0, 1, 0, 1, 1, 0, 0, 1])
    p = rng.random(8)
    w = np.array([[1, 2, 0, 1, 3, 2, 1, 0]])
    found = cell_values(p, y, metric, w)[0]
    repeated = cell_values(np.repeat(p, w[0]), np.repeat(y, w[0]), metric)
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
    assert cell_values(p, y, "auroc", w).var() == pytest.approx(delong, rel=0.08)


def test_ece_by_hand():
    # Bin (.1, .2]: mean score .15 against 1/2 patients; bin (.8, .9]: .85 against 1/1.
    p, y = np.array([0.12, 0.18, 0.85]), np.array([0, 1, 1])
    assert cell_values(p, y, "ece") == pytest.approx(
        (abs(0.30 - 1) + abs(0.85 - 1)) / 3
    )


def test_one_class_and_broken_scores_are_undefined():
    y = np.zeros(4, dtype=int)
    p = np.array([0.1, 0.2, 0.7, 0.4])
    for metric in ("auroc", "sensitivity", "balanced_accuracy"):
        assert np.isnan(cell_values(p, y, metric))
    assert cell_values(p, y, "accuracy") == 0.75
    p[0] = np.nan
    for metric in METRICS:
        assert np.isnan(cell_values(p, np.array([0, 1, 0, 1]), metric)), metric


def test_unknown_metric_names_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'accuracy'"):
        cell_values(np.ones(2), np.array([0, 1]), "acuracy")


# -- more than two classes, and numbers ------------------------------------------------------------
def test_three_classes_by_hand():
    """Six people, two of each class; called 0 0, 1 2, 2 0."""
    y = np.eye(3)[[0, 0, 1, 1, 2, 2]]
    p = np.array(
        [
            [0.8, 0.1, 0.1],
            [0.6, 0.3, 0.1],
            [0.2, 0.5, 0.3],
            [0.1, 0.4, 0.5],
            [0.1, 0.1, 0.8],
            [0.5, 0.2, 0.3],
        ]
    )
    assert cell_values(p, y, "accuracy") == pytest.approx(4 / 6)
    assert cell_values(p, y, "balanced_accuracy") == pytest.approx(2 / 3)
    # class 0: 8 of 8 pairs; class 1: .5 and .4 above all four others; class 2: .8 above four,
    # .3 above two and level with one
    wanted = (1 + 1 + (4 + 2.5) / 8) / 3
    assert cell_values(p, y, "auroc") == pytest.approx(wanted)


def test_more_classes_agree_with_sklearn():
    rng = np.random.default_rng(4)
    y = np.arange(40) % 4
    p = rng.dirichlet(np.ones(4), (3, 40))
    said = p.argmax(-1)
    oracles = {
        "accuracy": [sk.accuracy_score(y, row) for row in said],
        "balanced_accuracy": [sk.balanced_accuracy_score(y, row) for row in said],
        "auroc": [sk.roc_auc_score(y, row, multi_class="ovr") for row in p],
    }
    for metric, expected in oracles.items():
        found = cell_values(p, np.eye(4)[y], metric)
        assert found == pytest.approx(expected, abs=1e-12)


def test_numbers_agree_with_sklearn_and_scipy():
    rng = np.random.default_rng(5)
    y = np.round(rng.normal(17, 6, 30))  # rounding makes ties
    p = y + rng.normal(0, 5, (2, 30))
    oracles = {
        "r2": [sk.r2_score(y, row) for row in p],
        "mae": [sk.mean_absolute_error(y, row) for row in p],
        "spearman": [spearmanr(y, row).statistic for row in p],
    }
    for metric, expected in oracles.items():
        assert cell_values(p, y, metric) == pytest.approx(expected, abs=1e-12)
    weights = rng.integers(0, 3, (1, 30))
    for metric in ("r2", "mae"):
        found = cell_values(p[0], y, metric, weights)[0]
        repeated = [np.repeat(values, weights[0]) for values in (p[0], y)]
        assert found == pytest.approx(cell_values(*repeated, metric), abs=1e-12)


def test_numbers_by_hand():
    y, p = np.array([10.0, 20.0, 30.0]), np.array([12.0, 18.0, 18.0])
    assert cell_values(p, y, "mae") == pytest.approx(16 / 3)
    assert cell_values(p, y, "r2") == pytest.approx(1 - (4 + 4 + 144) / 200)
    assert cell_values(p, y, "spearman") == pytest.approx(np.sqrt(3) / 2)
    assert np.isnan(cell_values(np.full(3, 18.0), y, "spearman"))


def test_a_class_without_a_score_is_undefined():
    y = np.eye(3)[[0, 1, 2]]
    p = np.full((3, 3), 1 / 3)
    p[1, 2] = np.nan
    assert np.isnan(cell_values(p, y, "accuracy"))

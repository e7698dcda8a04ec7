"""Targets and calibration by hand and by optimisation."""

import numpy as np
import pytest

from fcforge.base_model.calibration import (
    class_logits,
    fit_temperature,
    targets,
    vertices,
)


def test_temperature_is_the_logistic_optimum():
    rng = np.random.default_rng(0)
    score = rng.normal(size=4000)
    share = 1 / (1 + np.exp(-score / 0.4))
    t = np.where(rng.random(4000) < share, 1.0, -1.0)
    found = fit_temperature(score[:, None], (t > 0).astype(int))
    assert found == pytest.approx(0.4, rel=0.1)
    slope = (t * score / (1 + np.exp(t * score / found))).sum()
    assert abs(float(slope)) < 1e-6


def test_corners_of_classes_are_equally_far_apart():
    """By hand: two are -1 and +1, four have the cosine -1/3; logits of a corner name its class."""
    assert vertices(2).tolist() == [[-1.0], [1.0]]
    corners = vertices(4)
    wanted = np.where(np.eye(4), 1.0, -1 / 3)
    np.testing.assert_allclose(corners @ corners.T, wanted, atol=1e-12)
    assert class_logits(corners).argmax(1).tolist() == [0, 1, 2, 3]
    y = np.array([2, 0])
    np.testing.assert_array_equal(targets(y, 3), corners[y])
    assert targets(np.array([-7.0, 0.5])).tolist() == [-1.0, 0.5]


def test_temperature_of_several_classes_is_the_optimum_of_the_log_loss():
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    rng = np.random.default_rng(0)
    score = rng.normal(size=(3000, 2))
    logits = class_logits(score)
    drawn = logits / 0.3 + rng.gumbel(size=logits.shape)
    y = drawn.argmax(1)

    def loss(t):
        return -log_softmax(logits / t, axis=1)[np.arange(3000), y].sum()

    best = minimize_scalar(loss, bounds=(0.05, 5), method="bounded").x
    assert fit_temperature(score, y) == pytest.approx(best, rel=1e-3)
    assert best == pytest.approx(0.3, rel=0.1)

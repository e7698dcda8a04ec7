"""Features in numpy: those of the torch ones, and back again."""

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from fcforge import graphs
from fcforge.errors import DataError
from fcforge.releases import features
from fcforge.releases import features as module
from fcforge.releases.features import (
    from_log_features,
    log_features,
    n_rois_of_features,
    one_blas_thread,
)


@pytest.fixture(scope="module")
def fc():
    series = np.random.default_rng(0).normal(size=(5, 40, 7))
    return np.stack([np.corrcoef(s.T) for s in series])


def test_they_are_those_of_graphs(fc):
    """One learner uses the torch ones, the exchange these: they must not drift apart."""
    wanted = graphs.log_features(torch.from_numpy(fc), 0.3)
    np.testing.assert_allclose(log_features(fc, 0.3), wanted.numpy(), atol=1e-10)


def test_two_rois_by_hand():
    """Eigenvalues 1 + r and 1 - r without shrinkage, on the diagonals of the plane."""
    r = 0.5
    found = log_features(np.array([[[1.0, r], [r, 1.0]]]), 0.0)[0] * 0.05
    edge = (np.log(1 + r) - np.log(1 - r)) / 2
    diagonal = (np.log(1 + r) + np.log(1 - r)) / 2 / 2**0.5
    np.testing.assert_allclose(found, [edge, diagonal, diagonal])


def test_features_and_back(fc):
    np.testing.assert_allclose(from_log_features(log_features(fc)), fc, atol=1e-10)
    odd = log_features(fc) + 1.0
    np.testing.assert_allclose(
        log_features(from_log_features(odd, unit=False)), odd, atol=1e-8
    )


def test_whatever_the_features_a_correlation_matrix_comes_back():
    wild = np.random.default_rng(1).normal(size=(3, 28)) * 100
    made = from_log_features(wild)
    assert np.array_equal(np.diagonal(made, axis1=1, axis2=2), np.ones((3, 7)))
    assert np.abs(made).max() <= 1.0
    assert np.linalg.eigvalsh(made).min() > -1e-9


def test_a_broken_scan_spoils_itself_alone(fc):
    broken = fc.copy()
    broken[2, 0, 1] = np.nan
    found = log_features(broken)
    assert np.isnan(found[2]).all()
    others = [0, 1, 3, 4]
    np.testing.assert_array_equal(found[others], log_features(fc)[others])
    assert np.isnan(from_log_features(found)[2, 0, 1])


def test_a_number_of_features_that_is_no_triangle_is_refused():
    assert n_rois_of_features(28) == 7
    with pytest.raises(DataError, match="29 features"):
        n_rois_of_features(29)


def threads() -> set[int]:
    libraries = threadpool_info()
    return {one["num_threads"] for one in libraries if one["user_api"] == "blas"}


def test_one_inside_and_as_before_outside() -> None:
    with threadpool_limits(2, user_api="blas"):
        with one_blas_thread():
            assert threads() == {1}
        assert threads() == {2}


def test_logarithms_of_many_scans_take_one_thread(monkeypatch) -> None:
    seen = []
    eigh = np.linalg.eigh

    def watched(matrices):
        seen.append(threads())
        return eigh(matrices)

    monkeypatch.setattr(features.np.linalg, "eigh", watched)
    with threadpool_limits(2, user_api="blas"):
        features.log_features(np.eye(4)[None])
    assert seen == [{1}]


def test_temperature_is_the_logistic_optimum():
    rng = np.random.default_rng(0)
    score = rng.normal(size=4000)
    share = 1 / (1 + np.exp(-score / 0.4))
    t = np.where(rng.random(4000) < share, 1.0, -1.0)
    found = module.fit_temperature(score[:, None], (t > 0).astype(int))
    assert found == pytest.approx(0.4, rel=0.1)
    slope = (t * score / (1 + np.exp(t * score / found))).sum()
    assert abs(float(slope)) < 1e-6


def test_corners_of_classes_are_equally_far_apart():
    """By hand: two are -1 and +1, four have the cosine -1/3; logits of a corner name its class."""
    assert module.vertices(2).tolist() == [[-1.0], [1.0]]
    corners = module.vertices(4)
    wanted = np.where(np.eye(4), 1.0, -1 / 3)
    np.testing.assert_allclose(corners @ corners.T, wanted, atol=1e-12)
    assert module.class_logits(corners).argmax(1).tolist() == [0, 1, 2, 3]
    y = np.array([2, 0])
    np.testing.assert_array_equal(module.targets(y, 3), corners[y])
    assert module.targets(np.array([-7.0, 0.5])).tolist() == [-1.0, 0.5]


def test_temperature_of_several_classes_is_the_optimum_of_the_log_loss():
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    rng = np.random.default_rng(0)
    score = rng.normal(size=(3000, 2))
    logits = module.class_logits(score)
    drawn = logits / 0.3 + rng.gumbel(size=logits.shape)
    y = drawn.argmax(1)

    def loss(t):
        return -log_softmax(logits / t, axis=1)[np.arange(3000), y].sum()

    best = minimize_scalar(loss, bounds=(0.05, 5), method="bounded").x
    assert module.fit_temperature(score, y) == pytest.approx(best, rel=1e-3)
    assert best == pytest.approx(0.3, rel=0.1)

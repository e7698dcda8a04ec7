"""Matrix-log features in numpy: equal to the torch ones, invertible, on one thread."""

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from fcforge import graphs
from fcforge.base_model import features as module
from fcforge.base_model.features import from_log_features, log_features, one_blas_thread


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

    monkeypatch.setattr(module.np.linalg, "eigh", watched)
    with threadpool_limits(2, user_api="blas"):
        log_features(np.eye(4)[None])
    assert seen == [{1}]

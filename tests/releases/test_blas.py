"""One thread inside, as many as before outside."""

import sys

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from fcforge.releases import features
from fcforge.releases.blas import one_blas_thread


def threads() -> set[int]:
    libraries = threadpool_info()
    return {one["num_threads"] for one in libraries if one["user_api"] == "blas"}


def test_one_inside_and_as_before_outside() -> None:
    with threadpool_limits(2, user_api="blas"):
        with one_blas_thread():
            assert threads() == {1}
        assert threads() == {2}


def test_nothing_happens_without_threadpoolctl(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    before = threads()
    with one_blas_thread():
        assert threads() == before


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

"""One subject from a file that holds FC or a time series."""

from __future__ import annotations

import numpy as np
import pytest

from fcforge.errors import DataError
from fcforge.imaging.connectivity import pearson_fc
from fcforge.sites.reading import looks_like_fc, to_fc


def fc_of(n_rois: int = 6, seed: int = 0) -> np.ndarray:
    return pearson_fc(np.random.default_rng(seed).standard_normal((30, n_rois)))


def test_fc_or_time_series():
    series = np.random.default_rng(0).standard_normal((6, 6))  # as many volumes as ROIs
    assert not looks_like_fc(series)
    np.testing.assert_array_equal(to_fc(series), pearson_fc(series).astype(np.float32))
    fc = fc_of()
    np.testing.assert_array_equal(to_fc(fc), fc.astype(np.float32))
    np.testing.assert_array_equal(to_fc(fc - np.eye(6)), (fc - np.eye(6)).astype(np.float32))
    again = pearson_fc(fc).astype(np.float32)
    np.testing.assert_array_equal(to_fc(fc, kind="timeseries"), again)
    with pytest.raises(DataError, match="10 x 6, not square"):
        to_fc(np.zeros((10, 6)), kind="fc")
    with pytest.raises(DataError, match="first 4 rows of an FC matrix of 6"):
        to_fc(fc[:4])
    with pytest.raises(DataError, match="too short"):
        to_fc(np.zeros((3, 6)))

"""Slice timing: orders by hand, a known signal, times that do not fit."""

from __future__ import annotations

import numpy as np
import pytest

from fcforge.errors import ConfigError, DataError
from fcforge.imaging.raw.slice_timing import correct_slice_timing, slice_times


def test_slice_orders_by_hand():
    assert slice_times("ascending", 4, 2.0).tolist() == [0.0, 0.5, 1.0, 1.5]
    assert slice_times("descending", 4, 2.0).tolist() == [1.5, 1.0, 0.5, 0.0]
    assert slice_times("interleaved", 5, 5.0).tolist() == [0.0, 3.0, 1.0, 4.0, 2.0]
    assert slice_times("interleaved_even", 5, 5.0).tolist() == [2.0, 0.0, 3.0, 1.0, 4.0]
    with pytest.raises(ConfigError, match="slice order 'random'"):
        slice_times("random", 4, 2.0)


def test_slice_timing_moves_every_slice_to_one_moment():
    tr, n = 2.0, 80
    times = slice_times("interleaved", 6, tr)
    volume = np.arange(n) * tr
    wave = lambda t: np.sin(2 * np.pi * 0.05 * t) + 0.5 * np.cos(2 * np.pi * 0.08 * t)  # noqa: E731
    data = np.stack([np.broadcast_to(wave(volume + t), (2, 3, n)) for t in times], axis=2)
    out = correct_slice_timing(data, times, tr)
    expected = wave(volume + times.max() / 2)
    assert np.abs(data[0, 0, 5] - expected).max() > 0.1  # it was wrong before
    np.testing.assert_allclose(out[0, 0, :, 2:-2], np.tile(expected[2:-2], (6, 1)), atol=0.01)


def test_slice_times_that_do_not_fit():
    data = np.zeros((2, 2, 4, 10))
    with pytest.raises(DataError, match="do not fit"):
        correct_slice_timing(data, np.array([0.0, 500, 1000, 1500]), 2.0)
    with pytest.raises(DataError, match="3 slice times"):
        correct_slice_timing(data, np.array([0.0, 0.5, 1.0]), 2.0)

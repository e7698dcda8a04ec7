"""Scans that look like one person."""

import numpy as np

from fcforge.sites.simulated import simulate
from fcforge.sites.twins import twins_across, twins_within


def test_a_copy_with_noise_is_found_and_strangers_are_not():
    made = simulate("realistic", n_rois=20, n_sites=2, scale=0.2)
    assert twins_within(made.fc, made.subject_id) == []
    fc = made.fc.copy()
    fc[7] = np.clip(fc[2] + np.random.default_rng(0).normal(0, 0.005, fc[2].shape), -1, 1)
    (pair,) = twins_within(fc, made.subject_id)
    assert (pair.first, pair.second) == (made.subject_id[2], made.subject_id[7])
    assert 0.98 < pair.correlation < 1


def test_across_by_scan_or_by_id():
    made = simulate("realistic", n_rois=20, n_sites=2, scale=0.2)
    a, b = made.select(np.arange(10)), made.select(np.arange(10, 20))
    assert twins_across(a.fc, a.subject_id, b.fc, b.subject_id) == []
    assert (
        len(twins_across(a.fc, a.subject_id, b.fc, np.array([a.subject_id[0], *b.subject_id[1:]])))
        == 1
    )
    again = np.concatenate([a.fc[:1], b.fc[1:]])
    assert twins_across(a.fc, a.subject_id, again, b.subject_id)[0].first == a.subject_id[0]


def test_a_constant_scan_is_nobodys_twin():
    flat = np.stack([np.eye(5), np.eye(5)]).astype(np.float32)
    assert twins_within(flat, np.array(["a", "b"])) == []

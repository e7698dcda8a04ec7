"""Realignment: parameters there and back, known motion, framewise displacement."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter

from fcforge.imaging.raw.motion import (
    estimate_motion,
    framewise_displacement,
    parameters_of,
    resample,
    rigid,
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1.2, 1.2), min_size=6, max_size=6))
def test_rigid_parameters_there_and_back(values: list[float]):
    centre = np.array([3.0, -20.0, 15.0])
    matrix = rigid(np.array(values), centre)
    np.testing.assert_allclose(matrix[:3, :3] @ matrix[:3, :3].T, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(parameters_of(matrix, centre), values, atol=1e-9)


def test_framewise_displacement_by_hand():
    p = np.zeros((3, 6))
    p[1, 0], p[1, 3] = 0.3, 0.01  # 0.3 mm and 0.01 rad = 0.5 mm on a 50 mm sphere
    fd = framewise_displacement(p)
    assert np.isnan(fd[0])
    np.testing.assert_allclose(fd[1:], [0.8, 0.8])


def _blob(shape: tuple[int, int, int] = (32, 36, 28)) -> np.ndarray:
    noise = gaussian_filter(np.random.default_rng(0).normal(size=shape), 2.5)
    axes = [np.linspace(-1, 1, n) for n in shape]
    head = sum(a**2 for a in np.meshgrid(*axes, indexing="ij")) < 0.8
    return gaussian_filter(np.where(head, 1000 + 6000 * noise, 0), 0.7).astype(
        np.float32
    )


def test_known_motion_is_found():
    affine = np.diag([4.0, 4, 4, 1])
    affine[:3, 3] = [-60, -70, -50]
    head = _blob()
    centre = affine[:3, :3] @ ((np.array(head.shape) - 1) / 2) + affine[:3, 3]
    small, large = [1.5, -1, 2, 0.02, -0.015, 0.01], [0, 3, 0, 0, 0, 0.04]
    true = [np.zeros(6), np.array(small), np.array(large)]
    moves = [np.linalg.inv(rigid(p, centre)) for p in true]
    data = np.stack(
        [resample(head, affine, m, (head.shape, affine)) for m in moves], axis=-1
    )
    data[..., 2] *= 1.1  # a change of gain is not motion
    matrices, parameters = estimate_motion(data, affine)
    np.testing.assert_allclose(parameters[1], parameters_of(matrices[1], centre))
    relative = [m @ np.linalg.inv(matrices[0]) for m in matrices]
    got = np.stack([parameters_of(m, centre) for m in relative])
    np.testing.assert_allclose(got[:, :3], np.stack(true)[:, :3], atol=0.08)
    np.testing.assert_allclose(got[:, 3:], np.stack(true)[:, 3:], atol=0.002)

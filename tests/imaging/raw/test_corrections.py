"""Slice timing by hand; distortion: a known field, its grid, PyHySCO as a program."""

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from fcforge.errors import ConfigError, DataError
from fcforge.imaging.raw.corrections import (
    correct_slice_timing,
    estimate_field,
    phase_axis,
    slice_times,
    to_voxels,
    unwarp,
)


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


def _blob(shape: tuple[int, int, int] = (32, 36, 28)) -> np.ndarray:
    noise = gaussian_filter(np.random.default_rng(0).normal(size=shape), 2.5)
    axes = [np.linspace(-1, 1, n) for n in shape]
    head = sum(a**2 for a in np.meshgrid(*axes, indexing="ij")) < 0.8
    return gaussian_filter(np.where(head, 1000 + 6000 * noise, 0), 0.7).astype(np.float32)


def test_unwarp_undoes_a_known_distortion_with_its_intensity():
    head = gaussian_filter(_blob(), 2.0)
    shift = gaussian_filter(np.random.default_rng(1).normal(size=head.shape), 6)
    shift *= 1.5 / np.abs(shift).max()
    x = np.arange(head.shape[1])
    bent = np.zeros_like(head)
    for i in np.ndindex(head.shape[0], head.shape[2]):
        b = shift[i[0], :, i[1]]
        bent[i[0], :, i[1]] = np.interp(x, x + b, head[i[0], :, i[1]] / (1 + np.gradient(b)))
    fixed = unwarp(bent, shift * 4.0, axis=1, voxel_mm=4.0)
    before = np.abs(bent - head)[:, 4:-4].mean()
    after = np.abs(fixed - head)[:, 4:-4].mean()
    assert after < before / 4


def test_field_on_faces_becomes_field_on_voxels():
    field = np.arange(2 * 4 * 2, dtype=float).reshape(2, 4, 2)
    out = to_voxels(field, 1, (2, 3, 2))
    np.testing.assert_array_equal(out[0, :, 0], [1, 3, 5])
    with pytest.raises(DataError, match="a field of shape"):
        to_voxels(field, 0, (2, 3, 2))


def test_phase_directions_and_the_command_line():
    assert phase_axis("j-") == (1, -1)
    assert phase_axis("k") == (2, 1)
    with pytest.raises(DataError, match="PhaseEncodingDirection 'AP'"):
        phase_axis("AP")


def test_pyhysco_is_run_as_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake = tmp_path / "pyhysco"
    fake.write_text(
        "#!/usr/bin/env python3\n"
        "import gzip, shutil, sys\n"
        "assert sys.argv[3:5] == ['2', '--output_dir']\n"
        f"shutil.copyfile('{tmp_path}/field.nii.gz', sys.argv[5] + '-EstFieldMap.nii.gz')\n"
    )
    fake.chmod(0o755)
    field = np.full((4, 6, 4), 2.5, dtype=np.float32)
    nib.save(nib.Nifti1Image(field, np.eye(4)), tmp_path / "field.nii.gz")
    volume = np.ones((4, 5, 4), dtype=np.float32)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    got = estimate_field(volume, volume, np.eye(4), axis=1)
    np.testing.assert_array_equal(got, np.full((4, 5, 4), 2.5))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(DataError, match=r"needs PyHySCO or FSL's topup"):
        estimate_field(volume, volume, np.eye(4), axis=1)

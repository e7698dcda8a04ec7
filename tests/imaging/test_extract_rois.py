"""Voxels to ROI signals: means over good voxels, coverage, maps by least squares."""

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from fcforge.errors import DataError
from fcforge.imaging.atlas import Atlas
from fcforge.imaging.atlases import load_atlas
from fcforge.imaging.extract import CARPET_VOXELS, roi_means
from fcforge.imaging.scan import open_scan

SHAPE, AFFINE = (6, 4, 2), np.diag([10.0, 10, 10, 1])


def save(path: Path, data: np.ndarray, affine: np.ndarray = AFFINE) -> Path:
    image = nib.Nifti1Image(data, affine)
    image.header.set_sform(affine, code=4)
    image.header.set_xyzt_units("mm", "sec")
    nib.save(image, path)
    return path


@pytest.fixture
def labels() -> np.ndarray:
    """Two ROIs of 16 voxels each, and 16 voxels outside."""
    grid = np.zeros(SHAPE, dtype=np.int16)
    grid[:2], grid[2:4] = 7, 9
    return grid


@pytest.fixture
def atlas(tmp_path: Path, labels: np.ndarray) -> Atlas:
    return load_atlas(str(save(tmp_path / "two.nii.gz", labels)))


def voxels(seed: int = 0, n: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).uniform(100, 200, (*SHAPE, n)).astype(np.float32)


def test_a_signal_is_the_mean_of_the_rois_voxels(tmp_path, atlas, labels):
    data = voxels()
    series, coverage, carpet, notes = roi_means(open_scan(save(tmp_path / "s.nii", data)), atlas,
                                                None, 0.5)  # fmt: skip
    for roi, label in enumerate((7, 9)):
        np.testing.assert_allclose(series[:, roi], data[labels == label].mean(axis=0), rtol=1e-6)
    assert coverage.tolist() == [1.0, 1.0]
    assert notes == {"NaNVoxels": 0, "VoxelsInROIs": 32}
    assert carpet.shape == (32, 5)
    assert len(carpet) <= CARPET_VOXELS


def test_bad_voxels_do_not_count_and_lower_the_coverage(tmp_path, atlas, labels):
    data = voxels()
    data[0] = 3.0  # constant: 8 of 16 voxels of the first ROI
    data[2, 0, 0, 1] = np.nan
    scan = open_scan(save(tmp_path / "s.nii", data))
    series, coverage, _, notes = roi_means(scan, atlas, None, 0.6)
    assert coverage.tolist() == [0.5, 15 / 16]
    assert np.isnan(series[:, 0]).all()
    good = (labels == 9) & np.isfinite(data).all(axis=-1)
    np.testing.assert_allclose(series[:, 1], data[good].mean(axis=0), rtol=1e-6)
    assert notes["NaNVoxels"] == 1
    half = roi_means(scan, atlas, None, 0.5)[0][:, 0]
    np.testing.assert_allclose(half, data[1].reshape(8, 5).mean(axis=0), rtol=1e-6)


def test_a_mask_takes_voxels_away_and_must_lie_on_the_scans_grid(tmp_path, atlas):
    data, mask = voxels(), np.ones(SHAPE, dtype=np.uint8)
    mask[2:3] = 0
    scan = open_scan(save(tmp_path / "s.nii", data))
    series, coverage, _, _ = roi_means(scan, atlas, save(tmp_path / "m.nii", mask), 0.1)
    assert coverage.tolist() == [1.0, 0.5]
    np.testing.assert_allclose(series[:, 1], data[3].reshape(8, 5).mean(axis=0), rtol=1e-6)
    other = save(tmp_path / "o.nii", mask[:5])
    with pytest.raises(DataError, match=r"mask o.nii and scan are on different grids"):
        roi_means(scan, atlas, other, 0.1)


def test_a_scan_that_lies_elsewhere_is_refused_with_its_place(tmp_path, atlas):
    away = AFFINE.copy()
    away[:3, 3] = [500, 0, 0]
    scan = open_scan(save(tmp_path / "s.nii", voxels(), away))
    with pytest.raises(DataError, match=r"x, y, z = 500..550, .* only 0 of 2 ROIs lie"):
        roi_means(scan, atlas, None, 0.5)


def test_overlapping_maps_are_told_apart_by_least_squares(tmp_path):
    rng = np.random.default_rng(1)
    maps = np.zeros((*SHAPE, 2), dtype=np.float32)
    maps[:4, ..., 0] = rng.uniform(0.5, 1, maps[:4, ..., 0].shape)
    maps[2:, ..., 1] = rng.uniform(0.5, 1, maps[2:, ..., 1].shape)
    truth = rng.uniform(1, 2, (5, 2))
    atlas = load_atlas(str(save(tmp_path / "maps.nii.gz", maps)))
    scan = open_scan(save(tmp_path / "s.nii", (maps @ truth.T).astype(np.float32)))
    series, coverage, _, _ = roi_means(scan, atlas, None, 0.5)
    np.testing.assert_allclose(series, truth, rtol=1e-4)
    np.testing.assert_allclose(coverage, [1, 1], rtol=1e-5)

"""Measures of a run before denoising, by hand."""

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from imaging_trees import AFFINE, SHAPE, fmriprep_subject
from scipy.ndimage import gaussian_filter1d
from scipy.sparse import csr_array
from scipy.stats import spearmanr

from fcforge.imaging.extract import extract_run
from fcforge.imaging.layouts import find_sources
from fcforge.imaging.options import FCRequest
from fcforge.imaging.quality import (
    NO_NETWORK,
    foreign_confounds,
    percent_dvars,
    temporal_snr,
)


def test_dvars_is_the_mean_change_in_per_cent():
    voxels = np.array([[100.0, 102, 102], [200, 200, 204]])
    mean = voxels.mean(axis=1, keepdims=True)
    change = np.diff(voxels, axis=1) / mean
    found = percent_dvars(voxels)
    assert np.isnan(found[0])
    np.testing.assert_allclose(found[1:], 100 * np.sqrt((change**2).mean(axis=0)))


def test_voxels_without_a_positive_mean_do_not_enter_dvars():
    good = np.array([[100.0, 102, 102]])
    with_negative = np.r_[good, [[-50.0, -5, 3]]]
    np.testing.assert_allclose(percent_dvars(with_negative), percent_dvars(good))
    assert np.isnan(percent_dvars(-good)).all()


def test_tsnr_is_mean_over_sd_in_each_roi():
    voxels = np.array([[9.0, 11], [99, 101], [98, 102]])
    weights = csr_array(np.array([[1.0, 0, 0], [0, 1, 0], [0, 1, 0]]))
    found = temporal_snr(voxels, weights)
    assert found is not None
    np.testing.assert_allclose(found[:2], [10, 75])
    assert np.isnan(found[2])  # no voxel of it


def test_a_scan_without_a_mean_has_no_tsnr():
    voxels = np.random.default_rng(0).normal(size=(10, 50))
    assert temporal_snr(voxels, csr_array(np.ones((10, 1)))) is None


def run_of(root: Path, blocks: tuple[Path, Path], block, **options):
    request = FCRequest(source=root, out=root / "out", **options)
    return extract_run(find_sources(request)[0], block, request)


@pytest.fixture
def tree(tmp_path, block) -> Path:
    fmriprep_subject(tmp_path, "01", block.on_grid(SHAPE, AFFINE))
    return tmp_path


def test_a_run_of_fmriprep_has_everything(tree, blocks, block):
    run = run_of(tree, blocks, block, drop=4)
    quality = run.quality
    image = nib.load(run.source.path)
    np.testing.assert_allclose(
        quality.mean, image.get_fdata().mean(axis=-1), rtol=1e-5, atol=1e-3
    )
    assert len(quality.row_names) == len(quality.row_groups) == len(run.carpet)
    assert set(quality.row_groups) == {NO_NETWORK}
    assert quality.row_names[0] == "Block1"
    assert quality.row_names[-1] == "Block6"
    assert {"Global signal", "x, mm"} <= set(quality.traces)
    assert all(len(t) == 156 for t in quality.traces.values())
    assert quality.before.shape == (156, 6)
    assert len(quality.dvars) == 156
    # made with 2 % of signal and a noise of 4 on 1000
    assert np.nanmean(quality.tsnr) == pytest.approx(1000 / np.hypot(20, 4), rel=0.1)


def test_tissue_maps_in_the_scans_space_add_rows(tree, blocks, block):
    anat = tree / "sub-01" / "anat"
    anat.mkdir()
    # twice as fine as the scan
    fine = AFFINE @ np.diag([0.5, 0.5, 0.5, 1])
    maps = np.zeros([2 * n for n in SHAPE], dtype=np.float32)
    maps[:4] = 1
    for name in ("space-MNI152NLin2009cAsym_label-WM", "space-T1w_label-CSF"):
        nib.save(nib.Nifti1Image(maps, fine), anat / f"sub-01_{name}_probseg.nii.gz")
    run = run_of(tree, blocks, block)
    groups = list(run.quality.row_groups)
    assert groups.count("White matter") == 150
    assert "CSF" not in groups  # of another space
    assert groups == sorted(
        groups, key=lambda g: g == "White matter"
    )  # rows at the end
    damaged = anat / "sub-01_space-MNI152NLin2009cAsym_label-WM_probseg.nii.gz"
    damaged.write_bytes(b"no image")
    assert "White matter" not in run_of(tree, blocks, block).quality.row_groups


def test_ready_made_series_have_rows_and_nothing_else(tmp_path, block):
    path = tmp_path / "1.tsv"
    np.savetxt(path, np.random.default_rng(0).standard_normal((40, 6)))
    from fcforge.imaging.layouts import Source

    source = Source(path, "series", "series", {"sub": "1"})
    quality = extract_run(
        source, block, FCRequest(source=tmp_path, out=tmp_path)
    ).quality
    assert quality.row_names == block.roi_names
    assert quality.mean is quality.dvars is quality.tsnr is quality.before is None


def test_confounds_of_another_run_are_told_by_their_global_signal():
    rng = np.random.default_rng(0)
    drift = np.linspace(0, 9, 120)
    of_scan, of_other = (
        drift + gaussian_filter1d(rng.normal(size=120), 1) for _ in range(2)
    )
    series = of_scan[:, None] + rng.normal(scale=0.3, size=(120, 20))
    series[:, 3] = np.nan
    assert np.corrcoef(of_scan, of_other)[0, 1] > 0.9  # the drift is that of both
    assert foreign_confounds(series, {"Global signal": 5 + 3 * of_scan}) is None
    r = foreign_confounds(series, {"Global signal": of_other})
    assert r is not None
    assert abs(r) < 0.3
    changes = np.diff(series[:, np.arange(20) != 3].mean(axis=1)), np.diff(of_other)
    assert r == pytest.approx(spearmanr(*changes).statistic)
    assert foreign_confounds(series, {}) is None
    assert foreign_confounds(series[:40], {"Global signal": of_other[:40]}) is None

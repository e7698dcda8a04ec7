"""One subject: voxels to ROI signals, runs joined, too little refused, motion kept."""

from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat

from fcforge.core.errors import DataError
from fcforge.imaging.atlas import Atlas, aal116, load_atlas, names_only
from fcforge.imaging.extract import (
    CARPET_VOXELS,
    Run,
    SubjectFC,
    extract_run,
    roi_means,
    subject_fc,
)
from fcforge.imaging.layouts import Source
from fcforge.imaging.options import FCRequest
from fcforge.imaging.scan import open_scan

ATLAS = names_only("Mine", ("a", "b", "c", "d"))


def request(**options) -> FCRequest:
    return FCRequest(source=Path("in"), out=Path("out"), **options)


def series(
    tmp_path: Path, name: str = "x", n: int = 40, seed: int = 0, **change
) -> Source:
    values = np.random.default_rng(seed).standard_normal((n, 4))
    for column, value in change.items():
        values[:, "abcd".index(column)] = value
    path = tmp_path / f"{name}.csv"
    pd.DataFrame(values, columns=list("abcd")).to_csv(path, index=False)
    return Source(path, "series", "series", {"sub": "01"})


def test_fc_of_one_run_is_the_correlation_of_its_columns(tmp_path):
    one = series(tmp_path)
    found = subject_fc([one], ATLAS, request(drop=5))
    expected = np.corrcoef(pd.read_csv(one.path).to_numpy()[5:], rowvar=False)
    np.testing.assert_allclose(found.fc, expected, atol=1e-12)
    assert found.n_volumes == 35
    assert found.dof is None  # another tool denoised: what it left is not known
    assert found.mean_fd is None


def test_runs_weigh_alike_whatever_their_units(tmp_path):
    one, two = series(tmp_path, "x"), series(tmp_path, "y", seed=1)
    values = pd.read_csv(two.path) * 1000 + 7
    values.to_csv(two.path, index=False)
    joined = subject_fc([one, two], ATLAS, request()).fc
    apart = [subject_fc([s], ATLAS, request()).fc for s in (one, two)]
    np.testing.assert_allclose(joined, np.mean(apart, axis=0), atol=1e-12)


def test_too_many_empty_rois_fail_by_name(tmp_path):
    flat = series(tmp_path, b=1.0)
    with pytest.raises(DataError, match=r"1 of 4 ROIs .*\(b\)"):
        subject_fc([flat], ATLAS, request())
    found = subject_fc([flat], ATLAS, request(max_empty=0.3))
    assert found.empty == (1,)
    assert found.fc[1].tolist() == [0, 1, 0, 0]


def test_mixed_trs_are_a_question(tmp_path):
    runs = []
    for name, tr in (("x", 2.0), ("y", 3.0)):
        runs.append(series(tmp_path, name))
        (tmp_path / f"{name}.json").write_text(f'{{"RepetitionTime": {tr}}}')
    with pytest.raises(DataError, match="its runs have 2 s, 3 s"):
        subject_fc(runs, ATLAS, request())
    assert subject_fc(runs, ATLAS, request(tr=2.0)).n_volumes == 80


def test_columns_without_names_are_said_to_be_taken_in_order(tmp_path):
    named = extract_run(series(tmp_path), ATLAS, request())
    assert named.warnings == ()
    bare = tmp_path / "bare.csv"
    bare.write_text((tmp_path / "x.csv").read_text().split("\n", 1)[1])
    found = extract_run(
        Source(bare, "series", "series", {"sub": "01"}), ATLAS, request()
    )
    assert found.warnings == (
        "columns without names were taken for the ROIs of Mine, in order",
    )
    np.testing.assert_allclose(found.series, named.series)


def test_dpabis_wide_files_give_the_columns_asked_for(tmp_path):
    path = tmp_path / "ROISignals_1.txt"
    np.savetxt(path, np.random.default_rng(0).standard_normal((12, 1568)))
    source = Source(path, "series", "dpabi", {"sub": "1"})
    found = extract_run(source, ATLAS, request(columns="5-8"))
    assert found.series.shape == (12, 4)
    with pytest.raises(DataError, match=r"1568 ROIs, but atlas Mine has 4.*--columns"):
        extract_run(source, ATLAS, request())


def test_a_wide_file_of_dpabi_gives_aal_for_aal_alone(tmp_path):
    path = tmp_path / "ROISignals_1.txt"
    wide = np.random.default_rng(0).standard_normal((12, 1568))
    np.savetxt(path, wide)
    source = Source(path, "series", "dpabi", {"sub": "1"})
    found = extract_run(source, aal116(), request())
    np.testing.assert_allclose(found.series, wide[:, :116])
    assert found.warnings[0] == "took columns 1-116 (AAL) of DPABI's 1568"
    with pytest.raises(DataError, match="1568 ROIs, but atlas Mine has 4"):
        extract_run(source, ATLAS, request())
    elsewhere = Source(path, "series", "series", {"sub": "1"})
    with pytest.raises(DataError, match="1568 ROIs, but atlas AAL116 has 116"):
        extract_run(elsewhere, aal116(), request())


def test_a_variable_is_named_where_a_file_has_several(tmp_path):
    path = tmp_path / "s.mat"
    x = np.random.default_rng(0).standard_normal((12, 4))
    savemat(
        path, {"before": x + 1, "after": x, "roi_names": np.array(list("dcba"), object)}
    )
    source = Source(path, "series", "series", {"sub": "1"})
    with pytest.raises(DataError, match=r"2 matrices.*after, before.*--variable"):
        extract_run(source, ATLAS, request())
    found = extract_run(source, ATLAS, request(variable="after"))
    np.testing.assert_array_equal(found.series, x[:, ::-1])  # matched by name
    with pytest.raises(DataError, match="no array 'other'"):
        extract_run(source, ATLAS, request(variable="other"))


def test_motion_and_degrees_of_freedom_are_summed_over_runs():
    def run(fd, dof) -> Run:
        x = np.zeros((3, 4))
        source = Source(Path("x"), "scan", "nifti" if dof else "x", {"sub": "01"})
        return Run(
            source,
            x,
            2.0,
            None,
            fd,
            x.T,
            {} if dof is None else {"DegreesOfFreedom": dof},
            (),
        )

    moved = run(np.array([np.nan, 0.2, 0.4]), 20.0)
    found = SubjectFC("01", (moved, run(None, 11.5)), np.eye(4), (), {}, ())
    assert found.mean_fd == pytest.approx(0.3)
    assert found.dof == 31.5
    assert SubjectFC("01", (moved, run(None, None)), np.eye(4), (), {}, ()).dof is None


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
    series, coverage, carpet, notes, _ = roi_means(
        open_scan(save(tmp_path / "s.nii", data)), atlas, None, 0.5
    )
    for roi, label in enumerate((7, 9)):
        np.testing.assert_allclose(
            series[:, roi], data[labels == label].mean(axis=0), rtol=1e-6
        )
    assert coverage.tolist() == [1.0, 1.0]
    assert notes == {"NaNVoxels": 0, "VoxelsInROIs": 32}
    assert carpet.shape == (32, 5)
    assert len(carpet) <= CARPET_VOXELS


def test_bad_voxels_do_not_count_and_lower_the_coverage(tmp_path, atlas, labels):
    data = voxels()
    data[0] = 3.0  # constant: 8 of 16 voxels of the first ROI
    data[2, 0, 0, 1] = np.nan
    scan = open_scan(save(tmp_path / "s.nii", data))
    series, coverage, _, notes, _ = roi_means(scan, atlas, None, 0.6)
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
    series, coverage, *_ = roi_means(scan, atlas, save(tmp_path / "m.nii", mask), 0.1)
    assert coverage.tolist() == [1.0, 0.5]
    np.testing.assert_allclose(
        series[:, 1], data[3].reshape(8, 5).mean(axis=0), rtol=1e-6
    )
    other = save(tmp_path / "o.nii", mask[:5])
    with pytest.raises(DataError, match=r"o.nii .*different grids"):
        roi_means(scan, atlas, other, 0.1)


def test_a_scan_that_lies_elsewhere_is_refused(tmp_path, atlas):
    away = AFFINE.copy()
    away[:3, 3] = [500, 0, 0]
    scan = open_scan(save(tmp_path / "s.nii", voxels(), away))
    with pytest.raises(DataError, match="only 0 of 2 ROIs lie inside"):
        roi_means(scan, atlas, None, 0.5)


def test_overlapping_maps_are_told_apart_by_least_squares(tmp_path):
    rng = np.random.default_rng(1)
    maps = np.zeros((*SHAPE, 2), dtype=np.float32)
    maps[:4, ..., 0] = rng.uniform(0.5, 1, maps[:4, ..., 0].shape)
    maps[2:, ..., 1] = rng.uniform(0.5, 1, maps[2:, ..., 1].shape)
    truth = rng.uniform(1, 2, (5, 2))
    atlas = load_atlas(str(save(tmp_path / "maps.nii.gz", maps)))
    scan = open_scan(save(tmp_path / "s.nii", (maps @ truth.T).astype(np.float32)))
    series, coverage, *_ = roi_means(scan, atlas, None, 0.5)
    np.testing.assert_allclose(series, truth, rtol=1e-4)
    np.testing.assert_allclose(coverage, [1, 1], rtol=1e-5)


def test_series_that_cannot_be_right_are_refused(tmp_path):
    atlas = names_only("twenty", tuple(f"r{i}" for i in range(20)))
    ask = FCRequest(tmp_path, tmp_path / "o")
    rng = np.random.default_rng(0)
    padded = rng.normal(size=(60, 20))
    padded[[7, 59]] = 0
    wrong = {
        "is a symmetric matrix of 20 rows": np.corrcoef(rng.normal(size=(20, 60))),
        r"no signal in 2 volumes of 60 \(8, 60\)": padded,
        "16 volumes leave at most 14 degrees of freedom": rng.normal(size=(16, 20)),
    }
    for number, (message, values) in enumerate(wrong.items()):
        path = tmp_path / f"{number}.npy"
        np.save(path, values)
        source = Source(path, "series", "series", {"sub": "01"})
        with pytest.raises(DataError, match=message):
            subject_fc([source], atlas, ask)
    assert subject_fc([source], atlas, replace(ask, min_dof=14)).fc.shape == (20, 20)

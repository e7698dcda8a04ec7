"""Scans: the same voxels as nibabel, and each kind of damage in one clear sentence."""

import gzip
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from fcforge.core.errors import DataError
from fcforge.imaging.layouts import Source
from fcforge.imaging.scan import (
    agreed_tr,
    open_scan,
    read_mask,
    read_voxels,
    repetition_time,
)

AFFINE = np.diag([3.0, 3, 3, 1])


def _save(
    path: Path, data: np.ndarray, tr: float = 2.0, affine: np.ndarray = AFFINE
) -> Path:
    image = nib.Nifti1Image(data, affine)
    image.header.set_xyzt_units("mm", "sec")
    image.header["pixdim"][4] = tr
    nib.save(image, path)
    return path


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
@pytest.mark.parametrize("dtype", [np.int16, np.float32, np.float64])
def test_voxels_equal_nibabels(ending: str, dtype, tmp_path: Path):
    data = (1000 * np.random.default_rng(0).normal(size=(5, 6, 4, 37))).astype(dtype)
    path = _save(tmp_path / f"s{ending}", data)
    flat = np.array([0, 3, 50, 119])
    got = read_voxels(open_scan(path), flat)
    expected = data.reshape(-1, 37, order="F")[flat].astype(np.float32)
    np.testing.assert_array_equal(got, expected)


def test_scaled_integers_and_nan(tmp_path: Path):
    data = np.random.default_rng(0).normal(size=(3, 3, 3, 20)).astype(np.float32)
    image = nib.Nifti1Image(data, AFFINE)
    image.set_data_dtype(np.int16)  # nibabel writes slope and intercept
    nib.save(image, tmp_path / "i.nii.gz")
    got = read_voxels(open_scan(tmp_path / "i.nii.gz"), np.arange(27))
    np.testing.assert_allclose(got, data.reshape(27, 20, order="F"), atol=1e-3)
    data[1, 1, 1, 5] = np.nan
    path = _save(tmp_path / "n.nii", data)
    assert np.isnan(read_voxels(open_scan(path), np.arange(27))).sum() == 1


def test_truncated_gz_is_named(tmp_path: Path):
    data = (
        np.random.default_rng(0).integers(0, 999, size=(8, 8, 8, 60)).astype(np.int16)
    )
    path = _save(tmp_path / "t.nii.gz", data)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    scan = open_scan(path)
    with pytest.raises(DataError, match=r"t.nii.gz: .*\d+ of 60"):
        read_voxels(scan, np.arange(10))


def test_damaged_gz_and_short_plain_file(tmp_path: Path):
    data = (
        np.random.default_rng(0).integers(0, 999, size=(8, 8, 8, 60)).astype(np.int16)
    )
    path = _save(tmp_path / "d.nii.gz", data)
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    path.write_bytes(bytes(raw))
    with pytest.raises(DataError, match="truncated or damaged"):
        read_voxels(open_scan(path), np.arange(10))
    plain = _save(tmp_path / "p.nii", data)
    plain.write_bytes(plain.read_bytes()[:-5000])
    with pytest.raises(DataError, match="truncated or damaged"):
        read_voxels(open_scan(plain), np.arange(10))


def test_what_is_not_a_4d_nifti(tmp_path: Path):
    (tmp_path / "x.nii.gz").write_bytes(gzip.compress(b"hello"))
    with pytest.raises(DataError, match="not a readable NIfTI"):
        open_scan(tmp_path / "x.nii.gz")
    (tmp_path / "y.nii.gz").write_bytes(b"hello")
    with pytest.raises(DataError, match="not a readable NIfTI"):
        open_scan(tmp_path / "y.nii.gz")
    with pytest.raises(DataError, match="not a 4D scan"):
        open_scan(_save(tmp_path / "three.nii", np.zeros((4, 4, 4), dtype=np.int16)))
    with pytest.raises(DataError, match="No such file"):
        open_scan(tmp_path / "none.nii.gz")


def test_wrong_affines(tmp_path: Path):
    data = np.zeros((4, 4, 4, 5), dtype=np.int16)
    image = nib.Nifti1Image(data, None)
    nib.save(image, tmp_path / "nowhere.nii")
    with pytest.raises(DataError, match=r"wrong affine: .*sform"):
        open_scan(tmp_path / "nowhere.nii")
    image = nib.Nifti1Image(data, AFFINE)
    image.header["srow_x"] = 0
    path = tmp_path / "flat.nii"
    nib.save(nib.Nifti1Image(data, AFFINE), path)
    raw = bytearray(path.read_bytes())
    raw[280:296] = bytes(16)  # srow_x
    path.write_bytes(bytes(raw))
    with pytest.raises(DataError, match="singular"):
        open_scan(path)


def test_a_mask_must_lie_on_the_scans_grid(tmp_path: Path):
    scan = open_scan(_save(tmp_path / "s.nii", np.zeros((4, 4, 4, 5), dtype=np.int16)))
    mask = np.ones((4, 4, 4), dtype=np.uint8)
    nib.save(nib.Nifti1Image(mask, AFFINE), tmp_path / "m.nii")
    assert read_mask(tmp_path / "m.nii", scan).all()
    moved = AFFINE.copy()
    moved[0, 3] = 3
    nib.save(nib.Nifti1Image(mask, moved), tmp_path / "moved.nii")
    with pytest.raises(DataError, match="different grids"):
        read_mask(tmp_path / "moved.nii", scan)


def test_tr_of_header_and_sidecar_must_agree(tmp_path: Path):
    scan = open_scan(
        _save(tmp_path / "s.nii", np.zeros((4, 4, 4, 5), dtype=np.int16), tr=2.0)
    )
    assert repetition_time(scan, None, None) == repetition_time(scan, 2.0, None) == 2.0
    with pytest.raises(DataError, match=r"2 s, the sidecar 3 s"):
        repetition_time(scan, 3.0, None)
    assert repetition_time(scan, 3.0, 2.5) == 2.5


def test_tr_of_a_sidecar(tmp_path: Path):
    source = Source(tmp_path / "s.nii.gz", "scan", "nifti", {"sub": "01"})
    assert source.sidecar_tr is None
    (tmp_path / "s.json").write_text('{"RepetitionTime": 2.5}')
    assert source.sidecar_tr == 2.5
    (tmp_path / "s.json").write_text("{half")
    with pytest.raises(DataError, match=r"s.json: not JSON"):
        _ = source.sidecar_tr


def test_a_header_in_milliseconds(tmp_path: Path):
    image = nib.Nifti1Image(np.zeros((4, 4, 4, 5), dtype=np.int16), AFFINE)
    image.header.set_xyzt_units("mm", "msec")
    image.header["pixdim"][4] = 2000
    nib.save(image, tmp_path / "ms.nii")
    assert open_scan(tmp_path / "ms.nii").tr == 2.0


@pytest.mark.parametrize("tr", [2000.0, 0.002])
def test_a_tr_in_another_unit_is_refused(tr: float):
    for ask in ((tr, None, None), (None, tr, None), (2.0, None, tr)):
        with pytest.raises(
            DataError, match=f"repetition time of {tr:g} s; is it in milli"
        ):
            agreed_tr(*ask)
    assert agreed_tr(tr, None, 2.0) == 2.0
    assert agreed_tr(None, None, None) is None

"""Raw files: sidecars, reverse images, what is written."""

import gzip
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from fcforge.errors import DataError
from fcforge.imaging.raw.files import find_raw, output_path, save_nifti


def test_what_is_saved_is_read_back(tmp_path: Path):
    rng = np.random.default_rng(0)
    data = rng.uniform(0, 900, size=(4, 5, 6, 7)).astype(np.float32)
    affine = np.diag([3.0, 3, 3, 1])
    path = save_nifti(data, affine, 1.5, tmp_path / "x.nii.gz", "i2")
    image = nib.load(path)
    np.testing.assert_allclose(image.get_fdata(), data, atol=0.02)
    np.testing.assert_array_equal(image.affine, affine)
    assert image.header.get_zooms()[3] == 1.5
    assert len(gzip.decompress(path.read_bytes())) == 352 + data.size * 2


def test_raw_files_with_inherited_sidecar_and_reverse_image(tmp_path: Path):
    func = tmp_path / "sub-01" / "func"
    fmap = tmp_path / "sub-01" / "fmap"
    func.mkdir(parents=True)
    fmap.mkdir()
    (func / "sub-01_task-rest_bold.nii.gz").write_bytes(b"")
    (tmp_path / "task-rest_bold.json").write_text(
        '{"RepetitionTime": 2, "SliceTiming": [0, 1]}'
    )
    (func / "sub-01_task-rest_bold.json").write_text('{"PhaseEncodingDirection": "j"}')
    for name, direction in (("AP", "j"), ("PA", "j-")):
        (fmap / f"sub-01_dir-{name}_epi.nii.gz").write_bytes(b"")
        side = fmap / f"sub-01_dir-{name}_epi.json"
        side.write_text(f'{{"PhaseEncodingDirection": "{direction}"}}')
    (run,) = find_raw(tmp_path)
    assert (run.tr, run.slice_timing, run.phase) == (2.0, (0.0, 1.0), "j")
    assert run.reverse is not None
    assert run.reverse.name == "sub-01_dir-PA_epi.nii.gz"
    for text, says in (("{half", "not JSON"), ("[1]", "has no names and values")):
        (fmap / "sub-01_dir-PA_epi.json").write_text(text)
        with pytest.raises(DataError, match=f"PA_epi.json: {says}"):
            find_raw(tmp_path)
    (tmp_path / "task-rest_bold.json").write_text('{"RepetitionTime": "two"}')
    with pytest.raises(
        DataError, match=r"sub-01_task-rest_bold.nii.gz: .* is not a number"
    ):
        find_raw(tmp_path)
    with pytest.raises(DataError, match="no \\*_bold"):
        find_raw(fmap.parent.parent / "sub-01" / "func" / "..")


def test_scans_that_differ_in_any_entity_get_names_of_their_own(tmp_path: Path):
    names = [
        "task-rest_dir-AP",
        "task-rest_dir-PA",
        "task-rest_acq-fast",
        "task-rest_rec-a",
        "task-rest_run-1_echo-1",
        "task-rest_run-1_echo-2",
        "task-rest",
    ]
    func = tmp_path / "sub-01" / "func"
    func.mkdir(parents=True)
    for name in names:
        (func / f"sub-01_{name}_bold.nii.gz").write_bytes(b"")
    made = sorted(output_path(tmp_path / "out", run).name for run in find_raw(tmp_path))
    assert made == sorted(
        f"sub-01_{name}_space-MNI152NLin2009aSym_desc-preproc_bold.nii.gz"
        for name in names
    )

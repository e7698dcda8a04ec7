"""The pip-only raw path end to end, on a simulated scan with known motion and ROI signals."""

import gzip
import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from imaging_calls import fc_command, preprocess_command
from imaging_phantom import Phantom, displacement, make_phantom

from fcforge.core.errors import DataError
from fcforge.imaging.atlas import Atlas
from fcforge.imaging.raw.motion import rigid
from fcforge.imaging.raw.pipeline import find_raw, output_path, save_nifti

N = 24


def save_raw(root: Path, subject: str, phantom: Phantom) -> Path:
    func = root / f"sub-{subject}" / "func"
    func.mkdir(parents=True)
    path = func / f"sub-{subject}_task-rest_bold.nii.gz"
    image = nib.Nifti1Image(np.rint(phantom.data).astype(np.int16), phantom.affine)
    image.header.set_xyzt_units("mm", "sec")
    image.header["pixdim"][4] = phantom.tr
    nib.save(image, path)
    info = {"RepetitionTime": phantom.tr, "SliceTiming": phantom.times.tolist()}
    path.with_name(path.name.replace(".nii.gz", ".json")).write_text(json.dumps(info))
    return path


@pytest.fixture(scope="module")
def phantom(aal: Atlas) -> Phantom:
    pytest.importorskip("ants", reason="extra `imaging`")
    return make_phantom(
        aal, shape=(50, 56, 38), mm=(4.0, 4.0, 4.0), n_volumes=N, seed=3
    )


@pytest.fixture(scope="module")
def done(
    phantom: Phantom, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[str]]:
    root = tmp_path_factory.mktemp("raw")
    save_raw(root / "bids", "01", phantom)
    broken = save_raw(root / "bids", "02", phantom)
    broken.write_bytes(broken.read_bytes()[:100000])
    (root / "bids" / "participants.tsv").write_text(
        "participant_id\tsite\tdiagnosis\nsub-01\tA\tcontrol\nsub-02\tA\tASD\nsub-03\tA\tASD\n"
    )
    lines: list[str] = []
    code = preprocess_command(
        source=root / "bids", out=root / "out", drop=0, route="pip", say=lines.append
    )
    assert code == 1
    return root, lines


def test_motion_is_recovered_within_03_mm(phantom: Phantom, done, aal: Atlas):
    root, _ = done
    table = pd.read_csv(
        next((root / "out").rglob("*confounds_timeseries.tsv")), sep="\t"
    )
    columns = ["trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z"]
    centre = phantom.affine[:3, :3] @ ((np.array(phantom.data.shape[:3]) - 1) / 2)
    centre = centre + phantom.affine[:3, 3]
    found = np.stack([rigid(p, centre) for p in table[columns].to_numpy()])
    still = np.stack([np.eye(4)] * N)
    moved = displacement(still, phantom.motion, phantom.pose, aal)
    left = displacement(found, phantom.motion, phantom.pose, aal)
    assert moved.mean() > 0.7
    assert left.mean() < 0.15  # the target is 0.3


def test_roi_signals_are_recovered(phantom: Phantom, done, aal: Atlas):
    root, _ = done
    lines: list[str] = []
    code = fc_command(
        source=root / "out",
        out=root / "fc",
        participant_label=["01"],
        denoise="none",
        high_pass=0,
        low_pass=0,
        max_empty=0.3,
        say=lines.append,
    )
    assert code == 0, lines
    path = next((root / "fc").rglob("*_timeseries.tsv"))
    series = pd.read_csv(path, sep="\t", na_values=["n/a"]).to_numpy()
    t = np.linspace(-1, 1, N)
    seen = [i for i in range(116) if np.isfinite(series[:, i]).all()]
    assert len(seen) > 100
    truth = (
        phantom.signals
        - np.polynomial.polynomial.polyval(
            t, np.polynomial.polynomial.polyfit(t, phantom.signals, 1)
        ).T
    )
    r = [np.corrcoef(series[:, i], truth[:, i])[0, 1] for i in seen]
    assert np.median(r) >= 0.97


def test_files_pages_and_trouble(done):
    root, lines = done
    out = root / "out"
    names = {p.name for p in (out / "sub-01" / "func").iterdir()}
    space = "sub-01_task-rest_space-MNI152NLin2009aSym_desc-"
    assert names == {
        f"{space}preproc_bold.nii.gz",
        f"{space}preproc_bold.json",
        f"{space}brain_mask.nii.gz",
        "sub-01_task-rest_desc-confounds_timeseries.tsv",
    }
    side = json.loads(
        (out / "sub-01" / "func" / f"{space}preproc_bold.json").read_text()
    )
    assert side["Steps"]["slice_timing"]["Tool"] == "fcforge"
    assert side["Steps"]["registration"]["Tool"] == "ants"
    assert side["Steps"]["distortion"] == "not done"
    assert side["Recipe"]["drop"] == 0
    page = (out / "sub-01_task-rest.html").read_text()
    assert (page.count("<svg"), page.count("data:image/")) == (1, 1)  # motion, mosaic
    assert sum("failed: sub-02" in line and "truncated" in line for line in lines) == 1
    assert sum("failed: sub-03: is listed" in line for line in lines) == 1
    assert [path.name for path in out.rglob(".*")] == [".bidsignore"]


def test_again_does_nothing_new(done):
    root, _ = done
    lines: list[str] = []
    code = preprocess_command(
        source=root / "bids",
        out=root / "out",
        drop=0,
        route="pip",
        participant_label=["sub-01"],
        say=lines.append,
    )
    assert code == 0
    assert "(0 made now, 1 from before)" in lines[-1]


def test_nilearns_strategies_read_our_confounds(done):
    from fcforge.imaging.denoise import fmriprep_confounds, make_denoise

    root, _ = done
    bold = next((root / "out").rglob("*preproc_bold.nii.gz"))
    for name in ("simple", "motion+high_pass+wm_csf+global_signal"):
        confounds, _ = fmriprep_confounds(bold, make_denoise(name, (0.01, 0.1), 0.5))
        assert {"csf", "white_matter", "rot_z_derivative1"} <= set(confounds.columns)


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
    for text, says in (
        ("{half", "not JSON"),
        ("[1]", "the file holds no names and values"),
    ):
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

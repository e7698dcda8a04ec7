"""Single steps of the raw path against known answers."""

from __future__ import annotations

import gzip
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter

from fcforge.errors import ConfigError, DataError
from fcforge.imaging.raw.distortion import (
    estimate_field,
    phase_axis,
    pyhysco_command,
    to_voxels,
    unwarp,
)
from fcforge.imaging.raw.files import find_raw, volume_writer
from fcforge.imaging.raw.motion import (
    estimate_motion,
    framewise_displacement,
    parameters_of,
    resample,
    rigid,
)
from fcforge.imaging.raw.normalise import affine_of_transform, mni_grid, to_ants
from fcforge.imaging.raw.nuisance import (
    Tissues,
    TissueSignals,
    confounds_table,
    cosines,
    mni_tissues,
)
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
    return gaussian_filter(np.where(head, 1000 + 6000 * noise, 0), 0.7).astype(np.float32)


def test_known_motion_is_found():
    affine = np.diag([4.0, 4, 4, 1])
    affine[:3, 3] = [-60, -70, -50]
    head = _blob()
    centre = affine[:3, :3] @ ((np.array(head.shape) - 1) / 2) + affine[:3, 3]
    small, large = [1.5, -1, 2, 0.02, -0.015, 0.01], [0, 3, 0, 0, 0, 0.04]
    true = [np.zeros(6), np.array(small), np.array(large)]
    data = np.stack(
        [resample(head, affine, np.linalg.inv(rigid(p, centre)), head.shape, affine) for p in true],
        axis=-1,
    )
    data[..., 2] *= 1.1  # a change of gain is not motion
    found = estimate_motion(data, affine)
    relative = [m @ np.linalg.inv(found.matrices[0]) for m in found.matrices]
    got = np.stack([parameters_of(m, centre) for m in relative])
    np.testing.assert_allclose(got[:, :3], np.stack(true)[:, :3], atol=0.08)
    np.testing.assert_allclose(got[:, 3:], np.stack(true)[:, 3:], atol=0.002)


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
    command = pyhysco_command(Path("a.nii.gz"), Path("b.nii.gz"), 1, Path("/o/f"))
    assert command == ["pyhysco", "a.nii.gz", "b.nii.gz", "2", "--output_dir", "/o/f"]


def test_pyhysco_is_run_as_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake = tmp_path / "pyhysco"
    fake.write_text(
        "#!/usr/bin/env python3\n"
        "import gzip, shutil, sys\n"
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


def test_ants_frame_is_our_world_frame(tmp_path: Path):
    ants = pytest.importorskip("ants", reason="extra `imaging`")
    affine = rigid(np.array([5.0, -3, 2, 0.1, 0.2, -0.1]), np.zeros(3)) @ np.diag([2.0, 3, 4, 1])
    image = to_ants(np.zeros((4, 5, 6)), affine)
    index = np.array([1, 2, 3])
    point = ants.transform_index_to_physical_point(image, index)
    np.testing.assert_allclose(point, affine[:3, :3] @ index + affine[:3, 3], atol=1e-5)
    turn = rigid(np.array([1.0, 2, 3, 0.05, -0.1, 0.2]), np.zeros(3))
    transform = ants.create_ants_transform(
        transform_type="AffineTransform", matrix=turn[:3, :3], translation=turn[:3, 3]
    )
    ants.write_transform(transform, str(tmp_path / "t.mat"))
    np.testing.assert_allclose(affine_of_transform(str(tmp_path / "t.mat")), turn, atol=1e-5)


def test_tissues_and_confounds_have_fmripreps_columns():
    shape, affine = mni_grid(4.0)
    tissues = mni_tissues(shape, affine)
    assert len(tissues.brain) > 5 * len(tissues.white_matter) > 50 * len(tissues.csf) > 500
    assert set(tissues.csf) <= set(tissues.brain)
    small = Tissues(np.arange(8), np.array([0, 1]), np.array([7]))
    signals = TissueSignals(small)
    for t in range(40):
        signals.add(np.arange(8.0).reshape(2, 2, 2, order="F") + (t % 2))
    table = confounds_table(np.zeros((40, 6)), signals, 2.0)
    assert table["csf"].tolist()[:2] == [7.0, 8.0]
    assert table["white_matter"].tolist()[:2] == [0.5, 1.5]
    assert table["dvars"].tolist()[1:3] == [1.0, 1.0]
    assert {"cosine00", "std_dvars", "framewise_displacement"} <= set(table)
    assert "rot_z_derivative1_power2" in table


def test_cosines_are_orthonormal_and_slow():
    basis = cosines(100, 2.0)
    assert len(basis) == 3  # 2 * 200 s / 128 s
    np.testing.assert_allclose(basis @ basis.T, np.eye(3), atol=1e-12)


def test_volumes_written_one_by_one_are_a_nifti(tmp_path: Path):
    rng = np.random.default_rng(0)
    data = rng.uniform(0, 900, size=(4, 5, 6, 7)).astype(np.float32)
    affine = np.diag([3.0, 3, 3, 1])
    path = tmp_path / "x.nii.gz"
    with volume_writer(path, data.shape, affine, 1.5, 1000.0) as write:
        for t in range(7):
            write(data[..., t])
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
    (tmp_path / "task-rest_bold.json").write_text('{"RepetitionTime": 2, "SliceTiming": [0, 1]}')
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
    with pytest.raises(DataError, match=r"sub-01_task-rest_bold.nii.gz: .* is no number"):
        find_raw(tmp_path)
    with pytest.raises(DataError, match="no \\*_bold"):
        find_raw(fmap.parent.parent / "sub-01" / "func" / "..")

"""Slice timing by hand; programs and their command lines."""

import json
import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from imaging_calls import preprocess_command

from fcforge.core.errors import DataError
from fcforge.imaging.raw import corrections, pipeline
from fcforge.imaging.raw.corrections import correct_slice_timing


def test_slice_timing_moves_every_slice_to_one_moment():
    tr, n = 2.0, 80
    times = np.array([0, 3, 1, 4, 2, 5]) * tr / 6
    volume = np.arange(n) * tr
    wave = lambda t: np.sin(2 * np.pi * 0.05 * t) + 0.5 * np.cos(2 * np.pi * 0.08 * t)  # noqa: E731
    data = np.stack(
        [np.broadcast_to(wave(volume + t), (2, 3, n)) for t in times], axis=2
    )
    out = correct_slice_timing(data, times, tr)
    expected = wave(volume + times.max() / 2)
    assert np.abs(data[0, 0, 5] - expected).max() > 0.1  # it was wrong before
    np.testing.assert_allclose(
        out[0, 0, :, 2:-2], np.tile(expected[2:-2], (6, 1)), atol=0.01
    )


def test_slice_times_that_do_not_fit():
    data = np.zeros((2, 2, 4, 10))
    with pytest.raises(DataError, match="do not fit"):
        correct_slice_timing(data, np.array([0.0, 500, 1000, 1500]), 2.0)
    with pytest.raises(DataError, match="3 slice times"):
        correct_slice_timing(data, np.array([0.0, 0.5, 1.0]), 2.0)


def test_route_follows_what_is_installed(monkeypatch: pytest.MonkeyPatch):
    def install(*programs: str) -> None:
        monkeypatch.setattr(shutil, "which", lambda name: name in programs or None)

    pip = {
        "slice_timing": "fcforge",
        "motion": "fcforge",
        "distortion": "",
        "registration": "ants",
    }
    install()
    assert corrections.plan_route("auto") == pip
    install("slicetimer", "mcflirt")
    with pytest.raises(DataError, match="topup are not all installed"):
        corrections.plan_route("fsl")
    install("slicetimer", "mcflirt", "topup")
    assert corrections.plan_route("pip") == pip
    assert corrections.plan_route("auto") == {
        "slice_timing": "slicetimer",
        "motion": "mcflirt",
        "distortion": "topup",
        "registration": "ants",
    }
    install("slicetimer", "mcflirt", "topup", "spm12")
    assert corrections.plan_route("fsl")["registration"] == "spm12"


def test_command_lines():
    a, b = Path("a.nii.gz"), Path("b.nii.gz")
    assert corrections.command(
        "slicetimer", source=a, out=b, tr=2.0, times="t.txt"
    ) == [
        "slicetimer",
        "--in=a.nii.gz",
        "--out=b.nii.gz",
        "--repeat=2",
        "--tcustom=t.txt",
    ]
    assert corrections.command("mcflirt", source=a, out="out") == [
        "mcflirt",
        "-in",
        "a.nii.gz",
        "-out",
        "out",
        "-refvol",
        "0",
        "-plots",
        "-mats",
    ]
    topup = corrections.command(
        "topup", pair="pair.nii.gz", datain="acq.txt", topup="t"
    )
    assert topup == [
        "topup",
        "--imain=pair.nii.gz",
        "--datain=acq.txt",
        "--config=b02b0.cnf",
        "--out=t",
        "--fout=t_field",
    ]
    assert not any(
        "fwhm" in part for part in topup
    )  # nipype's --fwhm 8 is not topup's default
    assert corrections.command(
        "applytopup", source=a, datain="acq.txt", topup="t", out=b
    ) == [
        "applytopup",
        "--imain=a.nii.gz",
        "--datain=acq.txt",
        "--inindex=1",
        "--topup=t",
        "--method=jac",
        "--interp=spline",
        "--out=b.nii.gz",
    ]
    assert corrections.command("spm12", batch="job.m") == ["spm12", "script", "job.m"]


def test_a_path_with_blanks_is_one_argument():
    assert corrections.command("spm12", batch="/my data/job.m") == [
        "spm12",
        "script",
        "/my data/job.m",
    ]


def test_the_flags_are_nipypes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip(
        "nipype", reason="nipype is no dependency; install it to compare"
    )
    from nipype.interfaces import fsl

    monkeypatch.setenv("FSLOUTPUTTYPE", "NIFTI_GZ")
    monkeypatch.chdir(tmp_path)
    for name in ("a.nii.gz", "t.txt", "acq.txt"):
        (tmp_path / name).touch()
    a, b = Path("a.nii.gz"), Path("b.nii.gz")
    timer = fsl.SliceTimer(
        in_file="a.nii.gz",
        out_file="b.nii.gz",
        time_repetition=2.0,
        custom_timings="t.txt",
    )
    theirs = timer.cmdline.replace("2.000000", "2").split()
    assert sorted(
        corrections.command("slicetimer", source=a, out=b, tr=2.0, times="t.txt")
    ) == sorted(theirs)
    realign = fsl.MCFLIRT(
        in_file="a.nii.gz", out_file="out", ref_vol=0, save_plots=True, save_mats=True
    )
    assert sorted(corrections.command("mcflirt", source=a, out="out")) == sorted(
        realign.cmdline.split()
    )
    topup = fsl.TOPUP(
        in_file="a.nii.gz", encoding_file="acq.txt", config="b02b0.cnf", out_base="t"
    )
    ours = corrections.command("topup", pair=a, datain="acq.txt", topup="t")
    assert set(ours) - {"--fout=t_field"} <= set(topup.cmdline.split())


def test_files_for_the_programs(tmp_path: Path):
    text = corrections.slicetimer_file(np.array([0.0, 1.0, 1.5]), 2.0)
    assert text.split() == ["0.000000", "0.500000", "0.750000"]
    lines = corrections.acquisition_parameters(["j-", "j"], 0.05).splitlines()
    assert lines == ["0 -1 0 0.050000", "0 1 0 0.050000"]
    with pytest.raises(
        DataError, match="PhaseEncodingDirection is 'AP', which is unknown"
    ):
        corrections.acquisition_parameters(["AP"], 0.05)
    (tmp_path / "m.par").write_text("0.01 0.02 0.03 1 2 3\n0 0 0 4 5 6\n")
    got = corrections.read_mcflirt(tmp_path / "m.par")
    assert got.tolist() == [[1, 2, 3, 0.01, 0.02, 0.03], [4, 5, 6, 0, 0, 0]]
    batch = corrections.spm_normalise_batch(Path("/w/mean.nii"), Path("/w/series.nii"))
    assert "spm.spatial.normalise.estwrite.subj.vol = {'/w/mean.nii,1'};" in batch
    assert "woptions.vox = [3 3 3];" in batch
    assert "affreg = 'mni'" in batch
    assert "$" not in batch


STAND_IN = """#!/usr/bin/env python3
import json, pathlib, shutil, sys
log = pathlib.Path("{log}")
with log.open("a") as f:
    f.write(json.dumps(sys.argv) + "\\n")
name = pathlib.Path(sys.argv[0]).name
given = dict(a.split("=", 1) for a in sys.argv[1:] if "=" in a)
if name == "slicetimer":
    shutil.copyfile(given["--in"], given["--out"])
elif name == "mcflirt":
    out = sys.argv[sys.argv.index("-out") + 1]
    shutil.copyfile(sys.argv[sys.argv.index("-in") + 1], out + ".nii.gz")
    n = {n}
    pathlib.Path(out + ".par").write_text("0 0 0.01 0.5 0 0\\n" * n)
elif name == "topup":
    shutil.copyfile(given["--imain"], given["--fout"] + ".nii.gz")
elif name == "applytopup":
    shutil.copyfile(given["--imain"], given["--out"])
"""


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs with FSL's names that write down how they were called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    log = tmp_path / "calls.jsonl"
    for name in ("slicetimer", "mcflirt", "topup", "applytopup"):
        (folder / name).write_text(
            STAND_IN.replace("{log}", str(log)).replace("{n}", "12")
        )
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return log


@pytest.fixture
def raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A raw scan with slice times and an image of the opposite phase direction."""
    monkeypatch.setattr(pipeline.mni, "register_to_mni", lambda mean, affine: np.eye(4))
    root = tmp_path / "bids"
    func, fmap = root / "sub-01" / "func", root / "sub-01" / "fmap"
    func.mkdir(parents=True)
    fmap.mkdir()
    rng = np.random.default_rng(0)
    data = rng.uniform(500, 600, size=(20, 24, 20, 14)).astype(np.int16)
    affine = np.diag([9.0, 9, 9, 1])
    affine[:3, 3] = [-90, -126, -72]
    image = nib.Nifti1Image(data, affine)
    image.header.set_xyzt_units("mm", "sec")
    image.header["pixdim"][4] = 2.0
    nib.save(image, func / "sub-01_task-rest_bold.nii.gz")
    info = {
        "RepetitionTime": 2.0,
        "SliceTiming": [i / 10 for i in range(20)],
        "PhaseEncodingDirection": "j-",
        "TotalReadoutTime": 0.04,
    }
    (func / "sub-01_task-rest_bold.json").write_text(json.dumps(info))
    nib.save(nib.Nifti1Image(data[..., 0], affine), fmap / "sub-01_dir-PA_epi.nii.gz")
    (fmap / "sub-01_dir-PA_epi.json").write_text('{"PhaseEncodingDirection": "j"}')
    return root


def _preprocess(root: Path, route: str) -> tuple[int, list[str]]:
    lines: list[str] = []
    code = preprocess_command(
        source=root,
        out=root.parent / "out",
        drop=2,
        sdc=True,
        route=route,
        report=False,
        say=lines.append,
    )
    return code, lines


def _steps(root: Path) -> dict:
    side = next((root.parent / "out").rglob("*preproc_bold.json"))
    return json.loads(side.read_text())["Steps"]


def _calls(log: Path) -> list[list[str]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_the_fsl_route_runs_its_programs_and_the_sidecar_says_so(
    stand_ins: Path, raw: Path
):
    code, lines = _preprocess(raw, "fsl")
    assert code == 0, lines
    names = [Path(call[0]).name for call in _calls(stand_ins)]
    assert names == ["slicetimer", "mcflirt", "topup", "applytopup"]
    steps = _steps(raw)
    assert steps["slice_timing"]["Tool"] == "slicetimer"
    # slicetimer moves slices to the middle of the TR, not of the slice times (0.95 s).
    assert steps["slice_timing"]["ReferenceSeconds"] == 1.0
    assert steps["motion"]["Tool"] == "mcflirt"
    assert steps["distortion"]["Tool"] == "topup"
    assert steps["registration"]["Tool"] == "ants"
    table = next((raw.parent / "out").rglob("*confounds_timeseries.tsv")).read_text()
    assert table.splitlines()[1].startswith("0.5\t")


def test_distortion_needs_topup(raw: Path):
    code, lines = _preprocess(raw, "pip")
    assert code == 2
    assert any("--sdc needs FSL's topup" in line for line in lines)


def test_a_failing_program_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    program = tmp_path / "mcflirt"
    program.write_text("#!/bin/sh\necho 'cannot open volume' >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(DataError, match=r"mcflirt .*exit 3.* cannot open volume"):
        corrections.run(
            "mcflirt", tmp_path / "y.nii.gz", source=tmp_path / "x.nii.gz", out="y"
        )

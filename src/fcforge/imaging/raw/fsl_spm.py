"""The paper's own programs: FSL's slicetimer, mcflirt and topup, SPM12's normalisation.

Command lines are built here as nipype would (its topup default ``--fwhm 8`` is left out: the
paper says default settings, which are those of ``b02b0.cnf``), and run where the programs are.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fcforge.errors import DataError
from fcforge.imaging.raw.distortion import run_program

STEPS = ("slice_timing", "motion", "distortion", "registration")


def plan_route(
    route: str = "auto", which: Callable[[str], str | None] = shutil.which
) -> dict[str, str]:
    """Tool of every step: FSL and SPM12 where they are installed, else what pip brings.

    Parameters
    ----------
    route : {"auto", "pip", "fsl"}
        "pip" never looks for FSL; "fsl" insists on it.
    which : callable
        Finds a program (for tests).
    """
    pip = dict(zip(STEPS, ("fcforge", "fcforge", "pyhysco", "ants"), strict=True))
    if route == "pip":
        return pip
    programs = {"slice_timing": "slicetimer", "motion": "mcflirt", "distortion": "topup"}
    missing = [name for name in programs.values() if which(name) is None]
    if route == "fsl" and missing:
        raise DataError(
            f"FSL is not installed ({', '.join(missing)} not found).",
            do="Source FSL's set-up, or use --route pip.",
        )
    found = {step: name for step, name in programs.items() if which(name)}
    if which("spm12"):  # the standalone; needs the MATLAB runtime only
        found["registration"] = "spm12"
    return {**pip, **found}


def slicetimer_command(source: Path, out: Path, tr: float, times: Path) -> list[str]:
    """Slice timing with a file of times in units of TR (see `slicetimer_file`)."""
    return [
        "slicetimer",
        f"--in={source}",
        f"--out={out}",
        f"--repeat={tr:g}",
        f"--tcustom={times}",
    ]


def slicetimer_file(times: np.ndarray, tr: float) -> str:
    """Content of FSL's ``--tcustom``: time of each slice as a fraction of TR.

    slicetimer itself moves a slice by 0.5 minus this value (0.5 is no shift), so that all slices
    end at the middle of the TR.
    """
    return "".join(f"{t / tr:.6f}\n" for t in times)


def mcflirt_command(source: Path, out: Path) -> list[str]:
    """Rigid realignment to the first volume, parameters in ``OUT.par``."""
    return ["mcflirt", "-in", str(source), "-out", str(out), "-refvol", "0", "-plots", "-mats"]


def read_mcflirt(path: Path) -> np.ndarray:
    """Translation (mm) and rotation (radians), (n_volumes, 6); the file has rotations first."""
    values = np.loadtxt(path, ndmin=2)
    return np.concatenate([values[:, 3:6], values[:, :3]], axis=1)


def acquisition_parameters(directions: list[str], readout: float) -> str:
    """Content of topup's ``--datain``: one line of phase vector and readout time per volume."""
    lines = []
    for direction in directions:
        vector = [0, 0, 0]
        vector["ijk".index(direction[0])] = -1 if direction.endswith("-") else 1
        lines.append(f"{vector[0]} {vector[1]} {vector[2]} {readout:.6f}\n")
    return "".join(lines)


def topup_command(pair: Path, datain: Path, out: Path) -> list[str]:
    """Field from a blip-up / blip-down pair with FSL's own default configuration."""
    given = [f"--imain={pair}", f"--datain={datain}", "--config=b02b0.cnf"]
    return ["topup", *given, f"--out={out}", f"--fout={out}_field"]


def applytopup_command(source: Path, datain: Path, topup: Path, out: Path) -> list[str]:
    """Correct a series acquired like line 1 of `datain`."""
    given = [f"--imain={source}", f"--datain={datain}", "--inindex=1", f"--topup={topup}"]
    return ["applytopup", *given, "--method=jac", "--interp=spline", f"--out={out}"]


def spm_normalise_batch(mean: Path, series: Path, mm: float) -> str:
    """SPM12 batch: estimate on the mean, write the series in MNI space (``w`` prefix)."""
    job = "matlabbatch{1}.spm.spatial.normalise.estwrite"
    box = "[-90 -126 -72; 90 90 108]"
    return "\n".join(
        [
            f"{job}.subj.vol = {{'{mean},1'}};",
            f"{job}.subj.resample = cellstr(spm_select('expand', '{series}'));",
            f"{job}.eoptions.biasreg = 0.0001;",
            f"{job}.eoptions.biasfwhm = 60;",
            f"{job}.eoptions.tpm = {{fullfile(spm('dir'), 'tpm', 'TPM.nii')}};",
            f"{job}.eoptions.affreg = 'mni';",
            f"{job}.eoptions.reg = [0 0.001 0.5 0.05 0.2];",
            f"{job}.eoptions.fwhm = 0;",
            f"{job}.eoptions.samp = 3;",
            f"{job}.woptions.bb = {box};",
            f"{job}.woptions.vox = [{mm:g} {mm:g} {mm:g}];",
            f"{job}.woptions.interp = 4;",
            "spm('defaults', 'FMRI'); spm_jobman('initcfg'); spm_jobman('run', matlabbatch);",
            "",
        ]
    )


def spm_command(batch: Path) -> list[str]:
    """Run a batch file with the standalone SPM12."""
    return ["spm12", "script", str(batch)]


def fsl_slice_timing(source: Path, folder: Path, tr: float, times: np.ndarray) -> Path:
    """Run slicetimer; returns the corrected file."""
    shifts = folder / "slice_times.txt"
    shifts.write_text(slicetimer_file(times, tr))
    out = folder / "slicetimed.nii.gz"
    run_program(slicetimer_command(source, out, tr, shifts))
    return _written(out, "slicetimer")


def fsl_motion(source: Path, folder: Path) -> tuple[Path, np.ndarray]:
    """Run mcflirt; returns the realigned file and the motion parameters."""
    out = folder / "realigned"
    run_program(mcflirt_command(source, out))
    return _written(folder / "realigned.nii.gz", "mcflirt"), read_mcflirt(folder / "realigned.par")


def fsl_distortion(
    source: Path, pair: Path, folder: Path, directions: list[str], readout: float
) -> Path:
    """Run topup and applytopup; returns the corrected file."""
    datain = folder / "acquisition.txt"
    datain.write_text(acquisition_parameters(directions, readout))
    run_program(topup_command(pair, datain, folder / "topup"))
    out = folder / "unwarped.nii.gz"
    run_program(applytopup_command(source, datain, folder / "topup", out))
    return _written(out, "applytopup")


def spm_normalise(mean: Path, series: Path, folder: Path, mm: float) -> Path:
    """Run SPM12's normalisation; returns the series in MNI space."""
    batch = folder / "normalise.m"
    batch.write_text(spm_normalise_batch(mean, series, mm))
    run_program(spm_command(batch), cwd=folder)
    return _written(series.with_name(f"w{series.name}"), "SPM12")


def describe(plan: Mapping[str, str], done: Mapping[str, Any]) -> dict[str, Any]:
    """What ran, for the sidecar: tool and settings of each step, "not done" for the others."""
    return {s: {"Tool": plan[s], **done[s]} if s in done else "not done" for s in STEPS}


def _written(path: Path, program: str) -> Path:
    if not path.exists():
        raise DataError(f"{program} ended without writing {path.name}.")
    return path

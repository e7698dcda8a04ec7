"""The paper's own programs: FSL's slicetimer, mcflirt and topup, SPM12's normalisation.

Command lines are built here as nipype would (its topup default ``--fwhm 8`` is left out: the
paper says default settings, which are those of ``b02b0.cnf``), and run where the programs are.
"""

import shutil
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from fcforge.errors import DataError
from fcforge.imaging.raw.corrections import phase_axis, run_program

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
        what = f"FSL is not installed ({', '.join(missing)} not found)."
        do = "Source FSL's set-up, or use --route pip."
        raise DataError(what, do=do)
    found = {step: name for step, name in programs.items() if which(name)}
    if which("spm12"):  # the standalone; needs the MATLAB runtime only
        found["registration"] = "spm12"
    return {**pip, **found}


# Split at blanks before paths are put in, so that a path may have blanks of its own.
COMMANDS = {
    "slicetimer": "--in={source} --out={out} --repeat={tr:g} --tcustom={times}",
    "mcflirt": "-in {source} -out {out} -refvol 0 -plots -mats",
    "topup": "--imain={pair} --datain={datain} --config=b02b0.cnf --out={topup} "
    "--fout={topup}_field",
    "applytopup": "--imain={source} --datain={datain} --inindex=1 --topup={topup} --method=jac "
    "--interp=spline --out={out}",
    "spm12": "script {batch}",
}


def command(program: str, **values: Any) -> list[str]:
    """Command line of a program."""
    return [program, *(part.format(**values) for part in COMMANDS[program].split())]


def slicetimer_file(times: np.ndarray, tr: float) -> str:
    """Content of FSL's ``--tcustom``: time of each slice as a fraction of TR.

    slicetimer itself moves a slice by 0.5 minus this value (0.5 is no shift), so that all slices
    end at the middle of the TR.
    """
    return "".join(f"{t / tr:.6f}\n" for t in times)


def read_mcflirt(path: Path) -> np.ndarray:
    """Translation (mm) and rotation (radians), (n_volumes, 6); the file has rotations first."""
    return np.roll(np.loadtxt(path, ndmin=2)[:, :6], 3, axis=1)


def acquisition_parameters(directions: list[str], readout: float) -> str:
    """Content of topup's ``--datain``: one line of phase vector and readout time per volume."""
    lines = []
    for axis, sign in map(phase_axis, directions):
        vector = np.eye(3, dtype=int)[axis] * sign
        lines.append(f"{vector[0]} {vector[1]} {vector[2]} {readout:.6f}\n")
    return "".join(lines)


def spm_normalise_batch(mean: Path, series: Path, mm: float) -> str:
    """SPM12 batch: estimate on the mean, write the series in MNI space (``w`` prefix)."""
    text = files("fcforge.imaging.raw").joinpath("spm_normalise.m").read_text(encoding="utf-8")
    return Template(text).substitute(mean=mean, series=series, mm=f"{mm:g}")


def describe(plan: Mapping[str, str], done: Mapping[str, Any]) -> dict[str, Any]:
    """What ran, for the sidecar: tool and settings of each step, "not done" for the others."""
    return {s: {"Tool": plan[s], **done[s]} if s in done else "not done" for s in STEPS}


def run(program: str, written: Path, cwd: Path | None = None, **values: Any) -> Path:
    """Run a program that is to write a file; returns the file."""
    run_program(command(program, **values), cwd)
    if not written.exists():
        raise DataError(f"{program} ended without writing {written.name}.")
    return written

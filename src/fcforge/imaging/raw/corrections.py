"""Slice timing (a cubic spline in time), and the paper's own programs where they are installed.

These are FSL's slicetimer, mcflirt and topup, and SPM12's normalisation. Their command lines are those of
nipype, except for its ``--fwhm 8`` of topup: the paper states default settings, which are those of
``b02b0.cnf``.
"""

import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from fcforge.core.errors import DataError
from fcforge.imaging.scan import read_volume

# Unit vectors of the values of PhaseEncodingDirection.
VECTORS = {
    "i": "1 0 0",
    "i-": "-1 0 0",
    "j": "0 1 0",
    "j-": "0 -1 0",
    "k": "0 0 1",
    "k-": "0 0 -1",
}
STEPS = ("slice_timing", "motion", "distortion", "registration")


def correct_slice_timing(data: np.ndarray, times: np.ndarray, tr: float) -> np.ndarray:
    """Shift every slice to the middle of the acquisition of its volume by a cubic spline in time.

    Parameters
    ----------
    data : ndarray of shape (x, y, n_slices, n_volumes)
    times : ndarray of shape (n_slices,)
        Time of each slice in seconds after the start of a volume.
    tr : float
        Repetition time in seconds.

    Returns
    -------
    ndarray of shape (x, y, n_slices, n_volumes), float32
        At the two ends, where a spline would have to extrapolate, the nearest value is kept.

    Raises
    ------
    DataError
        If the times do not fit the scan.
    """
    times = np.asarray(times, dtype=float)
    if times.shape != (data.shape[2],) or times.min() < 0 or times.max() >= tr:
        known = f"{len(times)} slice times from {times.min():g} to {times.max():g} s"
        raise DataError(
            f"{known} do not fit {data.shape[2]} slices and a TR of {tr:g} s.",
            do="Check SliceTiming in the sidecar (seconds, not milliseconds).",
        )
    from scipy.interpolate import CubicSpline

    volume = np.arange(data.shape[3]) * tr
    middle = float(times.max() / 2)
    out = np.empty(data.shape, dtype=np.float32)
    for k, offset in enumerate(times):  # one slice at a time keeps the spline small
        acquired = volume + offset
        signal = data[:, :, k].astype(np.float64)
        spline = CubicSpline(acquired, signal, axis=-1)
        target = np.clip(volume + middle, acquired[0], acquired[-1])
        out[:, :, k] = spline(target)
    return out


def opposite(direction: str) -> str:
    """Return a phase-encoding direction with the other sign: ``j`` for ``j-``."""
    return direction.removesuffix("-") if direction.endswith("-") else f"{direction}-"


def plan_route(route: str = "auto") -> dict[str, str]:
    """Return the tool of every step, by the names in `STEPS`.

    These are FSL and SPM12 where they are installed, else fcforge and the pip package antspyx. Only FSL's
    topup corrects distortion; without it the tool is "".

    Parameters
    ----------
    route : {"auto", "pip", "fsl"}
        "pip" never uses FSL and SPM12; "fsl" requires FSL.

    Raises
    ------
    DataError
        If FSL is required and not installed.
    """
    plan = dict(zip(STEPS, ("fcforge", "fcforge", "", "ants"), strict=True))
    if route == "pip":
        return plan
    # SPM12 is the standalone, which needs the MATLAB runtime only
    paper = dict(zip(STEPS, ("slicetimer", "mcflirt", "topup", "spm12"), strict=True))
    installed = {step: name for step, name in paper.items() if shutil.which(name)}
    if route == "fsl" and not installed.keys() >= set(STEPS[:3]):
        raise DataError(
            "FSL's slicetimer, mcflirt and topup are not all installed.",
            do="Source FSL's set-up, or use --route pip.",
        )
    return plan | installed


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
    """Return the command line of a program in `COMMANDS`, with `values` for its placeholders."""
    return [program, *(part.format(**values) for part in COMMANDS[program].split())]


def run(program: str, written: Path, **values: Any) -> np.ndarray:
    """Run an external program and return the volume that it writes.

    Parameters
    ----------
    program : str
        A key of `COMMANDS`.
    written : Path
        File that the program writes. Its folder is the working folder.
    **values
        Values of the placeholders in the command.

    Returns
    -------
    ndarray of shape (x, y, z, n_volumes), float32

    Raises
    ------
    DataError
        If the program cannot be started or fails; the message has the last line of its errors.
    """
    words = command(program, **{"out": written, **values})
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, cwd=written.parent
        )
    except OSError as error:
        raise DataError(
            f"cannot start {program} ({error.strerror}).",
            do="Check its installation, or use --route pip.",
        ) from None
    if done.returncode:
        text = (done.stderr or done.stdout).strip().splitlines()
        raise DataError(
            f"{program} failed (exit {done.returncode}): {(text or [''])[-1]}",
            do=f"Command: {' '.join(words)}",
        )
    return read_volume(written)


def slicetimer_file(times: np.ndarray, tr: float) -> str:
    """Return the content of the file of slice times for slicetimer's ``--tcustom``.

    A line has the time of a slice as a fraction of TR. slicetimer shifts a slice by 0.5 minus this value, so
    that all slices are moved to the middle of the TR.
    """
    return "".join(f"{t / tr:.6f}\n" for t in times)


def read_mcflirt(path: Path) -> np.ndarray:
    """Read the motion parameters (n_volumes, 6) that mcflirt wrote.

    The result has translations in mm first, then rotations in radians; the file has rotations first.
    """
    rotations_first = np.loadtxt(path, ndmin=2)[:, :6]
    return np.roll(rotations_first, 3, axis=1)


def acquisition_parameters(directions: list[str], readout: float) -> str:
    """Return the content of the file for topup's ``--datain``.

    It has a line for each volume, with the vector of its phase-encoding direction and the readout time.

    Parameters
    ----------
    directions : list of str
        Phase-encoding direction of each volume, such as ``j-``.
    readout : float
        Total readout time in seconds.
    """
    lines = []
    for direction in directions:
        if direction not in VECTORS:
            message = f"PhaseEncodingDirection is '{direction}', which is unknown."
            raise DataError(message, do=f"Use one of {', '.join(VECTORS)}.")
        lines.append(f"{VECTORS[direction]} {readout:.6f}\n")
    return "".join(lines)


def spm_normalise_batch(mean: Path, series: Path) -> str:
    """Return the SPM12 batch that normalises a scan to MNI space.

    It estimates the transform on the mean and writes the series with the prefix ``w``.

    Parameters
    ----------
    mean, series : Path
        Files of the mean volume and of all volumes.
    """
    text = (
        files("fcforge.imaging.raw")
        .joinpath("spm_normalise.m")
        .read_text(encoding="utf-8")
    )
    return Template(text).substitute(mean=mean, series=series)

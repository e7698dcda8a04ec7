"""Slice timing (a cubic spline in time) and distortion (a field of displacements, by PyHySCO).

PyHySCO (extra `sdc`, GPL-3) is run as a program of its own, so fcforge itself stays MIT.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from fcforge.components import look_up
from fcforge.errors import DataError
from fcforge.imaging.scan import read_volume

ORDERS = ("ascending", "descending", "interleaved", "interleaved_even")

AXES = {"i": 0, "j": 1, "k": 2}


def slice_times(order: str, n_slices: int, tr: float) -> np.ndarray:
    """Acquisition time of each slice within a volume, seconds.

    Parameters
    ----------
    order : {"ascending", "descending", "interleaved", "interleaved_even"}
        ``interleaved`` takes slices 0, 2, 4, ... first (Siemens with an odd count, Philips);
        ``interleaved_even`` takes 1, 3, 5, ... first (Siemens with an even count).
    n_slices : int
    tr : float
        Seconds.

    Examples
    --------
    >>> slice_times("interleaved", 4, 2.0).tolist()
    [0.0, 1.0, 0.5, 1.5]
    """
    index = np.arange(n_slices)
    known = (index, index[::-1], np.r_[index[::2], index[1::2]], np.r_[index[1::2], index[::2]])
    sequence = look_up("slice order", order, dict(zip(ORDERS, known, strict=True)))
    times = np.empty(n_slices)
    times[sequence] = np.arange(n_slices) * tr / n_slices
    return times


def correct_slice_timing(
    data: np.ndarray, times: np.ndarray, tr: float, reference: float | None = None
) -> np.ndarray:
    """Signal each slice would have had at the reference moment of every volume.

    Parameters
    ----------
    data : ndarray of shape (x, y, n_slices, n_volumes)
    times : ndarray of shape (n_slices,)
        Seconds after the start of a volume.
    tr : float
        Seconds.
    reference : float, optional
        Moment within a volume; the middle of the acquisition by default.

    Returns
    -------
    ndarray like `data`, float32
        At the two ends, where a spline would have to extrapolate, the nearest value is kept.

    Raises
    ------
    DataError
        Times that do not fit the scan.
    """
    times = np.asarray(times, dtype=float)
    if times.shape != (data.shape[2],) or times.min() < 0 or times.max() >= tr:
        known = f"{len(times)} slice times from {times.min():g} to {times.max():g} s"
        what = f"{known} do not fit {data.shape[2]} slices and a TR of {tr:g} s."
        raise DataError(what, do="Check SliceTiming in the sidecar (seconds, not milliseconds).")
    from scipy.interpolate import CubicSpline

    reference = float(times.max() / 2) if reference is None else reference
    volume = np.arange(data.shape[3]) * tr
    out = np.empty(data.shape, dtype=np.float32)
    for k, offset in enumerate(times):  # one slice at a time keeps the spline small
        spline = CubicSpline(volume + offset, data[:, :, k].astype(np.float64), axis=-1)
        ask = np.clip(volume + reference, volume[0] + offset, volume[-1] + offset)
        out[:, :, k] = spline(ask)
    return out


def phase_axis(direction: str) -> tuple[int, int]:
    """Axis (0, 1, 2) and sign of a BIDS PhaseEncodingDirection such as ``j-``."""
    if not direction or direction[0] not in AXES or direction[1:] not in ("", "-"):
        raise DataError(f"PhaseEncodingDirection '{direction}'.", do="It is i, i-, j, j-, k or k-.")
    return AXES[direction[0]], -1 if direction.endswith("-") else 1


def opposite(direction: str) -> str:
    """The same axis with the other sign: ``j`` for ``j-``."""
    return direction.removesuffix("-") if direction.endswith("-") else f"{direction}-"


def unwarp(volume: np.ndarray, field_mm: np.ndarray, axis: int, voxel_mm: float) -> np.ndarray:
    """Undo a displacement along one axis, with the intensity it squeezed or stretched.

    ``out(x) = volume(x + b(x)) (1 + db/dx)``

    Parameters
    ----------
    volume : ndarray of shape (x, y, z)
    field_mm : ndarray of shape (x, y, z)
        Displacement b in mm along `axis` (negative for the opposite phase direction).
    axis : int
    voxel_mm : float
        Voxel size along `axis`.
    """
    from scipy.ndimage import map_coordinates

    shift = field_mm / voxel_mm
    at = np.stack(np.meshgrid(*map(np.arange, volume.shape), indexing="ij")).astype(float)
    at[axis] += shift
    moved = map_coordinates(np.asarray(volume, dtype=np.float32), at, order=1, mode="nearest")
    return (moved * np.clip(1 + np.gradient(shift, axis=axis), 0, 2)).astype(np.float32)


def estimate_field(
    first: np.ndarray, second: np.ndarray, affine: np.ndarray, axis: int
) -> np.ndarray:
    """Displacement in mm of `first` (and minus that of `second`) along the phase axis.

    Parameters
    ----------
    first, second : ndarray of shape (x, y, z)
        The same head with opposite phase encoding; `first` like the scan to correct.
    """
    import nibabel as nib

    program = shutil.which("pyhysco")
    if program is None:
        what = "distortion correction needs PyHySCO or FSL's topup; neither is installed."
        do = "pip install -c constraints.txt 'fcforge[sdc]', or leave out --sdc."
        raise DataError(what, do=do)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / "up.nii.gz", Path(folder) / "down.nii.gz"]
        for path, data in zip(paths, (first, second), strict=True):
            nib.save(nib.Nifti1Image(np.asarray(data, dtype=np.float32), affine), path)
        prefix = Path(folder) / "field"
        # PyHySCO 0.0.4 takes positionals; its README shows flags.
        run_program([program, *map(str, paths), str(axis + 1), "--output_dir", str(prefix)])
        field = read_volume(Path(f"{prefix}-EstFieldMap.nii.gz"))
    return to_voxels(field, axis, first.shape)


def to_voxels(field: np.ndarray, axis: int, shape: tuple[int, ...]) -> np.ndarray:
    """PyHySCO's field lies on the voxel faces along the phase axis; mean of each voxel's two."""
    if field.shape == tuple(shape):
        return field
    wide = tuple(n + (i == axis) for i, n in enumerate(shape))
    if field.shape != wide:
        raise DataError(f"a field of shape {field.shape} for a volume of shape {shape}.")
    lower = np.take(field, range(shape[axis]), axis=axis)
    upper = np.take(field, range(1, shape[axis] + 1), axis=axis)
    return (lower + upper) / 2


def run_program(command: list[str], cwd: Path | None = None) -> str:
    """Run an outside program; its last line of complaint becomes the error."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    except OSError as error:
        raise DataError(f"cannot start {command[0]} ({error.strerror}).") from None
    if done.returncode:
        text = (done.stderr or done.stdout).strip().splitlines()
        raise DataError(
            f"{Path(command[0]).name} failed (exit {done.returncode}): {text[-1] if text else ''}",
            do=f"Command: {' '.join(command)}",
        )
    return done.stdout

"""From a raw scan to fMRIPrep-like derivatives in MNI space: basic, for data without fMRIPrep.

With FSL the order is the paper's: slice timing, motion, distortion, MNI. The pip-only path follows
fMRIPrep: motion is estimated before slice timing, since a spline in time blurs a moving head (on
our phantom 0.04 mm of motion are left that way, 0.14-0.27 mm the other way round); motion and
registration are composed, so every volume is interpolated in space once.
"""

import contextlib
import gzip
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fcforge.errors import DataError
from fcforge.imaging.options import PreprocessRequest
from fcforge.imaging.outputs import base_name, software, subject_folder, write_json
from fcforge.imaging.raw import fsl_spm
from fcforge.imaging.raw.corrections import (
    correct_slice_timing,
    estimate_field,
    opposite,
    phase_axis,
    slice_times,
    unwarp,
)
from fcforge.imaging.raw.files import RawRun
from fcforge.imaging.raw.motion import estimate_motion, estimate_motion_ants, mean_volume, resample
from fcforge.imaging.raw.normalise import SPACE, mni_grid, register_to_mni
from fcforge.imaging.raw.nuisance import TissueSignals, confounds_table, mni_tissues
from fcforge.imaging.scan import ScanHeader, open_scan, read_volume, repetition_time
from fcforge.imaging.sources import sidecar_of
from fcforge.writing import whole_file


@dataclass(frozen=True)
class Preprocessed:
    """What one run became; the quality page shows it.

    Attributes
    ----------
    path : Path
        ``desc-preproc_bold`` in MNI space.
    parameters : ndarray of shape (n_volumes, 6)
    mean : ndarray of shape (x, y, z)
        Mean in MNI space.
    affine : ndarray of shape (4, 4)
    done : mapping
        Tool and settings of every step, "not done" for those left out.
    """

    path: Path
    parameters: np.ndarray
    mean: np.ndarray
    affine: np.ndarray
    done: dict[str, Any] = field(default_factory=dict)


def output_path(out: Path, run: RawRun) -> Path:
    """``sub-X_task-rest_space-MNI..._desc-preproc_bold.nii.gz``."""
    folder = subject_folder(out, run.source)
    return folder / f"{base_name(run.source)}_space-{SPACE}_desc-preproc_bold.nii.gz"


def preprocess_run(run: RawRun, request: PreprocessRequest, key: str = "") -> Preprocessed:
    """All steps for one run; writes the scan, its mask, confounds and sidecars.

    Raises
    ------
    DataError
        A damaged scan, an unknown TR, a step whose program fails.
    """
    plan = fsl_spm.plan_route(request.route)
    if plan["motion"] != "mcflirt":
        plan["motion"] = request.motion
    scan = open_scan(run.source.path)
    tr = repetition_time(scan, run.tr, request.tr)
    if tr is None:
        raise DataError("the TR is unknown.", where=str(scan.path), do="Pass --tr SECONDS.")
    with tempfile.TemporaryDirectory() as work:
        way = _Way(run, request, plan, Path(work), _load(scan, request.drop), scan.affine, tr)
        steps = [way.slice_timing, way.realign, way.distortion]
        for step in steps if plan["motion"] == "mcflirt" else [steps[2], steps[1], steps[0]]:
            step()
        return way.to_mni(key)


def _load(scan: ScanHeader, drop: int) -> np.ndarray:
    if scan.n_volumes - drop < 10:
        raise DataError(f"{scan.n_volumes} volumes, {drop} dropped: too few.", where=str(scan.path))
    data = read_volume(scan.path)[..., drop:]
    if not np.isfinite(data).all():
        bad = int((~np.isfinite(data)).any(axis=-1).sum())
        raise DataError(f"{bad} NaN voxels in a raw scan.", where=str(scan.path))
    return data


@dataclass
class _Way:
    """A scan on its way to MNI space; every step changes `data` and says what it did."""

    run: RawRun
    request: PreprocessRequest
    plan: dict[str, str]
    work: Path
    data: np.ndarray
    affine: np.ndarray
    tr: float
    done: dict[str, Any] = field(default_factory=dict)

    def save(self, name: str, data: np.ndarray | None = None) -> Path:
        """ScanHeader (or `data`) in the working folder, for another program."""
        data = self.data if data is None else data
        return _save(data, self.affine, self.tr, self.work / name)

    def slice_timing(self) -> None:
        """Every slice at one moment, where the times are known."""
        if self.run.slice_timing:
            times, known = np.array(self.run.slice_timing), "sidecar"
        elif known := self.request.slice_order:
            times = slice_times(known, self.data.shape[2], self.tr)
        else:
            return
        if self.plan["slice_timing"] == "slicetimer":
            file = fsl_spm.fsl_slice_timing(self.save("raw.nii.gz"), self.work, self.tr, times)
            self.data = read_volume(file)
        else:
            self.data = correct_slice_timing(self.data, times, self.tr)
        self.done["slice_timing"] = {"Times": known, "ReferenceSeconds": float(times.max() / 2)}

    def distortion(self) -> None:
        """Undo the distortion along the phase axis, where it is asked for."""
        if not self.request.sdc:
            return
        reverse, phase = self.run.reverse, self.run.phase
        if reverse is None:
            where = str(self.run.source.path)
            raise DataError("no image with the opposite phase direction.", where=where)
        other = read_volume(reverse)
        other = other if other.ndim == 3 else other[..., 0]
        mean = self.data[..., :5].mean(axis=-1)
        if self.plan["distortion"] == "topup":
            pair = self.save("pair.nii.gz", np.stack([mean, other], -1))
            source, ways = self.save("to_unwarp.nii.gz"), [phase, opposite(phase)]
            file = fsl_spm.fsl_distortion(source, pair, self.work, ways, self.run.readout)
            self.data = read_volume(file)
            about: dict[str, Any] = {"Config": "b02b0.cnf"}
        else:
            about = self._unwarp(mean, other)
        self.done["distortion"] = {"Reverse": reverse.name, **about}

    def _unwarp(self, mean: np.ndarray, other: np.ndarray) -> dict[str, Any]:
        axis, _ = phase_axis(self.run.phase)
        field_mm = estimate_field(mean, other, self.affine, axis)
        voxel_mm = float(np.linalg.norm(self.affine[:3, axis]))
        for t in range(self.data.shape[3]):
            self.data[..., t] = unwarp(self.data[..., t], field_mm, axis, voxel_mm)
        return {"Axis": "ijk"[axis], "LargestMm": float(np.abs(field_mm).max())}

    def realign(self) -> None:
        """Motion of every volume; mcflirt also moves the volumes, the others leave that to MNI."""
        if self.plan["motion"] == "mcflirt":
            file, self.parameters = fsl_spm.fsl_motion(self.save("to_realign.nii.gz"), self.work)
            self.data = read_volume(file)
            self.matrices = np.stack([np.eye(4)] * self.data.shape[3])
        else:
            estimate = estimate_motion_ants if self.request.motion == "ants" else estimate_motion
            motion = estimate(self.data, self.affine)
            self.matrices, self.parameters = motion.matrices, motion.parameters
        self.done["motion"] = {"LargestMm": float(np.abs(self.parameters[:, :3]).max())}

    def to_mni(self, key: str) -> Preprocessed:
        """The last step: volumes, mask, confounds and sidecar in MNI space."""
        volumes, shape, affine = self._registered()
        path = output_path(self.request.out, self.run)
        signals = TissueSignals(mni_tissues(shape, affine))
        total, n = np.zeros(shape), self.data.shape[3]
        with whole_file(path) as part:
            top = float(self.data.max()) * 1.1
            with volume_writer(part, (*shape, n), affine, self.tr, top) as write:
                for volume in volumes:
                    signals.add(volume)
                    total += volume
                    write(volume)
        mean, done = (total / n).astype(np.float32), fsl_spm.describe(self.plan, self.done)
        result = Preprocessed(path, self.parameters, mean, affine, done)
        self._write_beside(result, signals, key)
        return result

    def _registered(self) -> tuple[Iterator[np.ndarray], tuple[int, int, int], np.ndarray]:
        """Volumes in MNI space one by one, their shape and affine."""
        data, resolution = self.data, self.request.resolution
        shape, affine = mni_grid(resolution)
        mean = mean_volume(data, self.affine, self.matrices)
        if self.plan["registration"] == "spm12":
            files = self.save("mean.nii", mean), self.save("series.nii")
            moved = read_volume(fsl_spm.spm_normalise(*files, self.work, resolution))
            self.done["registration"] = {"Template": "SPM12 TPM"}
            x, y, z, n = moved.shape
            return (moved[..., t] for t in range(n)), (x, y, z), affine
        to_scan = register_to_mni(mean, self.affine)
        self.done["registration"] = {"Template": SPACE, "Affine": to_scan.round(6).tolist()}
        volumes = (
            resample(data[..., t], self.affine, matrix @ to_scan, shape, affine)
            for t, matrix in enumerate(self.matrices)
        )
        return volumes, shape, affine

    def _write_beside(self, result: Preprocessed, signals: TissueSignals, key: str) -> None:
        """Mask, confounds and the sidecar, which comes last and marks the run as done."""
        path, shape = result.path, result.mean.shape
        mask = np.zeros(int(np.prod(shape)), dtype=np.uint8)
        mask[signals.tissues.brain] = 1
        with whole_file(path.with_name(path.name.replace("preproc_bold", "brain_mask"))) as part:
            _save(mask.reshape(shape, order="F"), result.affine, 1.0, part)
        table = confounds_table(result.parameters, signals, self.tr)
        name = f"{base_name(self.run.source)}_desc-confounds_timeseries.tsv"
        with whole_file(path.with_name(name)) as part:
            table.to_csv(part, sep="\t", index=False, na_rep="n/a", float_format="%.8g")
        side = {
            "RepetitionTime": self.tr,
            "SpatialReference": SPACE,
            "Sources": [str(self.run.source.path)],
            "Steps": result.done,
            "Recipe": self.request.recorded,
            "Software": software(),
            "MeanFD": float(np.nanmean(table["framewise_displacement"])),
            "Fingerprint": key,
        }
        write_json(sidecar_of(path), side)


def _save(data: np.ndarray, affine: np.ndarray, tr: float, path: Path) -> Path:
    import nibabel as nib

    image = nib.Nifti1Image(data, affine)
    image.header.set_xyzt_units("mm", "sec")
    if data.ndim == 4:
        image.header["pixdim"][4] = tr
    nib.save(image, path)
    return path


@contextlib.contextmanager
def volume_writer(
    path: Path, shape: tuple[int, ...], affine: np.ndarray, tr: float, top: float
) -> Iterator[Callable[[np.ndarray], None]]:
    """Write a 4D scan volume by volume, 16 bit, so that it is never in memory as a whole.

    Parameters
    ----------
    path : Path
        ``.nii.gz``.
    shape : tuple of four int
    affine : ndarray of shape (4, 4)
    tr : float
    top : float
        Largest value to be stored; what exceeds it is clipped.
    """
    import nibabel as nib

    header = nib.Nifti1Header()
    header.set_data_shape(shape)
    header.set_data_dtype(np.int16)
    header.set_xyzt_units("mm", "sec")
    header.set_sform(affine, code=4)
    header.set_qform(affine, code=4)
    header["pixdim"][4] = tr
    slope = max(float(top), 1e-6) / 32000
    header.set_slope_inter(slope, 0.0)
    header["vox_offset"] = 352
    header["magic"] = b"n+1"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(header.binaryblock + bytes(4))

        def write(volume: np.ndarray) -> None:
            stored = np.clip(np.rint(volume / slope), -32768, 32767).astype("<i2")
            file.write(stored.tobytes(order="F"))

        yield write

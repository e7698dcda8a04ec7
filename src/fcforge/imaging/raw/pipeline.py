"""From a raw scan to fMRIPrep-like derivatives in MNI space: basic, for data without fMRIPrep.

With FSL the order is the paper's: slice timing, motion, distortion, MNI. The pip-only path follows
fMRIPrep: motion is estimated before slice timing, since a spline in time blurs a moving head (on
our phantom 0.04 mm of motion are left that way, 0.14-0.27 mm the other way round); motion and
registration are composed, so every volume is interpolated in space once.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fcforge.errors import DataError
from fcforge.imaging.options import PreprocessRequest
from fcforge.imaging.outputs import base_name, software, subject_folder, write_json
from fcforge.imaging.raw import fsl_spm
from fcforge.imaging.raw.distortion import estimate_field, phase_axis, unwarp
from fcforge.imaging.raw.files import RawRun, volume_writer
from fcforge.imaging.raw.motion import (
    Motion,
    estimate_motion,
    estimate_motion_ants,
    mean_volume,
    resample,
)
from fcforge.imaging.raw.normalise import SPACE, mni_grid, register_to_mni
from fcforge.imaging.raw.nuisance import TissueSignals, confounds_table, mni_tissues
from fcforge.imaging.raw.slice_timing import correct_slice_timing, slice_times
from fcforge.imaging.scan import TR_TOLERANCE_S, Scan, open_scan, read_volume, repetition_time
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


@dataclass
class _State:
    """A scan on its way: voxels, and where they are in the head's first position."""

    data: np.ndarray
    affine: np.ndarray
    tr: float
    motion: Motion | None = None
    parameters: np.ndarray | None = None
    done: dict[str, Any] = field(default_factory=dict)


def output_path(out: Path, run: RawRun) -> Path:
    """``sub-X_task-rest_space-MNI..._desc-preproc_bold.nii.gz``."""
    folder = subject_folder(out, run.source)
    return folder / f"{base_name(run.source)}_space-{SPACE}_desc-preproc_bold.nii.gz"


def preprocess_run(
    run: RawRun, out: Path, recipe: PreprocessRequest, key: str = ""
) -> Preprocessed:
    """All steps for one run; writes the scan, its mask, confounds and sidecars.

    Raises
    ------
    DataError
        A damaged scan, an unknown TR, a step whose program fails.
    """
    plan = fsl_spm.plan_route(recipe.route)
    if plan["motion"] != "mcflirt":
        plan["motion"] = recipe.motion
    scan = open_scan(run.source.path)
    tr = recipe.tr or repetition_time(scan, None, None) or run.tr
    if run.tr and scan.tr and recipe.tr is None and abs(run.tr - scan.tr) > TR_TOLERANCE_S:
        raise DataError(
            f"mixed TRs: the header says {scan.tr:g} s, the sidecar {run.tr:g} s.",
            where=str(scan.path),
            do="Pass the true one: --tr SECONDS.",
        )
    if tr is None:
        raise DataError("the TR is unknown.", where=str(scan.path), do="Pass --tr SECONDS.")
    state = _State(_load(scan, recipe.drop), scan.affine, tr)
    with tempfile.TemporaryDirectory() as work:
        steps = [_slice_timing, _motion, _distortion]
        if plan["motion"] != "mcflirt":
            steps = [_distortion, _motion, _slice_timing]
        for step in steps:
            step(state, run, recipe, plan, Path(work))
        return _to_mni(state, run, out, recipe, plan, Path(work), key)


def _load(scan: Scan, drop: int) -> np.ndarray:
    if scan.n_volumes - drop < 10:
        raise DataError(f"{scan.n_volumes} volumes, {drop} dropped: too few.", where=str(scan.path))
    data = read_volume(scan.path)[..., drop:]
    if not np.isfinite(data).all():
        bad = int((~np.isfinite(data)).any(axis=-1).sum())
        raise DataError(f"{bad} NaN voxels in a raw scan.", where=str(scan.path))
    return data


def _slice_timing(
    state: _State, run: RawRun, recipe: PreprocessRequest, plan: dict[str, str], work: Path
) -> None:
    n_slices = state.data.shape[2]
    if run.slice_timing:
        times, known = np.array(run.slice_timing), "sidecar"
    elif recipe.slice_order:
        times, known = slice_times(recipe.slice_order, n_slices, state.tr), recipe.slice_order
    else:
        return
    if plan["slice_timing"] == "slicetimer":
        source = _save(state.data, state.affine, state.tr, work / "raw.nii.gz")
        state.data = read_volume(fsl_spm.fsl_slice_timing(source, work, state.tr, times))
    else:
        state.data = correct_slice_timing(state.data, times, state.tr)
    state.done["slice_timing"] = {"Times": known, "ReferenceSeconds": float(times.max() / 2)}


def _distortion(
    state: _State, run: RawRun, recipe: PreprocessRequest, plan: dict[str, str], work: Path
) -> None:
    if not recipe.sdc:
        return
    if run.reverse is None:
        raise DataError("no image with the opposite phase direction.", where=str(run.source.path))
    other = read_volume(run.reverse)
    other = other if other.ndim == 3 else other[..., 0]
    mean = state.data[..., :5].mean(axis=-1)
    if plan["distortion"] == "topup":
        _topup(state, run, np.stack([mean, other], -1), work)
        return
    axis, _ = phase_axis(run.phase)
    field_mm = estimate_field(mean, other, state.affine, axis)
    voxel_mm = float(np.linalg.norm(state.affine[:3, axis]))
    for t in range(state.data.shape[3]):
        state.data[..., t] = unwarp(state.data[..., t], field_mm, axis, voxel_mm)
    state.done["distortion"] = {
        "Axis": "ijk"[axis],
        "Reverse": run.reverse.name,
        "LargestMm": float(np.abs(field_mm).max()),
    }


def _topup(state: _State, run: RawRun, both: np.ndarray, work: Path) -> None:
    assert run.reverse is not None
    pair = _save(both, state.affine, 1.0, work / "pair.nii.gz")
    source = _save(state.data, state.affine, state.tr, work / "to_unwarp.nii.gz")
    opposite = run.phase.removesuffix("-") if run.phase.endswith("-") else f"{run.phase}-"
    file = fsl_spm.fsl_distortion(source, pair, work, [run.phase, opposite], run.readout)
    state.data = read_volume(file)
    state.done["distortion"] = {"Config": "b02b0.cnf", "Reverse": run.reverse.name}


def _motion(
    state: _State, run: RawRun, recipe: PreprocessRequest, plan: dict[str, str], work: Path
) -> None:
    if plan["motion"] == "mcflirt":
        source = _save(state.data, state.affine, state.tr, work / "to_realign.nii.gz")
        file, state.parameters = fsl_spm.fsl_motion(source, work)
        state.data = read_volume(file)
        state.motion = Motion(np.stack([np.eye(4)] * state.data.shape[3]), np.zeros(3))
    else:
        estimate = estimate_motion_ants if recipe.motion == "ants" else estimate_motion
        state.motion = estimate(state.data, state.affine)
        state.parameters = state.motion.parameters
    state.done["motion"] = {"LargestMm": float(np.abs(state.parameters[:, :3]).max())}


def _to_mni(
    state: _State,
    run: RawRun,
    out: Path,
    recipe: PreprocessRequest,
    plan: dict[str, str],
    work: Path,
    key: str,
) -> Preprocessed:
    assert state.motion is not None
    assert state.parameters is not None
    shape, affine = mni_grid(recipe.resolution)
    mean = mean_volume(state.data, state.affine, state.motion.matrices)
    if plan["registration"] == "spm12":
        at = _save(mean, state.affine, 1.0, work / "mean.nii")
        series = _save(state.data, state.affine, state.tr, work / "series.nii")
        moved = read_volume(fsl_spm.spm_normalise(at, series, work, recipe.resolution))
        shape = (moved.shape[0], moved.shape[1], moved.shape[2])
        state.done["registration"] = {"Template": "SPM12 TPM"}
        volumes = (moved[..., t] for t in range(moved.shape[3]))
    else:
        to_scan = register_to_mni(mean, state.affine)
        state.done["registration"] = {"Template": SPACE, "Affine": to_scan.round(6).tolist()}
        volumes = (
            resample(state.data[..., t], state.affine, matrix @ to_scan, shape, affine)
            for t, matrix in enumerate(state.motion.matrices)
        )
    path = output_path(out, run)
    signals = TissueSignals(mni_tissues(shape, affine))
    total = np.zeros(shape)
    n = state.data.shape[3]
    with whole_file(path) as part:
        top = float(state.data.max()) * 1.1
        with volume_writer(part, (*shape, n), affine, state.tr, top) as write:
            for volume in volumes:
                signals.add(volume)
                total += volume
                write(volume)
    result = Preprocessed(
        path,
        state.parameters,
        (total / n).astype(np.float32),
        affine,
        fsl_spm.describe(plan, state.done),
    )
    _write_beside(result, run, signals, state.tr, recipe, key)
    return result


def _write_beside(
    result: Preprocessed,
    run: RawRun,
    signals: TissueSignals,
    tr: float,
    recipe: PreprocessRequest,
    key: str,
) -> None:
    """Mask, confounds and the sidecar, which comes last and marks the run as done."""
    path = result.path
    mask = np.zeros(int(np.prod(result.mean.shape)), dtype=np.uint8)
    mask[signals.tissues.brain] = 1
    mask_path = path.with_name(path.name.replace("desc-preproc_bold", "desc-brain_mask"))
    with whole_file(mask_path) as part:
        _save(mask.reshape(result.mean.shape, order="F"), result.affine, 1.0, part)
    table = confounds_table(result.parameters, signals, tr)
    with whole_file(path.with_name(f"{base_name(run.source)}_desc-confounds_timeseries.tsv")) as p:
        table.to_csv(p, sep="\t", index=False, na_rep="n/a", float_format="%.8g")
    write_json(
        path.with_name(path.name.replace(".nii.gz", ".json")),
        {
            "RepetitionTime": tr,
            "SpatialReference": SPACE,
            "Sources": [str(run.source.path)],
            "Steps": result.done,
            "Recipe": recipe.recorded,
            "Software": software(),
            "MeanFD": float(np.nanmean(table["framewise_displacement"])),
            "Fingerprint": key,
        },
    )


def _save(data: np.ndarray, affine: np.ndarray, tr: float, path: Path) -> Path:
    import nibabel as nib

    image = nib.Nifti1Image(data, affine)
    image.header.set_xyzt_units("mm", "sec")
    if data.ndim == 4:
        image.header["pixdim"][4] = tr
    nib.save(image, path)
    return path

"""`fcforge preprocess`: raw scans to scans in MNI space with confounds, in the layout of fMRIPrep.

With FSL the order is the paper's: slice timing, motion, distortion, MNI. Without it the order is that of
fMRIPrep: motion is estimated before slice timing, because a spline in time blurs a moving head. (On our phantom
0.04 mm of motion remain in this order, 0.14 to 0.27 mm in the other.) Motion and registration are composed, so
that every volume is interpolated in space once.
"""

import shutil
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

from fcforge.core.console import say
from fcforge.core.errors import DataError, at
from fcforge.core.files import whole_file, write_text
from fcforge.imaging import layouts, outputs, people
from fcforge.imaging.layouts import Source
from fcforge.imaging.options import PreprocessRequest as Request
from fcforge.imaging.people import Exclusion, Outcome
from fcforge.imaging.raw import corrections, mni
from fcforge.imaging.raw.motion import estimate_motion, mean_volume, resample
from fcforge.imaging.scan import open_scan, read_volume, repetition_time

PREFER = "a basic path: T1w images are not used; where fMRIPrep can be run, prefer its output"


@dataclass(frozen=True)
class RawRun:
    """One raw run: its file, and how it was acquired by the JSON sidecar.

    Attributes
    ----------
    source : Source
    tr : float or None
        Repetition time in seconds; None where the sidecar has none.
    slice_timing : tuple of float
        Time of each slice in seconds; empty if unknown.
    phase : str
        PhaseEncodingDirection, such as ``j-``; "" if unknown.
    readout : float
        TotalReadoutTime in seconds.
    reverse : Path or None
        EPI image with the opposite phase direction, for the correction of distortion.
    """

    source: Source
    tr: float | None
    slice_timing: tuple[float, ...]
    phase: str
    readout: float
    reverse: Path | None


def preprocess_folder(request: Request, pages: ModuleType) -> Outcome:
    """Bring every raw run below ``request.source`` to MNI space, with confounds for ``fcforge fc``.

    Parameters
    ----------
    request : PreprocessRequest
        Options of the command.
    pages : module
        `fcforge.report.quality`, which makes the pages if ``request.report`` is set.

    Returns
    -------
    Outcome
        Subjects that are done, and those that failed with the reason.
    """
    say(PREFER)
    out = request.out
    outputs.refuse_foreign(out, request.source)
    runs = find_raw(request.source)
    table = people.find_table(request.source)
    listed = people.read_people(table) if table else {}
    scanned = (run.source.subject for run in runs)
    subjects = people.wanted(request.participant_label, listed, scanned)
    # The output has fMRIPrep's layout, so that tools for fMRIPrep's output read it.
    layout = "fcforge preprocess (fMRIPrep layout)"
    outputs.write_description(out, request.source, "fcforge preprocess", layout)
    if table is not None:  # `fcforge fc` looks for it beside the derivatives
        shutil.copyfile(table, out / table.name)

    def make(subject: str) -> bool:
        """Preprocess all runs of a subject; return False if all were done before."""
        subject_runs = [run for run in runs if run.source.subject == subject]
        if not subject_runs:
            raise Exclusion("is listed, but there is no scan of it.")
        made = [_preprocess(run, request, pages) for run in subject_runs]
        return any(made)

    outcome = people.walk(subjects, make)
    outputs.write_failed(out, outcome)
    outcome.print_summary(out, "are preprocessed")
    return outcome


def _preprocess(run: RawRun, request: Request, pages: ModuleType) -> bool:
    """Preprocess one run and write its files and page, unless this was done before.

    Returns
    -------
    bool
        Whether it was done now.

    Raises
    ------
    DataError
        If the scan is damaged, its TR is unknown, or the program of a step fails.
    """
    path = run.source.path
    inputs = [path, run.reverse] if run.reverse else [path]
    key = outputs.fingerprint_of(inputs, [request.recorded, asdict(run)])
    if outputs.is_done(output_path(request.out, run), key):
        return False
    with at(path):
        scan = open_scan(path)
        tr = repetition_time(scan, run.tr, request.tr)
        if tr is None:
            raise DataError("the TR is unknown.", do="Pass --tr SECONDS.")
        drop = request.drop
        if scan.n_volumes - drop < 10:
            raise DataError(
                f"of {scan.n_volumes} volumes {drop} are dropped; fewer than 10 are left.",
                do="Lower --drop, or leave the scan out.",
            )
        data = read_volume(path)[..., drop:]
        bad = (~np.isfinite(data)).any(axis=-1)
        if bad.any():
            raise DataError(
                f"{int(bad.sum())} voxels of the raw scan are NaN or infinite.",
                do="Convert the scan from DICOM again.",
            )
    plan = corrections.plan_route(request.route)
    if request.work_dir is not None:
        request.work_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=request.work_dir) as work:
        way = _Way(run, request, plan, Path(work), data, scan.affine, tr)
        way.go(key, pages)
    return True


@dataclass
class _Way:
    """A scan on its way to MNI space; every step changes `data` and adds a record to `done`.

    Attributes
    ----------
    run : RawRun
    request : PreprocessRequest
    plan : dict of str to str
        Tool of every step, from `corrections.plan_route`.
    work : Path
        Folder for temporary files.
    data : ndarray of shape (x, y, z, n_volumes)
        The scan after the steps so far.
    affine : ndarray of shape (4, 4)
        Voxel index to mm.
    tr : float
        Repetition time in seconds.
    done : dict
        Details of the steps so far, by the names in `corrections.STEPS`.
    """

    run: RawRun
    request: Request
    plan: dict[str, str]
    work: Path
    data: np.ndarray
    affine: np.ndarray
    tr: float
    done: dict[str, Any] = field(default_factory=dict)

    def save(self, name: str, data: np.ndarray | None = None) -> Path:
        """Save the scan (or `data`) as a file in the working folder, for another program."""
        data = self.data if data is None else data
        return save_nifti(data, self.affine, self.tr, self.work / name)

    def text(self, name: str, content: str) -> Path:
        """Write a text file into the working folder, for another program."""
        (self.work / name).write_text(content)
        return self.work / name

    def slice_timing(self) -> None:
        """Shift every slice to the same moment, where slice times are known."""
        if not self.run.slice_timing:
            return
        times = np.array(self.run.slice_timing)
        if self.plan["slice_timing"] == "slicetimer":
            shifts = corrections.slicetimer_file(times, self.tr)
            how = {"tr": self.tr, "times": self.text("slice_times.txt", shifts)}
            source = self.save("raw.nii.gz")
            self.data = corrections.run(
                "slicetimer", self.work / "slicetimed.nii.gz", source=source, **how
            )
            reference = self.tr / 2
        else:
            self.data = corrections.correct_slice_timing(self.data, times, self.tr)
            reference = float(times.max() / 2)
        self.done["slice_timing"] = {"ReferenceSeconds": reference}

    def distortion(self) -> None:
        """Correct distortion with FSL's topup, if requested.

        topup estimates it from the mean of the first volumes and an image with the opposite phase
        direction.
        """
        if not self.request.sdc:
            return
        reverse = self.run.reverse
        if reverse is None:
            where = self.run.source.path
            raise DataError(
                "there is no image with the opposite phase direction, which --sdc needs.",
                where=where,
                do="Put one into fmap/, with PhaseEncodingDirection in its sidecar, or leave "
                "--sdc out.",
            )
        if self.plan["distortion"] != "topup":
            raise DataError(
                "--sdc needs FSL's topup, which is not there; fcforge has no other correction.",
                do="Install FSL, or run fMRIPrep, or leave --sdc out.",
            )
        other = read_volume(reverse)
        other = other if other.ndim == 3 else other[..., 0]
        mean = self.data[..., :5].mean(axis=-1)
        directions = [self.run.phase, corrections.opposite(self.run.phase)]
        lines = corrections.acquisition_parameters(directions, self.run.readout)
        acquired = self.text("acquisition.txt", lines)
        how = {"datain": acquired, "topup": self.work / "topup"}
        pair = self.save("pair.nii.gz", np.stack([mean, other], -1))
        corrections.run("topup", self.work / "topup_field.nii.gz", pair=pair, **how)
        source = self.save("to_unwarp.nii.gz")
        self.data = corrections.run(
            "applytopup", self.work / "unwarped.nii.gz", source=source, **how
        )
        self.done["distortion"] = {"Reverse": reverse.name, "Config": "b02b0.cnf"}

    def realign(self) -> None:
        """Estimate the motion of every volume.

        mcflirt also realigns the volumes. Without it `to_mni` does so, together with the registration.
        """
        if self.plan["motion"] == "mcflirt":
            source = self.save("to_realign.nii.gz")
            out = self.work / "realigned"  # mcflirt appends the endings
            self.data = corrections.run(
                "mcflirt", self.work / "realigned.nii.gz", source=source, out=out
            )
            self.parameters = corrections.read_mcflirt(self.work / "realigned.par")
            self.matrices = np.stack([np.eye(4)] * self.data.shape[3])
        else:
            self.matrices, self.parameters = estimate_motion(self.data, self.affine)
        largest = np.abs(self.parameters[:, :3]).max()
        self.done["motion"] = {"LargestMm": float(largest)}

    def to_mni(self) -> np.ndarray:
        """Register the scan to MNI space and return its volumes there (x, y, z, n_volumes)."""
        mean = mean_volume(self.data, self.affine, self.matrices)
        if self.plan["registration"] == "spm12":
            self.done["registration"] = {"Template": "SPM12 TPM"}
            pair = self.save("mean.nii", mean), self.save("series.nii")
            lines = corrections.spm_normalise_batch(*pair)
            batch = self.text("normalise.m", lines)
            return corrections.run("spm12", self.work / "wseries.nii", batch=batch)
        to_scan = mni.register_to_mni(mean, self.affine)
        how = {"Template": mni.SPACE, "Affine": to_scan.round(6).tolist()}
        self.done["registration"] = how
        grid = (mni.SHAPE, mni.AFFINE)
        out = np.empty((*mni.SHAPE, len(self.matrices)), dtype=np.float32)
        for t, matrix in enumerate(self.matrices):
            to_volume = matrix @ to_scan
            out[..., t] = resample(self.data[..., t], self.affine, to_volume, grid)
        return out

    def go(self, key: str, pages: ModuleType) -> None:
        """Run all steps, then write the files and the page.

        Parameters
        ----------
        key : str
            Fingerprint of inputs and settings. The sidecar with it is written last: it marks the run as done.
        pages : module
            `fcforge.report.quality`.
        """
        # The paper's order with FSL, else the reverse; the head of this module gives the reason.
        steps = [self.slice_timing, self.realign, self.distortion]
        for step in steps if self.plan["motion"] == "mcflirt" else reversed(steps):
            step()
        scan = self.to_mni()
        path = output_path(self.request.out, self.run)
        fd = self.write(scan, path)["framewise_displacement"].to_numpy()
        done: dict[str, Any] = dict.fromkeys(corrections.STEPS, "not done")
        for step_name, details in self.done.items():
            done[step_name] = {"Tool": self.plan[step_name], **details}
        name = outputs.base_name(self.run.source)
        if "slice_timing" not in self.done:
            say(f"{name}: no SliceTiming in its sidecar, slice timing skipped")
        if self.request.report:
            mean = scan.mean(axis=-1)
            page = pages.preprocess_page(name, fd, mean, mni.AFFINE, done)
            write_text(self.request.out / f"{name}.html", page)
        side = {
            "RepetitionTime": self.tr,
            "SpatialReference": mni.SPACE,
            "Sources": [self.run.source.path],
            "Steps": done,
            "Recipe": self.request.recorded,
            "Software": outputs.software(),
            "MeanFD": float(np.nanmean(fd)),
            "Fingerprint": key,
        }
        outputs.write_json(layouts.sidecar_of(path), side)

    def write(self, scan: np.ndarray, path: Path) -> pd.DataFrame:
        """Write the scan in MNI space, the brain mask and the confounds; return the confounds."""
        tissues = mni.mni_tissues()
        mask = path.with_name(path.name.replace("preproc_bold", "brain_mask"))
        brain = tissues.brain.astype(np.uint8)
        stored = ((scan, path, "i2"), (brain, mask, "u1"))  # with the type in the file
        for data, file, kind in stored:
            with whole_file(file) as part:
                save_nifti(data, mni.AFFINE, self.tr, part, kind)
        table = mni.confounds_table(self.parameters, scan, tissues, self.tr)
        name = f"{outputs.base_name(self.run.source)}_desc-confounds_timeseries.tsv"
        outputs.write_table(path.with_name(name), table)
        return table


def find_raw(root: Path) -> list[RawRun]:
    """Find every ``*_bold.nii[.gz]`` of a BIDS tree, or every NIfTI file of a plain folder."""
    paths = [*layouts.nifti_files(root, "sub-*/**/*_bold")] or [
        *layouts.nifti_files(root, "*")
    ]
    if not paths:
        raise DataError(
            "no *_bold.nii[.gz] and no NIfTI file found.",
            where=root,
            do="Give a BIDS folder, or a folder with one 4D file per subject.",
        )
    return [_describe(path, root) for path in sorted(paths)]


def _describe(path: Path, root: Path) -> RawRun:
    """Return the raw run of a file below the folder `root`, with the acquisition in its sidecars."""
    # BIDS inheritance: task-rest_bold.json at the top counts, too.
    bare = {"sub": layouts.stem_of(path.name), "task": "rest"}
    named = {**bare, **layouts.entities(path.name)}
    info = layouts.read_json(root / f"task-{named['task']}_bold.json")
    info |= layouts.read_json(layouts.sidecar_of(path))
    phase = str(info.get("PhaseEncodingDirection", ""))
    try:
        tr = float(info["RepetitionTime"]) if info.get("RepetitionTime") else None
        slice_timing = tuple(float(t) for t in info.get("SliceTiming", ()))
        readout = float(info.get("TotalReadoutTime", 0.05))
    except (TypeError, ValueError) as error:
        keys = "RepetitionTime, SliceTiming or TotalReadoutTime"
        message = f"a value of {keys} in the sidecar is not a number ({error})."
        raise DataError(message, where=path) from None
    reverse = _reverse_of(path, phase) if phase else None
    source = Source(path, "scan", "raw", named)
    return RawRun(source, tr, slice_timing, phase, readout, reverse)


def _reverse_of(path: Path, phase: str) -> Path | None:
    """Find the EPI image in ``fmap/`` with the opposite of the phase direction; None if there is none."""
    for image in sorted(path.parent.parent.glob("fmap/*_epi.nii*")):
        side = layouts.read_json(layouts.sidecar_of(image))
        if side.get("PhaseEncodingDirection") == corrections.opposite(phase):
            return image
    return None


def output_path(out: Path, run: RawRun) -> Path:
    """Return the path ``sub-X_task-rest_space-MNI..._desc-preproc_bold.nii.gz``."""
    name = f"{outputs.base_name(run.source)}_space-{mni.SPACE}_desc-preproc_bold.nii.gz"
    return outputs.subject_folder(out, run.source) / name


def save_nifti(
    data: np.ndarray, affine: np.ndarray, tr: float, path: Path, stored: Any = "f4"
) -> Path:
    """Write a 3D or 4D array as NIfTI and return the path.

    Parameters
    ----------
    data : ndarray of shape (x, y, z) or (x, y, z, n_volumes)
    affine : ndarray of shape (4, 4)
        Voxel index to mm.
    tr : float
        Repetition time in seconds.
    path : Path
    stored : dtype
        Type of the numbers in the file.
    """
    import nibabel as nib

    image = nib.Nifti1Image(data, affine, dtype=np.dtype(stored))
    image.header.set_xyzt_units("mm", "sec")
    if data.ndim == 4:
        image.header["pixdim"][4] = tr
    nib.save(image, path)
    return path

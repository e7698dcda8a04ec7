"""Raw scans: where they lie (BIDS or loose), what their sidecars say; and what becomes of one."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fcforge.errors import DataError
from fcforge.imaging import outputs, sources
from fcforge.imaging.raw.corrections import opposite
from fcforge.imaging.raw.mni import SPACE
from fcforge.imaging.sources import Source


@dataclass(frozen=True)
class RawRun:
    """One raw run: where it is and how it was acquired.

    Attributes
    ----------
    source : Source
    tr : float or None
        From the sidecar.
    slice_timing : tuple of float
        Seconds; empty when unknown.
    phase, readout
        PhaseEncodingDirection ("" when unknown) and TotalReadoutTime.
    reverse : Path or None
        EPI image with the opposite phase direction.
    """

    source: Source
    tr: float | None = None
    slice_timing: tuple[float, ...] = ()
    phase: str = ""
    readout: float = 0.05
    reverse: Path | None = None


def find_raw(root: Path) -> list[RawRun]:
    """Every ``*_bold.nii[.gz]`` of a BIDS tree, or every NIfTI file of a plain folder."""
    if not root.is_dir():
        raise DataError("no such folder.", where=root)
    paths = [*sources.nifti_files(root, "sub-*/**/*_bold")] or [
        *sources.nifti_files(root, "*")
    ]
    if not paths:
        raise DataError(
            "no *_bold.nii[.gz] and no NIfTI file found.",
            where=root,
            do="Give a BIDS folder, or a folder with one 4D file per subject.",
        )
    runs = [_describe(path, root) for path in paths]

    def place(run: RawRun) -> tuple[str, ...]:
        return (*run.source.said("sub", "ses"), run.source.path.name)

    return sorted(runs, key=place)


def _describe(path: Path, root: Path) -> RawRun:
    # BIDS inheritance: task-rest_bold.json at the top counts, too.
    bare = {"sub": sources.stem_of(path.name), "task": "rest"}
    named = {**bare, **sources.entities(path.name)}
    info = sources.read_json(root / f"task-{named['task']}_bold.json")
    info |= sources.read_json(sources.sidecar_of(path))
    phase = str(info.get("PhaseEncodingDirection", ""))
    try:
        tr = float(info["RepetitionTime"]) if info.get("RepetitionTime") else None
        slice_timing = tuple(float(t) for t in info.get("SliceTiming", ()))
        readout = float(info.get("TotalReadoutTime", 0.05))
    except (TypeError, ValueError) as error:
        what = "RepetitionTime, SliceTiming or TotalReadoutTime is not a number"
        raise DataError(f"its sidecar's {what} ({error}).", where=path) from None
    reverse = _reverse_of(path, phase) if phase else None
    source = Source(path, "scan", "raw", named)
    return RawRun(source, tr, slice_timing, phase, readout, reverse)


def _reverse_of(path: Path, phase: str) -> Path | None:
    """EPI image beside a scan with the opposite phase direction."""
    for image in sorted(path.parent.parent.glob("fmap/*_epi.nii*")):
        side = sources.read_json(sources.sidecar_of(image))
        if side.get("PhaseEncodingDirection") == opposite(phase):
            return image
    return None


def output_path(out: Path, run: RawRun) -> Path:
    """``sub-X_task-rest_space-MNI..._desc-preproc_bold.nii.gz``."""
    name = f"{outputs.base_name(run.source)}_space-{SPACE}_desc-preproc_bold.nii.gz"
    return outputs.subject_folder(out, run.source) / name


def save_nifti(
    data: np.ndarray, affine: np.ndarray, tr: float, path: Path, stored: Any = "f4"
) -> Path:
    """Write a 3D or 4D array as NIfTI in numbers of the type `stored`; returns the path."""
    import nibabel as nib

    image = nib.Nifti1Image(data, affine, dtype=np.dtype(stored))
    image.header.set_xyzt_units("mm", "sec")
    if data.ndim == 4:
        image.header["pixdim"][4] = tr
    nib.save(image, path)
    return path

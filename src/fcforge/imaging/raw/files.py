"""Raw scans: where they lie (BIDS or loose files), and what their sidecars say."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fcforge.errors import DataError
from fcforge.imaging.raw.corrections import opposite
from fcforge.imaging.sources import (
    Source,
    entities,
    nifti_files,
    read_json,
    sidecar_of,
    source_of,
    stem_of,
)


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
        raise DataError("no such folder.", where=str(root))
    paths = [*nifti_files(root, "sub-*/**/*_bold")] or [*nifti_files(root, "*")]
    if not paths:
        what = "no *_bold.nii[.gz] and no NIfTI file found."
        do = "Give a BIDS folder, or a folder with one 4D file per subject."
        raise DataError(what, where=str(root), do=do)
    runs = [_describe(path, root) for path in paths]
    return sorted(runs, key=lambda r: (r.source.subject, r.source.session, r.source.path.name))


def _describe(path: Path, root: Path) -> RawRun:
    info = _sidecars(path, root)
    source = source_of(path, "scan", "raw", subject=stem_of(path.name), task="rest")
    phase = str(info.get("PhaseEncodingDirection", ""))
    try:
        tr = float(info["RepetitionTime"]) if info.get("RepetitionTime") else None
        slice_timing = tuple(float(t) for t in info.get("SliceTiming", ()))
        readout = float(info.get("TotalReadoutTime", 0.05))
    except (TypeError, ValueError) as error:
        what = "RepetitionTime, SliceTiming or TotalReadoutTime is not a number"
        raise DataError(f"its sidecar's {what} ({error}).", where=str(path)) from None
    return RawRun(source, tr, slice_timing, phase, readout, _reverse(path, phase))


def _sidecars(path: Path, root: Path) -> dict[str, Any]:
    """Sidecar content with BIDS inheritance: ``task-rest_bold.json`` at the top counts too."""
    task = entities(path.name).get("task", "rest")
    info: dict[str, Any] = {}
    for file in (root / f"task-{task}_bold.json", sidecar_of(path)):
        info |= read_json(file)
    return info


def _reverse(path: Path, phase: str) -> Path | None:
    if not phase:
        return None
    for image in sorted(path.parent.parent.glob("fmap/*_epi.nii*")):
        if read_json(sidecar_of(image)).get("PhaseEncodingDirection") == opposite(phase):
            return image
    return None

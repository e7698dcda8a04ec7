"""One run -> ROI series and its quality; one subject -> FC."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fcforge.errors import DataError
from fcforge.imaging import denoise
from fcforge.imaging.atlas import Atlas
from fcforge.imaging.options import FCRequest
from fcforge.imaging.parcellate import roi_means
from fcforge.imaging.scan import open_scan, repetition_time
from fcforge.imaging.series import (
    empty_rois,
    join_runs,
    match_atlas,
    parse_columns,
    pearson_fc,
    read_series,
    refuse_gaps,
)
from fcforge.imaging.sources import Source

# DPABI's standard ROI set is several atlases side by side; AAL-116 comes first.
DPABI_ALL_ATLASES = (1568, 1569, 1833)
MORE_DOF = (
    "Take out fewer confounds or filter less (--denoise, --high-pass, --low-pass); FC of so short "
    "a scan is mostly chance."
)


@dataclass(frozen=True)
class Run:
    """One run's ROI series and what its quality page shows.

    Attributes
    ----------
    source : Source
    series : ndarray of shape (n_volumes, n_rois)
        NaN columns for empty ROIs.
    tr : float or None
    coverage : ndarray of shape (n_rois,) or None
        Share of each ROI's volume on good voxels; None for series made elsewhere.
    fd : ndarray of shape (n_volumes,) or None
        Framewise displacement in mm.
    carpet : ndarray of shape (n_rows, n_volumes)
        Sampled voxels (or ROIs) before denoising.
    report : mapping
        What was done, for the sidecar.
    warnings : tuple of str
    """

    source: Source
    series: np.ndarray
    tr: float | None
    coverage: np.ndarray | None
    fd: np.ndarray | None
    carpet: np.ndarray
    report: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class SubjectFC(NamedTuple):
    """FC of one subject over all runs.

    Attributes
    ----------
    subject : str
    runs : tuple of Run
    fc : ndarray of shape (n_rois, n_rois)
    empty : tuple of int
        ROIs without signal; their FC is 0.
    """

    subject: str
    runs: tuple[Run, ...]
    fc: np.ndarray
    empty: tuple[int, ...]

    @property
    def mean_fd(self) -> float:
        """Mean framewise displacement in mm over runs, NaN where unknown."""
        known = [run.fd[np.isfinite(run.fd)] for run in self.runs if run.fd is not None]
        values = np.concatenate([np.empty(0), *known])
        return float(values.mean()) if len(values) else float("nan")

    @property
    def dof(self) -> float | None:
        """Degrees of freedom left by denoising over all runs; None where another tool did it."""
        return _total_dof(self.runs)

    @property
    def n_volumes(self) -> int:
        """Volumes the FC rests on."""
        return sum(len(run.series) for run in self.runs)


def subject_fc(sources: list[Source], atlas: Atlas, settings: FCRequest) -> SubjectFC:
    """FC of one subject from all its runs.

    Raises
    ------
    DataError
        Runs with different TRs, or more empty ROIs than `FCRequest.max_empty`.
    """
    runs = tuple(extract_run(source, atlas, settings) for source in sources)
    where, trs = sources[0].path, sorted({run.tr for run in runs if run.tr is not None})
    if len(trs) > 1:
        what = f"mixed TRs: its runs have {', '.join(f'{t:g} s' for t in trs)}."
        do = "Choose one run: --select TEXT, --task or --session."
        raise DataError(what, where=f"sub-{sources[0].subject}", do=do)
    dof = _total_dof(runs)
    if dof is not None and dof < settings.min_dof:
        left = f"{max(dof, 0):.0f} degrees of freedom of {sum(len(r.carpet.T) for r in runs)}"
        what = f"denoising leaves {left} volumes, {settings.min_dof} are needed."
        raise DataError(what, where=where, do=MORE_DOF)
    series = join_runs([run.series for run in runs])
    empty = np.flatnonzero(empty_rois(series))
    if len(empty) > settings.max_empty * atlas.n_rois:
        names = ", ".join(atlas.roi_names[i] for i in empty[:3])
        nan_voxels = sum(run.report.get("NaNVoxels", 0) for run in runs)
        more = f"; {nan_voxels} NaN voxels inside ROIs." if nan_voxels else "."
        what = f"{len(empty)} of {atlas.n_rois} ROIs without signal ({names}, ...){more}"
        do = "Look at its coverage; or allow more: --max-empty."
        raise DataError(what, where=where, do=do)
    fc = pearson_fc(series, atlas.roi_names, str(where))
    return SubjectFC(sources[0].subject, runs, fc, tuple(empty.tolist()))


def _total_dof(runs: tuple[Run, ...]) -> float | None:
    known = [run.report["DegreesOfFreedom"] for run in runs if "DegreesOfFreedom" in run.report]
    return float(sum(known)) if len(known) == len(runs) else None


def extract_run(source: Source, atlas: Atlas, settings: FCRequest) -> Run:
    """ROI series of one run, denoised where its tool has not done so."""
    make = _from_series if source.kind == "series" else _from_scan
    fd = denoise.framewise_displacement(source.motion) if source.motion else None
    return make(source, atlas, settings, None if fd is None else fd[settings.drop :])


def _from_series(source: Source, atlas: Atlas, settings: FCRequest, fd: np.ndarray | None) -> Run:
    raw = read_series(source.path, variable=settings.variable)
    columns, n = parse_columns(settings.columns), raw.values.shape[1]
    warnings: tuple[str, ...] = ()
    side_by_side = source.tool == "dpabi" and n in DPABI_ALL_ATLASES
    if columns is None and side_by_side and atlas.name == "AAL116":
        columns = slice(0, 116)
        warnings = (f"took columns 1-116 (AAL) of DPABI's {n}",)
    elif not raw.names and source.tool == "series":
        warnings = (f"columns without names were taken for the ROIs of {atlas.name}, in order",)
    values = match_atlas(raw, atlas, source.path, columns).values[settings.drop :]
    refuse_gaps(values, atlas.roi_names, str(source.path))
    done = {"Denoising": f"none by fcforge; as left by {source.tool}"}
    report = {**done, "VolumesKept": len(values), "Columns": settings.columns}
    tr = settings.tr or source.said_tr
    return Run(source, values, tr, None, fd, values.T, report, warnings)


def _from_scan(source: Source, atlas: Atlas, settings: FCRequest, fd: np.ndarray | None) -> Run:
    scan = open_scan(source.path)
    tr = repetition_time(scan, source.said_tr, settings.tr)
    raw, coverage, carpet, notes = roi_means(scan, atlas, source.mask, settings.min_coverage)
    raw, carpet = raw[settings.drop :], carpet[:, settings.drop :]
    warnings = []
    if scan.scanner_space and source.tool == "nifti":
        warnings.append("the header says scanner space: make sure the scan is in MNI space")
    if notes["NaNVoxels"]:
        warnings.append(f"{notes['NaNVoxels']} NaN voxels inside ROIs left out")
    if source.denoised:
        series, report = raw, {"Denoising": f"none by fcforge; as left by {source.tool}"}
    else:
        found = _confounds(source, settings, len(raw))
        series, report = denoise.clean_series(raw, settings.denoising, tr, found, str(source.path))
    return Run(source, series, tr, coverage, fd, carpet, {**notes, **report}, tuple(warnings))


def _confounds(source: Source, settings: FCRequest, n_volumes: int) -> denoise.Confounds:
    """Confounds of the volumes that were not dropped, and those kept; none but for fMRIPrep."""
    confounds, kept = denoise.NONE
    if source.tool == "fmriprep":
        confounds, kept = denoise.fmriprep_confounds(source.path, settings.denoising)
    if confounds is not None:
        confounds = confounds.iloc[settings.drop :].reset_index(drop=True)
        kept = None if kept is None else kept[kept >= settings.drop] - settings.drop
        if len(confounds) != n_volumes:
            what = f"the scan has {n_volumes} volumes, its confounds have {len(confounds)} rows."
            raise DataError(what, where=source.path)
    return confounds, kept

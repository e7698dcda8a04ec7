"""One run -> ROI series and its quality; one subject -> FC.

Of a 4D scan in MNI space it is the mean signal of every ROI, and how much of each ROI was seen.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fcforge.core.errors import DataError, at
from fcforge.core.formatting import counted, some
from fcforge.imaging import denoise
from fcforge.imaging import series as roi_series
from fcforge.imaging.atlas import Atlas, share_in_view, weights_on
from fcforge.imaging.layouts import Source
from fcforge.imaging.options import FCRequest
from fcforge.imaging.people import Exclusion
from fcforge.imaging.scan import (
    VOLUMES_AT_ONCE,
    ScanHeader,
    open_scan,
    read_mask,
    read_voxels,
    repetition_time,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_array

CARPET_VOXELS = 1500
Signals = tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]  # see `roi_means`
LEFT = {"Denoising": "none by fcforge; as the tool before left it"}
MORE_DOF = (
    "Take out fewer confounds or filter less (--denoise, --high-pass, --low-pass); FC of so short "
    "a scan is mostly chance."
)


class TooFewDof(Exclusion):
    """Error of a subject whose denoising leaves too few degrees of freedom."""

    criterion = "too_few_dof"


class TooManyEmptyROIs(Exclusion):
    """Error of a subject with too many ROIs without signal."""

    criterion = "empty_rois"


class Run(NamedTuple):
    """One run's ROI series and what its quality page shows.

    Attributes
    ----------
    source : Source
    series : ndarray of shape (n_volumes, n_rois)
        NaN columns for empty ROIs.
    tr : float or None
    coverage : ndarray of shape (n_rois,) or None
        Share of each ROI's volume on good voxels; None for series of other tools.
    fd : ndarray of shape (n_volumes,) or None
        Framewise displacement in mm.
    carpet : ndarray of shape (n_rows, n_volumes)
        Sampled voxels (or ROIs) before denoising.
    report : mapping
        Steps applied to the series, for the sidecar.
    warnings : tuple of str
    """

    source: Source
    series: np.ndarray
    tr: float | None
    coverage: np.ndarray | None
    fd: np.ndarray | None
    carpet: np.ndarray
    report: Mapping[str, Any]
    warnings: tuple[str, ...]


class SubjectFC(NamedTuple):
    """FC of one subject over all runs.

    Attributes
    ----------
    subject : str
    runs : tuple of Run
    fc : ndarray of shape (n_rois, n_rois)
    empty : tuple of int
        ROIs without signal; their FC is 0.
    settings : mapping
        Those that took part.
    warnings : tuple of str
        Remarks that the user should read, such as ROIs without signal.
    """

    subject: str
    runs: tuple[Run, ...]
    fc: np.ndarray
    empty: tuple[int, ...]
    settings: Mapping[str, Any]
    warnings: tuple[str, ...]

    @property
    def mean_fd(self) -> float | None:
        """Mean framewise displacement in mm over runs; None where unknown."""
        known = [run.fd for run in self.runs if run.fd is not None]
        values = np.concatenate([[], *known])
        values = values[np.isfinite(values)]
        return float(values.mean()) if len(values) else None

    @property
    def dof(self) -> float | None:
        """Degrees of freedom left by denoising over all runs; None where another tool did it."""
        if not all("DegreesOfFreedom" in run.report for run in self.runs):
            return None
        return sum(run.report["DegreesOfFreedom"] for run in self.runs)

    @property
    def n_volumes(self) -> int:
        """Volumes the FC rests on."""
        return sum(len(run.series) for run in self.runs)


def subject_fc(sources: list[Source], atlas: Atlas, request: FCRequest) -> SubjectFC:
    """Compute the FC of one subject from all its runs.

    Raises
    ------
    DataError
        Runs with different TRs, too few degrees of freedom (`FCRequest.min_dof`), or more empty
        ROIs than `FCRequest.max_empty`.
    """
    runs = tuple(extract_run(source, atlas, request) for source in sources)
    trs = sorted({run.tr for run in runs if run.tr is not None})
    if len(trs) > 1:
        raise DataError(
            f"mixed TRs: its runs have {', '.join(f'{t:g} s' for t in trs)}.",
            where=f"sub-{sources[0].subject}",
            do="Choose one run: --select TEXT, --task or --session.",
        )
    series = roi_series.join_runs([run.series for run in runs])
    with at(sources[0].path):
        result = _joined(runs, series, atlas, request)
        if result.dof is not None and result.dof < request.min_dof:
            remaining = f"{max(result.dof, 0):.0f} degrees of freedom"
            volumes = sum(run.carpet.shape[1] for run in runs)
            raise TooFewDof(
                f"denoising leaves {remaining} of {volumes} volumes, {request.min_dof} are needed.",
                do=MORE_DOF,
            )
    return result


def _joined(
    runs: tuple[Run, ...], series: np.ndarray, atlas: Atlas, request: FCRequest
) -> SubjectFC:
    empty = tuple(np.flatnonzero(roi_series.empty_rois(series)).tolist())
    names = some([atlas.roi_names[i] for i in empty])
    warnings = [warning for run in runs for warning in run.warnings]
    if empty:
        warnings.append(f"{counted(len(empty), 'ROI')} without signal, FC 0 ({names})")
    if len(empty) > request.max_empty * atlas.n_rois:
        nan_voxels = sum(run.report.get("NaNVoxels", 0) for run in runs)
        raise TooManyEmptyROIs(
            f"{len(empty)} of {atlas.n_rois} ROIs without signal ({names}); {nan_voxels} NaN "
            "voxels inside ROIs.",
            do="Look at its coverage; or allow more: --max-empty.",
        )
    fc = roi_series.pearson_fc(series, atlas.roi_names)
    sources = [run.source for run in runs]
    settings = request.settings_of(sources)
    return SubjectFC(sources[0].subject, runs, fc, empty, settings, tuple(warnings))


def extract_run(source: Source, atlas: Atlas, request: FCRequest) -> Run:
    """Extract the ROI series of one run, denoised where its tool has not done so."""
    make = _from_series if source.kind == "series" else _from_scan
    with at(source.path):
        run = make(source, atlas, request)
        fd = denoise.framewise_displacement(source.motion) if source.motion else None
    if fd is not None:
        return run._replace(fd=fd[request.drop :])
    if not source.expects_motion:
        return run
    problem = "no motion table"
    if source.motion is not None:
        problem = f"no framewise displacement in {source.motion.name}"
    return run._replace(warnings=(*run.warnings, f"{problem}: mean_fd is unknown"))


def _from_series(source: Source, atlas: Atlas, request: FCRequest) -> Run:
    raw, names = roi_series.read_series(source.path)
    columns = roi_series.parse_columns(request.columns)
    warnings: tuple[str, ...] = ()
    if not names and source.tool == "series":
        warnings = (
            f"columns without names were taken for the ROIs of {atlas.name}, in order",
        )
    selected = (raw[:, columns], names[columns])
    values = roi_series.match_atlas(selected, atlas)[request.drop :]
    roi_series.refuse_gaps(values, atlas.roi_names)
    report = {**LEFT, "VolumesKept": len(values)}
    tr = request.tr or source.sidecar_tr
    return Run(source, values, tr, None, None, values.T, report, warnings)


def _from_scan(source: Source, atlas: Atlas, request: FCRequest) -> Run:
    scan = open_scan(source.path)
    tr = repetition_time(scan, source.sidecar_tr, request.tr)
    raw, coverage, carpet, notes = roi_means(
        scan, atlas, source.mask, request.min_coverage
    )
    series = raw[request.drop :]
    report: dict[str, Any] = LEFT
    if not source.denoised:
        denoising = request.denoising
        confounds = denoise.NONE
        if source.has_confounds:
            confounds = denoise.fmriprep_confounds(source.path, denoising, request.drop)
        series, report = denoise.clean_series(series, denoising, tr, confounds)
    warnings = _warnings(source, scan, request, notes["NaNVoxels"])
    carpet = carpet[:, request.drop :]
    report = {**notes, **report}
    return Run(source, series, tr, coverage, None, carpet, report, warnings)


def _warnings(
    source: Source, scan: ScanHeader, request: FCRequest, nan_voxels: int
) -> tuple[str, ...]:
    warnings = []
    if scan.scanner_space and source.tool == "nifti":
        warnings.append(
            "the header says scanner space: make sure the scan is in MNI space"
        )
    if nan_voxels:
        warnings.append(f"{nan_voxels} NaN voxels inside ROIs left out")
    denoising = request.denoising
    if denoising.parameters and not (source.denoised or source.has_confounds):
        warnings.append(
            f"no confounds beside the scan: '{denoising.name}' takes out none, only trend and band"
        )
    return tuple(warnings)


# -- from voxels to ROIs ---------------------------------------------------------------------------
def roi_means(
    scan: ScanHeader, atlas: Atlas, mask: Path | None, min_coverage: float
) -> Signals:
    """Compute the signal of every ROI over its good voxels: their mean, or that of a weighted map.

    A voxel is good when it lies in the field of view and the brain mask, is finite in every
    volume and is not constant. The voxels of the ROIs alone are held in memory.

    Returns
    -------
    series : ndarray of shape (n_volumes, n_rois), float64
        NaN columns where coverage is below `min_coverage`.
    coverage : ndarray of shape (n_rois,)
        Share of the ROI that lies in view, times the share of its voxels there that are good.
    carpet : ndarray of shape (<= CARPET_VOXELS, n_volumes), float32
    notes : dict
        ``NaNVoxels`` and ``VoxelsInROIs``.

    Raises
    ------
    DataError
        The affine puts the scan outside MNI space.
    """
    weights = weights_on(atlas, scan.grid)
    inside = np.diff(weights.indptr) > 0
    if mask is not None:
        inside &= read_mask(mask, scan).ravel(order="F")
    flat = np.flatnonzero(inside)
    weights_inside = weights[flat]
    _in_mni(atlas, int((weights_inside.sum(axis=0) > 0).sum()))
    voxels = read_voxels(scan, flat)
    finite = np.isfinite(voxels).all(axis=1)
    changing = np.ptp(voxels[finite], axis=1) > 0
    good = np.flatnonzero(finite)[changing]
    roi = weights_inside[good].argmax(axis=1)
    good = good[np.argsort(roi, kind="stable")]
    total = np.maximum(weights.sum(axis=0), 1e-12)
    seen = weights_inside[good].sum(axis=0) / total
    coverage = seen * share_in_view(atlas, scan.grid)
    series = _signals(weights_inside[good], voxels[good])
    series[:, (coverage < min_coverage) | (coverage == 0)] = np.nan
    every = max(1, len(good) // CARPET_VOXELS)
    carpet = voxels[good[::every][:CARPET_VOXELS]]
    notes = {"NaNVoxels": int((~finite).sum()), "VoxelsInROIs": len(flat)}
    return series, coverage, carpet, notes


def _signals(weights: "csr_array", voxels: np.ndarray) -> np.ndarray:
    r"""Solve for signals s (T, n_rois) of voxels x (n, T) by least squares on the weights W (n, n_rois).

    .. math:: \min_s \lVert x_t - W s_t \rVert^2

    for every volume t: of labels the mean of each ROI, of weighted maps what nilearn's
    ``NiftiMapsMasker`` computes.
    """
    blocks = np.array_split(voxels, voxels.shape[1] // VOLUMES_AT_ONCE + 1, axis=1)
    sums = np.hstack([weights.T @ block for block in blocks])
    gram = (weights.T @ weights).toarray()
    return np.linalg.lstsq(gram, sums, rcond=None)[0].T


def _in_mni(atlas: Atlas, n_inside: int) -> None:
    if n_inside >= atlas.n_rois / 2:
        return
    raise DataError(
        f"wrong affine: only {n_inside} of {atlas.n_rois} ROIs lie inside the scan; it is not in "
        "MNI space.",
        do="Use the MNI-space output, or `fcforge preprocess` for a raw scan.",
    )

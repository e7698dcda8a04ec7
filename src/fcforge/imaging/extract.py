"""From the files of a subject's runs to ROI series with their quality, and to the subject's FC.

From a 4D scan in MNI space the mean signal of every ROI is computed, and how much of each ROI is covered by
good voxels. A carpet is an image of many voxels' signals over time, a row per voxel, shown on quality pages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fcforge.core.errors import DataError, at
from fcforge.core.formatting import abbreviated, counted
from fcforge.imaging import cifti, denoise
from fcforge.imaging import series as roi_series
from fcforge.imaging.atlas import Atlas, share_in_view, weights_on
from fcforge.imaging.group_quality import HIGH_FD_MM
from fcforge.imaging.layouts import Source
from fcforge.imaging.options import FCRequest
from fcforge.imaging.people import Exclusion
from fcforge.imaging.quality import (
    RunQuality,
    confound_traces,
    foreign_confounds,
    percent_dvars,
    roi_groups,
    temporal_snr,
    tissue_voxels,
)
from fcforge.imaging.scan import (
    VOLUMES_AT_ONCE,
    ScanHeader,
    agreed_tr,
    in_seconds,
    open_scan,
    read_mask,
    read_voxels_and_mean,
    refuse_blank_volumes,
    repetition_time,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_array

CARPET_VOXELS = 1500  # largest number of ROI voxels in a carpet
# Numbers of columns of DPABI's standard set of atlases side by side; AAL-116 is the first of them.
DPABI_ALL_ATLASES = (1568, 1569, 1833)
# Report of a run that another tool has denoised.
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
        Input file.
    series : ndarray of shape (n_volumes, n_rois)
        A column of NaN for a ROI without signal.
    tr : float or None
        Repetition time in seconds; None where unknown.
    coverage : ndarray of shape (n_rois,) or None
        Share of each ROI that good voxels cover; None for series of other tools.
    fd : ndarray of shape (n_volumes,) or None
        Framewise displacement in mm.
    carpet : ndarray of shape (n_rows, n_volumes)
        Signals of sampled voxels (or ROIs) before denoising.
    report : mapping
        Steps applied to the series, for the sidecar.
    warnings : tuple of str
        Remarks that the user should read.
    quality : RunQuality
    matrix : ndarray of shape (n_rois, n_rois) or None
        FC that another tool made, where there is no series.
    """

    source: Source
    series: np.ndarray
    tr: float | None
    coverage: np.ndarray | None
    fd: np.ndarray | None
    carpet: np.ndarray
    report: Mapping[str, Any]
    warnings: tuple[str, ...]
    quality: RunQuality = RunQuality()
    matrix: np.ndarray | None = None


class SubjectFC(NamedTuple):
    """FC of one subject over all runs.

    Attributes
    ----------
    subject : str
    runs : tuple of Run
    fc : ndarray of shape (n_rois, n_rois)
    empty : tuple of int
        Numbers of the ROIs without signal, counted from 0; their FC is 0.
    settings : mapping
        Settings that had an effect (`FCRequest.settings_of`).
    warnings : tuple of str
        Remarks that the user should read, such as ROIs without signal.
    fc_before : ndarray of shape (n_rois, n_rois) or None
        FC of the same series before denoising; None where fcforge does not denoise.
    """

    subject: str
    runs: tuple[Run, ...]
    fc: np.ndarray
    empty: tuple[int, ...]
    settings: Mapping[str, Any]
    warnings: tuple[str, ...]
    fc_before: np.ndarray | None = None

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
    def n_volumes(self) -> int | None:
        """Number of volumes from which FC was computed; None for matrices of another tool."""
        return sum(len(run.series) for run in self.runs) or None

    @property
    def measures(self) -> dict[str, float | None]:
        """Measures of quality by their column in quality.tsv; None where unknown."""
        fd = np.concatenate([[], *(r.fd for r in self.runs if r.fd is not None)])
        fd = fd[np.isfinite(fd)]
        trs = [run.tr for run in self.runs]
        return {
            "mean_fd": self.mean_fd,
            "high_fd_share": float((fd > HIGH_FD_MM).mean()) if len(fd) else None,
            "dvars": _mean_of([run.quality.dvars for run in self.runs]),
            "tsnr": _mean_of([run.quality.tsnr for run in self.runs]),
            "coverage": _mean_of([run.coverage for run in self.runs]),
            "n_empty_rois": len(self.empty),
            "mean_fc": self._mean_fc(self.fc),
            "mean_fc_before": self._mean_fc(self.fc_before),
            "dof": self.dof,
            "n_volumes": self.n_volumes,
            "minutes": self.n_volumes * trs[0] / 60
            if trs[0] and self.n_volumes
            else None,
        }

    def edges(self, fc: np.ndarray) -> np.ndarray:
        """Return the upper triangle of a matrix; NaN for edges of ROIs without signal."""
        shown = np.array(fc, dtype=np.float64)
        shown[list(self.empty)] = shown[:, list(self.empty)] = np.nan
        return shown[np.triu_indices(len(shown), 1)]

    def _mean_fc(self, fc: np.ndarray | None) -> float | None:
        """Return the mean correlation over the edges of ROIs with a signal; None for None."""
        return None if fc is None else _mean_of([self.edges(fc)])


def _mean_of(values: Sequence[np.ndarray | None]) -> float | None:
    """Return the mean of all finite values of some arrays; None without any."""
    known = [value for value in values if value is not None]
    flat = np.concatenate([[], *known])
    flat = flat[np.isfinite(flat)]
    return float(flat.mean()) if len(flat) else None


def subject_fc(sources: list[Source], atlas: Atlas, request: FCRequest) -> SubjectFC:
    """Compute the FC of one subject from all its runs.

    Parameters
    ----------
    sources : list of Source
        Input file of each run.
    atlas : Atlas
    request : FCRequest
        Options of the command.

    Raises
    ------
    DataError
        If the runs have different TRs, denoising leaves fewer degrees of freedom than `FCRequest.min_dof`,
        or the share of ROIs without signal exceeds `FCRequest.max_empty`.
    """
    runs = tuple(extract_run(source, atlas, request) for source in sources)
    trs = sorted({run.tr for run in runs if run.tr is not None})
    if len(trs) > 1:
        raise DataError(
            f"mixed TRs: its runs have {', '.join(f'{t:g} s' for t in trs)}.",
            where=f"sub-{sources[0].subject}",
            do="Choose one run: --select TEXT, --task or --session.",
        )
    if len(runs) > 1 and any(run.matrix is not None for run in runs):
        raise DataError(
            "FC matrices of several runs cannot be joined.",
            where=f"sub-{sources[0].subject}",
            do="Give the time series, or choose one run: --select TEXT, --session.",
        )
    series = roi_series.join_runs([run.series for run in runs])
    with at(sources[0].path):
        if runs[0].matrix is None:
            _require_volumes(len(series), request.min_dof)
        result = _fc_of_runs(runs, series, atlas, request)
        if result.dof is not None and result.dof < request.min_dof:
            remaining = f"{max(result.dof, 0):.0f} degrees of freedom"
            volumes = sum(run.carpet.shape[1] for run in runs)
            raise TooFewDof(
                f"denoising leaves {remaining} of {volumes} volumes; {request.min_dof} are needed.",
                do=MORE_DOF,
            )
    return result


def _require_volumes(n_volumes: int, min_dof: int) -> None:
    """Raise `TooFewDof` where a correlation of so few volumes cannot have the degrees of freedom."""
    if n_volumes - 2 < min_dof:
        raise TooFewDof(
            f"{counted(n_volumes, 'volume')} leave at most {max(n_volumes - 2, 0)} degrees of "
            f"freedom, {min_dof} are needed.",
            do="FC of so short a scan is mostly chance. Leave the subject out, or lower --min-dof.",
        )


def _fc_of_runs(
    runs: tuple[Run, ...], series: np.ndarray, atlas: Atlas, request: FCRequest
) -> SubjectFC:
    """Return the FC of a subject with its warnings.

    Parameters
    ----------
    runs : tuple of Run
    series : ndarray of shape (n_volumes, n_rois)
        Series of all runs, joined; without rows where another tool made the FC.
    atlas : Atlas
    request : FCRequest

    Raises
    ------
    TooManyEmptyROIs
        If the share of ROIs without signal exceeds `FCRequest.max_empty`.
    """
    if (matrix := runs[0].matrix) is not None:
        fc, without_signal = roi_series.checked_matrix(matrix, atlas.roi_names)
    else:
        without_signal = roi_series.empty_rois(series)
    empty = tuple(np.flatnonzero(without_signal).tolist())
    names = abbreviated([atlas.roi_names[i] for i in empty])
    warnings = list(dict.fromkeys(text for run in runs for text in run.warnings))
    if empty:
        warnings.append(f"{counted(len(empty), 'ROI')} without signal, FC 0 ({names})")
    if len(empty) > request.max_empty * atlas.n_rois:
        nan_voxels = sum(run.report.get("NaNVoxels", 0) for run in runs)
        raise TooManyEmptyROIs(
            f"{len(empty)} of {atlas.n_rois} ROIs without signal ({names}); {nan_voxels} NaN "
            "voxels inside ROIs.",
            do="Check which part of the brain the scan covers, and that it is in MNI space; or allow "
            "more: --max-empty.",
        )
    if matrix is None:
        fc = roi_series.pearson_fc(series, atlas.roi_names)
    sources = [run.source for run in runs]
    settings = request.settings_of(sources)
    before = [run.quality.before for run in runs if run.quality.before is not None]
    fc_before = None
    if len(before) == len(runs):
        fc_before = roi_series.pearson_fc(roi_series.join_runs(before), atlas.roi_names)
    return SubjectFC(
        sources[0].subject, runs, fc, empty, settings, tuple(warnings), fc_before
    )


def extract_run(source: Source, atlas: Atlas, request: FCRequest) -> Run:
    """Extract the ROI series of one run, and denoise them unless another tool has done so.

    Parameters
    ----------
    source : Source
        Input file of the run.
    atlas : Atlas
    request : FCRequest

    Raises
    ------
    DataError
        If the file is damaged or does not fit the atlas.
    """
    # These take the arguments of this function, too.
    readers = {"series": _from_series, "matrix": _from_matrix, "scan": _from_scan}
    read = _from_dense if source.is_dense else readers[source.kind]
    with at(source.path):
        run = read(source, atlas, request)
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
    """Read ROI series that another tool made, with its columns in the order of the atlas."""
    raw, names = roi_series.read_series(source.path, request.variable)
    roi_series.refuse_matrix(raw)
    columns = roi_series.parse_columns(request.series_columns)
    warnings: tuple[str, ...] = ()
    n = raw.shape[1]
    if (
        request.series_columns is None
        and source.tool == "dpabi"
        and n in DPABI_ALL_ATLASES
        and atlas.name == "AAL116"
    ):
        columns = slice(0, 116)  # the file holds several atlases side by side
        warnings = (f"took columns 1-116 (AAL) of DPABI's {n}",)
    elif source.tool == "series" and not roi_series.are_matched(names[columns], atlas):
        warnings = (
            f"columns without names were taken for the ROIs of {atlas.name}, in order",
        )
    selected = (raw[:, columns], names[columns])
    values = roi_series.match_atlas(selected, atlas)[request.drop :]
    roi_series.refuse_gaps(values, atlas.roi_names)
    refuse_blank_volumes(values.T)
    report = {**LEFT, "VolumesKept": len(values)}
    tr = in_seconds(request.tr or source.sidecar_tr)
    groups = roi_groups(atlas, range(atlas.n_rois))
    quality = RunQuality(atlas.roi_names, groups)
    return Run(
        source,
        values,
        tr,
        coverage=None,
        fd=None,
        carpet=values.T,
        report=report,
        warnings=warnings,
        quality=quality,
    )


def _from_matrix(source: Source, atlas: Atlas, request: FCRequest) -> Run:
    """Read FC that another tool made; the run has no series."""
    fc = roi_series.match_matrix(cifti.read_parcel_matrix(source.path), atlas)
    no_series = np.empty((0, atlas.n_rois))
    report = {**LEFT, "VolumesKept": None}
    tr = in_seconds(request.tr or source.sidecar_tr)
    return Run(
        source,
        no_series,
        tr,
        coverage=None,
        fd=None,
        carpet=no_series.T,
        report=report,
        warnings=(),
        matrix=fc,
    )


def _from_dense(source: Source, atlas: Atlas, request: FCRequest) -> Run:
    """Extract the signal of each parcel of a dense CIFTI series."""
    parcels = cifti.parcel_means(source.path, atlas, request.min_coverage)
    refuse_blank_volumes(parcels.good.T, request.drop)
    header_tr = cifti.seconds_per_volume(source.path)
    tr = agreed_tr(header_tr, source.sidecar_tr, request.tr)
    steady = parcels.good[request.drop :].T
    rows = _evenly(len(steady), CARPET_VOXELS)
    quality = RunQuality(
        tuple(atlas.roi_names[column] for column in parcels.rois[rows]),
        roi_groups(atlas, parcels.rois[rows]),
        tsnr=temporal_snr(steady, membership(parcels.rois, atlas.n_rois)),
        dvars=percent_dvars(steady),
    )
    if quality.tsnr is None:  # the means are subtracted, to which DVARS relates, too
        quality = replace(quality, dvars=None)
    notes = {"NaNVoxels": parcels.n_nan, "VoxelsInROIs": parcels.n_inside}
    carpet = parcels.good.T[rows]
    signals = Signals(parcels.series, parcels.coverage, carpet, notes, quality)
    return _denoised_run(source, request, tr, signals)


def membership(rois: np.ndarray, n_rois: int) -> "csr_array":
    """Return the weight, 0 or 1, of each voxel in each ROI.

    Parameters
    ----------
    rois : ndarray of shape (n_voxels,)
        Number of the ROI of each voxel, counted from 0.
    n_rois : int

    Returns
    -------
    csr_array of shape (n_voxels, n_rois)
    """
    from scipy.sparse import csr_array

    places = (np.arange(len(rois)), rois)
    return csr_array((np.ones(len(rois)), places), shape=(len(rois), n_rois))


def _denoised(
    series: np.ndarray,
    source: Source,
    request: FCRequest,
    tr: float | None,
    quality: RunQuality,
) -> tuple[np.ndarray, dict[str, Any], RunQuality]:
    """Denoise series, unless another tool has done so.

    Parameters
    ----------
    series : ndarray of shape (n_volumes, n_rois)
        Without the first ``request.drop`` volumes.
    source : Source
    request : FCRequest
    tr : float or None
        Repetition time in seconds.
    quality : RunQuality
        Measures so far.

    Returns
    -------
    series : ndarray of shape (n_volumes, n_rois)
    report : dict
        Steps applied, for the sidecar.
    quality : RunQuality
        The measures, with the series before denoising, the volumes kept and the confounds.
    """
    n_volumes = len(series) + request.drop
    traces = confound_traces(source, n_volumes, request.drop)
    quality = replace(quality, traces=traces)
    if (
        source.denoised
    ):  # tSNR and DVARS need the voxels' means as the scanner gave them
        return series, dict(LEFT), replace(quality, tsnr=None, dvars=None)
    confounds = denoise.NONE
    if source.has_confounds:
        confounds = denoise.fmriprep_confounds(
            source.path, request.denoising, request.drop
        )
    cleaned, report = denoise.clean_series(series, request.denoising, tr, confounds)
    return cleaned, report, replace(quality, before=series, kept=confounds[1])


def _from_scan(source: Source, atlas: Atlas, request: FCRequest) -> Run:
    """Extract the signal of each ROI of a 4D scan."""
    scan = open_scan(source.path)
    tr = repetition_time(scan, source.sidecar_tr, request.tr)
    # `indptr` counts the weights up to each voxel: those with a weight lie in a ROI.
    in_rois = np.diff(weights_on(atlas, scan.grid).indptr) > 0
    tissues = tissue_voxels(source, scan, in_rois)
    signals = roi_means(
        scan, atlas, source.mask, request.min_coverage, tissues, request.drop
    )
    return _denoised_run(source, request, tr, signals, _space_warnings(source, scan))


def _denoised_run(
    source: Source,
    request: FCRequest,
    tr: float | None,
    signals: "Signals",
    warnings: tuple[str, ...] = (),
) -> Run:
    """Return a run without its first ``request.drop`` volumes, denoised unless another tool has done so.

    Parameters
    ----------
    source : Source
    request : FCRequest
    tr : float or None
        Repetition time in seconds.
    signals : Signals
        Of all volumes.
    warnings : tuple of str
        Remarks on the file.
    """
    raw = signals.series[request.drop :]
    series, report, quality = _denoised(raw, source, request, tr, signals.quality)
    n_nan = signals.notes["NaNVoxels"]
    return Run(
        source,
        series,
        tr,
        signals.coverage,
        fd=None,
        carpet=signals.carpet[:, request.drop :],
        report={**signals.notes, **report},
        warnings=(
            *warnings,
            *_denoising_warnings(source, request, n_nan, raw, quality),
        ),
        quality=quality,
    )


def _space_warnings(source: Source, scan: ScanHeader) -> tuple[str, ...]:
    if scan.scanner_space and source.tool == "nifti":
        return ("the header says scanner space: make sure the scan is in MNI space",)
    return ()


def _denoising_warnings(
    source: Source,
    request: FCRequest,
    nan_voxels: int,
    series: np.ndarray,
    quality: RunQuality,
) -> tuple[str, ...]:
    """Return warnings on voxels left out and on confounds that are missing or of another run.

    Parameters
    ----------
    source : Source
    request : FCRequest
    nan_voxels : int
        Number of voxels inside ROIs that are NaN in some volume.
    series : ndarray of shape (n_volumes, n_rois)
        Series before denoising.
    quality : RunQuality
        Its traces are the confounds that are compared with the scan.
    """
    warnings = []
    if nan_voxels:
        warnings.append(f"{nan_voxels} NaN voxels inside ROIs left out")
    denoising = request.denoising
    if denoising.parameters and not (source.denoised or source.has_confounds):
        warnings.append(
            f"no confounds beside the scan: '{denoising.name}' removes none, only trend and band"
        )
    # ICA-AROMA's scans have lost the signal that is compared
    foreign = None if request.aroma else foreign_confounds(series, quality.traces)
    if foreign is not None:
        warnings.append(
            "are the confounds those of another run? The changes of their global signal hardly "
            f"correlate with those of the scan (r = {foreign:.2f})"
        )
    return tuple(warnings)


# -- from voxels to ROIs ---------------------------------------------------------------------------
class Signals(NamedTuple):
    """Signals of a scan before denoising.

    Attributes
    ----------
    series : ndarray of shape (n_volumes, n_rois), float64
        A column of NaN for a ROI with too low coverage.
    coverage : ndarray of shape (n_rois,)
        Share of the ROI in the field of view, times the share of its voxels there that are good.
    carpet : ndarray of shape (n_rows, n_volumes), float32
        Signals of at most `CARPET_VOXELS` voxels of ROIs, ROI by ROI, then samples of the tissues.
    notes : mapping
        Numbers of voxels in ROIs that are NaN somewhere (``NaNVoxels``), and in all (``VoxelsInROIs``).
    quality : RunQuality
    """

    series: np.ndarray
    coverage: np.ndarray
    carpet: np.ndarray
    notes: Mapping[str, int]
    quality: RunQuality


def roi_means(
    scan: ScanHeader,
    atlas: Atlas,
    mask: Path | None,
    min_coverage: float,
    tissues: Mapping[str, np.ndarray] | None = None,
    drop: int = 0,
) -> Signals:
    """Compute the signal of every ROI over its good voxels: their mean, or that of a weighted map.

    A voxel is good if it lies in the field of view and in the brain mask, is finite in every volume and is
    not constant. Only voxels of ROIs are held in memory.

    Parameters
    ----------
    scan : ScanHeader
    atlas : Atlas
    mask : Path or None
        Brain mask.
    min_coverage : float
        Coverage below which a ROI counts as one without signal.
    tissues : mapping of str to ndarray of int, optional
        Voxels that the carpet shows besides those of ROIs, as `tissue_voxels` returns them.
    drop : int
        Number of volumes at the start that measures of quality leave out.

    Raises
    ------
    DataError
        If the affine puts the scan outside MNI space.
    """
    weights = weights_on(atlas, scan.grid)
    inside = np.diff(weights.indptr) > 0  # voxels with a weight in some ROI
    _require_in_mni(atlas, int((weights.sum(axis=0) > 0).sum()), "the scan")
    if mask is not None:
        inside &= read_mask(mask, scan).ravel(order="F")
    flat = np.flatnonzero(inside)  # numbers of these voxels in the volume
    weights_inside = weights[flat]
    if mask is not None:
        n_inside = int((weights_inside.sum(axis=0) > 0).sum())
        _require_in_mni(atlas, n_inside, f"mask {mask.name}")
    tissues = tissues or {}
    wanted = np.concatenate([flat, *tissues.values()])
    signals, mean = read_voxels_and_mean(scan, wanted)
    voxels = signals[: len(flat)]
    refuse_blank_volumes(voxels, drop)
    finite = np.isfinite(voxels).all(axis=1)
    changing = np.ptp(voxels[finite], axis=1) > 0
    good = np.flatnonzero(finite)[changing]  # places in `flat`
    roi = weights_inside[good].argmax(axis=1)
    good = good[np.argsort(roi, kind="stable")]  # ROI by ROI, as the carpet shows them
    total = np.maximum(weights.sum(axis=0), 1e-12)
    good_share = weights_inside[good].sum(axis=0) / total
    coverage = good_share * share_in_view(atlas, scan.grid)
    series = _signals(weights_inside[good], voxels[good])
    series[:, (coverage < min_coverage) | (coverage == 0)] = np.nan
    rows = _evenly(len(good), CARPET_VOXELS)
    columns = np.sort(roi)[rows]
    carpet = np.concatenate([voxels[good[rows]], signals[len(flat) :]])
    notes = {"NaNVoxels": int((~finite).sum()), "VoxelsInROIs": len(flat)}
    tissue_rows = [name for name, chosen in tissues.items() for _ in chosen]
    steady = voxels[good][:, drop:]
    tsnr = temporal_snr(steady, weights_inside[good])
    quality = RunQuality(
        (*(atlas.roi_names[column] for column in columns), *tissue_rows),
        (*roi_groups(atlas, columns), *tissue_rows),
        mean,
        scan.affine,
        tsnr,
        None if tsnr is None else percent_dvars(steady),
    )
    return Signals(series, coverage, carpet, notes, quality)


def _evenly(n: int, most: int) -> np.ndarray:
    """Return at most `most` of the numbers 0 to n - 1, evenly spread."""
    return np.unique(np.linspace(0, max(n - 1, 0), min(n, most)).astype(int))


def _signals(weights: "csr_array", voxels: np.ndarray) -> np.ndarray:
    r"""Compute the signals s of ROIs from voxels x by least squares on the weights W.

    .. math:: \min_s \lVert x_t - W s_t \rVert^2

    for every volume t. For labels this is the mean over each ROI, for weighted maps it is the result of
    nilearn's ``NiftiMapsMasker``.

    Parameters
    ----------
    weights : csr_array of shape (n_voxels, n_rois)
    voxels : ndarray of shape (n_voxels, n_volumes)

    Returns
    -------
    ndarray of shape (n_volumes, n_rois)
    """
    blocks = np.array_split(voxels, voxels.shape[1] // VOLUMES_AT_ONCE + 1, axis=1)
    sums = np.hstack([weights.T @ block for block in blocks])
    gram = (weights.T @ weights).toarray()
    # Normal equations, W'W s = W'x.
    return np.linalg.lstsq(gram, sums, rcond=None)[0].T


def _require_in_mni(atlas: Atlas, n_inside: int, place: str) -> None:
    """Raise `DataError` if fewer than half of the ROIs lie inside a place: the scan, or its mask."""
    if n_inside >= atlas.n_rois / 2:
        return
    raise DataError(
        f"wrong affine: only {n_inside} of {atlas.n_rois} ROIs lie inside {place}; it is not in "
        "MNI space.",
        do="Use the MNI-space output, or `fcforge preprocess` for a raw scan.",
    )

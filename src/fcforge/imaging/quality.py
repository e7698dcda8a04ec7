"""Measures of a scan's quality: mean image, tSNR, DVARS, confound traces, and rows of a carpet plot.

tSNR is the temporal signal-to-noise ratio, DVARS the size of the change from one volume to the next. A carpet
plot is an image of many voxels' signals over time, a row per voxel. All measures are computed before
denoising. If another tool has subtracted the voxels' means, tSNR and DVARS are None.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fcforge.core.errors import DataError
from fcforge.imaging.atlas import Atlas
from fcforge.imaging.layouts import Source
from fcforge.imaging.matrix_files import read_matrix_file
from fcforge.imaging.scan import ScanHeader, load_image, read_volume

if TYPE_CHECKING:
    from scipy.sparse import csr_array

TISSUES = {"WM": "White matter", "CSF": "CSF"}
TISSUE_PROBABILITY = 0.9
TISSUE_ROWS = 150  # of each tissue in the carpet
ROWS_AT_ONCE = 20_000
NO_NETWORK = "ROIs"  # group of ROIs whose network is unknown
# Spearman's r of changes of the global signal below which confounds are those of another run
SAME_RUN = 0.3
ENOUGH_TO_COMPARE = 50  # volumes
# Confounds shown above the carpet, by fMRIPrep's columns, and their names on the page.
TRACES = {
    "global_signal": "Global signal",
    "white_matter": "White matter",
    "csf": "CSF",
    "trans_x": "x, mm",
    "trans_y": "y, mm",
    "trans_z": "z, mm",
    "rot_x": "pitch, rad",
    "rot_y": "roll, rad",
    "rot_z": "yaw, rad",
}


@dataclass(frozen=True)
class RunQuality:
    """Measures of one run before denoising; None or empty where they cannot be computed.

    Attributes
    ----------
    row_names, row_groups : tuple of str
        Name (ROI or tissue) and group (network or tissue) of each row of the carpet.
    mean : ndarray of shape (x, y, z) or None
        Mean over all volumes.
    affine : ndarray of shape (4, 4) or None
        Voxel index of `mean` to mm.
    tsnr : ndarray of shape (n_rois,) or None
        Mean over standard deviation in time, averaged over the voxels of each ROI; NaN where no
        voxel of an ROI is good.
    dvars : ndarray of shape (n_volumes,) or None
        Root mean square over voxels of the change since the volume before, in per cent of each
        voxel's mean; NaN for the first volume.
    before : ndarray of shape (n_volumes, n_rois) or None
        ROI series before denoising; None where fcforge removes nothing.
    traces : mapping of str to ndarray of shape (n_volumes,)
        Confounds of the run, by their names on the page.
    kept : ndarray of int or None
        Volumes that scrubbing keeps; None for all.
    """

    row_names: tuple[str, ...] = ()
    row_groups: tuple[str, ...] = ()
    mean: np.ndarray | None = None
    affine: np.ndarray | None = None
    tsnr: np.ndarray | None = None
    dvars: np.ndarray | None = None
    before: np.ndarray | None = None
    traces: Mapping[str, np.ndarray] = field(default_factory=dict)
    kept: np.ndarray | None = None


def roi_groups(atlas: Atlas, columns: Sequence[int]) -> tuple[str, ...]:
    """Return the network of the ROI of each carpet row; `NO_NETWORK` where it is unknown.

    Parameters
    ----------
    atlas : Atlas
    columns : sequence of int
        Number of the ROI of each row, counted from 0.
    """
    return tuple(atlas.systems[column] or NO_NETWORK for column in columns)


def temporal_snr(voxels: np.ndarray, weights: "csr_array") -> np.ndarray | None:
    """Return the temporal signal-to-noise ratio of each ROI: the weighted mean of its voxels' ratios.

    A voxel's ratio is its mean over its standard deviation in time.

    Parameters
    ----------
    voxels : ndarray of shape (n_voxels, n_volumes)
        Voxels that change in time.
    weights : csr_array of shape (n_voxels, n_rois)
        Weight of each voxel in each ROI.

    Returns
    -------
    ndarray of shape (n_rois,), or None
        NaN for a ROI without voxels. None if there is no voxel at all, or if the median ratio is below
        1: another tool has then subtracted the means.
    """
    if not len(voxels):
        return None
    mean = voxels.mean(axis=1, dtype=np.float64)
    ratio = mean / voxels.std(axis=1, dtype=np.float64)
    if np.median(ratio) < 1:  # another tool has subtracted the means
        return None
    total = np.asarray(weights.sum(axis=0)).ravel()
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(total > 0, (weights.T @ ratio) / total, np.nan)


def percent_dvars(voxels: np.ndarray) -> np.ndarray:
    """Return DVARS: the root mean square change of voxels since the volume before, in per cent.

    Per cent are of each voxel's mean. Voxels whose mean is not positive are left out.

    Parameters
    ----------
    voxels : ndarray of shape (n_voxels, n_volumes)

    Returns
    -------
    ndarray of shape (n_volumes,)
        NaN for the first volume.
    """
    squares = np.zeros(voxels.shape[1] - 1)
    count = 0
    for start in range(0, len(voxels), ROWS_AT_ONCE):
        block = voxels[start : start + ROWS_AT_ONCE]
        mean = block.mean(axis=1, keepdims=True)
        block, mean = block[mean[:, 0] > 0], mean[mean[:, 0] > 0]
        squares += ((np.diff(block, axis=1) / mean) ** 2).sum(axis=0, dtype=np.float64)
        count += len(block)
    if not count:
        return np.full(voxels.shape[1], np.nan)
    return np.r_[np.nan, 100 * np.sqrt(squares / count)]


def confound_traces(source: Source, n_volumes: int, drop: int) -> dict[str, np.ndarray]:
    """Read the confounds that the page of an fMRIPrep run shows.

    Parameters
    ----------
    source : Source
    n_volumes : int
        Number of volumes of the scan, with those that are left out.
    drop : int
        Number of volumes at the start that are left out.

    Returns
    -------
    dict of str to ndarray of shape (n_volumes - drop,)
        By their names on the page; empty for runs of other tools.

    Raises
    ------
    DataError
        If the table has another number of rows than the scan has volumes.
    """
    if not source.has_confounds or source.motion is None:
        return {}
    try:
        values, names = read_matrix_file(source.motion)
    except DataError:  # denoising reports it where it needs the table
        return {}
    if len(values) != n_volumes:
        raise DataError(
            f"the scan has {n_volumes} volumes, and {source.motion.name} has {len(values)} rows.",
            do="Is it the table of another run?",
        )
    traces = {
        label: values[drop:, names.index(name)]
        for name, label in TRACES.items()
        if name in names
    }
    return {name: trace for name, trace in traces.items() if np.isfinite(trace).any()}


def foreign_confounds(
    series: np.ndarray, traces: Mapping[str, np.ndarray]
) -> float | None:
    """Return how little the confounds resemble the scan; None where they do, or nothing is known.

    fMRIPrep's global signal and the mean over ROIs are nearly one series. Their changes from volume
    to volume are compared by ranks, because drifts of two scans can be alike by chance.

    Parameters
    ----------
    series : ndarray of shape (n_volumes, n_rois)
        Series before denoising.
    traces : mapping
        Of `confound_traces`.

    Returns
    -------
    float or None
        Spearman's correlation of the changes, if it is below `SAME_RUN`.
    """
    known = np.isfinite(series).all(axis=0)
    whole = traces.get(TRACES["global_signal"])
    if whole is None or not known.any() or len(whole) < ENOUGH_TO_COMPARE:
        return None
    changes = np.diff(series[:, known].mean(axis=1)), np.diff(whole)
    finite = np.isfinite(changes).all(axis=0)
    known_changes = [change[finite] for change in changes]
    if not finite.any() or any(np.ptp(change) == 0 for change in known_changes):
        return None
    ranks = [change.argsort().argsort() for change in known_changes]
    r = float(np.corrcoef(ranks)[0, 1])
    return r if r < SAME_RUN else None


def tissue_voxels(
    source: Source, scan: ScanHeader, inside: np.ndarray
) -> dict[str, np.ndarray]:
    """Sample voxels of white matter and of cerebrospinal fluid (CSF) outside every ROI.

    The tissues are read from fMRIPrep's probability maps in the space of the scan
    (``anat/*_space-X_*label-WM_probseg.nii.gz``).

    Parameters
    ----------
    source : Source
    scan : ScanHeader
    inside : ndarray of bool, shape (n_voxels,)
        Whether each voxel lies in a ROI, in Fortran order.

    Returns
    -------
    dict of str to ndarray of int
        Voxel indices into the Fortran-ordered volume by name of the tissue; empty without maps.
    """
    voxels = {}
    for label, name in TISSUES.items():
        path = _probability_map(source, label)
        if path is None:
            continue
        try:
            probable = _on_grid(path, scan).ravel(order="F") > TISSUE_PROBABILITY
        except DataError:  # the carpet lacks rows of this tissue; FC is not affected
            continue
        flat = np.flatnonzero(probable & ~inside)
        if len(flat):
            chosen = np.linspace(0, len(flat) - 1, min(TISSUE_ROWS, len(flat)))
            voxels[name] = flat[chosen.astype(int)]
    return voxels


def _probability_map(source: Source, label: str) -> Path | None:
    """Find fMRIPrep's probability map of a tissue (label WM or CSF); None if there is none."""
    space = source.entities.get("space")
    if not space or not source.has_confounds:
        return None
    # The folder that holds func/: of the session, or of a subject without sessions.
    session = source.path.parent.parent
    wanted = re.compile(rf"_space-{re.escape(space)}_(.*_)?label-{label}_probseg\.nii")
    for folder in (session / "anat", session.parent / "anat"):
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                if wanted.search(path.name):
                    return path
    return None


def _on_grid(path: Path, scan: ScanHeader) -> np.ndarray:
    """Read a volume and resample it to the grid of a scan, linearly; 0 outside the volume."""
    from scipy.ndimage import affine_transform

    volume = read_volume(path)
    if volume.ndim != 3:
        raise DataError(f"shape {volume.shape} is not one volume.", where=path)
    affine = np.asarray(load_image(path).affine, dtype=float)
    return affine_transform(
        np.nan_to_num(volume),
        np.linalg.inv(affine) @ scan.affine,
        output_shape=scan.shape[:3],
        order=1,
        mode="grid-constant",
    )

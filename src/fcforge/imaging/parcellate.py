"""4D scan in MNI space -> mean signal of every ROI, and how much of each ROI was seen."""

from pathlib import Path
from typing import Any

import numpy as np

from fcforge.errors import DataError
from fcforge.imaging.atlas import Atlas, maps_on, seen_from
from fcforge.imaging.scan import ScanHeader, read_mask, read_voxels

CARPET_VOXELS = 1500
Signals = tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]  # see `roi_means`


def roi_means(scan: ScanHeader, atlas: Atlas, mask: Path | None, min_coverage: float) -> Signals:
    """Mean signal of every ROI over its good voxels.

    A voxel is good when it lies in the field of view and the brain mask, is finite in every
    volume and is not constant. The voxels of the ROIs alone are held in memory.

    Returns
    -------
    series : ndarray of shape (n_volumes, n_rois), float64
        NaN columns where coverage is below `min_coverage`.
    coverage : ndarray of shape (n_rois,)
        Share of the ROI's volume (atlas voxels) that falls on a good voxel.
    carpet : ndarray of shape (<= CARPET_VOXELS, n_volumes), float32
    notes : dict
        ``NaNVoxels`` and ``VoxelsInROIs``.

    Raises
    ------
    DataError
        The affine puts the scan outside MNI space.
    """
    if atlas.probabilistic:
        return _map_signals(scan, atlas, mask, min_coverage)
    grid = atlas.on_grid(scan.shape, scan.affine)
    if mask is not None:
        grid = np.where(read_mask(mask, scan), grid, np.int16(-1))
    flat_grid = grid.ravel(order="F")
    flat = np.flatnonzero(flat_grid >= 0)
    _in_mni(scan, atlas, len(np.unique(flat_grid[flat])))
    voxels, good, notes = _good_voxels(scan, flat)
    column = flat_grid[flat]
    count = np.bincount(column[good], minlength=atlas.n_rois)
    series = np.full((scan.n_volumes, atlas.n_rois), np.nan)
    order = np.argsort(column, kind="stable")
    starts = np.searchsorted(column[order], np.arange(atlas.n_rois + 1))
    for roi in np.flatnonzero(count):
        rows = order[starts[roi] : starts[roi + 1]]
        series[:, roi] = voxels[rows].sum(axis=0, dtype=np.float64) / count[roi]
    coverage = _coverage(scan, atlas, flat[good])
    series[:, coverage < min_coverage] = np.nan
    return series, coverage, _carpet(voxels, order[good[order]]), notes


def _good_voxels(
    scan: ScanHeader, flat: np.ndarray
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Signals of voxels (0 where not good), which are good, and the notes."""
    voxels = read_voxels(scan, flat)
    finite = np.isfinite(voxels).all(axis=1)
    good = finite.copy()
    good[finite] = np.ptp(voxels[finite], axis=1) > 0
    voxels[~good] = 0.0
    return voxels, good, {"NaNVoxels": int((~finite).sum()), "VoxelsInROIs": len(flat)}


def _carpet(voxels: np.ndarray, shown: np.ndarray) -> np.ndarray:
    return voxels[shown[:: max(1, len(shown) // CARPET_VOXELS)][:CARPET_VOXELS]]


def _map_signals(scan: ScanHeader, atlas: Atlas, mask: Path | None, least: float) -> Signals:
    r"""Signals s of weighted maps W by least squares, as nilearn's ``NiftiMapsMasker``.

    .. math:: \min_s \lVert x_t - W s_t \rVert^2

    for the good voxels x of every volume t.
    """
    weights = maps_on(atlas, scan.grid)
    if mask is not None:
        weights = weights * read_mask(mask, scan).ravel(order="F")[:, None]
    flat = np.flatnonzero((weights > 0).any(axis=1))
    _in_mni(scan, atlas, int((weights > 0).any(axis=0).sum()))
    voxels, good, notes = _good_voxels(scan, flat)
    own = weights[flat[good]].astype(np.float64)
    series = np.linalg.lstsq(own, voxels[good].astype(np.float64), rcond=None)[0].T
    share = own.sum(axis=0) * abs(np.linalg.det(scan.affine[:3, :3]))
    coverage = np.clip(share / np.maximum(atlas.map_volumes, 1e-12), 0, 1)
    series[:, coverage < least] = np.nan
    order = np.argsort(weights[flat].argmax(axis=1), kind="stable")
    return series, coverage, _carpet(voxels, order[good[order]]), notes


def _coverage(scan: ScanHeader, atlas: Atlas, good_flat: np.ndarray) -> np.ndarray:
    is_good = np.zeros(int(np.prod(scan.shape[:3])) + 1, dtype=bool)  # the last one is "outside"
    is_good[good_flat] = True
    column, flat = atlas.voxels[0], seen_from(atlas, scan.grid)
    total = np.bincount(column, minlength=atlas.n_rois)
    hits = np.bincount(column[is_good[flat]], minlength=atlas.n_rois)
    return hits / np.maximum(total, 1)


def _in_mni(scan: ScanHeader, atlas: Atlas, n_inside: int) -> None:
    if n_inside >= atlas.n_rois / 2:
        return
    corner = scan.affine[:3, 3]
    other = scan.affine[:3, :3] @ (np.array(scan.shape[:3]) - 1) + corner
    box = ", ".join(f"{a:.0f}..{b:.0f}" for a, b in zip(corner, other, strict=True))
    few = f"only {n_inside} of {atlas.n_rois} ROIs lie; it is not in MNI space"
    what = f"wrong affine: it places the scan at x, y, z = {box} mm, where {few}."
    do = "Use the MNI-space output, or `fcforge preprocess` for a raw scan."
    raise DataError(what, where=scan.path, do=do)

"""CIFTI-2 files of HCP, fMRIPrep and XCP-D: parcellated series and matrices, dense series, parcellations.

A grayordinate is a vertex of the cortical surface or a voxel below the cortex; each belongs to a structure,
such as the left cortex. A dense series has a column per grayordinate, a parcellated one a column per parcel
(ROI). Parcels are identified by their names in the file. Grayordinates of a dense series and of a
parcellation are matched one by one: vertices by structure and number, voxels by structure and position.
Two files whose surfaces or volumes differ are refused.
"""

import hashlib
import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fcforge.core.errors import DataError
from fcforge.core.formatting import abbreviated
from fcforge.imaging.atlas import Atlas, system_of
from fcforge.imaging.matrix_files import MemoryBudget
from fcforge.imaging.scan import VOLUMES_AT_ONCE

SERIES = ".ptseries.nii"
MATRIX = ".pconn.nii"
DENSE = ".dtseries.nii"
LABELS = ".dlabel.nii"
CONTENTS = {
    SERIES: "parcellated time series",
    MATRIX: "a parcellated connectivity matrix",
    DENSE: "a dense time series",
    LABELS: "one parcellation",
}
AXES = {  # nibabel's classes of the two axes, rows first
    SERIES: ("SeriesAxis", "ParcelsAxis"),
    MATRIX: ("ParcelsAxis", "ParcelsAxis"),
    DENSE: ("SeriesAxis", "BrainModelAxis"),
    LABELS: ("LabelAxis", "BrainModelAxis"),
}
Grayordinates = Mapping[str, Any]  # `nibabel.cifti2.BrainModelAxis` of each structure


def ending_of(path: str | Path) -> str:
    """Return the ending of a CIFTI file's name, such as ``.ptseries.nii``; "" for other files.

    Examples
    --------
    >>> ending_of("sub-1.ptseries.nii"), ending_of("sub-1_bold.nii.gz")
    ('.ptseries.nii', '')
    """
    return next((ending for ending in AXES if str(path).endswith(ending)), "")


def _open(path: Path, ending: str) -> Any:
    """Open a CIFTI-2 file and check that its axes fit its name.

    Parameters
    ----------
    path : Path
    ending : str
        Ending of its name, a key of `AXES`.

    Returns
    -------
    nibabel.Cifti2Image

    Raises
    ------
    DataError
        If the file does not exist, is damaged or has other axes.
    """
    import nibabel as nib

    if not path.is_file():
        raise DataError(
            "no such file.", where=path, do="Check the name and the folder."
        )
    try:
        image = nib.load(path)
    except Exception as error:  # XML of the header, NIfTI header, size: any of them
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(
            f"this is not a readable CIFTI file ({reason[:160]}).",
            where=path,
            do="The file is damaged or cut off; copy or make it again.",
        ) from error
    kinds: tuple[str, ...] = ()
    if isinstance(image, nib.cifti2.Cifti2Image) and image.ndim == 2:
        kinds = tuple(type(image.header.get_axis(i)).__name__ for i in range(2))
    if kinds != AXES[ending]:
        held = " x ".join(kinds) or type(image).__name__
        raise DataError(
            f"the file holds {held}, not {CONTENTS[ending]}.",
            where=path,
            do=f"A file that ends in {ending} has {' x '.join(AXES[ending])} (CIFTI-2).",
        )
    return image


def _values(image: Any, path: Path) -> np.ndarray:
    """Read all values (rows, columns) of an opened file as float64."""
    MemoryBudget(path).take(math.prod(image.shape) * 8)
    try:
        return np.asarray(image.dataobj, dtype=np.float64)
    except Exception as error:  # a cut-off file or damaged compression raises any class
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> DataError:
    """Return the error for a file whose values cannot be read."""
    return DataError(
        f"the file is truncated or damaged ({type(error).__name__}).",
        where=path,
        do="Copy or make the file again.",
    )


def _parcel_names(axis: Any, path: Path) -> tuple[str, ...]:
    """Return the names of the parcels of an axis; raise `DataError` if one occurs twice."""
    names = tuple(map(str, axis.name))
    if len(set(names)) < len(names):
        twice = abbreviated(sorted({name for name in names if names.count(name) > 1}))
        raise DataError(f"the file names a parcel twice: {twice}.", where=path)
    return names


def read_parcel_series(path: Path) -> tuple[np.ndarray, tuple[str, ...]]:
    """Read parcellated time series (``*.ptseries.nii``).

    Returns
    -------
    values : ndarray of shape (n_volumes, n_parcels), float64
    names : tuple of str
        Names of the parcels.

    Raises
    ------
    DataError
        If the file is damaged or holds no parcellated time series.
    """
    image = _open(path, SERIES)
    return _values(image, path), _parcel_names(image.header.get_axis(1), path)


def read_parcel_matrix(path: Path) -> tuple[np.ndarray, tuple[str, ...]]:
    """Read a parcellated connectivity matrix (``*.pconn.nii``).

    Returns
    -------
    fc : ndarray of shape (n_parcels, n_parcels), float64
    names : tuple of str
        Names of the parcels.

    Raises
    ------
    DataError
        If the file is damaged, or its rows have other parcels than its columns.
    """
    image = _open(path, MATRIX)
    rows, columns = (_parcel_names(image.header.get_axis(i), path) for i in range(2))
    if rows != columns:
        raise DataError(
            "the file has other parcels in its rows than in its columns.", where=path
        )
    return _values(image, path), rows


def seconds_per_volume(path: Path) -> float | None:
    """Return the repetition time of a series in seconds; None where its header has none."""
    axis = _open(path, ending_of(path)).header.get_axis(0)
    step = float(axis.step)
    return step if axis.unit == "SECOND" and 0 < step < math.inf else None


# -- dense series and their parcellation -----------------------------------------------------------
def load_parcellation(path: Path) -> Atlas:
    """Load a CIFTI parcellation (``*.dlabel.nii``) as an atlas; label 0 means "in no parcel".

    Raises
    ------
    DataError
        If the file is damaged, holds several parcellations or fewer than two parcels, or uses a name twice.
    """
    image = _open(path, LABELS)
    labels_axis = image.header.get_axis(0)
    if len(labels_axis) != 1:
        raise DataError(
            f"the file holds {len(labels_axis)} parcellations ({abbreviated(map(str, labels_axis.name))}).",
            where=path,
            do="Keep one: wb_command -cifti-merge OUT.dlabel.nii -cifti FILE -column NUMBER.",
        )
    # The label of each grayordinate.
    keys = np.rint(_values(image, path)[0]).astype(np.int64)
    table = labels_axis.label[0]  # by label, its name and colour
    present = np.unique(keys[keys != 0])
    unnamed = [int(key) for key in present if int(key) not in table]
    if unnamed or len(present) < 2:
        problem = (
            f"the labels {abbreviated(map(str, unnamed))} have no name in its table."
        )
        if not unnamed:
            problem = f"the file has {len(present)} parcels; FC needs at least two."
        raise DataError(problem, where=path)
    names = tuple(str(table[int(key)][0]) for key in present)
    if len(set(names)) < len(names):
        raise DataError("the file gives two labels the same name.", where=path)
    digest = hashlib.sha256()
    for structure, part in _structures(image).items():
        digest.update(f"{structure}{_space_of(part)}".encode())
        digest.update(np.ascontiguousarray(_places(part), dtype=np.int64).data)
    digest.update(np.ascontiguousarray(keys).data)
    digest.update("\n".join(names).encode())
    return Atlas(
        _atlas_name(path),
        names,
        tuple(map(system_of, names)),
        values=present,
        sha256=digest.hexdigest(),
        hashed="grayordinates, labels and names of the CIFTI parcellation",
        parcellation=path,
    )


def _atlas_name(path: Path) -> str:
    """Return the value of ``atlas-`` in a file name, else the letters and digits of the name."""
    stem = path.name.removesuffix(LABELS)
    named = dict(part.split("-", 1) for part in stem.split("_") if "-" in part)
    return "".join(c for c in named.get("atlas", stem) if c.isalnum())


def _structures(image: Any) -> Grayordinates:
    """Return the grayordinates of each structure, with its first column as attribute ``start``."""
    structures = {}
    for name, columns, part in image.header.get_axis(1).iter_structures():
        part.start = columns.start or 0
        structures[str(name)] = part
    return structures


def _is_surface(part: Any) -> bool:
    """Return whether the grayordinates of a structure are vertices, not voxels."""
    return bool(np.all(part.surface_mask))


def _space_of(part: Any) -> str:
    """Describe the surface or the volume of a structure's grayordinates, to compare two files."""
    if _is_surface(part):
        return f"{next(iter(part.nvertices.values()))} vertices"
    affine = np.round(part.affine, 3).tolist()
    return f"volume {tuple(map(int, part.volume_shape))} with affine {affine}"


def _places(part: Any) -> np.ndarray:
    """Return one number per grayordinate of a structure: its vertex, or its voxel."""
    if _is_surface(part):
        return part.vertex
    shape = tuple(map(int, part.volume_shape))
    return np.ravel_multi_index(tuple(part.voxel.T), shape)


class DenseSignals(NamedTuple):
    """Signals of the parcels of a dense series.

    Attributes
    ----------
    series : ndarray of shape (n_volumes, n_rois), float64
        Mean signal of each parcel; a column of NaN where coverage is too low.
    coverage : ndarray of shape (n_rois,)
        Share of the parcel's grayordinates that have a signal in the series.
    good : ndarray of shape (n_volumes, n_good), float32
        Signals of all grayordinates that have one, parcel by parcel.
    rois : ndarray of shape (n_good,)
        Number of the parcel of each of them, counted from 0.
    n_nan : int
        Number of grayordinates inside parcels that are NaN in some volume.
    n_inside : int
        Number of grayordinates inside parcels.
    """

    series: np.ndarray
    coverage: np.ndarray
    good: np.ndarray
    rois: np.ndarray
    n_nan: int
    n_inside: int


def parcel_means(path: Path, atlas: Atlas, min_coverage: float) -> DenseSignals:
    """Compute the mean signal of every parcel over its good grayordinates.

    A grayordinate is good when it is finite in every volume and not constant.

    Parameters
    ----------
    path : Path
        A dense series, ``*.dtseries.nii``.
    atlas : Atlas
        From `load_parcellation`.
    min_coverage : float
        Coverage below which a parcel counts as one without signal.

    Raises
    ------
    DataError
        If the file is damaged, or lies on another surface or volume than the parcellation.
    """
    image = _open(path, DENSE)
    if atlas.parcellation is None:
        raise DataError(
            f"the file is a dense CIFTI series, but atlas {atlas.name} is not a CIFTI parcellation.",
            where=path,
            do="Pass --atlas FILE.dlabel.nii, or use the volumes in MNI space.",
        )
    columns, rois, sizes = _columns_of(path, image, atlas)
    values = _read_columns(path, image, columns)
    finite = np.isfinite(values).all(axis=0)
    good = finite.copy()
    good[finite] = np.ptp(values[:, finite], axis=0) > 0
    counts = np.bincount(rois[good], minlength=atlas.n_rois)
    coverage = counts / sizes
    # Parcel by parcel, so that the sum of a parcel is that of neighbouring columns (`reduceat`).
    order = np.argsort(rois[good], kind="stable")
    kept = values[:, np.flatnonzero(good)[order]]
    series = np.full((len(values), atlas.n_rois), np.nan)
    present = np.flatnonzero(counts)
    starts = np.r_[0, np.cumsum(counts[present])[:-1]]  # first column of each parcel
    if len(present):
        sums = np.add.reduceat(kept, starts, axis=1, dtype=np.float64)
        series[:, present] = sums / counts[present]
    series[:, (coverage < min_coverage) | (coverage == 0)] = np.nan
    n_nan = int((~finite).sum())
    in_order = rois[good][order]
    return DenseSignals(series, coverage, kept, in_order, n_nan, len(columns))


@lru_cache(maxsize=2)
def _parcels_by_structure(path: Path) -> dict[str, tuple[str, np.ndarray, np.ndarray]]:
    """Read a parcellation by structure.

    Returns
    -------
    dict of str to (str, ndarray, ndarray)
        For each structure the description of its surface or volume (`_space_of`), the number of every
        grayordinate (`_places`), and its label.
    """
    image = _open(path, LABELS)
    keys = np.rint(_values(image, path)[0]).astype(np.int64)
    return {
        name: (
            _space_of(part),
            _places(part),
            keys[part.start : part.start + len(part)],
        )
        for name, part in _structures(image).items()
    }


def _columns_of(
    path: Path, image: Any, atlas: Atlas
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the columns of a dense series that lie in parcels.

    Parameters
    ----------
    path : Path
        The dense series, for error messages.
    image : nibabel.Cifti2Image
    atlas : Atlas
        From `load_parcellation`.

    Returns
    -------
    columns : ndarray of shape (n_inside,)
        Columns whose grayordinate lies in a parcel.
    rois : ndarray of shape (n_inside,)
        Number of the parcel of each of them, counted from 0.
    sizes : ndarray of shape (n_rois,)
        Number of grayordinates of each parcel in the parcellation.

    Raises
    ------
    DataError
        If the two files lie on different surfaces or volumes, or share too few parcels.
    """
    assert atlas.parcellation is not None
    sizes = np.zeros(atlas.n_rois)
    structures = _structures(image)
    columns = [np.empty(0, dtype=np.int64)]
    rois = [np.empty(0, dtype=np.int64)]
    for name, (space, places, keys) in _parcels_by_structure(
        atlas.parcellation
    ).items():
        labelled = keys != 0
        roi = np.searchsorted(atlas.values, keys[labelled])
        sizes += np.bincount(roi, minlength=atlas.n_rois)
        if name not in structures or not len(roi):
            continue
        part = structures[name]
        if _space_of(part) != space:
            raise DataError(
                f"{name} has {_space_of(part)} here and {space} in {atlas.parcellation.name}.",
                where=path,
                do="Take a parcellation of the same space and density (fsLR, den-91k).",
            )
        in_series = _places(part)
        order = np.argsort(in_series)
        # Where each labelled grayordinate lies in the series, or another one if it is not there.
        column = np.searchsorted(in_series, places[labelled], sorter=order)
        column = order[np.minimum(column, len(in_series) - 1)]
        matches = in_series[column] == places[labelled]
        columns.append(part.start + column[matches])
        rois.append(roi[matches])
    rois_of_columns = np.concatenate(rois)
    n_present = len(np.unique(rois_of_columns))
    if n_present < atlas.n_rois / 2:
        raise DataError(
            f"only {n_present} of {atlas.n_rois} parcels have a grayordinate in the series.",
            where=path,
            do="Is it a parcellation of another space? Both must be fsLR of one density.",
        )
    return np.concatenate(columns), rois_of_columns, sizes


def _read_columns(path: Path, image: Any, columns: np.ndarray) -> np.ndarray:
    """Read some columns of a dense series, `VOLUMES_AT_ONCE` rows at a time.

    Returns
    -------
    ndarray of shape (n_volumes, len(columns)), float32
    """
    n_volumes, width = image.shape
    budget = MemoryBudget(path)
    budget.take(n_volumes * len(columns) * 8)
    out = np.empty((n_volumes, len(columns)), dtype=np.float32)
    try:
        for start in range(0, n_volumes, VOLUMES_AT_ONCE):
            rows = np.asarray(image.dataobj[start : start + VOLUMES_AT_ONCE])
            if rows.shape[1] != width:
                raise EOFError
            out[start : start + VOLUMES_AT_ONCE] = rows[:, columns]
    except Exception as error:  # a cut-off file or damaged compression raises any class
        raise _damaged(path, error) from error
    return out

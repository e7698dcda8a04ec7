"""CIFTI-2 files of HCP, fMRIPrep and XCP-D: parcellated series and matrices, dense series, parcellations.

Parcels are known by their names in the file. Grayordinates of a dense series and of a parcellation
are matched one by one: vertices by structure and number, voxels by place. Two files whose surfaces
or volumes differ are refused.
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
AXES = {  # classes of nibabel's axes, rows first
    SERIES: ("SeriesAxis", "ParcelsAxis"),
    MATRIX: ("ParcelsAxis", "ParcelsAxis"),
    DENSE: ("SeriesAxis", "BrainModelAxis"),
    LABELS: ("LabelAxis", "BrainModelAxis"),
}
Grayordinates = Mapping[str, Any]  # `nibabel.cifti2.BrainModelAxis` of each structure


def ending_of(path: str | Path) -> str:
    """Return the ending that says what a CIFTI file holds, such as ``.ptseries.nii``; "" for others.

    Examples
    --------
    >>> ending_of("sub-1.ptseries.nii"), ending_of("sub-1_bold.nii.gz")
    ('.ptseries.nii', '')
    """
    return next((ending for ending in AXES if str(path).endswith(ending)), "")


def _open(path: Path, ending: str) -> Any:
    """Open a CIFTI-2 file and check that its axes are those that its name promises."""
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
            f"not a readable CIFTI file ({reason[:160]}).",
            where=path,
            do="The file is damaged or cut off; copy or make it again.",
        ) from error
    kinds: tuple[str, ...] = ()
    if isinstance(image, nib.cifti2.Cifti2Image) and image.ndim == 2:
        kinds = tuple(type(image.header.get_axis(i)).__name__ for i in range(2))
    if kinds != AXES[ending]:
        held = " x ".join(kinds) or type(image).__name__
        raise DataError(
            f"holds {held}, not {CONTENTS[ending]}.",
            where=path,
            do=f"A file that ends in {ending} has {' x '.join(AXES[ending])} (CIFTI-2).",
        )
    return image


def _values(image: Any, path: Path) -> np.ndarray:
    MemoryBudget(path).take(math.prod(image.shape) * 8)
    try:
        return np.asarray(image.dataobj, dtype=np.float64)
    except Exception as error:  # whatever the file's end or its compression raises
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> DataError:
    return DataError(
        f"truncated or damaged ({type(error).__name__}).",
        where=path,
        do="Copy or make the file again.",
    )


def _parcel_names(axis: Any, path: Path) -> tuple[str, ...]:
    names = tuple(map(str, axis.name))
    if len(set(names)) < len(names):
        twice = abbreviated(sorted({name for name in names if names.count(name) > 1}))
        raise DataError(f"names a parcel twice: {twice}.", where=path)
    return names


def read_parcel_series(path: Path) -> tuple[np.ndarray, tuple[str, ...]]:
    """Read a ``*.ptseries.nii``.

    Returns
    -------
    values : ndarray of shape (n_volumes, n_parcels), float64
    names : tuple of str
        Names of the parcels.

    Raises
    ------
    DataError
        Damaged, or not parcellated time series.
    """
    image = _open(path, SERIES)
    return _values(image, path), _parcel_names(image.header.get_axis(1), path)


def read_parcel_matrix(path: Path) -> tuple[np.ndarray, tuple[str, ...]]:
    """Read a ``*.pconn.nii``.

    Returns
    -------
    fc : ndarray of shape (n_parcels, n_parcels), float64
    names : tuple of str
        Names of the parcels.

    Raises
    ------
    DataError
        Damaged, or with other parcels in the rows than in the columns.
    """
    image = _open(path, MATRIX)
    rows, columns = (_parcel_names(image.header.get_axis(i), path) for i in range(2))
    if rows != columns:
        raise DataError(
            "has other parcels in its rows than in its columns.", where=path
        )
    return _values(image, path), rows


def seconds_per_volume(path: Path) -> float | None:
    """Return the repetition time of a series in seconds; None where its header has none."""
    axis = _open(path, ending_of(path)).header.get_axis(0)
    step = float(axis.step)
    return step if axis.unit == "SECOND" and 0 < step < math.inf else None


# -- dense series and their parcellation -----------------------------------------------------------
def load_parcellation(path: Path) -> Atlas:
    """Load the atlas of a ``*.dlabel.nii``; label 0 is no parcel.

    Raises
    ------
    DataError
        Damaged, several parcellations in one file, fewer than two parcels, or a name used twice.
    """
    image = _open(path, LABELS)
    labels_axis = image.header.get_axis(0)
    if len(labels_axis) != 1:
        raise DataError(
            f"holds {len(labels_axis)} parcellations ({abbreviated(map(str, labels_axis.name))}).",
            where=path,
            do="Keep one: wb_command -cifti-merge OUT.dlabel.nii -cifti FILE -column NUMBER.",
        )
    keys = np.rint(_values(image, path)[0]).astype(np.int64)
    table = labels_axis.label[0]
    present = np.unique(keys[keys != 0])
    unnamed = [int(key) for key in present if int(key) not in table]
    if unnamed or len(present) < 2:
        problem = f"labels {abbreviated(map(str, unnamed))} have no name in its table."
        if not unnamed:
            problem = f"{len(present)} parcels; FC needs at least two."
        raise DataError(problem, where=path)
    names = tuple(str(table[int(key)][0]) for key in present)
    if len(set(names)) < len(names):
        raise DataError("gives two labels one name.", where=path)
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
    """Return the ``atlas-`` entity of a file name, else its letters and digits."""
    stem = path.name.removesuffix(LABELS)
    parts = dict(part.partition("-")[::2] for part in stem.split("_") if "-" in part)
    return "".join(c for c in parts.get("atlas", stem) if c.isalnum())


def _structures(image: Any) -> Grayordinates:
    """Return the grayordinates of each structure, with `start` of its columns."""
    structures = {}
    for name, columns, part in image.header.get_axis(1).iter_structures():
        part.start = columns.start or 0
        structures[str(name)] = part
    return structures


def _is_surface(part: Any) -> bool:
    return bool(np.all(part.surface_mask))


def _space_of(part: Any) -> str:
    """Describe the surface or the volume that grayordinates lie in."""
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
        NaN columns where coverage is too low.
    coverage : ndarray of shape (n_rois,)
        Share of the parcel's grayordinates that the series has, with a signal.
    good : ndarray of shape (n_volumes, n_good), float32
        Grayordinates with a signal, parcel by parcel.
    rois : ndarray of shape (n_good,)
        Parcel of each of them.
    n_nan : int
        Grayordinates inside parcels that are NaN somewhere.
    n_inside : int
        Grayordinates inside parcels.
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
        A ``*.dtseries.nii``.
    atlas : Atlas
        Of `load_parcellation`.
    min_coverage : float
        Coverage below which a parcel is empty.

    Raises
    ------
    DataError
        Damaged, or on another surface or volume than the parcellation.
    """
    image = _open(path, DENSE)
    if atlas.parcellation is None:
        raise DataError(
            f"is a dense CIFTI series, but atlas {atlas.name} is not a CIFTI parcellation.",
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
    order = np.argsort(rois[good], kind="stable")
    kept = values[:, np.flatnonzero(good)[order]]
    series = np.full((len(values), atlas.n_rois), np.nan)
    present = np.flatnonzero(counts)
    starts = np.r_[0, np.cumsum(counts[present])[:-1]]
    if len(present):
        sums = np.add.reduceat(kept, starts, axis=1, dtype=np.float64)
        series[:, present] = sums / counts[present]
    series[:, (coverage < min_coverage) | (coverage == 0)] = np.nan
    n_nan = int((~finite).sum())
    in_order = rois[good][order]
    return DenseSignals(series, coverage, kept, in_order, n_nan, len(columns))


@lru_cache(maxsize=2)
def _parcels_by_structure(path: Path) -> dict[str, tuple[str, np.ndarray, np.ndarray]]:
    """Return space, places and labels of each structure of a parcellation."""
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
    """Return the columns of a dense series that lie in parcels, their parcels, and parcels' sizes."""
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
        here = _places(part)
        order = np.argsort(here)
        at = np.searchsorted(here, places[labelled], sorter=order)
        at = order[np.minimum(at, len(here) - 1)]
        matches = here[at] == places[labelled]
        columns.append(part.start + at[matches])
        rois.append(roi[matches])
    present = np.concatenate(rois)
    n_found = len(np.unique(present))
    if n_found < atlas.n_rois / 2:
        raise DataError(
            f"only {n_found} of {atlas.n_rois} parcels have a grayordinate in the series.",
            where=path,
            do="Is it a parcellation of another space? Both must be fsLR of one density.",
        )
    return np.concatenate(columns), present, sizes


def _read_columns(path: Path, image: Any, columns: np.ndarray) -> np.ndarray:
    """Read some columns of a dense series, `VOLUMES_AT_ONCE` rows at a time."""
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
    except Exception as error:  # whatever the file's end or its compression raises
        raise _damaged(path, error) from error
    return out

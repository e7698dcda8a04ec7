"""Small real CIFTI-2 files, made with nibabel: parcellated and dense series, matrices, parcellations."""

from collections.abc import Sequence
from pathlib import Path

import nibabel as nib
import numpy as np
from imaging_trees import describe, roi_signals, write_people

N_VERTICES = 100  # of each hemisphere's surface
VERTICES = np.arange(0, 100, 2)  # the others are the medial wall
VOLUME = (6, 6, 6)
AFFINE = np.diag([4.0, 4, 4, 1])
PARCELS = ("LH_Vis_1", "LH_Default_1", "RH_Vis_1", "RH_Default_1", "Thalamus")


def models(vertices: np.ndarray = VERTICES, n_vertices: int = N_VERTICES):
    """Grayordinates: both cortices and a few voxels of the thalamus."""
    axis = nib.cifti2.BrainModelAxis
    left = axis.from_surface(vertices, n_vertices, "CortexLeft")
    right = axis.from_surface(vertices, n_vertices, "CortexRight")
    mask = np.zeros(VOLUME, dtype=bool)
    mask[2:4, 2:4, 2:4] = True
    return left + right + axis.from_mask(mask, "ThalamusLeft", AFFINE)


def save(path: Path, values: np.ndarray, *axes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = nib.Cifti2Image(values.astype(np.float32), nib.Cifti2Header.from_axes(axes))
    nib.save(image, path)
    return path


def parcels(names: Sequence[str]):
    """Parcels of two vertices each."""
    places = [np.array([2 * i, 2 * i + 1]) for i in range(len(names))]
    return nib.cifti2.ParcelsAxis(
        np.array(names, dtype=object),
        [np.empty((0, 3), dtype=int)] * len(names),
        [{"CIFTI_STRUCTURE_CORTEX_LEFT": place} for place in places],
        None,
        None,
        {"CIFTI_STRUCTURE_CORTEX_LEFT": N_VERTICES},
    )


def time(n: int, tr: float = 2.0):
    return nib.cifti2.SeriesAxis(0, tr, n)


def ptseries(path: Path, names: Sequence[str], values: np.ndarray) -> Path:
    return save(path, values, time(len(values)), parcels(names))


def pconn(path: Path, names: Sequence[str], values: np.ndarray) -> Path:
    return save(path, values, parcels(names), parcels(names))


def dtseries(path: Path, values: np.ndarray, axis=None, tr: float = 2.0) -> Path:
    return save(path, values, time(len(values), tr), axis or models())


def keys() -> np.ndarray:
    """Label of each grayordinate of `models`: two parcels per cortex, one thalamus, some outside."""
    half = len(VERTICES) // 2
    cortex = np.r_[np.full(half, 3), np.full(len(VERTICES) - half, 7)]
    cortex[0] = 0
    return np.r_[cortex, np.where(cortex, cortex + 10, 0), np.full(8, 30)]


def dlabel(path: Path, values: np.ndarray | None = None, axis=None) -> Path:
    values = keys() if values is None else values
    table = {0: ("???", (0.0, 0, 0, 0))}
    table |= {
        key: (name, (1.0, 0, 0, 1))
        for key, name in zip((3, 7, 13, 17, 30), PARCELS, strict=True)
    }
    labels = nib.cifti2.LabelAxis(["parcels"], [table])
    return save(path, values[None], labels, axis or models())


def dense_values(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Values of all grayordinates, and the signals of the five parcels in them."""
    signals = roi_signals(rng, n, len(PARCELS))
    column = np.searchsorted((3, 7, 13, 17, 30), keys())
    column[keys() == 0] = 0
    noise = 0.1 * rng.normal(size=(n, len(column)))
    return 100 + signals[:, column] + noise, signals


def xcpd_cifti_tree(
    root: Path, names: Sequence[str], n: int = 4, series: bool = True
) -> None:
    """XCP-D's default output of CIFTI input: 4S156Parcels and Gordon as ptseries and pconn."""
    describe(root, "XCP-D")
    ids = [f"{i + 1:02d}" for i in range(n)]
    for i, subject in enumerate(ids):
        rng = np.random.default_rng([19, i])
        func = root / f"sub-{subject}" / "func"
        stem = f"sub-{subject}_task-rest_space-fsLR_seg-"
        for atlas, parcel_names in (("4S156Parcels", names), ("Gordon", PARCELS)):
            values = roi_signals(rng, 80, len(parcel_names))
            name = f"{stem}{atlas}_den-91k_stat-"
            if series:
                ptseries(
                    func / f"{name}mean_timeseries.ptseries.nii", parcel_names, values
                )
            fc = np.corrcoef(values.T)
            pconn(
                func / f"{name}pearsoncorrelation_boldmap.pconn.nii", parcel_names, fc
            )
        fd = np.abs(rng.normal(scale=0.1, size=80))
        (func / f"sub-{subject}_task-rest_motion.tsv").write_text(
            "framewise_displacement\n" + "\n".join(map(str, fd)) + "\n"
        )
    write_people(root, ids)

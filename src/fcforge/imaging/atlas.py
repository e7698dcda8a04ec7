"""What an atlas is: names, systems and places of ROIs, and the labelled volume where there is one.

`fcforge.imaging.atlases` finds and checks one by its name or files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fcforge.imaging.scan import Grid, load_image, read_labels

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True, eq=False)
class Atlas:
    """ROIs of a parcellation, in column order.

    Attributes
    ----------
    name : str
        Value of the ``atlas-`` entity in file names (letters and digits).
    roi_names, systems, abbreviations : tuple of str
        Names; brain system of each ROI, "" where unknown; short names, if there are any.
    codes : tuple of int
        Alternative labels under which other tools list the same ROIs (AAL: 2001..9170).
    xyz : ndarray of shape (n_rois, 3)
        Centroids in mm, MNI space; no rows where unknown.
    image : Path, nibabel image or None
        Volume of labels, or one weighted map per ROI (4D); None for ROIs without a volume (time
        series made elsewhere).
    values : ndarray of shape (n_rois,)
        Label of each ROI in the volume; its place, counted from 1, among maps.
    probabilistic : bool
        The image holds maps, not labels.
    sha256 : str
        Of the voxels (label order, shape and affine included); "" without a volume.
    """

    name: str
    roi_names: tuple[str, ...]
    systems: tuple[str, ...]
    abbreviations: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    xyz: np.ndarray = field(default_factory=lambda: np.empty((0, 3)))
    image: Any = None
    values: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=int))
    probabilistic: bool = False
    sha256: str = ""

    @property
    def n_rois(self) -> int:
        """Number of ROIs."""
        return len(self.roi_names)

    def is_called(self, roi_names: Sequence[str]) -> bool:
        """Whether these are the ROIs' names, abbreviations or codes, all in order."""
        spellings = (self.roi_names, self.abbreviations, tuple(map(str, self.codes)))
        return bool(roi_names) and tuple(roi_names) in spellings

    @cached_property
    def volume(self) -> tuple[np.ndarray, np.ndarray]:
        """Column (0-based) of every voxel, -1 outside ROIs, and the affine.

        Returns
        -------
        columns : ndarray of shape (x, y, z), int16
        affine : ndarray of shape (4, 4)
        """
        labels, affine = read_labels(self.image)
        column = np.full(int(labels.max()) + 1, -1, dtype=np.int16)
        column[self.values] = np.arange(self.n_rois)
        return column[labels], affine

    @cached_property
    def places(self) -> np.ndarray:
        """Centre of every ROI in mm, MNI space, (n_rois, 3); no rows where there is no volume.

        Of a weighted map it is the centre of its largest part, as nilearn has it.
        """
        if len(self.xyz) or self.image is None:
            return self.xyz
        if self.probabilistic:
            from nilearn.plotting import find_probabilistic_atlas_cut_coords

            return np.asarray(find_probabilistic_atlas_cut_coords(self.image))
        from nibabel.affines import apply_affine
        from scipy.ndimage import center_of_mass

        columns, affine = self.volume
        found = center_of_mass(columns >= 0, columns, range(self.n_rois))
        return apply_affine(affine, found)

    def on_grid(self, shape: tuple[int, ...], affine: np.ndarray) -> np.ndarray:
        """Nearest-neighbour label columns on another grid, -1 outside every ROI.

        The atlas is brought to the scan's grid, once; the reverse (resampling every volume to a
        1 mm atlas) costs gigabytes.

        Returns
        -------
        ndarray of shape `shape[:3]`, int16
        """
        from scipy.ndimage import affine_transform

        columns, own = self.volume
        to_atlas = np.linalg.inv(own) @ affine
        return affine_transform(
            columns,
            to_atlas,
            output_shape=shape[:3],
            order=0,
            mode="grid-constant",
            cval=-1,
        )

    def describe(self) -> dict[str, Any]:
        """What a sidecar needs to know about the atlas."""
        return {
            "Name": self.name,
            "Image": self.image.name if isinstance(self.image, Path) else None,
            "SHA256": self.sha256,
            "ROIs": self.n_rois,
        }


@lru_cache(maxsize=2)
def weights_on(atlas: Atlas, grid: Grid) -> csr_array:
    """Weight of every voxel of a grid in each ROI, (n_voxels in Fortran order, n_rois).

    Of labels it is 1 in the voxel's own ROI. Subjects of one study share a grid, so the answer
    is kept; so is that of `share_in_view`.
    """
    from scipy.sparse import csr_array

    shape = grid[0]
    target = np.frombuffer(grid[1]).reshape(4, 4)
    if not atlas.probabilistic:
        column = atlas.on_grid(shape, target).ravel(order="F")
        inside = np.flatnonzero(column >= 0)
        ones = np.ones(len(inside))
        places = (inside, column[inside])
        return csr_array((ones, places), shape=(len(column), atlas.n_rois))
    from nilearn.image import resample_img

    image = load_image(atlas.image)
    moved = resample_img(image, target, shape, interpolation="continuous")
    weights = np.asarray(moved.dataobj, dtype=np.float32).clip(min=0)
    return csr_array(weights.reshape(-1, atlas.n_rois, order="F"), dtype=np.float64)


@lru_cache(maxsize=1)
def share_in_view(atlas: Atlas, grid: Grid) -> np.ndarray:
    """Share of each ROI that lies inside a grid, (n_rois,)."""
    from nibabel.affines import apply_affine

    image = load_image(atlas.image)
    shape = image.shape[:3]
    affine = np.asarray(image.affine, dtype=float)
    weights = weights_on(atlas, (shape, affine.tobytes()))
    rows = np.flatnonzero(np.diff(weights.indptr))
    index = np.stack(np.unravel_index(rows, shape, order="F"), axis=1)
    grid_affine = np.frombuffer(grid[1]).reshape(4, 4)
    to_grid = np.linalg.inv(grid_affine) @ affine
    at = np.rint(apply_affine(to_grid, index))
    inside = (at >= 0) & (at < grid[0])
    inside = inside.all(axis=1)
    return weights[rows[inside]].sum(axis=0) / weights.sum(axis=0)


@lru_cache(maxsize=1)
def aal116() -> Atlas:
    """The 116 ROIs of AAL in code order (2001..9170), without a volume.

    `systems` are fcforge's own nine groups by lobe and function, made for plots and for the
    simulator. They are not the Yeo networks: published AAL-to-Yeo lists contradict each other.
    """
    text = files("fcforge.imaging").joinpath("aal116.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines()[1:]]
    _, codes, names, short, x, y, z, systems = zip(*rows, strict=True)
    xyz = np.array([x, y, z], dtype=float).T
    values = np.arange(1, len(names) + 1)
    codes = tuple(map(int, codes))
    return Atlas("AAL116", names, systems, short, codes, xyz, values=values)


def atlas_of_names(roi_names: Sequence[str]) -> Atlas | None:
    """AAL for its own names, abbreviations or codes; 116 ROIs without names may be any atlas."""
    return aal116() if aal116().is_called(roi_names) else None


def names_only(name: str, roi_names: Sequence[str]) -> Atlas:
    """Atlas without a volume, for series that another tool made."""
    values = np.arange(1, len(roi_names) + 1)
    return Atlas(name, tuple(roi_names), ("",) * len(roi_names), values=values)

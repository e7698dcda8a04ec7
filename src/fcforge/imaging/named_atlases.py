"""Atlases by name, through nilearn's fetchers: fetched once, then read from its data folder."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcforge.errors import DataError

_CRADDOCK = {"homogeneity": "temporal", "grp_mean": False}  # the maps C-PAC and the PCP use


@dataclass(frozen=True)
class Named:
    """How an atlas of a family is fetched.

    Attributes
    ----------
    pattern : str
        Of its name in small letters and digits; a group is the number of ROIs.
    example : str
    fetcher : str
        Function of ``nilearn.datasets``.
    options : callable
        Arguments of the fetcher for that number.
    volume : int or None
        Which volume of a 4D file of labels is meant.
    """

    pattern: str
    example: str
    fetcher: str
    options: Callable[[int], Mapping[str, Any]]
    volume: int | None = None


_SCHAEFER = r"schaefer(100|200|300|400|500|600|700|800|900|1000)"
_OXFORD = "fetch_atlas_harvard_oxford"
FAMILIES = (
    Named(rf"{_SCHAEFER}(?:yeo7)?", "Schaefer400", "fetch_atlas_schaefer_2018",
          lambda n: {"n_rois": n, "yeo_networks": 7, "resolution_mm": 2}),
    Named(rf"{_SCHAEFER}yeo17", "Schaefer400Yeo17", "fetch_atlas_schaefer_2018",
          lambda n: {"n_rois": n, "yeo_networks": 17, "resolution_mm": 2}),
    Named("harvardoxford", "HarvardOxford", _OXFORD,
          lambda _: {"atlas_name": "cort-maxprob-thr25-2mm", "symmetric_split": True}),
    Named("harvardoxfordsub", "HarvardOxfordSub", _OXFORD,
          lambda _: {"atlas_name": "sub-maxprob-thr25-2mm"}),
    # 43 solutions in one file: 10, 20, ... 300, then 350, 400, ... 950 clusters
    Named("cc200", "CC200", "fetch_atlas_craddock_2012", lambda _: _CRADDOCK, 19),
    Named("cc400", "CC400", "fetch_atlas_craddock_2012", lambda _: _CRADDOCK, 31),
    Named("destrieux", "Destrieux", "fetch_atlas_destrieux_2009", lambda _: {}),
    Named("msdl", "MSDL", "fetch_atlas_msdl", lambda _: {}),
    Named(r"difumo(64|128|256|512|1024)", "DiFuMo256", "fetch_atlas_difumo",
          lambda n: {"dimension": n, "resolution_mm": 3}),
)  # fmt: skip
EXAMPLES = tuple(family.example for family in FAMILIES)


# Image (3D labels, or 4D with one weighted map per ROI); names and systems by label (of maps by
# place, counted from 1), empty where the atlas has none.
Fetched = tuple[Any, Mapping[int, str], Mapping[int, str]]


def fetch_named(name: str) -> Fetched | None:
    """The atlas of that name, None where it is not one of nilearn's.

    Raises
    ------
    DataError
        It is not in nilearn's data folder and cannot be fetched.
    """
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    for family in FAMILIES:
        match = re.fullmatch(family.pattern, plain)
        if match:
            return _fetch(family, name, int(match[1]) if match.groups() else 0)
    return None


def _fetch(family: Named, name: str, n: int) -> Fetched:
    import nibabel as nib
    from nilearn import datasets

    try:
        bunch = getattr(datasets, family.fetcher)(**family.options(n), verbose=0)
    except (OSError, ValueError, RuntimeError) as error:
        folder = datasets.get_data_dirs()[0]
        raise DataError(
            f"atlas '{name}' is not in {folder} and could not be fetched ({type(error).__name__}).",
            do=f"Run nilearn.datasets.{family.fetcher} on a machine with a network and copy its "
            "folder, or pass files: --atlas FILE.nii.gz --atlas-lut FILE.",
        ) from None
    maps = bunch["maps"]
    image: Any = maps if hasattr(maps, "dataobj") else nib.load(maps)
    if family.volume is not None:
        labels = np.asarray(image.dataobj[..., family.volume]).astype(np.int32)
        return nib.Nifti1Image(labels, image.affine), {}, {}
    return (image, *_names(bunch))


def _names(bunch: Mapping[str, Any]) -> tuple[dict[int, str], dict[int, str]]:
    """Names and systems by label; nilearn gives a table of both, a list, or DiFuMo's own table."""
    labels: Any = bunch.get("labels")
    lut = bunch.get("lut")
    if hasattr(labels, "columns"):  # DiFuMo
        columns = {c.lower(): labels[c].astype(str).tolist() for c in labels.columns}
        names = dict(enumerate(columns["difumo_names"], 1))
        return names, dict(enumerate(columns.get("yeo_networks7", []), 1))
    if lut is not None and "index" in getattr(lut, "columns", ()):
        names = {int(i): str(n) for i, n in zip(lut["index"], lut["name"], strict=True) if i}
    else:
        names = {i: str(n) for i, n in enumerate(labels or (), 1)}
    return names, {i: _network(n) for i, n in names.items()}


def _network(name: str) -> str:
    """Yeo network in one of Schaefer's names: ``7Networks_LH_Vis_1`` is Vis."""
    match = re.match(r"\d+Networks_[LR]H_([A-Za-z]+)", name)
    return match[1] if match else ""

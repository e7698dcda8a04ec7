"""One run of one subject as a tool left it."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fcforge.errors import DataError
from fcforge.files import read_plain

# Those that tell scans apart, in the order of BIDS.
ENTITIES = (
    "sub",
    "ses",
    "task",
    "acq",
    "ce",
    "rec",
    "dir",
    "run",
    "echo",
    "part",
    "space",
)
MAX_BYTES = 1 << 26  # of a sidecar
_ENTITY = re.compile(r"([a-zA-Z]+)-([a-zA-Z0-9+]+)")


@dataclass(frozen=True)
class Source:
    """One run of one subject, as a tool left it.

    Attributes
    ----------
    path : Path
        4D scan or ROI time series.
    kind : {"scan", "series"}
    tool : str
        Layout it was found in.
    entities : mapping
        By their short BIDS names; ``sub``, without the prefix ``sub-``, is always there.
    denoised : bool
        The tool has already regressed and filtered; nothing more is taken out.
    motion : Path or None
        Table with framewise displacement.
    """

    path: Path
    kind: Literal["scan", "series"]
    tool: str
    entities: Mapping[str, str]
    denoised: bool = False
    motion: Path | None = None

    @property
    def subject(self) -> str:
        """Without the prefix ``sub-``."""
        return self.entities["sub"]

    def said(self, *keys: str) -> tuple[str, ...]:
        """Values of some entities, "" where the name has none."""
        return tuple(self.entities.get(key, "") for key in keys)

    @property
    def has_confounds(self) -> bool:
        """Whether confounds lie beside it, as fMRIPrep writes them."""
        return self.tool == "fmriprep"

    @property
    def mask(self) -> Path | None:
        """Brain mask beside it, where fMRIPrep wrote one."""
        name = re.sub(r"_desc-\w+_bold", "_desc-brain_mask", self.path.name)
        mask = self.path.with_name(name)
        return mask if self.has_confounds and mask.exists() else None

    @property
    def said_tr(self) -> float | None:
        """``RepetitionTime`` of the sidecar, None where it says none."""
        value = read_json(sidecar_of(self.path)).get("RepetitionTime")
        if not value:
            return None
        if not isinstance(value, int | float) or not 0 < value < math.inf:
            what = f"RepetitionTime {value!r:.40} is not a number of seconds."
            raise DataError(what, where=sidecar_of(self.path), do="Correct it.")
        return float(value)


def entities(name: str) -> dict[str, str]:
    """BIDS entities of a file name: ``{"sub": "01", "task": "rest", ...}``."""
    found = map(_ENTITY.search, stem_of(name).split("_"))
    return {match[1]: match[2] for match in found if match}


def stem_of(name: str) -> str:
    """File name up to its first dot, so that ``.nii.gz`` goes as a whole."""
    return name.split(".")[0]


def sidecar_of(path: Path) -> Path:
    """JSON file of the same name."""
    return path.with_name(f"{stem_of(path.name)}.json")


def read_json(path: Path) -> dict[str, Any]:
    """Names and values of a JSON file; nothing where there is no file.

    Raises
    ------
    DataError
        Not JSON, or not an object of names and values.
    """
    if not path.exists():
        return {}
    try:
        found = json.loads(read_plain(path, MAX_BYTES))
    except (
        ValueError,
        RecursionError,
    ) as error:  # no text, too deep, too long a number
        raise DataError(f"not JSON ({error}).", where=path) from None
    if not isinstance(found, dict):
        raise DataError("has no names and values, as a BIDS sidecar has.", where=path)
    return found


def is_nifti(path: Path) -> bool:
    """Whether a name ends as a NIfTI file's does."""
    return path.name.endswith((".nii", ".nii.gz"))


def nifti_files(root: Path, pattern: str) -> Iterator[Path]:
    """Files ``PATTERN.nii.gz`` and ``PATTERN.nii`` below `root`."""
    return filter(is_nifti, root.glob(f"{pattern}.nii*"))

"""One run of one subject as a tool left it."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fcforge.errors import DataError

VARIANTS = ("acq", "ce", "rec", "dir", "echo", "part", "feature")
_ENTITY = re.compile(r"([a-zA-Z]+)-([a-zA-Z0-9+]+)")


@dataclass(frozen=True)
class Source:
    """One run of one subject, as a tool left it.

    Attributes
    ----------
    subject : str
        Without the ``sub-`` prefix.
    path : Path
        4D scan or ROI time series.
    kind : {"scan", "series"}
    tool : str
        Layout it was found in.
    session, task, run, space : str
        BIDS entities, "" where the name has none.
    variant : mapping
        Further entities that tell scans apart (`VARIANTS`), those the name has.
    denoised : bool
        The tool has already regressed and filtered; nothing more is taken out.
    motion, mask : Path or None
        Table with framewise displacement, brain mask.
    """

    subject: str
    path: Path
    kind: Literal["scan", "series"]
    tool: str
    session: str = ""
    task: str = ""
    run: str = ""
    space: str = ""
    variant: Mapping[str, str] = field(default_factory=dict)
    denoised: bool = False
    motion: Path | None = None
    mask: Path | None = None

    @property
    def has_confounds(self) -> bool:
        """Whether confounds lie beside it, as fMRIPrep writes them."""
        return self.tool == "fmriprep"

    @property
    def sidecar(self) -> Path:
        """JSON beside the file, which may say the TR; it need not exist."""
        return sidecar_of(self.path)

    @property
    def said_tr(self) -> float | None:
        """``RepetitionTime`` of the sidecar, None where it says none."""
        value = read_json(self.sidecar).get("RepetitionTime")
        return float(value) if value else None


def source_of(
    path: Path, kind: Literal["scan", "series"], tool: str, **fields: Any
) -> Source:
    """Source of a file: what its BIDS name does not say comes from `fields`."""
    found = entities(path.name)
    places = {
        "sub": "subject",
        "ses": "session",
        "task": "task",
        "run": "run",
        "space": "space",
    }
    said = {field: found[key] for key, field in places.items() if key in found}
    variant = {key: found[key] for key in VARIANTS if key in found}
    named = {"subject": "", **fields, **said}
    return Source(path=path, kind=kind, tool=tool, variant=variant, **named)


def entities(name: str) -> dict[str, str]:
    """BIDS entities of a file name: ``{"sub": "01", "task": "rest", ...}``."""
    return {
        k: v for part in stem_of(name).split("_") for k, v in _ENTITY.findall(part)[:1]
    }


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
        found = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
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

"""The data files that the published tables are made from, rebuilt from public sources.

Nothing of the data is shipped: series are fetched from the Preprocessed Connectomes Project (PCP),
FC is made here, and the list of subjects is compared with that of the published file.
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fcforge.files import whole_file
from fcforge.imaging.atlas import aal116
from fcforge.messages import DataError, counted, look_up, some
from fcforge.sites.abide import load_abide
from fcforge.sites.cohort import Cohort, upper_from_fc

FOUR = ("NYU", "UM_1", "UM_2", "USM", "UCLA_1", "UCLA_2")
# arrays of a published file: what they hold, in how many bits
STORED = {
    "subject_id": ("subject_id", "i4"),
    "n_timepoints": ("n_volumes", "i2"),
    "n_flat_roi": ("n_flat", "i2"),
    "age": ("age", "f4"),
    "sex": ("sex", "i1"),
    "mean_fd": ("mean_fd", "f4"),
}
DPARSF = {"pipeline": "dparsf", "global_signal": True, "quality": "every"}


class Published(NamedTuple):
    """A published data file.

    Attributes
    ----------
    about : str
    people : int
    subjects_sha256 : str
        Of the subjects' ids (`subjects_sha256`).
    settings : mapping
        Of `load_abide`.
    """

    about: str
    people: int
    subjects_sha256: str
    settings: Mapping[str, Any]


_CHECKED = "0d7c5fb405b0396801f05064b9f7a189a389e09afee33f20608a4db163bde395"
PUBLISHED = {
    "abide-871": Published(
        "ABIDE I, C-PAC, no global signal regression, passed by all raters",
        871,
        _CHECKED,
        {"sites": "all"},
    ),
    "abide-871-cc200": Published(
        "abide-871 with the ROIs of CC200",
        871,
        _CHECKED,
        {"sites": "all", "derivative": "rois_cc200"},
    ),
    "abide-529": Published(
        "the paper's four sites, DPARSF, global signal regressed, no quality control",
        529,
        "3ab28cab3bc77435cd3caeeb7d43e2ac4a13a3c6e41c8c63fb6fa6a247eb477d",
        {"sites": FOUR, **DPARSF},
    ),
    "abide-1098": Published(
        "all of ABIDE I as in abide-529",
        1098,
        "ab838b2769e83d4ee7ef8dbee3ae337da6c7e24508bf5d75758bef3240af05a3",
        {"sites": "all", **DPARSF},
    ),
}


def subjects_sha256(subject_ids: Iterable[str]) -> str:
    """SHA-256 of the ids, sorted, one per line."""
    return hashlib.sha256("\n".join(sorted(subject_ids)).encode()).hexdigest()


def rebuild(
    name: str, out: Path, cache: Path | None = None, **options: Any
) -> list[str]:
    """Make one of the `PUBLISHED` files.

    Parameters
    ----------
    name : str
    out : Path
        The .npz to write.
    cache : Path, optional
        Folder of series, by default nilearn's; what is there is not fetched again.
    **options
        Further settings of `load_abide`.

    Returns
    -------
    list of str
        What differs from the published list of subjects; empty where nothing does.
    """
    from nilearn.datasets import get_data_dirs

    published = look_up("published file", name, PUBLISHED)
    cache = cache or Path(get_data_dirs()[0])
    settings = {"download": True, "merge": False, **published.settings, **options}
    cohort = load_abide(cache, **settings)
    if not len(cohort):
        reasons = some([str(fault) for fault in cohort.faults], 1)
        raise DataError(f"nobody could be fetched: {reasons}", where=cache)
    save(cohort, out)
    if subjects_sha256(cohort.subject_id.tolist()) == published.subjects_sha256:
        return []
    told = [f"{len(cohort)} subjects, {published.people} in the published file"]
    lost = [fault.subject for fault in cohort.faults if fault.subject]
    if lost:
        told.append(f"{counted(len(lost), 'subject')} without series: {some(lost)}")
    return told


def save(cohort: Cohort, out: Path) -> None:
    """Write a cohort as the published files are: upper triangles in 16 bits."""
    flat = (np.abs(cohort.fc).sum(axis=2) == 1).sum(axis=1)
    columns = {**cohort.covariates, "subject_id": cohort.subject_id, "n_flat": flat}
    arrays: dict[str, Any] = {
        "fc_upper": upper_from_fc(cohort.fc).astype(np.float16),
        "label": cohort.y.astype(np.int8),
        "site": cohort.site,
        "roi_names": np.array(cohort.roi_names, dtype=str),
    }
    for name, (column, kind) in STORED.items():
        arrays[name] = columns[column].astype(kind)
    if cohort.roi_names == aal116().roi_names:
        arrays["roi_ids"] = np.array(aal116().codes, dtype=np.int32)
    with whole_file(out) as part, part.open("wb") as stream:
        np.savez_compressed(stream, **arrays)

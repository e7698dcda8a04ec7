"""REST-meta-MDD: DPARSF's ROI signals of 25 Chinese hospitals, one .mat per subject.

The data are given on application only, so this module reads the folder as the consortium shares it:
``Results/ROISignals_FunImgARCWF/ROISignals_S1-1-0001.mat``, each with an array `ROISignals` of T
volumes and 1,568 or 1,833 columns. An id such as ``S1-1-0001`` consists of the site, the diagnosis
(1 MDD, 2 control) and a number.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from fcforge.core.errors import DataError, at
from fcforge.core.names import check_names
from fcforge.data.cohort import Cohort
from fcforge.data.faults import Fault
from fcforge.data.participants import Listed, Participant, Reading, assemble
from fcforge.imaging.atlas import aal116
from fcforge.imaging.matrix_files import read_mat, read_matrix_file
from fcforge.imaging.series import pearson_fc

# Blocks of columns, counted from 1, both ends included; column 1569 is the global signal.
COLUMNS = {
    "aal": (1, 116),
    "ho_cortical": (117, 212),
    "ho_subcortical": (213, 228),
    "craddock200": (229, 428),
    "zalesky980": (429, 1408),
    "dosenbach160": (1409, 1568),
    "power264": (1570, 1833),
}
Atlas = Literal[
    "aal",
    "ho_cortical",
    "ho_subcortical",
    "craddock200",
    "zalesky980",
    "dosenbach160",
    "power264",
]
# Names of the folders of .mat files by `global_signal`: whether the global signal was removed.
FOLDERS = {False: "ROISignals_FunImgARCWF", True: "ROISignals_FunImgARglobalCWF"}
WIDTHS = (1568, 1569, 1833)  # numbers of columns that shared files have
TWICE = "S4"  # site whose subjects are in S14, too
_LIST_COLUMNS = {"Age": "age", "Sex": "sex", "Edu": "education", "Motion": "mean_fd"}
_ID = re.compile(r"(S\d+)-([12])-(\d+)")
_FILE = re.compile(r"ROISignals_(S\d+-[12]-\d+)\.mat$")


def load_rest_meta_mdd(
    path: str | Path,
    *,
    sites: Sequence[str] | Literal["all"] = ("S1", "S9", "S14", "S20", "S21"),
    global_signal: bool = False,
    atlas: Atlas = "aal",
    subjects: str | Path | None = None,
) -> Cohort:
    """Load REST-meta-MDD subjects as FC.

    Parameters
    ----------
    path : path
        Shared folder, its folder ``Results``, or the folder with the .mat files.
    sites : sequence of str, or "all"
        Sites to load, e.g. ``S20``. S4 holds subjects of S14 again: naming it is an error, and "all"
        leaves it out.
    global_signal : bool
        Whether to read ``FunImgARglobalCWF``, where DPARSF removed the global signal.
    atlas : str
        Atlas, which is a block of columns in the files (`COLUMNS`). ROI names are known for AAL
        only. Power's 264 ROIs are only in files with 1,833 columns.
    subjects : path, optional
        ``Stat_Sub_Info_848MDDvs794NC.mat`` (Yan et al. 2019). Only its subjects are loaded, and get
        age, sex, education and mean_fd.

    Returns
    -------
    Cohort
        Label 1 = MDD, told from the id.
    """
    folder = _series_folder(Path(path).expanduser(), global_signal)
    listed = read_subject_list(Path(subjects)) if subjects else {}
    files = _files(folder)
    chosen, faults = _choose(list(listed or files), sites)
    people = []
    for subject in chosen:
        extra = listed.get(subject, {})
        people.append(
            Participant(subject, _site(subject), _label(subject), extra=extra)
        )
    read = partial(_read, files, atlas)
    return assemble("rest_meta_mdd", Listed(people, faults), read, folder)


def _series_folder(path: Path, global_signal: bool) -> Path:
    """Return the folder of the .mat files inside the shared one.

    Parameters
    ----------
    path : Path
        Shared folder, ``Results``, or the folder itself, which may have been renamed.
    global_signal : bool
        As in `load_rest_meta_mdd`.

    Raises
    ------
    DataError
        If there is no such folder, or `path` is the one of the other `global_signal`.
    """
    name = FOLDERS[global_signal]
    for folder in (path / "Results" / name, path / name):
        if folder.is_dir():
            return folder
    if path.is_dir() and path.resolve().name == FOLDERS[not global_signal]:
        was = "kept" if global_signal else "removed"
        raise DataError(
            f"is the folder of series whose global signal was {was}.",
            where=path,
            do=f"Set global_signal = {str(not global_signal).lower()}, or give {name}.",
        )
    if path.is_dir() and (path.name == name or any(path.glob("ROISignals_S*.mat"))):
        return path
    hint = "Give the shared folder, unpacked."
    raise DataError(f"no folder {name} here.", where=path, do=hint)


def _files(folder: Path) -> dict[str, Path]:
    """Return the .mat files in a folder by subject id."""
    files = {}
    for file in sorted(folder.glob("*.mat")):
        if match := _FILE.match(file.name):
            files[match[1]] = file
    if not files:
        raise DataError(
            "no ROISignals_S*-*-*.mat here.",
            where=folder,
            do="Give the shared folder, unpacked.",
        )
    return files


def _read(files: Mapping[str, Path], atlas: str, person: Participant) -> Reading:
    """Return a subject's FC, computed from an atlas's columns of its file.

    Parameters
    ----------
    files : mapping of subject id to Path
    atlas : str
        Key of `COLUMNS`.
    person : Participant
    """
    if (file := files.get(person.subject_id)) is None:
        raise DataError("is listed, but has no file.")
    values, _ = read_matrix_file(file, "ROISignals")
    with at(file.name):
        if (n := values.shape[1]) not in WIDTHS:
            raise DataError(f"{n} columns; shared files have 1568 or 1833.")
        first, last = COLUMNS[atlas]
        if n < last:
            message = (
                f"{n} columns, but atlas '{atlas}' is in columns {first} to {last}."
            )
            raise DataError(
                message, do="Leave the subject out, or choose another atlas."
            )
        fc = pearson_fc(values[:, first - 1 : last])
    names = aal116().roi_names if atlas == "aal" else ()
    return Reading(fc, {"n_volumes": len(values)}, names)


def read_subject_list(path: Path) -> dict[str, dict[str, float]]:
    """Return the covariates of each subject in the consortium's list of subjects.

    The list is a .mat file with SubID, Dx (+1 MDD, -1 control), Age, Sex, Edu, Site and Motion.

    Returns
    -------
    dict of subject id to dict of covariate to float

    Raises
    ------
    DataError
        For another file, or if Dx contradicts the ids.
    """
    data = read_mat(path)
    with at(path):
        if not {"SubID", "Dx"} <= data.keys():
            raise DataError(
                "is not the consortium's subject list.",
                do="It has SubID, Dx, Age, Sex, Edu, Site and Motion.",
            )
        ids = data["SubID"].tolist()
        dx = data["Dx"].ravel()
        known = {key: name for key, name in _LIST_COLUMNS.items() if key in data}
        columns = {name: data[key].ravel() for key, name in known.items()}
        if any(len(values) != len(ids) for values in (dx, *columns.values())):
            raise DataError("its columns differ in length.")
        labels = np.array([_label(subject) for subject in ids])
        wrong = int((labels != (dx > 0)).sum())  # Dx is 1 or -1, a label 1 or 0
        if wrong:
            raise DataError(f"Dx contradicts the id of {wrong} subjects.")
    covariates = {}
    for row, subject in enumerate(ids):
        covariates[subject] = {name: values[row] for name, values in columns.items()}
    return covariates


def _choose(
    subjects: Sequence[str], sites: Sequence[str] | Literal["all"]
) -> tuple[list[str], list[Fault]]:
    """Return the subjects of the given sites, ordered by site, and a warning if S4 was left out.

    Parameters
    ----------
    subjects : sequence of str
        Ids of all subjects.
    sites : sequence of str, or "all"
        As in `load_rest_meta_mdd`.
    """
    if any(not _ID.fullmatch(s) for s in subjects):
        raise DataError("an id in the list is not like S20-1-0001.")
    known = {_site(s) for s in subjects}
    faults = []
    if sites == "all":
        names = sorted(known - {TWICE}, key=lambda site: int(site[1:]))
        if TWICE in known:
            message = "holds subjects of S14 again and is left out."
            faults.append(Fault("warning", message, site=TWICE))
    else:
        names = list(sites)
        if TWICE in names:
            message = "holds subjects of S14 again."
            raise DataError(message, where=f"site {TWICE}", do="Do not name it.")
        check_names("REST-meta-MDD site", names, known)
    chosen = [s for s in subjects if _site(s) in names]
    return sorted(chosen, key=lambda s: (names.index(_site(s)), s)), faults


def _site(subject: str) -> str:
    """Return the site in a subject's id."""
    return subject.split("-")[0]


def _label(subject: str) -> int:
    """Return the class in a subject's id: 1 for MDD, 0 for controls."""
    # The slice, unlike an index, allows an id without a dash, which `_choose` refuses.
    return int(subject.split("-")[1:2] == ["1"])

"""REST-meta-MDD: DPARSF's ROI signals of 25 Chinese hospitals, one .mat per subject.

Not downloadable without an application, so this reads the folder as it is shared:
``Results/ROISignals_FunImgARCWF/ROISignals_S1-1-0001.mat`` with `ROISignals` (T, 1568 or 1833).
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from fcforge.core.errors import DataError, at
from fcforge.core.names import check_names
from fcforge.data.cohort import Cohort
from fcforge.data.participants import Listed, Participant, Reading, assemble
from fcforge.imaging.atlas import aal116
from fcforge.imaging.matrix_files import read_mat, read_matrix_file
from fcforge.imaging.series import pearson_fc

AAL = 116  # the first columns; other atlases follow
WIDTHS = (1568, 1569, 1833)  # of shared files
TWICE = "S4"  # its subjects are in S14, too
_LIST_COLUMNS = {"Age": "age", "Sex": "sex", "Edu": "education", "Motion": "mean_fd"}
_ID = re.compile(r"(S\d+)-([12])-(\d+)")
_FILE = re.compile(r"ROISignals_(S\d+-[12]-\d+)\.mat$")


def load_rest_meta_mdd(
    path: str | Path,
    *,
    sites: Sequence[str] = ("S1", "S9", "S14", "S20", "S21"),
    global_signal: bool = False,
    subjects: str | Path | None = None,
) -> Cohort:
    """REST-meta-MDD subjects as FC of AAL's ROIs.

    Parameters
    ----------
    path : path
        The shared folder: the .mat files are in its ``Results``.
    sites : sequence of str
        E.g. ``S20``. S4, which holds subjects of S14 again, is refused.
    global_signal : bool
        True reads ``FunImgARglobalCWF``, where DPARSF removed the global signal.
    subjects : path, optional
        ``Stat_Sub_Info_848MDDvs794NC.mat`` (Yan et al. 2019): keeps its subjects alone and adds
        age, sex, education and mean_fd.

    Returns
    -------
    Cohort
        Label 1 = MDD: the middle part of the id, ``S20-1-0001``, is 1 for MDD, 2 for control.
    """
    series = f"ROISignals_FunImgAR{'global' if global_signal else ''}CWF"
    folder = Path(path).expanduser() / "Results" / series
    listed = read_subject_list(Path(subjects)) if subjects else {}
    files = _files(folder)
    people = []
    for who in _choose(list(listed or files), sites):
        extra = listed.get(who, {})
        people.append(Participant(who, _site(who), _label(who), extra=extra))
    read = partial(_read, files)
    return assemble("rest_meta_mdd", Listed(people), read, folder)


def _files(folder: Path) -> dict[str, Path]:
    """File of each subject id."""
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


def _read(files: Mapping[str, Path], person: Participant) -> Reading:
    if (file := files.get(person.subject_id)) is None:
        raise DataError("is listed, but has no file.")
    values, _ = read_matrix_file(file, "ROISignals")
    with at(file.name):
        if (n := values.shape[1]) not in WIDTHS:
            raise DataError(f"{n} columns; shared files have 1568 or 1833.")
        fc = pearson_fc(values[:, :AAL])
    return Reading(fc, {"n_volumes": len(values)}, aal116().roi_names)


def read_subject_list(path: Path) -> dict[str, dict[str, float]]:
    """Covariates by id from the consortium's .mat.

    It has SubID, Dx (+1 MDD, -1 control), Age, Sex, Edu, Site and Motion.

    Raises
    ------
    DataError
        Not such a file, or its Dx contradicts the ids.
    """
    data = read_mat(path)
    with at(path):
        if not {"SubID", "Dx"} <= data.keys():
            raise DataError(
                "not the consortium's subject list.",
                do="It has SubID, Dx, Age, Sex, Edu, Site and Motion.",
            )
        ids = data["SubID"].tolist()
        dx = data["Dx"].ravel()
        known = {key: name for key, name in _LIST_COLUMNS.items() if key in data}
        columns = {name: data[key].ravel() for key, name in known.items()}
        if any(len(values) != len(ids) for values in (dx, *columns.values())):
            raise DataError("its columns differ in length.")
        labels = [_label(who) for who in ids]
        wrong = int((labels != (dx > 0)).sum())
        if wrong:
            raise DataError(f"Dx contradicts the id of {wrong} subjects.")
    found = {}
    for i, who in enumerate(ids):
        found[who] = {name: values[i] for name, values in columns.items()}
    return found


def _choose(subjects: Sequence[str], sites: Sequence[str]) -> list[str]:
    """Ids of the wanted sites, site by site as asked."""
    if any(not _ID.fullmatch(s) for s in subjects):
        raise DataError("an id in the list is not like S20-1-0001.")
    if TWICE in sites:
        what = "holds subjects of S14 again."
        raise DataError(what, where=f"site {TWICE}", do="Do not name it.")
    check_names("REST-meta-MDD site", sites, {_site(s) for s in subjects})
    chosen = [s for s in subjects if _site(s) in sites]
    return sorted(chosen, key=lambda s: (sites.index(_site(s)), s))


def _site(subject: str) -> str:
    return subject.split("-")[0]


def _label(subject: str) -> int:
    return int(subject.split("-")[1:2] == ["1"])

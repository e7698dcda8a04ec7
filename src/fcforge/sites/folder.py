"""A user's own data: one .npz of FC, or a participants.tsv with one file per subject."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np

from fcforge.components import check_names
from fcforge.errors import ConfigError, DataError
from fcforge.imaging.matrix_files import SUFFIXES, read_npz
from fcforge.sites.cohort import Cohort, Fault, as_text, fc_from_upper
from fcforge.sites.participants import (
    Participant,
    Reading,
    assemble,
    class_names,
    covariates_of,
    label_of,
    labels_by_positive,
    owns_file,
    read_participants,
    roi_names_of,
    table_in,
)
from fcforge.sites.reading import Kind, read_named, to_fc

REQUIRED = ("label", "site", "subject_id")


class _Asked(NamedTuple):
    """Settings of `load_folder` that say how files are read."""

    kind: Kind
    labels: Mapping[str, int]
    pattern: str
    variable: str | None
    n_rois: int | None
    positive: str | None


def load_folder(
    path: str | Path,
    kind: Kind = "auto",
    sites: Sequence[str] | None = None,
    merge: Mapping[str, Sequence[str]] | None = None,
    labels: Mapping[str, int] | None = None,
    pattern: str = "",
    variable: str | None = None,
    n_rois: int | None = None,
    covariates: str | Path | None = None,
    positive: str | None = None,
) -> Cohort:
    """Load a dataset from one .npz file or from a folder.

    *One .npz*: arrays ``fc_upper`` (n, R (R - 1) / 2) or ``fc`` (n, R, R), ``label``, ``site``,
    ``subject_id``; every other array with one row per subject becomes a covariate. Nothing
    pickled is read.

    *A folder*: ``participants.tsv`` (or .csv) with columns for id, site and diagnosis, and one
    file per subject, anywhere below, whose name starts with the id. Trouble with one subject
    (no file, a damaged one, an unknown diagnosis) does not stop the loading: it becomes a
    fault of the cohort, and `require_valid` refuses to train.

    Parameters
    ----------
    path : str or Path
    kind : {"auto", "fc", "fisher_z", "timeseries"}
        What the files of a folder hold; see `to_fc`.
    sites : sequence of str, optional
        Keep these sites (after merging), in this order.
    merge : mapping of str to sequence of str, optional
        Sites to merge, e.g. ``{"UM": ["UM_1", "UM_2"]}``.
    labels : mapping of str to int, optional
        What diagnosis values mean, e.g. ``{"2": 0, "1": 1}``, on top of the known ones.
    pattern : str, optional
        File name of a subject relative to the folder, with ``{id}`` and wildcards, e.g.
        ``"func/{id}_*.1D"``; needed when a subject has several files.
    variable : str, optional
        Array to take from each .npz or .mat file.
    n_rois : int, optional
        Expected ROI count; by default the most frequent one.
    covariates : str or Path, optional
        Another .npz with ``subject_id`` and further covariates of these subjects, e.g. head
        motion; who is not in it has none.
    positive : str, optional
        The patients' diagnosis as the data write it, e.g. ``"ASD"``; the only other one is the
        controls'. Needed where they are neither 0 and 1 nor words that say it.

    Returns
    -------
    Cohort
    """
    path = Path(path).expanduser()
    check_names("kind", [kind], get_args(Kind))
    if not path.exists():
        raise DataError("no such file or folder.", where=str(path), do="Check the path.")
    asked = _Asked(kind, labels or {}, pattern, variable, n_rois, positive)
    cohort = _from_folder(path, asked) if path.is_dir() else _from_npz(path, asked)
    if covariates is not None:
        cohort = with_covariates(cohort, Path(covariates).expanduser())
    cohort = cohort.merge_sites(merge) if merge else cohort
    cohort = cohort if sites is None else cohort.select_sites(sites)
    return cohort.stamped(path=str(path))


def with_covariates(cohort: Cohort, path: Path) -> Cohort:
    """The cohort with the covariates of another file, joined by subject id."""
    arrays = read_npz(path)
    if "subject_id" not in arrays:
        raise DataError("array 'subject_id' is missing.", where=str(path), do="Add it.")
    place = {who: k for k, who in enumerate(as_text(arrays["subject_id"]).tolist())}
    rows = np.array([place.get(who, -1) for who in cohort.subject_id.tolist()])
    added = {
        name: np.where(rows >= 0, values[rows].astype(float), np.nan)
        for name, values in arrays.items()
        if values.shape == (len(place),) and values.dtype.kind in "fiu" and name not in REQUIRED
    }
    if not added or not (rows >= 0).any():
        raise DataError("holds no covariate of these subjects.", where=str(path))
    return replace(cohort, covariates={**added, **cohort.covariates})


def _from_npz(path: Path, asked: _Asked) -> Cohort:
    if path.suffix.lower() != ".npz":
        do = "Give the folder instead when it holds one file per subject."
        what = f"a dataset in one file is an .npz, not '{path.suffix}'."
        raise DataError(what, where=str(path), do=do)
    arrays = read_npz(path)
    _require_arrays(arrays, path)
    fc = _npz_fc(arrays, path)
    if asked.n_rois not in (None, fc.shape[1]):
        what = f"FC has {fc.shape[1]} ROIs, {asked.n_rois} were expected."
        raise DataError(what, where=str(path))
    ids, site = as_text(arrays["subject_id"]), as_text(arrays["site"])
    said = [f"{v:g}" if isinstance(v, float) else str(v) for v in arrays["label"].tolist()]
    labels = {**asked.labels, **labels_by_positive(said, asked.positive)}
    y, faults = _npz_labels(arrays["label"], said, labels, ids, site)
    own = {k: v for k, v in arrays.items() if k not in REQUIRED and not k.startswith("roi_")}
    names, more = roi_names_of(arrays, fc.shape[1]), covariates_of(own, len(fc))
    classes = class_names(said, y)
    return Cohort("folder", fc, y, site, ids, names, more, faults=tuple(faults), classes=classes)


def _require_arrays(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    missing = [k for k in REQUIRED if k not in arrays]
    if not {"fc_upper", "fc"} & arrays.keys():
        missing = ["fc_upper", *missing]
    if missing:
        raise DataError(
            f"array {', '.join(repr(m) for m in missing)} is missing.",
            where=str(path),
            do=f"It has: {', '.join(sorted(arrays)) or 'nothing'}. "
            "Call them fc (or fc_upper), label, site and subject_id.",
        )


def _npz_fc(arrays: Mapping[str, np.ndarray], path: Path) -> np.ndarray:
    name = "fc_upper" if "fc_upper" in arrays else "fc"
    values = arrays[name]
    n_axes = 2 if name == "fc_upper" else 3
    if values.ndim != n_axes or values.dtype.kind not in "fiu":
        what = f"'{name}' has shape {values.shape} and type {values.dtype}."
        do = "fc_upper is (subjects, edges), fc is (subjects, ROIs, ROIs); both numbers."
        raise DataError(what, where=str(path), do=do)
    fc = fc_from_upper(values, str(path)) if name == "fc_upper" else values.astype(np.float32)
    for row in REQUIRED:
        if arrays[row].shape != values.shape[:1]:
            what = f"'{row}' has shape {arrays[row].shape}, but there are {len(values)} subjects."
            do = "Every array needs one row per subject."
            raise DataError(what, where=str(path), do=do)
    return fc


def _npz_labels(
    values: np.ndarray,
    said: Sequence[str],
    labels: Mapping[str, int],
    ids: np.ndarray,
    site: np.ndarray,
) -> tuple[np.ndarray, list[Fault]]:
    """Labels as integers, and faults for words that are not a known diagnosis (they become -1).

    Integers stay as they are: `check_cohort` judges them.
    """
    if values.dtype.kind in "iub" and not labels:
        return values.astype(np.int64), []
    out, faults = np.full(len(values), -1, dtype=np.int64), []
    for i, text in enumerate(said):
        try:
            out[i] = label_of(text, labels=labels)
        except DataError as error:
            faults.append(Fault.of(error, str(ids[i]), str(site[i])))
    return out, faults


def _from_folder(path: Path, asked: _Asked) -> Cohort:
    table = table_in(path)
    if table is None:
        archives = sorted(path.glob("*.npz"))
        if len(archives) == 1:
            return _from_npz(archives[0], asked)
        what = "has no participants.tsv."
        do = "Write one with columns participant_id, site, diagnosis (tab-separated)."
        raise DataError(what, where=str(path), do=do)
    people, faults = read_participants(table, asked.labels, asked.positive)
    files = _Files(path, asked.pattern)

    def read(person: Participant) -> Reading:
        file = files.of(person)
        matrix, names = read_named(file, asked.variable)
        fc = to_fc(matrix, asked.kind, str(file))
        return Reading(fc, roi_names=names[: len(fc)])

    return assemble("folder", people, read, faults=faults, n_rois=asked.n_rois)


class _Files:
    """Finds the file of a subject below a folder."""

    def __init__(self, root: Path, pattern: str) -> None:
        self.root, self.pattern = root, pattern
        if pattern and "{id}" not in pattern:
            raise ConfigError(f"pattern '{pattern}' has no {{id}}.", do="E.g. '{id}_*.1D'.")
        tables = {root / "participants.tsv", root / "participants.csv"}
        found = [] if pattern else sorted(p for p in root.rglob("*") if p not in tables)
        self.files = [p for p in found if p.suffix.lower() in SUFFIXES and p.is_file()]

    def of(self, person: Participant) -> Path:
        """The one file of a subject; an error when there is none or more than one."""
        if person.file:
            return self.root / person.file
        names = [person.subject_id, f"sub-{person.subject_id}"]
        if self.pattern:
            found = sorted({p for n in names for p in self.root.glob(self.pattern.format(id=n))})
        else:
            found = [p for p in self.files if owns_file(p.name, person.subject_id)]
        if len(found) == 1:
            return found[0]
        if not found:
            what = "is listed, but has no file."
            do = f"A file name starts with the id and ends in {', '.join(SUFFIXES)}."
            raise DataError(what, do=do)
        shown = ", ".join(str(p.relative_to(self.root)) for p in found[:3])
        raise DataError(
            f"has {len(found)} files ({shown}).", do="Say which with pattern='{id}_...'."
        )

"""A user's own data: one .npz of FC, or a participants.tsv with one file per subject.

B-SNIP, which has no public layout (access is by application), is such a folder.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np

from fcforge.components import check_names
from fcforge.errors import ConfigError, DataError
from fcforge.imaging.matrix_files import SUFFIXES, read_matrix_file, read_npz
from fcforge.sites import participants
from fcforge.sites.cohort import Cohort, Fault, as_text, fc_from_upper
from fcforge.sites.participants import Participant, Reading
from fcforge.sites.reading import Kind, to_fc

REQUIRED = ("label", "site", "subject_id")
BSNIP_LABELS = {
    "HC": 0,
    "NC": 0,
    "Normal Control": 0,
    "Healthy Control": 0,
    "SZ": 1,
    "SZP": 1,
    "Schizophrenia": 1,
    "Schizophrenia Proband": 1,
}
_UNKNOWN = "unknown diagnosis"


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
    if table := participants.table_in(path):
        people, faults = participants.read_participants(table, labels, positive)
        read = _Files(path, pattern, kind, variable).read
        cohort = participants.assemble(
            "folder", people, read, faults=faults, n_rois=n_rois
        )
    else:
        cohort = _from_npz(_archive(path), labels or {}, n_rois, positive)
    if covariates is not None:
        cohort = with_covariates(cohort, Path(covariates).expanduser())
    cohort = cohort.merge_sites(merge) if merge else cohort
    return (cohort if sites is None else cohort.select_sites(sites)).stamped(
        path=str(path)
    )


def load_bsnip(
    path: str | Path,
    *,
    sites: Sequence[str] | None = None,
    kind: Kind = "auto",
    labels: Mapping[str, int] | None = None,
    pattern: str = "",
    variable: str | None = None,
    n_rois: int | None = None,
) -> Cohort:
    """B-SNIP subjects as FC: schizophrenia against controls, as in the paper.

    The folder may hold FC, ROI time series, or the output of ``fcforge fc``. Schizoaffective and
    bipolar probands and relatives are left out.

    Parameters
    ----------
    path : path
        Folder with ``participants.tsv`` (participant_id, site, diagnosis) and one file per
        subject; see `load_folder` for `kind`, `pattern`, `variable` and `n_rois`.
    sites : sequence of str, optional
        Site names as in the table; never taken for numbers.
    labels : mapping of str to int, optional
        Further diagnosis values, on top of HC / NC (0) and SZ / SZP (1).

    Returns
    -------
    Cohort
        Label 1 = schizophrenia.
    """
    known = {**BSNIP_LABELS, **(labels or {})}
    cohort = load_folder(path, kind, None, None, known, pattern, variable, n_rois)
    others = [f for f in cohort.faults if _UNKNOWN in f.what]
    faults = [f for f in cohort.faults if _UNKNOWN not in f.what]
    if others:
        names = ", ".join(sorted({f.what.split("'")[1] for f in others}))
        what = (
            f"{len(others)} subjects are neither controls nor schizophrenia ({names})."
        )
        do = "They are left out; to keep them, say in `labels` what they are."
        faults.append(Fault("warning", what, do))
    cohort = replace(cohort, name="bsnip", faults=tuple(faults))
    return (cohort if sites is None else cohort.select_sites(sites)).stamped(
        dataset="bsnip"
    )


def with_covariates(cohort: Cohort, path: Path) -> Cohort:
    """The cohort with the covariates of another file, joined by subject id."""
    arrays = read_npz(path)
    if "subject_id" not in arrays:
        raise DataError("array 'subject_id' is missing.", where=path, do="Add it.")
    place = {who: k for k, who in enumerate(as_text(arrays["subject_id"]).tolist())}
    rows = np.array([place.get(who, -1) for who in cohort.subject_id.tolist()])
    added = {
        name: np.where(rows >= 0, values[rows].astype(float), np.nan)
        for name, values in arrays.items()
        if values.shape == (len(place),)
        and values.dtype.kind in "fiu"
        and name not in REQUIRED
    }
    if not added or not (rows >= 0).any():
        raise DataError("holds no covariate of these subjects.", where=path)
    return replace(cohort, covariates={**added, **cohort.covariates})


def _archive(path: Path) -> Path:
    """The dataset in one file: an .npz, or the only one of a folder without a table."""
    if not path.exists():
        raise DataError("no such file or folder.", where=path, do="Check the path.")
    archives = sorted(path.glob("*.npz")) if path.is_dir() else [path]
    if len(archives) != 1:
        do = "Write one with columns participant_id, site, diagnosis (tab-separated)."
        raise DataError("has no participants.tsv.", where=path, do=do)
    if archives[0].suffix.lower() != ".npz":
        what = f"a dataset in one file is an .npz, not '{path.suffix}'."
        do = "Give the folder instead when it holds one file per subject."
        raise DataError(what, where=path, do=do)
    return archives[0]


def _from_npz(
    path: Path, labels: Mapping[str, int], n_rois: int | None, positive: str | None
) -> Cohort:
    arrays = read_npz(path)
    fc = _npz_fc(arrays, path)
    if n_rois not in (None, fc.shape[1]):
        raise DataError(
            f"FC has {fc.shape[1]} ROIs, {n_rois} were expected.", where=path
        )
    values = arrays["label"]
    ids = as_text(arrays["subject_id"])
    site = as_text(arrays["site"])
    said = [f"{v:g}" if isinstance(v, float) else str(v) for v in values.tolist()]
    labels = {**labels, **participants.labels_by_positive(said, positive)}
    # Integers stay as they are, `check_cohort` judges them; an unknown word becomes -1.
    plain = values.dtype.kind in "iub" and not labels
    faults = list[Fault]()
    y = values.astype(np.int64) if plain else np.full(len(said), -1, dtype=np.int64)
    for i, text in enumerate(() if plain else said):
        try:
            y[i] = participants.label_of(text, labels=labels)
        except DataError as error:
            faults.append(Fault.of(error, str(ids[i]), str(site[i])))
    own = {
        k: v
        for k, v in arrays.items()
        if k not in REQUIRED and not k.startswith("roi_")
    }
    names = participants.roi_names_of(arrays, fc.shape[1])
    people = fc, y, site, ids, names, participants.covariates_of(own, len(fc))
    classes = participants.class_names(said, y)
    return Cohort("folder", *people, faults=tuple(faults), classes=classes)


def _npz_fc(arrays: Mapping[str, np.ndarray], path: Path) -> np.ndarray:
    """FC of an .npz that has all the arrays it needs, one row per subject."""
    name = "fc" if "fc" in arrays and "fc_upper" not in arrays else "fc_upper"
    if missing := [repr(k) for k in (name, *REQUIRED) if k not in arrays]:
        has = f"It has: {', '.join(sorted(arrays)) or 'nothing'}."
        do = f"{has} Call them fc (or fc_upper), label, site and subject_id."
        raise DataError(f"array {', '.join(missing)} is missing.", where=path, do=do)
    values = arrays[name]
    if values.ndim != (3 if name == "fc" else 2) or values.dtype.kind not in "fiu":
        what = f"'{name}' has shape {values.shape} and type {values.dtype}."
        do = (
            "fc_upper is (subjects, edges), fc is (subjects, ROIs, ROIs); both numbers."
        )
        raise DataError(what, where=path, do=do)
    for row in REQUIRED:
        if arrays[row].shape != values.shape[:1]:
            what = f"'{row}' has shape {arrays[row].shape}, but there are {len(values)} subjects."
            raise DataError(
                what, where=path, do="Every array needs one row per subject."
            )
    return (
        values.astype(np.float32) if name == "fc" else fc_from_upper(values, str(path))
    )


class _Files:
    """Finds and reads the file of a subject below a folder."""

    def __init__(
        self, root: Path, pattern: str, kind: Kind, variable: str | None
    ) -> None:
        self.root = root
        self.pattern = pattern
        self.kind = kind
        self.variable = variable
        if pattern and "{id}" not in pattern:
            raise ConfigError(
                f"pattern '{pattern}' has no {{id}}.", do="E.g. '{id}_*.1D'."
            )
        tables = {root / "participants.tsv", root / "participants.csv"}
        found = [] if pattern else sorted(p for p in root.rglob("*") if p not in tables)
        self.files = [p for p in found if p.suffix.lower() in SUFFIXES and p.is_file()]

    def read(self, person: Participant) -> Reading:
        """FC of a subject and the names of its ROIs."""
        file = self.of(person)
        matrix, names = read_matrix_file(file, self.variable)
        fc = to_fc(matrix, self.kind, str(file))
        return Reading(fc, roi_names=names[: len(fc)])

    def of(self, person: Participant) -> Path:
        """The one file of a subject; an error when there is none or more than one."""
        if person.file:
            return self.root / person.file
        names = [person.subject_id, f"sub-{person.subject_id}"]
        if self.pattern:
            found = sorted(
                {p for n in names for p in self.root.glob(self.pattern.format(id=n))}
            )
        else:
            found = [
                p
                for p in self.files
                if participants.owns_file(p.name, person.subject_id)
            ]
        if len(found) == 1:
            return found[0]
        if not found:
            do = f"A file name starts with the id and ends in {', '.join(SUFFIXES)}."
            raise DataError("is listed, but has no file.", do=do)
        shown = ", ".join(str(p.relative_to(self.root)) for p in found[:3])
        what = f"has {len(found)} files ({shown})."
        raise DataError(what, do="Say which with pattern='{id}_...'.")

"""A user's own data: FC or time series in one file for all, or one file per subject.

B-SNIP, which has no public layout (access is by application), is such a folder.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fcforge.imaging.matrix_files import SUFFIXES, TEXT, read_npz, read_table
from fcforge.imaging.parsers import as_numbers
from fcforge.messages import ConfigError, DataError, at, counted, some
from fcforge.sites import participants
from fcforge.sites.cohort import Cohort, Fault, as_text
from fcforge.sites.diagnoses import CONTROLS, DISORDERS, Groups, Words
from fcforge.sites.participants import Listed, Participant, Read, Reading
from fcforge.sites.reading import ARRAYS, Kind, npz_rows, read_fc, scan_files
from fcforge.sites.vectors import rows_as_fc
from fcforge.types import Target

Named = Mapping[str, str]  # column of a role
EDGE = re.compile(r".+~.+|edge_?\d+", re.IGNORECASE)  # its column in a table


def load_folder(
    path: str | Path,
    kind: Kind = "auto",
    sites: Sequence[str] | None = None,
    merge: Mapping[str, Sequence[str]] | None = None,
    pattern: str = "**/*",
    variable: str | None = None,
    covariates: str | Path | None = None,
    positive: Words = None,
    negative: Words = None,
    columns: Mapping[str, str] | None = None,
    drop_unlabelled: bool = False,
    classes: tuple[str, ...] = (),
    target: str = "diagnosis",
    partial: bool = False,
) -> Cohort:
    """Load a dataset from one file or from a folder.

    *One .npz*: arrays ``fc_upper`` (n, R (R - 1) / 2) or ``fc`` (n, R, R), ``label``, ``site``,
    ``subject_id``; every other array with one row per subject becomes a covariate. Nothing
    pickled is read.

    *One table* (.tsv, .csv): a row per subject with id, site, diagnosis and its edges, in columns
    ``Hip_L~Hip_R`` or ``edge_1``, ``edge_2``, ... (`fcforge.sites.vectors`).

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
    pattern : str
        Files of the folder that are looked at, e.g. ``"**/*_relmat.tsv"``; needed when a subject
        has several files.
    variable : str, optional
        Array to take from each .npz or .mat file.
    covariates : str or Path, optional
        Another .npz (with ``subject_id``) with further covariates of these subjects such as
        head motion; who is not in it has none.
    positive, negative : str or sequence of str, optional
        The patients' and the controls' diagnoses as the data write them, e.g. ``"ASD"``; with
        one of them, the only other diagnosis is the other group. Needed where they are neither 0
        and 1 nor words that say it, or where there are more than two. Others are left out.
    columns : mapping of role to column, optional
        Columns (arrays) without a usual name, e.g. ``{"site": "scanner_site", "label": "dx"}``;
        roles are id, site, label and file.
    drop_unlabelled : bool
        Leave people without a diagnosis out instead of refusing them.
    classes : tuple of str
        Three or more groups, controls first, e.g. ``("HC", "SZ", "BP")``; several diagnoses in
        one of them are joined by commas, others are left out.
    target : str
        What is learned; where it is a covariate, diagnoses are neither needed nor looked at.
    partial : bool
        Some of `classes` need not be there: a hospital has not every disorder.

    Returns
    -------
    Cohort
    """
    path = Path(path).expanduser()
    with at(participants.table_in(path) or path):
        listed, read = _open(path, columns or {}, pattern, kind, variable)
        if target == "diagnosis":
            column = listed.label_column
            if listed.people and not column:
                raise participants.no_column("label", [*listed.people[0].extra])
            said = [person.diagnosis for person in listed.people]
            groups = Groups.of(said, positive, negative, column, classes, partial)
            listed = participants.labelled(listed, groups, drop_unlabelled)
        elif positive or negative or classes or drop_unlabelled:
            what = f"target = '{target}' is a number, and groups are of a diagnosis."
            do = "Leave out positive, negative, classes and drop_unlabelled."
            raise ConfigError(what, do=do)
    cohort = participants.assemble("folder", listed, read, path)
    if classes:
        names = tuple("/".join(map(str.strip, group.split(","))) for group in classes)
        cohort = replace(cohort, target=Target(classes=names))
    if covariates is not None:
        with at(covariates):
            cohort = with_covariates(cohort, Path(covariates).expanduser())
    return cohort.merge_sites(merge or {}).select_sites(sites)


def load_bsnip(
    path: str | Path,
    *,
    sites: Sequence[str] | None = None,
    classes: tuple[str, ...] = (),
) -> Cohort:
    """B-SNIP subjects as FC: schizophrenia against controls, as in the paper.

    The folder may hold FC, ROI time series, or the output of ``fcforge fc``. Schizoaffective and
    bipolar probands and relatives are left out, unless `classes` lists them.

    Parameters
    ----------
    path : path
        Folder with ``participants.tsv`` (participant_id, site, diagnosis) and one file per
        subject. What needs more settings is loaded as a `folder`.
    sites : sequence of str, optional
        Site names as in the table; never taken for numbers.
    classes : tuple of str
        Three or more groups instead, e.g. ``("HC", "SZ", "SZA", "BP")``.

    Returns
    -------
    Cohort
        Label 1 = schizophrenia, or the place in `classes`.
    """
    groups: dict[str, Any] = {"classes": classes}
    if not classes:
        groups = {"positive": DISORDERS["SZ"], "negative": CONTROLS}
    cohort = load_folder(path, sites=sites, **groups)
    return replace(cohort, name="bsnip")


def with_covariates(cohort: Cohort, path: Path) -> Cohort:
    """The cohort with the covariates of an .npz, joined by subject id."""
    arrays = read_npz(path)
    ids = as_text(arrays.get("subject_id", ()))
    place = {who: k for k, who in enumerate(ids.tolist())}
    if len(place) < len(ids):
        raise DataError("names a subject twice.", do="Keep one row each.")
    rows = np.array([place.get(who, -1) for who in cohort.subject_id.tolist()])
    known = rows >= 0
    if not known.any():
        raise DataError("holds none of these subjects (array 'subject_id').")
    added = {}
    for name, values in arrays.items():
        numbers = values.shape == ids.shape and values.dtype.kind in "fiu"
        if numbers and name not in ARRAYS:
            added[name] = np.where(known, values[rows].astype(float), np.nan)
    return replace(cohort, covariates={**added, **cohort.covariates})


def _open(
    path: Path, named: Named, pattern: str, kind: Kind, variable: str | None
) -> tuple[Listed, Read]:
    """People of a folder with a table, of a table of edges, or of an .npz; how to read one."""
    if not path.exists():
        raise DataError("no such file or folder.", do="Check the path.")
    if table := participants.table_in(path):
        files = _Files(path, scan_files(path, pattern))
        listed = participants.people_of(read_table(table), named)
        return listed._replace(
            faults=[*listed.faults, *files.of_nobody(listed, table.name)]
        ), lambda person: read_fc(files.of(person), kind, variable)
    if path.suffix.lower() in TEXT:
        return _table_of_edges(read_table(path), named, kind)
    if path.suffix.lower() != ".npz":
        do = "Write one with columns participant_id, site, diagnosis (tab-separated)."
        raise DataError("is no .npz, and has no participants.tsv in it.", do=do)
    rows, read = npz_rows(read_npz(path), kind)
    return participants.people_of(rows, named), read


def _table_of_edges(
    rows: list[dict[str, str]], named: Named, kind: Kind
) -> tuple[Listed, Read]:
    names = [name for name in rows[0] if EDGE.fullmatch(name)]
    if not names:
        do = "Name edges by two ROIs (Hip_L~Hip_R) or number them (edge_1, edge_2, ..)."
        raise DataError("has no columns of edges.", do=do)
    cells = [[row.pop(name) for name in names] for row in rows]
    edges = as_numbers(cells, range(2, len(rows) + 2))  # as a spreadsheet counts
    fc, rois = rows_as_fc(np.tanh(edges) if kind == "fisher_z" else edges, names)
    numbered = [{**row, "file": str(k)} for k, row in enumerate(rows)]

    def read(person: Participant) -> Reading:
        return Reading(fc[int(person.file)], roi_names=rois)

    return participants.people_of(numbered, named), read


# -- one file per subject --------------------------------------------------------------------------
class _Files(NamedTuple):
    """A folder, and what may be files of subjects below it."""

    root: Path
    there: list[Path]

    def of(self, person: Participant) -> Path:
        """The one file of a subject; an error when there is none or more than one."""
        if person.file not in ("", "n/a"):
            return self.root / person.file
        found = self.owned(person.subject_id)
        if not found:
            raise DataError(
                "is listed, but has no file.",
                do=f"A file name starts with the id and ends in {', '.join(SUFFIXES)}.",
            )
        if len(found) > 1:
            told = some(path.name for path in found)
            do = "Say which: --set 'dataset.pattern=**/*_relmat.tsv', for example."
            raise DataError(f"has {len(found)} files ({told}).", do=do)
        return found[0]

    def owned(self, subject: str) -> list[Path]:
        """All files of a subject; 50952 owns sub-0050952.tsv."""
        own = participants.owns_file
        return [path for path in self.there if own(path.name, subject)]

    def of_nobody(self, listed: Listed, table: str) -> list[Fault]:
        """A warning that lists the files that belong to nobody in the table."""
        if not listed.people or any(person.file for person in listed.people):
            return []
        known = [one.subject_id for one in listed.people]
        known += [fault.subject for fault in listed.faults]
        owned = {path for subject in known for path in self.owned(subject)}
        others = [path.name for path in self.there if path not in owned]
        if not others:
            return []
        what = f"{counted(len(others), 'file')} of nobody in {table}: {some(others)}."
        return [Fault("warning", what, "Not loaded; add rows, or take the files away.")]

"""Scans that look like one person: two ids with nearly the same FC, within or across data sets."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from fcforge.errors import DataError
from fcforge.sites.cohort import Cohort, upper_from_fc
from fcforge.types import Site

ALIKE = 0.9  # edge correlation; two people are below it, two halves of one scan often above
ALIKE_FEW, FEW = 0.98, 1_000  # with fewer edges strangers are alike
MIN_ROIS = 10


class Twins(NamedTuple):
    """Two scans that look like one person: their ids and edge correlation."""

    first: str
    second: str
    correlation: float


def _unit(x: np.ndarray) -> np.ndarray:
    """Rows with mean zero and norm one; a constant row becomes zero."""
    x = x - x.mean(1, keepdims=True)
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)


def _alike(fc: np.ndarray, other: np.ndarray, limit: float) -> tuple[np.ndarray, np.ndarray]:
    """Edge correlation (n, m) of scans, and which pairs look like one person."""
    a, b = (upper_from_fc(x).astype(np.float32) for x in (fc, other))
    r = _unit(a) @ _unit(b).T
    return r, r > (limit if a.shape[1] >= FEW else max(limit, ALIKE_FEW))


def twins_within(fc: np.ndarray, ids: np.ndarray, limit: float = ALIKE) -> list[Twins]:
    """Pairs of scans of one data set that look like one person, in the order of the rows."""
    r, found = _alike(fc, fc, limit)
    pairs = np.argwhere(np.triu(found, 1))
    return [Twins(str(ids[i]), str(ids[j]), float(r[i, j])) for i, j in pairs]


def twins_across(
    fc: np.ndarray, ids: np.ndarray, other: np.ndarray, other_ids: np.ndarray, limit: float = ALIKE
) -> list[Twins]:
    """Pairs of one scan of each of two data sets that look like one person or share an id."""
    r, found = _alike(fc, other, limit)
    found |= np.asarray(ids)[:, None] == np.asarray(other_ids)[None, :]
    return [Twins(str(ids[i]), str(other_ids[j]), float(r[i, j])) for i, j in np.argwhere(found)]


def near_duplicates(cohort: Cohort) -> list[Twins]:
    """Twins of a cohort, found once; none where its ROIs are too few to tell people apart."""
    if cohort.n_rois < MIN_ROIS:
        return []
    if "twins" not in cohort.known:
        cohort.known["twins"] = twins_within(cohort.fc, cohort.subject_id)
    return cohort.known["twins"]


def without_twins(cohort: Cohort) -> tuple[Cohort, list[str]]:
    """The cohort without the second of any two scans that look like one person, and who that is."""
    twice = sorted({pair.second for pair in twins_within(cohort.fc, cohort.subject_id)})
    return cohort.select(~np.isin(cohort.subject_id, twice)), twice


def refuse_twins(cohort: Cohort, sites: Iterable[Site]) -> None:
    """Raise `DataError` for twins of which one is trained on and the other tested.

    The test would then measure memory. A cohort with ``allow_duplicates`` passes.
    """
    if cohort.allow_duplicates:
        return
    tested = {
        subject: split == "test"
        for site in sites
        for split, ids in site.subject_ids.items()
        for subject in ids
    }
    for one, other, r in near_duplicates(cohort):
        if one in tested and other in tested and tested[one] != tested[other]:
            raise DataError(
                f"subjects '{one}' and '{other}' look like one scan (edges correlate {r:.3f}), one "
                "in training and one in test.",
                where=str(cohort.provenance.get("path", "")),
                do=f"In [dataset]: leave_out = ['{other}'], or allow_duplicates = true.",
            )

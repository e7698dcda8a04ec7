"""One scan under two ids: pairs of subjects whose FC is all but the same.

Left alone, such a pair may lie in train and test, and the test then measures memory. Two people
are alike in what all people share, so both the edges as they are and what is left of their Fisher
z without the cohort's mean have to agree. In ABIDE three pairs do (edges 0.98, 0.94, 0.91; rest
0.97, 0.90, 0.87); the next pair of 1,098 subjects reaches 0.70 and 0.44.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from fcforge.errors import DataError
from fcforge.sites.cohort import Cohort, upper_from_fc
from fcforge.types import Site

ALIKE, ALIKE_WITHOUT_MEAN = 0.9, 0.85
MIN_EDGES = 300  # 25 ROIs; with fewer, strangers are alike by chance
ROWS_AT_ONCE = 500


class Twins(NamedTuple):
    """Two scans that look like one: their ids and the correlation of their edges."""

    first: str
    second: str
    correlation: float


def twins_within(fc: np.ndarray, ids: np.ndarray) -> list[Twins]:
    """Pairs of scans (n, R, R) of one data set that look like one, in the order of the rows."""
    edges = upper_from_fc(fc).astype(np.float32)
    if edges.shape[1] < MIN_EDGES:
        return []
    z = np.arctanh(np.clip(edges, -0.9999, 0.9999))
    rest = _unit(z - z.mean(axis=0))
    found = []
    for start in range(0, len(rest), ROWS_AT_ONCE):
        alike = rest[start : start + ROWS_AT_ONCE] @ rest.T
        for row, j in np.argwhere(alike > ALIKE_WITHOUT_MEAN):
            i = start + row
            one, other = _unit(edges[[i, j]])
            if i < j and one @ other > ALIKE:
                found.append(Twins(str(ids[i]), str(ids[j]), float(one @ other)))
    return found


def twins_across(
    fc: np.ndarray, ids: np.ndarray, other: np.ndarray, other_ids: np.ndarray
) -> list[Twins]:
    """Pairs of one scan of each of two data sets that look like one or share an id."""
    r = _unit(upper_from_fc(fc)) @ _unit(upper_from_fc(other)).T
    same = np.asarray(ids)[:, None] == np.asarray(other_ids)[None, :]
    found = np.argwhere((r > ALIKE) | same)
    return [Twins(str(ids[i]), str(other_ids[j]), float(r[i, j])) for i, j in found]


def near_duplicates(cohort: Cohort) -> list[Twins]:
    """Twins of a cohort, found once."""
    if "twins" not in cohort.known:
        cohort.known["twins"] = twins_within(cohort.fc, cohort.subject_id)
    return cohort.known["twins"]


def _unit(x: np.ndarray) -> np.ndarray:
    """Rows without their mean, of length 1, so that products are correlations."""
    x = x - x.mean(axis=1, keepdims=True)
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)


def refuse_twins(cohort: Cohort, sites: Iterable[Site]) -> None:
    """Raise `DataError` for a pair of near-duplicates with one in training and one in test.

    A cohort with ``allow_duplicates`` passes.
    """
    if cohort.allow_duplicates:
        return
    part: Mapping[str, bool] = {
        subject: split == "test"
        for site in sites
        for split, ids in site.subject_ids.items()
        for subject in ids
    }
    for one, other, r in near_duplicates(cohort):
        if one in part and other in part and part[one] != part[other]:
            raise DataError(
                f"subjects '{one}' and '{other}' look like one scan (edges correlate {r:.3f}), one "
                "in training and one in test.",
                where=str(cohort.provenance.get("path", "")),
                do=f"In [dataset]: leave_out = ['{other}'], or allow_duplicates = true.",
            )

"""Duplicate scans: pairs of scans that look like one person.

Shapes: n and m scans of two sets, R ROIs, E = R (R - 1) / 2 edges.
"""

from typing import NamedTuple

import numpy as np

from fcforge.data.edges import upper_from_fc

# Edge correlation above which two scans look like one person. Two people correlate less; two
# halves of one scan often more.
SAME_PERSON = 0.9
FEW = (
    1_000  # edges; with fewer, scans of two people correlate more, hence the next limit
)
SAME_PERSON_FEW_EDGES = 0.98


class DuplicatePair(NamedTuple):
    """Two scans that look like one person: their ids and the correlation of their edges."""

    first: str
    second: str
    correlation: float


def find_duplicates(
    fc: np.ndarray,
    ids: np.ndarray,
    other: np.ndarray | None = None,
    other_ids: np.ndarray | None = None,
) -> list[DuplicatePair]:
    """Return pairs of scans that look like one person, in the order of the rows.

    Parameters
    ----------
    fc : ndarray of shape (n, R, R)
        Scans of the first data set.
    ids : ndarray of shape (n,), str
        Their ids.
    other : ndarray of shape (m, R, R), optional
        Second data set. Each pair then has one scan from each set, and scans with the same id
        count as duplicates, too.
    other_ids : ndarray of shape (m,), str, optional
        Ids of `other`; given if and only if `other` is.
    """
    edges = unit_edges(fc)
    correlation = edges @ (edges if other is None else unit_edges(other)).T
    limit = SAME_PERSON if edges.shape[1] >= FEW else SAME_PERSON_FEW_EDGES
    duplicate = correlation > limit
    if other_ids is None:
        other_ids = ids
        duplicate = np.triu(duplicate, 1)  # each pair once, no scan with itself
    else:
        duplicate |= ids[:, None] == other_ids[None, :]
    pairs = []
    for i, j in np.argwhere(duplicate):
        r = float(correlation[i, j])
        pairs.append(DuplicatePair(str(ids[i]), str(other_ids[j]), r))
    return pairs


def unit_edges(fc: np.ndarray) -> np.ndarray:
    """Return each scan's edges, centred and scaled to length 1, shape (n, E).

    Products of two rows are correlations. Edges that are all equal become 0.
    """
    x = upper_from_fc(fc).astype(np.float32, copy=False)
    x -= x.mean(1, keepdims=True)
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    x /= np.maximum(norm, 1e-12)
    return x

"""FC that was stored as a row of edges: one row per subject, or one file each.

A row is the upper triangle of a symmetric matrix, with or without the diagonal, row by row (as
numpy's ``triu_indices``) or column by column (as MATLAB's ``FC(triu(...))``). Names of edges
(``Hip_L~Hip_R``) say which edge is which. Without them the numbers must: R (R - 1) / 2 edges are
also the triangle with diagonal of R - 1 ROIs, and only one way of reading gives ones on the
diagonal, or matrices without eigenvalues below zero.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fcforge.errors import DataError

SEPARATORS = ("~", "<->", "--", "|", "__", "_to_", " - ", "-")
TRIED = 8  # subjects that decide how a table is read
BELOW_ZERO = -0.05  # an eigenvalue that rounding of the file cannot explain
DO = (
    "Name the edges by their ROIs (Hip_L~Hip_R), or say how they run: kind='rows' for the upper "
    "triangle row by row without diagonal, kind='columns' for column by column."
)


class Triangle(NamedTuple):
    """Where every edge stands: row and column (E,), number of ROIs, and their names."""

    rows: np.ndarray
    columns: np.ndarray
    n_rois: int
    roi_names: tuple[str, ...] = ()

    @property
    def has_diagonal(self) -> bool:
        """Whether the diagonal is part of the row."""
        return bool((self.rows == self.columns).any())

    def matrices(self, edges: np.ndarray) -> np.ndarray:
        """Symmetric matrices (n, R, R), float32, of edges (n, E); the diagonal is 1 or as told."""
        shape = (len(edges), self.n_rois, self.n_rois)
        fc = np.ones(shape, dtype=np.float32)
        fc[:, self.rows, self.columns] = edges
        fc[:, self.columns, self.rows] = edges
        return fc


def triangle_of(
    edges: np.ndarray, names: Sequence[str] = (), kind: str = "auto"
) -> Triangle:
    """How rows of edges (n, E) are to be read.

    Parameters
    ----------
    edges : ndarray of shape (n, E)
        Correlations.
    names : sequence of str
        Of the edges; may be empty or say nothing.
    kind : str
        "rows" or "columns" where somebody has said it.

    Raises
    ------
    DataError
        The number of edges is not that of a triangle, or nothing tells how it runs.
    """
    named = _by_names(names)
    if named is not None:
        return named
    ways = [way for way in _ways(edges.shape[1]) if kind in ("auto", way[0])]
    if not ways:
        raise DataError(
            f"{edges.shape[1]} edges are not the triangle of a square matrix.",
            do="Is a column missing, or one too many?",
        )
    plain = [way for _, way in ways if not way.has_diagonal]
    if kind != "auto":
        return plain[0]
    some = edges[:TRIED]
    for _, way in ways:
        if way.has_diagonal and np.allclose(np.diagonal(way.matrices(some)[0]), 1):
            return way
    sound = [way for way in plain if _is_sound(way.matrices(some))]
    if len(sound) == 1 or (sound and _are_one(sound, some)):
        return sound[0]
    largest = np.nanmax(np.abs(edges), initial=0)
    if largest > 1.0001:
        what = f"edges go up to |r| = {largest:.3g}, beyond 1."
        raise DataError(what, do="Fisher z values? kind = 'fisher_z'.")
    raise DataError(
        f"{edges.shape[1]} edges can be read in {len(sound) or 'no'} sound ways.", do=DO
    )


def edge_columns(header: Sequence[str]) -> list[str]:
    """The columns of a table that are edges; empty where it has none.

    They are named by two ROIs, or numbered: ``edge_1, edge_2, ...``.

    Examples
    --------
    >>> edge_columns(["id", "A~B", "A~C", "B~C", "age"])
    ['A~B', 'A~C', 'B~C']
    >>> edge_columns(["id", "age", "fc1", "fc2", "fc3"])
    ['fc1', 'fc2', 'fc3']
    """
    for separator in SEPARATORS:
        named = [name for name in header if name.count(separator) == 1]
        if _by_names(named) is not None:
            return named
    numbered: dict[str, list[str]] = {}
    for name in header:
        if match := re.fullmatch(r"(.*?)(\d+)", name):
            numbered.setdefault(match[1], []).append(name)
    most = max(numbered.values(), key=len, default=[])
    return most if len(most) > 2 else []


def _ways(n_edges: int) -> Iterator[tuple[str, Triangle]]:
    """The ways to read so many edges."""
    small = int((np.sqrt(1 + 8 * n_edges) - 1) / 2)
    if n_edges < 1 or small * (small + 1) // 2 != n_edges:
        return
    for n_rois, above in ((small, 0), (small + 1, 1)):
        yield "rows", Triangle(*np.triu_indices(n_rois, above), n_rois)
        yield "columns", Triangle(*np.tril_indices(n_rois, -above), n_rois)


def _by_names(names: Sequence[str]) -> Triangle | None:
    for separator in SEPARATORS:
        pairs = [tuple(name.split(separator)) for name in names]
        if len(pairs) < 3 or any(len(pair) != 2 for pair in pairs):
            continue
        rois = tuple(dict.fromkeys(roi.strip() for pair in pairs for roi in pair))
        place = {roi: i for i, roi in enumerate(rois)}
        first = [place[one.strip()] for one, _ in pairs]
        second = [place[other.strip()] for _, other in pairs]
        ends = np.array([first, second]).T
        different = len({frozenset(pair) for pair in ends.tolist()}) == len(pairs)
        n = len(rois)
        sizes = (n * (n - 1) // 2, n * (n + 1) // 2)
        if different and len(pairs) in sizes:
            return Triangle(ends[:, 0], ends[:, 1], n, rois)
    return None


def _is_sound(fc: np.ndarray) -> bool:
    """Whether matrices (n, R, R) have no eigenvalue that a correlation matrix cannot have."""
    finite = np.nan_to_num(fc).astype(float)
    return bool(np.linalg.eigvalsh(finite).min() > BELOW_ZERO)


def _are_one(ways: Sequence[Triangle], edges: np.ndarray) -> bool:
    """Whether all ways give the same matrices, as those of three ROIs do."""
    first = ways[0].matrices(edges)
    return all(np.array_equal(way.matrices(edges), first) for way in ways[1:])

"""FC that is stored as a row of edges: one row per subject, or one file each.

A row is the triangle of a symmetric matrix, with or without the diagonal, in one of two orders.
Names of edges (``Hip_L~Hip_R``) say which edge is which. Without them the numbers must: only one
way of reading them may give correlation matrices.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from fcforge.messages import DataError
from fcforge.sites.check import TOLERANCE

Order = Literal["nilearn", "upper"]
ROUNDING = 0.05  # how far below 0 the eigenvalues of rounded correlations are let go
TRIED = 9  # subjects that decide how all are read


class Layout(NamedTuple):
    """Where vectorised edges lie in a matrix."""

    n_rois: int
    order: Order
    diagonal: bool

    def indices(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of the entries, in the order of the vector."""
        k = 0 if self.diagonal else 1
        if self.order == "upper":
            return np.triu_indices(self.n_rois, k)
        return np.tril_indices(self.n_rois, -k)

    def fill(self, X: np.ndarray) -> np.ndarray:
        """Symmetric (n, R, R), float32, with X (n, p) at the first p places and unit diagonal."""
        rows, cols = (index[: X.shape[1]] for index in self.indices())
        fc = np.zeros((len(X), self.n_rois, self.n_rois), dtype=np.float32)
        fc[:, rows, cols] = X
        fc[:, cols, rows] = X
        diagonal = np.arange(self.n_rois)
        fc[:, diagonal, diagonal] = 1.0
        return fc

    def is_sound(self, X: np.ndarray) -> bool:
        """Whether X (n, p) makes correlation matrices, and has ones where a diagonal lies."""
        rows, cols = self.indices()
        ones = np.abs(X[:, rows == cols] - 1) <= TOLERANCE
        fc = np.nan_to_num(self.fill(X)).astype(np.float64)
        lowest = np.linalg.eigvalsh(fc)[:, 0]
        return bool(ones.all() and np.median(lowest) >= -ROUNDING)


def rows_as_fc(
    edges: np.ndarray, names: Sequence[str] = ()
) -> tuple[np.ndarray, tuple[str, ...]]:
    """FC (n, R, R), float32, of rows of edges (n, p), and the ROI names that `names` say.

    Raises
    ------
    DataError
        Edges are not those of a matrix, or can be read in several ways.
    """
    if any("~" in name for name in names):
        return _by_names(edges, names)
    p = edges.shape[1]
    n_rois = (1 + math.isqrt(1 + 8 * p)) // 2
    if p < 3 or n_rois * (n_rois - 1) // 2 != p:
        what = f"{p} edges are not the triangle of a square matrix."
        raise DataError(what, do="Is a column missing, or one too many?")
    largest = np.nanmax(np.abs(edges), initial=0)
    if largest > 1 + TOLERANCE:
        what = f"edges go up to |r| = {largest:.3g}, beyond 1."
        raise DataError(what, do="Fisher z values? kind = 'fisher_z'.")
    found: list[np.ndarray] = []
    for order in get_args(Order):
        for layout in (Layout(n_rois, order, False), Layout(n_rois - 1, order, True)):
            if layout.is_sound(edges[:TRIED]):
                found.append(layout.fill(edges))
    if not found or not all(np.array_equal(fc, found[0]) for fc in found):
        raise DataError(
            f"{p} edges make correlation matrices in {len(found) or 'no'} ways.",
            do="Name the edges by their two ROIs (Hip_L~Hip_R), or give whole matrices.",
        )
    return found[0], ()


def _by_names(
    edges: np.ndarray, names: Sequence[str]
) -> tuple[np.ndarray, tuple[str, ...]]:
    pairs = [[roi.strip() for roi in name.split("~")] for name in names]
    rois = tuple(dict.fromkeys(roi for pair in pairs for roi in pair))
    n = len(rois)
    different = {frozenset(pair) for pair in pairs}
    whole = len(different) == len(pairs) in (n * (n - 1) // 2, n * (n + 1) // 2)
    if not whole or any(len(pair) != 2 for pair in pairs):
        raise DataError(
            f"{len(pairs)} names of edges are not every pair of {n} ROIs once.",
            do="Name each edge as Hip_L~Hip_R; is a column missing, or there twice?",
        )
    fc = np.ones((len(edges), n, n), dtype=np.float32)
    for (one, other), values in zip(pairs, edges.T, strict=True):
        i, j = rois.index(one), rois.index(other)
        fc[:, i, j] = values
        fc[:, j, i] = values
    return fc, rois

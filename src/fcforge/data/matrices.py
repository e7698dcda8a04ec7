"""FC from the content of a file or array: a matrix, a time series, or a row of edges.

A row of edges is the triangle of a symmetric matrix, with or without the diagonal, in one of two
orders. Names (``Hip_L~Hip_R``) identify the edges. Without names, exactly one order must give
correlation matrices.

Letters of shapes: n subjects, R ROIs, p edges, T volumes.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from fcforge.core.errors import DataError
from fcforge.core.options import Kind
from fcforge.data.checks import TOLERANCE, lowest_eigenvalue
from fcforge.data.edges import rois_of
from fcforge.imaging.series import pearson_fc

# Lower triangle row by row, as nilearn vectorises, or upper triangle row by row.
Order = Literal["nilearn", "upper"]
ONES = (1.0, math.sqrt(0.5))  # a stored diagonal; nilearn divides it by sqrt 2
ROUNDING = 0.05  # rounded correlations may have eigenvalues down to minus this
FEWEST_NUMBERS = 400  # a time series with fewer may look transposed by chance
TRIED = 9  # number of subjects that decide the order of the edges for all
# Correlations have no negative eigenvalue. Fisher z with ones on the diagonal always has on ABIDE with
# this many ROIs (-0.1 and less); with 20 ROIs one person in four has none.
SURE_ROIS = 50
ALREADY_FC = "Leave kind out, or set kind='fc'. If it is Fisher z after all,"


class Layout(NamedTuple):
    """A way in which a row of edges may be stored, as places in an (R, R) matrix.

    Attributes
    ----------
    n_rois : int
        R.
    order : {"nilearn", "upper"}
    diagonal : bool
        Whether the row contains the diagonal.
    """

    n_rois: int
    order: Order
    diagonal: bool

    def indices(self) -> tuple[np.ndarray, np.ndarray]:
        """Return row and column of each entry, in the order of the stored row."""
        k = 0 if self.diagonal else 1
        if self.order == "upper":
            return np.triu_indices(self.n_rois, k)
        return np.tril_indices(self.n_rois, -k)

    def fill(self, X: np.ndarray) -> np.ndarray:
        """Return float32 matrices (n, R, R), symmetric with unit diagonal, that have the edges X (n, p).

        The edges fill the first p places of the layout; places beyond them are 0
        (`fcforge.estimator.inputs.numbers_as_fc` has any number p).
        """
        rows, cols = (index[: X.shape[1]] for index in self.indices())
        fc = np.zeros((len(X), self.n_rois, self.n_rois), dtype=np.float32)
        fc[:, rows, cols] = X
        fc[:, cols, rows] = X
        diagonal = np.arange(self.n_rois)
        fc[:, diagonal, diagonal] = 1.0
        return fc

    def has_ones(self, X: np.ndarray) -> bool:
        """Return whether the diagonal in X (n, p) is 1 everywhere, or 1 / sqrt 2 as nilearn scales it.

        A layout without a diagonal has nothing to check, so the result is true.
        """
        rows, cols = self.indices()
        diagonal = X[:, rows == cols]
        return any(bool((abs(diagonal - one) <= TOLERANCE).all()) for one in ONES)

    def is_sound(self, X: np.ndarray, *, averaged: bool = True) -> bool:
        """Return whether edges X (n, p) in this layout make correlation matrices.

        With `averaged` they may also be means of several runs in Fisher z.

        A correlation matrix has no negative eigenvalue. With the edges in a wrong order there are
        large negative ones: -3.7 and below on ABIDE, against -0.002 from rounding and -0.29 from
        means of Fisher z over runs. A stored diagonal must hold ones.
        """
        fc = np.nan_to_num(self.fill(X)).astype(np.float64)
        lowest = np.linalg.eigvalsh(fc)[:, 0]
        limit = -ROUNDING
        if averaged:
            limit = min(limit, lowest_eigenvalue(self.n_rois))
        return self.has_ones(X) and bool(np.median(lowest) >= limit)


def rows_as_fc(
    edges: np.ndarray, names: Sequence[str] = ()
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the FC that rows of edges stand for, and the ROI names.

    Parameters
    ----------
    edges : ndarray of shape (n, p)
    names : sequence of str
        Names of the edges, e.g. ``Hip_L~Hip_R``. Numbered or missing names do not tell the order:
        it is then the only one that gives correlation matrices.

    Returns
    -------
    fc : ndarray of shape (n, R, R), float32
    roi_names : tuple of str
        Empty if the edges have no names of ROIs.

    Raises
    ------
    DataError
        When the edges are not those of a matrix, or fit several orders.
    """
    if any("~" in name for name in names):
        return _by_names(edges, names)
    p = edges.shape[1]
    n_rois = rois_of(p)
    largest = np.nanmax(np.abs(edges), initial=0)
    if largest > 1 + TOLERANCE:
        message = f"edges go up to |r| = {largest:.3g}, beyond 1."
        raise DataError(message, do="If they are Fisher z values: kind = 'fisher_z'.")
    candidates: list[np.ndarray] = []
    for order in get_args(Order):
        # As many edges without a diagonal as with the diagonal of one ROI less.
        for layout in (Layout(n_rois, order, False), Layout(n_rois - 1, order, True)):
            if layout.is_sound(edges[:TRIED]):
                candidates.append(layout.fill(edges))
    unique = all(np.array_equal(fc, candidates[0]) for fc in candidates)
    if not candidates or not unique:
        raise DataError(
            f"{p} edges make correlation matrices in {len(candidates) or 'no'} ways.",
            do="Name the edges by their two ROIs (Hip_L~Hip_R), or give whole matrices.",
        )
    return candidates[0], ()


def undo_fisher_z(edges: np.ndarray) -> np.ndarray:
    """Return the correlations tanh(z) of rows of edges (n, p) that are Fisher z.

    Raises
    ------
    DataError
        When the rows are correlations already, told from their eigenvalues. With fewer than
        `SURE_ROIS` ROIs nothing is compared.
    """
    n_rois = rois_of(edges.shape[1])
    for order in get_args(Order):
        for layout in (Layout(n_rois, order, False), Layout(n_rois - 1, order, True)):
            if layout.n_rois < SURE_ROIS:
                continue
            if layout.is_sound(edges[:TRIED], averaged=False):
                raise DataError(
                    "edges make correlation matrices as they are, so they are no Fisher z.",
                    do=f"{ALREADY_FC} apply np.tanh first.",
                )
    return np.tanh(edges)


def _by_names(
    edges: np.ndarray, names: Sequence[str]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return FC (n, R, R) of edges (n, p) whose names are pairs of ROIs, and the R names of ROIs."""
    pairs = [[roi.strip() for roi in name.split("~")] for name in names]
    rois = tuple(dict.fromkeys(roi for pair in pairs for roi in pair))
    n_rois = len(rois)
    different = {frozenset(pair) for pair in pairs}
    n_pairs = n_rois * (n_rois - 1) // 2
    # Every pair once, with or without the pairs of an ROI and itself.
    is_full = len(pairs) in (n_pairs, n_pairs + n_rois)
    complete = is_full and len(different) == len(pairs)
    if not complete or any(len(pair) != 2 for pair in pairs):
        raise DataError(
            f"{len(pairs)} names of edges are not every pair of {n_rois} ROIs once.",
            do="Name each edge as Hip_L~Hip_R. Is a column missing, or there twice?",
        )
    fc = np.ones((len(edges), n_rois, n_rois), dtype=np.float32)
    for (one, other), values in zip(pairs, edges.T, strict=True):
        i, j = rois.index(one), rois.index(other)
        fc[:, i, j] = values
        fc[:, j, i] = values
    return fc, rois


# -- matrices and series ---------------------------------------------------------------------------
def to_fc(matrix: np.ndarray, kind: Kind = "auto") -> np.ndarray:
    """Return FC of shape (R, R), float32, from a matrix that is FC, Fisher z or a time series.

    Parameters
    ----------
    matrix : ndarray of shape (R, R), (R, more) or (T, R)
        Of Fisher z with more columns than rows (CONN writes sources by sources and further
        targets) the first R columns are used.
    kind : {"auto", "fc", "fisher_z", "timeseries"}
        With "auto" a square matrix that is symmetric or has a unit diagonal is FC (if it is not
        both, `check_cohort` reports an error). A matrix without a diagonal is CONN's Fisher z.
        With "fisher_z" a correlation matrix raises `DataError`.
        Anything else is a time series, which is refused if it looks transposed.
    """
    rows, columns = matrix.shape
    if kind == "auto":
        kind = _kind_of(matrix)
        if kind == "timeseries":
            refuse_transposed(matrix)
    if kind == "fisher_z":
        if not 2 <= rows <= columns:
            raise DataError(f"Fisher z of shape {rows} x {columns} is not square.")
        _refuse_correlations(matrix[:, :rows])
        fc = np.tanh(matrix[:, :rows]).astype(np.float32)
        np.fill_diagonal(fc, 1.0)
        return fc
    if kind == "fc":
        if rows != columns or rows < 2:
            message = f"FC is {rows} x {columns}, not square with two ROIs or more."
            hint = "Is the file cut off, or is it a time series (kind='timeseries')?"
            raise DataError(message, do=hint)
        return matrix.astype(np.float32)
    if 1 < rows < columns and all(_unit_and_symmetric(matrix[:, :rows])):
        message = f"looks like the first {rows} rows of an FC matrix of {columns} ROIs."
        raise DataError(message, do="The file is cut off; make it again.")
    if rows < 5 or columns < 2:
        message = f"a time series of {rows} volumes x {columns} ROIs is too short."
        raise DataError(message, do="Rows are volumes, columns are ROIs.")
    return pearson_fc(matrix).astype(np.float32)


def _refuse_correlations(z: np.ndarray) -> None:
    """Raise `DataError` if a matrix (R, R) that is meant as Fisher z holds correlations.

    They have ones on the diagonal and no negative eigenvalue. Fisher z has an infinite diagonal; with
    ones there, its lowest eigenvalue is below -0.2 on ABIDE (116 ROIs).
    """
    if not (np.isfinite(z).all() and all(_unit_and_symmetric(z))):
        return
    if np.linalg.eigvalsh(z)[0] >= -ROUNDING:
        raise DataError(
            "holds correlations (diagonal 1, no negative eigenvalue), but kind='fisher_z'.",
            do=f"{ALREADY_FC} set its diagonal to 0.",
        )


def _kind_of(matrix: np.ndarray) -> Kind:
    """Return the kind of a matrix's content, told from its shape, diagonal and symmetry.

    A diagonal of NaN or infinity is that of CONN's Fisher z if it is infinite (artanh 1) or another
    value is beyond 1.
    """
    square = matrix[:, : len(matrix)]  # CONN may add columns of further targets
    if len(square) > 1 and square.shape == (len(square),) * 2:
        off_diagonal = square[~np.eye(len(square), dtype=bool)]
        diagonal = np.diagonal(square)
        if not np.isfinite(diagonal).any() and np.isfinite(off_diagonal).all():
            if np.isinf(diagonal).all() or np.abs(off_diagonal).max() > 1:
                return "fisher_z"
            raise DataError(
                "has no diagonal and no value beyond 1: correlations or Fisher z?",
                do="kind='fisher_z' for Fisher z, as CONN writes; for correlations set it to 1.",
            )
    return "fc" if looks_like_fc(matrix) else "timeseries"


def looks_like_fc(matrix: np.ndarray) -> bool:
    """Return whether a matrix is probably FC: square, and symmetric or with a unit diagonal."""
    return matrix.shape[0] == matrix.shape[1] and any(_unit_and_symmetric(matrix))


def _unit_and_symmetric(square: np.ndarray) -> tuple[bool, bool]:
    """Return whether a square matrix has a unit diagonal, and whether it is symmetric."""
    unit = np.allclose(np.diagonal(square), 1.0, atol=1e-3)
    return unit, np.allclose(square, square.T, atol=1e-3, equal_nan=True)


def refuse_transposed(series: np.ndarray) -> None:
    """Raise `DataError` for a time series (T, R) that seems to have its volumes in columns."""
    if reason := looks_transposed(series):
        shape = f"{len(series)} x {series.shape[1]}"
        hint = "Rows are volumes, columns are ROIs: transpose it. If it is right: kind='timeseries'."
        raise DataError(
            f"{shape} looks like a transposed time series: {reason}.", do=hint
        )


def looks_transposed(series: np.ndarray) -> str:
    """Return why a time series (T, R) seems to have its volumes in columns; "" if it does not.

    The signal of an ROI keeps to its own level and is smooth in time. Over 28 series of ABIDE the
    mean correlation of neighbouring volumes exceeds that of neighbouring ROIs by 0.12 to 0.6. In the
    same series transposed it is 0.15 to 0.6 lower. Pieces of 120 volumes and 20 ROIs differ by 0.4 or
    more, transposed by -0.3 or less; noise of correlated ROIs by up to 0.14 to either side, by chance.
    """
    x = series[:, np.isfinite(series).all(axis=0)]
    if x.size < FEWEST_NUMBERS or min(x.shape) < 5:
        return ""
    level_of_columns = _level(x)
    level_of_rows = _level(x.T)
    if level_of_rows > 3 * max(level_of_columns, 1.0):
        return "every row keeps its own level, as an ROI does"
    spread = x.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    z = (x - x.mean(axis=0)) / scale
    by_chance = max(0.12, 12 / math.sqrt(x.size))
    if level_of_columns < 3 and _lag_one(z.T) - _lag_one(z) > by_chance:
        return "signals are smoother along the rows than down the columns"
    return ""


def _level(x: np.ndarray) -> float:
    """Return the spread of the columns' means, in units of the typical spread within a column."""
    spread = float(np.median(x.std(axis=0)))
    return float(x.mean(axis=0).std()) / spread if spread > 0 else 0.0


def _lag_one(x: np.ndarray) -> float:
    """Return the mean lag-one autocorrelation of the columns (T, R), which is 0 for white noise."""
    x = x - x.mean(axis=0)
    norm = (x**2).sum(axis=0)
    products = (x[1:] * x[:-1]).sum(axis=0)
    correlations = products / np.where(norm > 0, norm, 1.0)
    return float(correlations.mean()) + 1 / len(x)  # white noise has -1 / T on average

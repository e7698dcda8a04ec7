"""Reading of X: FC matrices from matrices, vectorised edges or time series.

Shapes: n subjects, R ROIs, T volumes of a time series, p columns of X.
"""

import math
import warnings
from collections import Counter
from functools import partial
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from fcforge.core.errors import DataError, at
from fcforge.core.formatting import abbreviated
from fcforge.core.names import check_names
from fcforge.core.options import Kind
from fcforge.data.checks import (
    NOT_POSITIVE,
    POSITIVE_HINT,
    TOLERANCE,
    matrix_faults,
    not_positive,
)
from fcforge.data.edges import rois_of
from fcforge.data.matrices import (
    TRIED,
    Layout,
    Order,
    looks_like_fc,
    looks_transposed,
    refuse_transposed,
    to_fc,
    undo_fisher_z,
)
from fcforge.imaging.series import empty_rois

NOT_FC = (
    "Give Pearson correlations with a diagonal of 1. np.tanh undoes Fisher z, as kind='fisher_z' "
    "does. Other measures (covariance, precision, tangent vectors) are taken as numbers by "
    "features='any'."
)


COLUMN_SCALE = 0.2  # Fisher z of a made-up edge per unit of a column
LARGEST = 0.9999  # largest correlation; Fisher z is infinite at 1
MOST = (
    math.atanh(LARGEST) / COLUMN_SCALE
)  # largest size of a column's number, about 24.8


class InputError(DataError, ValueError):
    """An X or y that cannot be used; a ValueError, as scikit-learn promises."""


as_input_error = partial(at, kind=InputError)


def layout_of(X: np.ndarray, order: Order) -> Layout:
    """Find out how the p columns of X (n, p) encode FC matrices.

    R (R - 1) / 2 edges of R ROIs are as many as R - 1 ROIs have with their diagonal, so the
    numbers decide: entries at the places of the diagonal that are all 1 (or 1 / sqrt 2, as
    nilearn scales it) are a diagonal.

    Parameters
    ----------
    X : ndarray of shape (n, p)
    order : {"nilearn", "upper"}
        Order of the edges, as in `ForgeClassifier`.

    Returns
    -------
    Layout

    Raises
    ------
    InputError
        If the columns do not make correlation matrices in this order.
    """
    with as_input_error():
        check_names("order of edges", [order], get_args(Order))
        n_rois = rois_of(X.shape[1])
    layout = Layout(n_rois, order, False)
    with_diagonal = Layout(n_rois - 1, order, True)
    if n_rois > 2 and with_diagonal.has_ones(X):
        layout = with_diagonal
    if not layout.is_sound(X[:TRIED]):
        other: Order = "upper" if order == "nilearn" else "nilearn"
        message = f"X does not make correlation matrices with edges = '{order}'"
        if layout._replace(order=other).is_sound(X[:TRIED]):
            hint = f"Set edges='{other}'."
            raise InputError(f"{message}, but does with edges = '{other}'.", do=hint)
        raise InputError(f"{message}, nor in any other order.", do=NOT_FC)
    _require_a_pattern(X)
    return layout


def _require_a_pattern(X: np.ndarray) -> None:
    """Raise `InputError` if the mean over people is zero in every edge, which FC never has.

    Tangent vectors (taken at the mean) and standardised numbers have such a mean. Otherwise the mean of n
    people is at least of the size of their spread / sqrt(n).

    Parameters
    ----------
    X : ndarray of shape (n, p)
        Vectorised edges.
    """
    if len(X) < 5:  # too few to tell
        return
    level = float((X.mean(axis=0) ** 2).mean())  # squared mean, averaged over edges
    power = float(np.linalg.norm(X)) ** 2 / X.size  # mean square
    spread = max(power - level, 0.0)  # variance over people, averaged over edges
    if math.sqrt(level) < 0.1 * math.sqrt(spread / len(X)):
        raise InputError("the mean of X over people is zero in every edge.", do=NOT_FC)


def numbers_as_fc(X: np.ndarray) -> np.ndarray:
    """Encode arbitrary numbers as edges of artificial FC matrices, for models that expect FC.

    Edge models take artanh(r) / 0.2 of an edge r, so r = tanh(0.2 x) makes them see x itself (up
    to |x| of about 24; larger numbers are cut).

    Parameters
    ----------
    X : ndarray of shape (n, p)

    Returns
    -------
    ndarray of shape (n, R, R), float32
        Row by row, the upper triangles begin with the p numbers; their other entries are 0.
    """
    n_rois = math.ceil((1 + math.sqrt(1 + 8 * X.shape[1])) / 2)
    return Layout(max(3, n_rois), "upper", False).fill(np.tanh(COLUMN_SCALE * X))


def fc_as_numbers(fc: np.ndarray, p: int) -> np.ndarray:
    """Return the p numbers of each matrix that `numbers_as_fc` made, (n, p)."""
    rows, cols = np.triu_indices(fc.shape[1], 1)
    edges = fc[:, rows[:p], cols[:p]].astype(np.float64)
    return np.arctanh(edges.clip(-LARGEST, LARGEST)) / COLUMN_SCALE


def to_matrices(X: Any, kind: Kind) -> Any:
    """Return FC (n, R, R) from a list or 3-D array of matrices; any other X unchanged.

    Parameters
    ----------
    X : array of shape (n, R, R) or (n, T, R), or list of arrays (R, R) or (T, R)
        FC matrices, or time series of T volumes.
    kind : {"auto", "fc", "fisher_z", "timeseries"}
        Content of the matrices.

    Raises
    ------
    InputError
        When a matrix is neither FC nor a time series, or their ROI counts differ, or when X is the
        FC matrix of one subject.
    """
    _refuse_one_matrix(X)
    nonempty_list = isinstance(X, (list, tuple)) and len(X)
    list_of_matrices = nonempty_list and getattr(X[0], "ndim", 0) == 2
    if not list_of_matrices and getattr(X, "ndim", 0) != 3:
        return X
    try:
        matrices = [np.asarray(x, dtype=np.float64) for x in X]
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from error
    if not matrices:
        raise InputError("X holds no subject.")
    _refuse_gaps(matrices, kind)
    fc_matrices = _read_matrices(matrices, kind)
    if len({m.shape for m in fc_matrices}) != 1:
        raise InputError("subjects of X have different numbers of ROIs.")
    for i, matrix in enumerate(fc_matrices):
        for message, _ in matrix_faults(matrix):
            raise InputError(message, where=f"X[{i}]", do=NOT_FC)
    fc = np.stack(fc_matrices)
    rois = np.arange(fc.shape[1])
    fc[:, rois, rois] = 1.0
    return np.clip((fc + fc.transpose(0, 2, 1)) * 0.5, -1, 1)


def _refuse_one_matrix(X: Any) -> None:
    """Raise `InputError` if X is the FC matrix of one subject, not an array of subjects."""
    if not (isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind == "f"):
        return
    square = len(X) > 2 and X.shape[0] == X.shape[1]
    if square and (np.diagonal(X) == 1).all() and np.array_equal(X, X.T):
        message = f"X is the FC matrix of one subject ({len(X)} ROIs)."
        raise InputError(message, do="Give X[None], of shape (1, ROIs, ROIs).")


def _refuse_gaps(matrices: list[np.ndarray], kind: Kind) -> None:
    """Raise `InputError` for NaN and infinity, except on the diagonal of Fisher z."""
    for i, matrix in enumerate(matrices):
        if np.isfinite(matrix).all():
            continue
        message = f"Input X[{i}] contains NaN or infinity"
        if not _is_finite_beside_diagonal(matrix):
            raise InputError(f"{message}.", do="Leave the subject out of X and y.")
        if kind != "fisher_z":
            raise InputError(f"{message} on its diagonal.", do=NOT_FC)


def _is_finite_beside_diagonal(matrix: np.ndarray) -> bool:
    """Return whether a matrix is square and all its numbers but those on the diagonal are finite."""
    if matrix.shape != (len(matrix),) * 2:
        return False
    return bool(np.isfinite(matrix[~np.eye(len(matrix), dtype=bool)]).all())


def refuse_missing_values(X: Any) -> None:
    """Raise `InputError` that names the first row of numbers (n, p) with NaN or infinity."""
    values = X.to_numpy() if hasattr(X, "to_numpy") else X
    if isinstance(values, np.ndarray) and values.ndim == 2 and values.dtype.kind == "f":
        rows = np.flatnonzero(~np.isfinite(values).all(axis=1))
        if len(rows):
            message = f"Input X[{rows[0]}] contains NaN or infinity."
            raise InputError(message, do="Leave the subject out of X and y.")


def _read_matrices(matrices: list[np.ndarray], kind: Kind) -> list[np.ndarray]:
    """Return the FC of each matrix; with "auto" all are time series unless all look like FC."""
    guessed_series = kind == "auto" and not all(looks_like_fc(m) for m in matrices)
    if kind == "auto":
        kind = "timeseries" if guessed_series else "fc"
    if guessed_series:  # what the user states to be series is not questioned
        _refuse_transposed(matrices)
    fc_matrices = []
    for i, matrix in enumerate(matrices):
        with as_input_error(f"X[{i}]"):
            fc_matrices.append(to_fc(matrix, kind))
    if kind == "timeseries":
        _warn_of_flat_rois(matrices)
    return fc_matrices


def _refuse_transposed(matrices: list[np.ndarray]) -> None:
    """Raise `InputError` if time series (T, R) of subjects seem to have their volumes in columns.

    Most of them must look so, or one that has not as many columns as most: noise may look so by chance.
    """
    places = [i for i, matrix in enumerate(matrices) if looks_transposed(matrix)]
    n_rois = Counter(matrix.shape[1] for matrix in matrices).most_common(1)[0][0]
    for i in places:
        most = 2 * len(places) > len(matrices)
        if most or matrices[i].shape[1] != n_rois:
            with as_input_error(f"X[{i}]"):
                refuse_transposed(matrices[i])


def _warn_of_flat_rois(series: list[np.ndarray]) -> None:
    """Warn of ROIs without signal in time series (T, R), whose FC with all others is 0."""
    reports = []
    for i, values in enumerate(series):
        flat = np.flatnonzero(empty_rois(values)) + 1
        if len(flat):
            reports.append(f"X[{i}] (ROI {abbreviated(flat.tolist())})")
    if reports:
        warnings.warn(
            f"ROIs without signal in {abbreviated(reports)}: their FC with all others is 0. Leave "
            "subjects with many such ROIs out.",
            stacklevel=2,
        )


def _warn_of_eigenvalues(fc: np.ndarray) -> None:
    """Warn of matrices (n, R, R) that cannot be correlations of time series."""
    if places := not_positive(fc):
        rows = abbreviated([f"X[{i}]" for i in places])
        warnings.warn(f"{rows}: {NOT_POSITIVE} {POSITIVE_HINT}", stacklevel=6)


def _warn_of_large_columns(X: np.ndarray) -> None:
    """Warn of columns of X (n, p) with numbers that are cut, because the model cannot tell them apart."""
    columns = np.flatnonzero((np.abs(X) > MOST).any(axis=0))
    if len(columns):
        shown = abbreviated(columns.tolist())
        warnings.warn(
            f"columns of X ({shown}) have numbers beyond {MOST:.1f} in size, which are cut there. "
            "Standardise the columns, for example by StandardScaler in a pipeline.",
            stacklevel=6,
        )


class ReadsFC(BaseEstimator):
    """Base of estimators that read X by their parameters `features`, `kind` and `edges`."""

    features: Literal["fc", "any"] = "fc"
    kind: Kind
    edges: Order
    _numbers: ClassVar[bool] = False  # whether y is a number, not a class

    def _validate(
        self, X: Any, y: Any = None, *, reset: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Check X and y as scikit-learn's estimators do.

        Parameters
        ----------
        X, y
            As in `fit`.
        reset : bool
            Whether X defines the number of columns (in `fit`) or must agree with it.

        Returns
        -------
        X : ndarray of shape (n, p) or (n, R, R)
            Numbers, or FC matrices.
        labels : ndarray of shape (n,)
            y; empty if there is none.
        """
        self._require_choices()
        X = to_matrices(X, self.kind) if self.features == "fc" else X
        refuse_missing_values(X)
        target_options = {} if y is None else {"y": y, "y_numeric": self._numbers}
        three_dimensional = self.features == "fc"
        validated = validate_data(
            self,
            X,
            reset=reset,
            dtype="numeric",
            allow_nd=three_dimensional,
            **target_options,
        )
        X, labels = (validated, np.zeros(0)) if y is None else validated
        if y is not None and not self._numbers:
            check_classification_targets(labels)
        labels = column_or_1d(labels, dtype=float if self._numbers else None, warn=True)
        if X.ndim > 3:
            raise InputError(f"Found array with dim {X.ndim}, expected 2 or 3.")
        return X if X.dtype == np.float32 else X.astype(np.float64), labels

    def _require_choices(self) -> None:
        """Raise `InputError` if a parameter about X is none of its choices."""
        choices = {"features": ("fc", "any"), "kind": get_args(Kind)}
        choices["edges"] = get_args(Order)
        with as_input_error():
            for name, known in choices.items():
                check_names(name, [getattr(self, name)], known)

    def _as_fc(
        self, X: np.ndarray, layout: Layout | None
    ) -> tuple[np.ndarray, Layout | None]:
        """Return FC (n, R, R) and the layout of vectorised edges.

        Parameters
        ----------
        X : ndarray of shape (n, p) or (n, R, R)
            As `_validate` returns it.
        layout : Layout or None
            Layout of the edges, if it is known from `fit`.
        """
        if self.features == "any":
            _warn_of_large_columns(X)
            return numbers_as_fc(X), None
        if X.ndim == 3:
            _warn_of_eigenvalues(X)
            return X.astype(np.float32, copy=False), None
        if self.kind == "timeseries":
            shape = f"{len(X)} x {X.shape[1]}"
            raise InputError(
                f"X is {shape} numbers, and kind='timeseries' means one series per subject.",
                do="Give a list of arrays, volumes x ROIs. For rows of edges leave kind out.",
            )
        if self.kind == "fisher_z":
            with as_input_error("X"):
                X = undo_fisher_z(X)
        largest = np.abs(X).max()
        if largest > 1 + TOLERANCE:
            message = f"X goes up to |r| = {largest:.3g}, beyond a correlation."
            raise InputError(message, do=NOT_FC)
        layout = layout or layout_of(X, self.edges)
        fc = layout.fill(np.clip(X, -1, 1))
        _warn_of_eigenvalues(fc)
        return fc, layout

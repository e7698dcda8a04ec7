"""One subject's FC from a file that holds FC or a time series."""

from typing import Literal

import numpy as np

from fcforge.errors import DataError
from fcforge.imaging.series import pearson_fc

Kind = Literal["auto", "fc", "fisher_z", "timeseries"]


def to_fc(matrix: np.ndarray, kind: Kind = "auto", where: str = "") -> np.ndarray:
    """FC (R, R) of a matrix that is FC already or a time series (T, R).

    With ``kind="auto"`` a square matrix that is symmetric or has a unit diagonal is FC (with
    an error in `check_cohort` when it is not both), anything else a time series, which is
    refused when it looks transposed. CONN's matrices (Fisher z without a diagonal) are known by
    their diagonal; of more columns than rows (sources by sources and further targets) the first
    square is taken, and r = tanh z with a diagonal of 1.
    """
    rows, columns = matrix.shape
    if kind == "auto" and (kind := _kind_of(matrix, where)) == "timeseries":
        refuse_transposed(matrix, where)
    if kind == "fisher_z":
        if not 2 <= rows <= columns:
            raise DataError(f"Fisher z of shape {rows} x {columns} is not square.", where=where)
        fc = np.tanh(matrix[:, :rows]).astype(np.float32)
        np.fill_diagonal(fc, 1.0)
        return fc
    if kind == "fc":
        if rows != columns or rows < 2:
            what = f"FC is {rows} x {columns}, not square with two ROIs or more."
            do = "Is the file cut off, or a time series (kind='timeseries')?"
            raise DataError(what, where=where, do=do)
        return matrix.astype(np.float32)
    if 1 < rows < columns and all(_unit_and_symmetric(matrix[:, :rows])):
        what = f"looks like the first {rows} rows of an FC matrix of {columns} ROIs."
        raise DataError(what, where=where, do="The file is cut off; make it again.")
    if rows < 5 or columns < 2:
        what = f"a time series of {rows} volumes x {columns} ROIs is too short."
        raise DataError(what, where=where, do="Rows are volumes, columns are ROIs.")
    return pearson_fc(matrix, where=where).astype(np.float32)


def _kind_of(matrix: np.ndarray, where: str) -> Kind:
    square = matrix[:, : len(matrix)]
    if len(square) > 1 and square.shape == (len(square),) * 2:
        off = square[~np.eye(len(square), dtype=bool)]
        diagonal = np.diagonal(square)
        if not np.isfinite(diagonal).any() and np.isfinite(off).all():
            if np.isinf(diagonal).all() or np.abs(off).max() > 1:
                return "fisher_z"
            what = "has no diagonal and no value beyond 1: correlations or Fisher z?"
            do = "kind='fisher_z' for Fisher z, as CONN writes; for correlations set it to 1."
            raise DataError(what, where=where, do=do)
    return "fc" if looks_like_fc(matrix) else "timeseries"


def looks_like_fc(matrix: np.ndarray) -> bool:
    """Whether a matrix is meant as FC: square, and symmetric or with a unit diagonal."""
    return matrix.shape[0] == matrix.shape[1] and any(_unit_and_symmetric(matrix))


def _unit_and_symmetric(square: np.ndarray) -> tuple[bool, bool]:
    unit = np.allclose(np.diagonal(square), 1.0, atol=1e-3)
    return unit, np.allclose(square, square.T, atol=1e-3, equal_nan=True)


def refuse_transposed(series: np.ndarray, where: str) -> None:
    """Raise `DataError` for a time series (T, R) that seems to have its volumes in columns."""
    if reason := looks_transposed(series):
        shape = f"{len(series)} x {series.shape[1]}"
        do = "Rows are volumes, columns are ROIs: transpose it. If it is right: kind='timeseries'."
        what = f"{shape} looks like a transposed time series: {reason}."
        raise DataError(what, where=where, do=do)


def looks_transposed(series: np.ndarray) -> str:
    """Why a time series (T, R) seems to have its volumes in columns; "" where it does not.

    A signal keeps to its own level and is smooth in time. Over 28 series of ABIDE the mean
    correlation of neighbouring volumes exceeds that of neighbouring ROIs by 0.12 to 0.6; of the
    same series transposed it is 0.15 to 0.6 lower.
    """
    x = series[:, np.isfinite(series).all(axis=0)]
    if x.size < 3000 or min(x.shape) < 5:  # chance alone could tell otherwise
        return ""
    down, across = _level(x), _level(x.T)
    if across > 3 * max(down, 1.0):
        return "every row keeps its own level, as an ROI does"
    spread = x.std(axis=0)
    z = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    if down < 3 and _lag_one(z.T) - _lag_one(z) > 0.12:
        return "signals are smoother along the rows than down the columns"
    return ""


def _level(x: np.ndarray) -> float:
    """How far the means of columns lie apart, in units of their own spread."""
    spread = float(np.median(x.std(axis=0)))
    return float(x.mean(axis=0).std()) / spread if spread > 0 else 0.0


def _lag_one(x: np.ndarray) -> float:
    """Mean correlation of each column with itself one row later, 0 for noise of any length."""
    x = x - x.mean(axis=0)
    norm = (x**2).sum(axis=0)
    found = ((x[1:] * x[:-1]).sum(axis=0) / np.where(norm > 0, norm, 1.0)).mean()
    return float(found) + 1 / len(x)

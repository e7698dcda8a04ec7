"""One subject's FC from a file that holds FC or a time series."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from fcforge.errors import DataError
from fcforge.imaging.connectivity import pearson_fc
from fcforge.imaging.matrix_files import read_matrix_file

# Names under which toolboxes store one subject's matrix, tried in this order.
VARIABLES = ("fc", "FC", "ROISignals", "ROICorrelation", "connectivity", "timeseries", "data")

Kind = Literal["auto", "fc", "timeseries"]


def read_matrix(path: str | Path, variable: str | None = None) -> np.ndarray:
    """One subject's matrix (rows, columns), float64; see `read_matrix_file`.

    Of an .npz or .mat with several arrays the one named `variable` is taken, else one with a
    customary name (`VARIABLES`).
    """
    values, _ = read_matrix_file(path, variable, customary=VARIABLES)
    return values


def to_fc(matrix: np.ndarray, kind: Kind = "auto", where: str = "") -> np.ndarray:
    """FC (R, R) of a matrix that is FC already or a time series (T, R).

    With ``kind="auto"`` a square matrix that is symmetric or has a unit diagonal is FC (with
    an error in `check_cohort` when it is not both), anything else a time series.
    """
    if kind == "auto":
        kind = "fc" if looks_like_fc(matrix) else "timeseries"
    rows, columns = matrix.shape
    if kind == "fc":
        if rows != columns or rows < 2:
            raise DataError(
                f"FC is {rows} x {columns}, not square with two ROIs or more.",
                where=where,
                do="Is the file cut off, or a time series (kind='timeseries')?",
            )
        return matrix.astype(np.float32)
    if _cut_off_fc(matrix):
        raise DataError(
            f"looks like the first {rows} rows of an FC matrix of {columns} ROIs.",
            where=where,
            do="The file is cut off; make it again.",
        )
    if rows < 5 or columns < 2:
        raise DataError(
            f"a time series of {rows} volumes x {columns} ROIs is too short.",
            where=where,
            do="Rows are volumes, columns are ROIs.",
        )
    return pearson_fc(matrix, where=where).astype(np.float32)


def looks_like_fc(matrix: np.ndarray) -> bool:
    """Whether a matrix is meant as FC: square, and symmetric or with a unit diagonal."""
    if matrix.shape[0] != matrix.shape[1]:
        return False
    unit = np.allclose(np.diagonal(matrix), 1.0, atol=1e-3)
    return bool(unit or np.allclose(matrix, matrix.T, atol=1e-3, equal_nan=True))


def _cut_off_fc(matrix: np.ndarray) -> bool:
    rows, columns = matrix.shape
    if not 1 < rows < columns:
        return False
    head = matrix[:, :rows]
    unit = np.allclose(np.diagonal(head), 1.0, atol=1e-3)
    return bool(unit and np.allclose(head, head.T, atol=1e-3, equal_nan=True))

"""BrainIB's file ``md_AAL_0.4.mat``: FC matrices of ABIDE in MATLAB's struct array.

The code of the FORGE authors reads this file. It holds ``label`` and the struct array
``graph_struct`` with the fields ``edge``, ``ROI``, ``node_tags``, ``adj`` and ``neighbor``; ``ROI`` is
a subject's correlation matrix with zeros on the diagonal. Sites and ids of the subjects are not in
it. The stored graph (``adj``) is not used: fcforge makes graphs from FC, alike for all data.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fcforge.core.errors import DataError, at
from fcforge.core.target import Target
from fcforge.data.cohort import Cohort, as_text
from fcforge.imaging.atlas import aal116
from fcforge.imaging.matrix_files import read_mat

MATRICES = "graph_struct.ROI"
ROUNDING = 1e-4  # tolerance for a diagonal of 0 or 1


def load_brainib(
    path: str | Path,
    *,
    site: Sequence[str] | str = "all",
    sites: Sequence[str] | None = None,
) -> Cohort:
    """Load the subjects of BrainIB's file as FC.

    Parameters
    ----------
    path : path
        ``md_AAL_0.4.mat``.
    site : str or sequence of str
        Site of each subject in the order of the file; one text is the site of all subjects.
    sites : sequence of str, optional
        Sites to keep, in this order.

    Returns
    -------
    Cohort
        Label 1 = patient (stored as 1; controls as 0 or -1). Subject ids are the places in the
        file: 0001, 0002 and so on. ROI names are AAL's if there are 116 ROIs.

    Raises
    ------
    DataError
        For a file of another layout.
    """
    file = Path(path).expanduser()
    data = read_mat(file)
    with at(file):
        if not {"label", MATRICES} <= data.keys():
            variables = ", ".join(sorted(data)) or "nothing"
            raise DataError(
                f"is not a file of BrainIB (it has: {variables}).",
                do="It needs `label` and `graph_struct` with the field ROI.",
            )
        fc = _as_fc(data[MATRICES])
        y = _as_labels(data["label"])
        names = [site] * len(fc) if isinstance(site, str) else list(site)
        if not len(fc) == len(y) == len(names):
            raise DataError(
                f"{len(fc)} matrices, {len(y)} labels, {len(names)} sites.",
                do="Each subject needs one of each.",
            )
    ids = as_text([f"{place:04d}" for place in range(1, len(fc) + 1)])
    rois = aal116().roi_names if fc.shape[1] == len(aal116().roi_names) else ()
    target = Target(classes=("TC", "ASD"))
    cohort = Cohort(
        "brainib", fc, y, as_text(names), ids, rois, path=str(file), target=target
    )
    return cohort.select_sites(sites)


def _as_fc(matrices: Sequence[np.ndarray]) -> np.ndarray:
    """Return n matrices (R, R) as FC of shape (n, R, R) with a unit diagonal.

    Raises
    ------
    DataError
        If they are not square and of one size, or have a diagonal other than 0 or 1.
    """
    shapes = {matrix.shape for matrix in matrices}
    is_one_square = len(shapes) == 1 and all(
        len(shape) == 2 and shape[0] == shape[1] for shape in shapes
    )
    if not is_one_square:
        raise DataError(
            f"ROI matrices have the shapes {sorted(shapes)[:3]}.",
            do="All subjects need a square matrix of the same ROIs.",
        )
    fc = np.stack(matrices).astype(np.float32)
    rois = np.arange(fc.shape[1])
    diagonal = fc[:, rois, rois]
    is_0_or_1 = np.minimum(np.abs(diagonal), np.abs(diagonal - 1)) <= ROUNDING
    wrong = np.isfinite(diagonal) & ~is_0_or_1
    if wrong.any():
        place = int(np.flatnonzero(wrong.any(1))[0])
        raise DataError(
            f"matrix {place + 1} has {diagonal[place][wrong[place]][0]:.3g} on its diagonal.",
            do="ROI must hold correlations: the diagonal is 0 or 1. A covariance or a similarity "
            "of another kind would be taken for FC.",
        )
    fc[:, rois, rois] = 1.0
    return fc


def _as_labels(stored: np.ndarray) -> np.ndarray:
    """Return 1 for patients and 0 for controls, who are stored as 0 or as -1."""
    values = np.asarray(stored, dtype=np.float64).ravel()
    # A proper subset: a file with -1, 0 and 1 would have three groups.
    if not {*values.tolist()} < {-1, 0, 1}:
        raise DataError(
            f"labels are {np.unique(values)[:5].tolist()}.",
            do="Known: 1 (patient), and either 0 or -1 (control).",
        )
    return (values == 1).astype(np.int64)

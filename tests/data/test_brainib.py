"""BrainIB's md_AAL_0.4.mat: a generated file of that layout gives its matrices and labels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from fcforge.core.component import Component
from fcforge.core.errors import DataError
from fcforge.data.checks import check_cohort
from fcforge.data.datasets import load_dataset

FIELDS = ("edge", "ROI", "node_tags", "adj", "neighbor")


def matrices(n: int, n_rois: int = 116) -> np.ndarray:
    rng = np.random.default_rng(0)
    fc = np.stack([np.corrcoef(rng.normal(size=(n_rois, 150))) for _ in range(n)])
    fc[:, np.arange(n_rois), np.arange(n_rois)] = 0  # as their script stores it
    return fc


def write(path: Path, fc: np.ndarray, labels: Any, **more: Any) -> Path:
    """Write a file as BrainIB's MATLAB script does: one struct per subject, labels (n, 1)."""
    structs = np.zeros((1, len(fc)), dtype=[(name, object) for name in FIELDS])
    for i, matrix in enumerate(fc):
        strong = np.abs(matrix) > np.quantile(np.abs(matrix), 0.6)
        rows, columns = np.nonzero(strong)
        structs["ROI"][0, i] = matrix
        structs["adj"][0, i] = strong.astype(float)
        structs["edge"][0, i] = np.c_[rows, columns, rows * len(matrix) + columns]
        structs["node_tags"][0, i] = np.arange(1.0, len(matrix) + 1)[None]
        neighbours = np.empty((len(matrix), 1), dtype=object)
        for roi in range(len(matrix)):
            neighbours[roi, 0] = columns[rows == roi].astype(float)
        structs["neighbor"][0, i] = neighbours
    label = np.asarray(labels, dtype=float)[:, None]
    savemat(path, {"graph_struct": structs, "label": label, **more})
    return path


def test_matrices_and_labels_come_back(tmp_path):
    fc = matrices(12)
    labels = np.arange(12) // 2 % 2
    path = write(tmp_path / "md_AAL_0.4.mat", fc, labels)
    cohort = load_dataset(
        Component("brainib", {"path": str(path), "site": ["A", "B"] * 6})
    )
    off = ~np.eye(116, dtype=bool)
    np.testing.assert_allclose(cohort.fc[:, off], fc[:, off], atol=1e-6)
    assert (np.diagonal(cohort.fc, axis1=1, axis2=2) == 1).all()
    assert cohort.y.tolist() == labels.tolist()
    assert cohort.site_names == ("A", "B")
    assert cohort.roi_names[0] == "Precentral_L"
    errors = [f for f in check_cohort(cohort, to_split=False) if f.severity == "error"]
    assert errors == []


def test_one_site_without_a_list_and_controls_as_minus_one(tmp_path):
    path = write(tmp_path / "a.mat", matrices(4, 5), [1, -1, 1, -1])
    cohort = load_dataset(Component("brainib", {"path": str(path)}))
    assert cohort.site_names == ("all",)
    assert cohort.y.tolist() == [1, 0, 1, 0]
    assert cohort.roi_names == ()


def test_other_content_is_refused_by_name(tmp_path):
    savemat(tmp_path / "x.mat", {"weights": np.eye(3)})
    with pytest.raises(DataError, match=r"x.mat: is not a file of BrainIB .*weights"):
        load_dataset(Component("brainib", {"path": str(tmp_path / "x.mat")}))
    path = write(tmp_path / "y.mat", matrices(4, 5), [0, 1, 2, 0])
    with pytest.raises(DataError, match=r"labels are \[0.0, 1.0, 2.0\]"):
        load_dataset(Component("brainib", {"path": str(path)}))
    path = write(tmp_path / "z.mat", matrices(4, 5), [0, 1])
    with pytest.raises(DataError, match="4 matrices, 2 labels, 4 sites"):
        load_dataset(Component("brainib", {"path": str(path)}))


def test_three_label_values_are_three_groups_and_not_two(tmp_path):
    path = write(tmp_path / "a.mat", matrices(6, 5), [-1, 0, 1, 1, 0, -1])
    with pytest.raises(DataError, match=r"labels are \[-1.0, 0.0, 1.0\].*either 0 or"):
        load_dataset(Component("brainib", {"path": str(path)}))


def test_a_diagonal_of_other_numbers_is_no_correlation(tmp_path):
    fc = matrices(4, 5)
    fc[2, 3, 3] = 0.3
    path = write(tmp_path / "a.mat", fc, [0, 1, 0, 1])
    with pytest.raises(DataError, match=r"a.mat: matrix 3 has 0.3 on its diagonal"):
        load_dataset(Component("brainib", {"path": str(path)}))
    fc[:, range(5), range(5)] = 1.0
    path = write(path, fc, [0, 1, 0, 1])
    cohort = load_dataset(Component("brainib", {"path": str(path)}))
    np.testing.assert_allclose(cohort.fc, fc, atol=1e-6)


def test_missing_numbers_and_other_kinds_of_matrices_do_not_pass_the_checks(tmp_path):
    fc = matrices(8, 6)
    for place, value, complaint in ((1, np.nan, "NaN"), (2, 0.9, "not symmetric")):
        wrong = fc.copy()
        wrong[place, 0, 1] = value
        path = write(tmp_path / "a.mat", wrong, [0, 1] * 4)
        cohort = load_dataset(Component("brainib", {"path": str(path)}))
        found = [f for f in check_cohort(cohort) if f.severity == "error"]
        assert any(complaint in f.what for f in found), complaint
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DataError, match="cut off"):
        load_dataset(Component("brainib", {"path": str(path)}))

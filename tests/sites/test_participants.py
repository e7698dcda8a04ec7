"""Participants tables: spellings of columns and diagnoses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from fcforge.errors import ConfigError, DataError
from fcforge.imaging.connectivity import pearson_fc
from fcforge.sites import Cohort, check_cohort
from fcforge.sites.folder import load_folder
from fcforge.sites.participants import label_of
from fcforge.sites.simulated import simulate


def tiny(n_rois: int = 6) -> Cohort:
    return simulate(n_rois=n_rois, n_sites=2, scale=0.06, seed=0)


def write_one(path: Path, matrix: np.ndarray) -> None:
    match path.suffix:
        case ".npy":
            np.save(path, matrix)
        case ".npz":
            np.savez(path, fc=matrix)
        case ".mat":
            savemat(path, {"ROISignals": matrix}, do_compression=True)
        case ".csv":
            np.savetxt(path, matrix, delimiter=",")
        case _:
            np.savetxt(path, matrix, delimiter="\t", header="made up")


def write_folder(
    root: Path, suffix: str = ".tsv", series: bool = False, header: str = ""
) -> tuple[Cohort, dict[str, np.ndarray]]:
    """A folder of one file per subject, the cohort it was made of, and the expected FC."""
    cohort = tiny()
    rng = np.random.default_rng(0)
    lines = [header or "participant_id\tsite\tdiagnosis\tage\tsex"]
    expected = {}
    (root / "func").mkdir(parents=True)
    for i, subject in enumerate(cohort.subject_id.tolist()):
        matrix = rng.standard_normal((30 + i, 6)) if series else cohort.fc[i]
        expected[subject] = pearson_fc(matrix) if series else cohort.fc[i]
        write_one(root / "func" / f"{subject}_atlas{suffix}", matrix)
        dx = ("HC", "MDD")[cohort.y[i]]
        lines.append(f"{subject}\t{cohort.site[i]}\t{dx}\t{20 + i}\t{'MF'[i % 2]}")
    (root / "participants.tsv").write_text("\n".join(lines) + "\n")
    return cohort, expected


@pytest.mark.parametrize(
    "header",
    [
        "Subject_ID\tCenter\tDx\tage\tsex",
        "id\thospital\tGROUP\tage\tsex",
        "file_id\tSITE_ID\tlabel\tage\tsex",
    ],
)
def test_spellings_of_columns(header, tmp_path):
    write_folder(tmp_path / "d", header=header)
    assert check_cohort(load_folder(tmp_path / "d")) == []


@pytest.mark.parametrize("missing", ["participant_id", "site", "diagnosis"])
def test_missing_column(missing, tmp_path):
    header = "participant_id\tsite\tdiagnosis\tage\tsex".replace(missing, "other")
    write_folder(tmp_path / "d", header=header)
    with pytest.raises(DataError, match="no column for the"):
        load_folder(tmp_path / "d")


@pytest.mark.parametrize(
    ("value", "column", "label"),
    [
        *((value, "", 1) for value in ("1", "ASD", "mdd", "Patient", " SZ ")),
        *((value, "", 0) for value in ("0", "HC", "control", "TC")),
        ("2", "DX_GROUP", 0),
    ],
)
def test_known_diagnoses(value, column, label):
    assert label_of(value, column) == label


def test_two_means_nothing_elsewhere():
    with pytest.raises(DataError, match=r"unknown diagnosis '2'.*patients: 1, asd"):
        label_of("2", "group")
    with pytest.raises(ConfigError, match=r"0 \(control\) or 1"):
        label_of("2", labels={"2": 2})


# -- which class is the patients' ----------------------------------------------------------------
def test_the_positive_class_is_named_or_known(tmp_path):
    from fcforge.sites.participants import class_names, labels_by_positive

    assert labels_by_positive([2, 1, 1], "1") == {"1": 1, "2": 0}
    for values, positive in ((["a", "b", "c"], "a"), (["a", "b"], "A"), (["a"], "a")):
        with pytest.raises(DataError, match="needs two diagnoses, one of them that"):
            labels_by_positive(values, positive)
    assert class_names(["TC", "ASD", "HC"], np.array([0, 1, 0])) == ("HC/TC", "ASD")
    assert class_names(["0", "1"], np.array([0, 1])) == ("0", "1")
    assert class_names(["False", "True"], np.array([0, 1])) == ("0", "1")
    assert class_names(["1"], np.array([1])) == ("0", "1")

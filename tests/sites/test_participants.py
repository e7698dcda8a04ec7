"""Participants tables: spellings of columns and diagnoses."""

import numpy as np
import pytest
from small_cohorts import write_folder

from fcforge.errors import ConfigError, DataError
from fcforge.sites import check_cohort
from fcforge.sites.folder import load_folder
from fcforge.sites.participants import label_of


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

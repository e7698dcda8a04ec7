"""Participants tables: spellings of columns and diagnoses; groups that are named."""

import numpy as np
import pytest
from small_cohorts import small, write_folder, write_npz

from fcforge.core.errors import ConfigError, DataError
from fcforge.data.checks import check_cohort
from fcforge.data.folder import load_folder
from fcforge.data.participants import (
    as_covariates,
    class_names,
    columns_of,
    groups_of,
    label_of,
    meaning_of,
)


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
    with pytest.raises(DataError, match="no column for the") as error:
        load_folder(tmp_path / "d")
    assert "--participants" not in str(error.value)
    write_folder(tmp_path / "fc", header=header.replace("age", "n_empty_rois"))
    with pytest.raises(DataError, match=r"fcforge fc made this .*--participants FILE"):
        load_folder(tmp_path / "fc")


@pytest.mark.parametrize("twice", ["age", "AGE"])
def test_columns_that_could_be_taken_for_each_other(twice, tmp_path):
    header = f"participant_id\tsite\tdiagnosis\tage\t{twice}"
    write_folder(tmp_path / "d", header=header)
    with pytest.raises(DataError, match=f"columns .*{twice}") as caught:
        load_folder(tmp_path / "d")
    assert caught.value.where.endswith("participants.tsv")


def test_whole_numbers_that_a_spreadsheet_made_fractions(tmp_path):
    rows = ["participant_id\tsite\tdiagnosis"]
    for i in range(4):
        rows.append(f"{50952 + i}.0\t1,0\t{i % 2}.0")
        np.savetxt(tmp_path / f"sub-00{50952 + i}.csv", np.eye(3), delimiter=",")
    (tmp_path / "participants.tsv").write_text("\n".join(rows))
    found = load_folder(tmp_path)
    assert found.subject_id.tolist() == ["50952", "50953", "50954", "50955"]
    assert found.site_names == ("1",)
    assert found.y.tolist() == [0, 1, 0, 1]


# -- what classes are called ---------------------------------------------------------------------
def test_classes_are_called_as_the_data_call_them():
    assert class_names(["TC", "ASD", "HC"], np.array([0, 1, 0])) == ("HC/TC", "ASD")
    assert class_names(["0", "1"], np.array([0, 1])) == ("0", "1")
    assert class_names(["False", "True"], np.array([0, 1])) == ("0", "1")
    assert class_names(["1"], np.array([1])) == ("0", "1")


def test_columns_can_be_named(tmp_path):
    header = "who\tscanner_site\tdiag\tage\tsex"
    made, _ = write_folder(tmp_path / "d", header=header)
    named = columns_of("id=who,site=scanner_site, label=diag")
    back = load_folder(tmp_path / "d", columns=named)
    assert check_cohort(back) == []
    assert back.site.tolist() == made.site.tolist()
    assert set(back.covariates) == {"age", "sex"}
    loud = {role: column.upper() for role, column in named.items()}
    assert len(load_folder(tmp_path / "d", columns=loud)) == len(made)
    with pytest.raises(ConfigError, match="unknown role of a column 'dx'"):
        load_folder(tmp_path / "d", columns={"dx": "diag"})
    with pytest.raises(DataError, match="no column 'place'"):
        load_folder(tmp_path / "d", columns={**named, "site": "place"})


def test_people_without_a_diagnosis_are_left_out_when_asked(tmp_path):
    write_folder(tmp_path / "d")
    table = tmp_path / "d" / "participants.tsv"
    text = table.read_text().replace("\tHC\t", "\tn/a\t", 1)
    table.write_text(text)
    faults = load_folder(tmp_path / "d").faults
    assert [f.what for f in faults] == ["has no diagnosis."]
    left = load_folder(tmp_path / "d", drop_unlabelled=True)
    assert [f.severity for f in left.faults] == ["warning"]
    assert "no diagnosis: 1" in left.faults[0].what


def test_files_without_a_row_are_listed_and_ids_may_lack_zeros(tmp_path):
    rows = ["participant_id\tsite\tdiagnosis"]
    for k in range(4):
        np.savetxt(tmp_path / f"sub-005000{k}_fc.csv", np.eye(3), delimiter=",")
        rows.append(f"5000{k}\tA\t{k % 2}")
    (tmp_path / "participants.tsv").write_text("\n".join(rows[:-1]))
    back = load_folder(tmp_path)
    assert back.subject_id.tolist() == ["50000", "50001", "50002"]
    assert [f.severity for f in back.faults] == ["warning"]
    assert "1 file has no row in the table" in back.faults[0].what
    assert "sub-0050003_fc.csv" in back.faults[0].what


@pytest.mark.parametrize(
    ("value", "column", "label"),
    [
        *((value, "", 1) for value in ("1", "ASD", "mdd", "Patient", " SZ ", "BP")),
        *((value, "", 1) for value in ("PDD-NOS", "ADHD-C", "Schizoaffective")),
        *((value, "", 0) for value in ("0", "HC", "control", "TC", "TDC")),
        ("2", "DX_GROUP", 0),
    ],
)
def test_known_diagnoses(value, column, label):
    assert label_of(value, column) == label
    assert meaning_of(value, groups_of([value]), column) == label


def test_two_means_nothing_elsewhere():
    with pytest.raises(DataError, match=r"diagnosis '2'.*patients: 1, asd"):
        label_of("2", "group")


THREE = ["ASD", "ASD", "ADHD", "HC"]


def test_three_diagnoses_are_refused_by_name():
    with pytest.raises(DataError, match=r"ADHD \(1\), ASD \(2\), HC \(1\)") as caught:
        groups_of(THREE)
    assert "--negative" in caught.value.do


def test_two_of_three_are_compared_and_the_third_is_left_out():
    groups = groups_of(THREE, "asd", "HC")
    assert [meaning_of(value, groups) for value in THREE] == [1, 1, None, 0]
    together = groups_of(THREE, ["ASD", "ADHD"])  # the only other one is the controls
    assert [meaning_of(value, together) for value in THREE] == [1, 1, 1, 0]
    assert groups_of(THREE, "ASD,ADHD", "HC") == together


def test_one_disorder_in_two_words_is_one():
    groups = groups_of(["ASD", "autism", "TD", "HC"])
    assert [meaning_of(v, groups) for v in ("autism", "TD")] == [1, 0]


@pytest.mark.parametrize(
    ("positive", "negative", "match"),
    [
        ("ASD", None, "could be several"),
        ("MDD", "HC", "nobody has the diagnosis 'mdd'"),
        ("ASD", "TD", "nobody has the diagnosis 'td'"),
    ],
)
def test_groups_that_cannot_be_meant(positive, negative, match):
    with pytest.raises(DataError, match=match):
        groups_of(THREE, positive, negative)


def test_bipolar_people_are_a_third_diagnosis_and_relatives_are_unknown_by_name():
    with pytest.raises(DataError, match=r"BP \(1\), HC \(1\), SZP \(2\)"):
        groups_of(["HC", "SZP", "BP", "SZP"])
    with pytest.raises(DataError, match="unknown diagnosis 'SZR'"):
        meaning_of("SZR", groups_of(["HC", "SZP", "SZR"]))


@pytest.mark.parametrize("value", ["", " ", "n/a", "NaN", "-9999", "#N/A", "."])
def test_no_diagnosis(value):
    for groups in ({}, {"b": 0, "a": 1}):
        with pytest.raises(DataError, match="has no diagnosis"):
            meaning_of(value, groups)


def test_three_groups_controls_first():
    groups = groups_of(THREE, classes=("HC", "ASD", "ADHD"))
    assert [meaning_of(value, groups) for value in THREE] == [1, 1, 2, 0]
    for wrong in ({"classes": ("HC", "ASD")}, {"classes": THREE, "positive": "ASD"}):
        with pytest.raises(DataError, match="three groups or more"):
            groups_of(THREE, **wrong)
    with pytest.raises(DataError, match="nobody has the diagnosis 'bp'"):
        groups_of(THREE, classes=("HC", "ASD", "BP"))


def test_of_groups_that_may_be_absent_one_is_there():
    groups = ("HC", "SZ", "BP")
    assert meaning_of("HC", groups_of(["HC"], classes=groups, partial=True)) == 0
    with pytest.raises(DataError, match=r"'hc' or 'sz' or 'bp'; there are: 0 \(2\)"):
        groups_of(["0", "0"], classes=groups, partial=True)


@pytest.mark.parametrize(
    "how",
    [
        {"classes": ("HC", "ASD,ADHD", "ADHD")},
        {"classes": ("HC", "ADHD", "adhd")},
        {"positive": "ASD,ADHD", "negative": "HC,ADHD"},
    ],
)
def test_a_diagnosis_is_in_one_group_only(how):
    with pytest.raises(DataError, match="'adhd' is named in 2 groups"):
        groups_of(THREE, **how)


@pytest.mark.parametrize("gap", [-999, -9999, -999.0])
def test_numbers_that_stand_for_missing_values_are_missing(gap, tmp_path):
    """However they are written, in the table of the people and in a further file."""
    cohort = small()
    age = np.arange(10.0, 10.0 + len(cohort))
    age[3] = gap
    path = write_npz(tmp_path / "d.npz", cohort, age=age)
    wanted = np.where(age < 0, np.nan, age)
    np.testing.assert_array_equal(load_folder(path).covariates["age"], wanted)
    iq = np.full(len(cohort), 100)
    iq[3] = gap
    more = tmp_path / "more.npz"
    np.savez(more, subject_id=cohort.subject_id, iq=iq)
    found = load_folder(path, covariates=more).covariates["iq"]
    np.testing.assert_array_equal(found, np.where(iq < 0, np.nan, 100.0))
    rows = as_covariates([{"iq": f"{gap:.2f}"}, {"iq": "90"}])
    np.testing.assert_array_equal(rows["iq"], [np.nan, 90.0])


@pytest.mark.parametrize("word", ["NA", "NaN", "None", "n/a"])
def test_a_word_for_a_missing_site_names_no_site(word, tmp_path):
    """R and pandas write these words for missing cells; together they would be a hospital."""
    cohort = small()
    site = cohort.site.astype(object)
    site[:3] = word
    found = load_folder(write_npz(tmp_path / "d.npz", cohort, site=site.astype(str)))
    assert word not in found.site_names
    faults = [fault for fault in check_cohort(found) if "no site" in fault.what]
    assert len(faults) == 3
    assert all(fault.severity == "error" for fault in faults)


@pytest.mark.parametrize(("word", "meant"), [("MDDD", "mdd"), ("contrl", "control")])
def test_an_unknown_diagnosis_is_answered_with_the_nearest_one(word, meant):
    with pytest.raises(DataError, match=f"unknown diagnosis '{word}'") as caught:
        label_of(word)
    assert caught.value.do.startswith(f"Did you mean '{meant}'? Known for patients")


def test_an_unknown_diagnosis_like_no_other_is_answered_with_the_known_ones():
    with pytest.raises(DataError) as caught:
        label_of("dyslexia")
    assert caught.value.do.startswith("Known for patients")


@pytest.mark.parametrize(
    ("first", "second"),
    [("age", "AGE_AT_SCAN"), ("func_mean_fd", "FD"), ("gender", "sex")],
)
def test_two_columns_of_one_meaning_must_agree(first, second, tmp_path):
    header = f"participant_id\tsite\tdiagnosis\t{first}\t{second}"
    write_folder(tmp_path / "d", header=header)  # numbers beside M and F
    with pytest.raises(DataError, match=f"'{first}' and '{second.lower()}'") as caught:
        load_folder(tmp_path / "d")
    assert "Rename or remove" in caught.value.do
    assert str(tmp_path / "d") in caught.value.where


def test_two_columns_of_one_meaning_may_be_equal():
    """In value, not in letters; a missing value is equal to none but another."""
    rows = [
        {"age": "12", "age_at_scan": "12.0", "sex": "M", "gender": "1"},
        {"age": "n/a", "age_at_scan": "-9999", "sex": "F", "gender": "female"},
    ]
    covariates = as_covariates(rows)
    np.testing.assert_array_equal(covariates["age"], [12, np.nan])
    np.testing.assert_array_equal(covariates["sex"], [1, 2])
    rows[1]["age_at_scan"] = "13"
    with pytest.raises(DataError, match="stand for age and differ for 1 person"):
        as_covariates(rows)


@pytest.mark.parametrize(
    "columns", [("func_mean_fd", "mean_fd"), ("mean_fd", "func_mean_fd")]
)
def test_motion_that_fcforge_measured_counts(columns):
    """A table of `fcforge fc` has the user's columns, too: ABIDE's motion is of another pipeline."""
    own = {"mean_fd": "0.2", "func_mean_fd": "0.1"}
    rows = [{column: own[column] for column in columns} | {"n_empty_rois": "0"}]
    np.testing.assert_array_equal(as_covariates(rows)["mean_fd"], [0.2])

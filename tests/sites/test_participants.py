"""Participants tables: spellings of columns and diagnoses."""

import numpy as np
import pytest
from small_cohorts import write_folder

from fcforge.messages import ConfigError, DataError
from fcforge.sites import check_cohort
from fcforge.sites.folder import load_folder
from fcforge.sites.participants import class_names, columns_of


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
    with pytest.raises(ConfigError, match="'dx' is nothing to look for"):
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
    assert "1 file of nobody" in back.faults[0].what
    assert "sub-0050003_fc.csv" in back.faults[0].what

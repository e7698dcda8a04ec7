"""Participants tables, the walk over subjects, and the group's own rows and sites."""

import json
from pathlib import Path

import pandas as pd
import pytest

from fcforge.core.errors import ConfigError, DataError
from fcforge.imaging.people import (
    Failure,
    Outcome,
    find_table,
    likely_typos,
    mixed_trs,
    participant_table,
    read_people,
    read_table,
    under_ids_of,
    walk,
    wanted,
)


def table(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("mark", ["\t", ",", ";"])
def test_delimiters_comments_and_blank_lines(mark, tmp_path):
    rows = ["# made by hand", mark.join(["id", "site"]), "", mark.join(["007", " A "])]
    found = read_table(table(tmp_path / "p.txt", *rows))
    assert found == [{"id": "007", "site": "A"}]


def test_quoted_cells_keep_their_commas(tmp_path):
    people = read_people(table(tmp_path / "p.csv", "id,site", '1,"Hospital, North"'))
    assert people["1"]["site"] == "Hospital, North"


def test_a_table_of_an_older_spreadsheet(tmp_path):
    path = tmp_path / "participants.csv"
    path.write_bytes("id;site;age\n1;Köln;12,5\n".encode("latin-1"))
    assert read_people(path) == {"1": {"id": "1", "site": "Köln", "age": "12,5"}}


def test_ids_of_the_files_are_found_without_leading_zeros():
    rows = {"50952": {"site": "NYU"}, "7": {"site": "UM"}}
    rows = under_ids_of(["0050952", "07", "007"], rows)
    assert set(rows) == {"0050952", "7"}  # 7 could be either


@pytest.mark.parametrize(
    ("subjects", "listed", "pairs"),
    [
        (["03"], ["33"], [("03", "33")]),
        (["012"], ["021", "900"], [("012", "021")]),
        (["NYU01"], ["NYU1"], [("NYU01", "NYU1")]),
        (["03"], ["33", "04"], []),  # either could be meant
        (["03"], ["45"], []),
        (["0123"], ["3210"], []),
        ([f"1{k}" for k in range(9)], [f"2{k}" for k in range(9)], []),
    ],
)
def test_slips_of_the_keyboard(subjects, listed, pairs):
    assert likely_typos(subjects, listed) == pairs


def test_ids_lose_sub_and_keep_zeros(tmp_path):
    people = read_people(
        table(tmp_path / "p.tsv", "Participant_ID\tCentre\tDX", "sub-007\tA\tASD")
    )
    assert people == {"007": {"Participant_ID": "sub-007", "Centre": "A", "DX": "ASD"}}


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        (["name\tsite", "1\tA"], "no column for the subject id"),
        (["id\tsite", "1\tA", "sub-1\tB"], "lists '1' twice"),
        (["id\tsite", "1\tA", "1.0\tB"], "lists '1' twice"),
        (["id\tsite", "1"], "row 2 has 1 values for 2"),
        (["# nothing"], "is empty"),
    ],
)
def test_tables_that_cannot_be_used(rows, match, tmp_path):
    with pytest.raises(DataError, match=match):
        read_people(table(tmp_path / "p.tsv", *rows))


def test_found_beside_or_above(tmp_path):
    root = tmp_path / "study" / "derivatives" / "fmriprep"
    root.mkdir(parents=True)
    assert find_table(root) is None
    above = table(tmp_path / "study" / "participants.tsv", "id\tsite", "1\tA")
    assert find_table(root) == above.resolve()
    beside = table(root / "participants.csv", "id,site", "2,B")
    assert find_table(root) == beside
    with pytest.raises(DataError, match=r"nobody.tsv: no such file"):
        read_people(tmp_path / "nobody.tsv")


SIDE = {
    "MeanFD": 0.12345,
    "Volumes": 150,
    "DegreesOfFreedom": None,
    "RepetitionTime": 2.0,
    "EmptyROIs": ["Vermis_3"],
}


def fc_file(out: Path, subject: str, **change) -> Path:
    path = out / f"sub-{subject}" / "func" / f"sub-{subject}_relmat.tsv"
    path.parent.mkdir(parents=True)
    path.with_suffix(".json").write_text(json.dumps({**SIDE, **change}))
    return path


def test_rows_join_the_users_columns_and_the_sidecars(tmp_path):
    people = {
        "1": {
            "id": "1",
            "SITE_ID": "A",
            "DX_GROUP": "2",
            "mean_fd": "9",
            "dof": "8",
            "file": "x.npy",
        }
    }
    unfinished = tmp_path / "sub-3" / "func" / "sub-3_relmat.tsv"
    files = {"1": fc_file(tmp_path, "1"), "2": fc_file(tmp_path, "2"), "3": unfinished}
    found = participant_table(tmp_path, files, people)
    one, two = found.to_dict("records")
    assert (one["participant_id"], one["original_id"], one["site_id"]) == (
        "sub-1",
        "1",
        "A",
    )
    assert one["dx_group"] == "2"  # 2 means control under that name alone
    assert one["mean_fd"] == "0.1235"  # measured here: not the user's
    assert one["dof"] == "8"  # unknown here: the user's
    assert (one["n_empty_rois"], one["tr"]) == ("1", "2")
    assert one["file"] == "sub-1/func/sub-1_relmat.tsv"
    assert list(one) == list(two)
    assert two["site_id"] == "n/a"


def test_a_site_with_two_repetition_times_is_reported():
    rows = pd.DataFrame(
        [("A", "2"), ("A", "10"), ("A", "n/a"), ("B", "2"), ("B", "2")],
        columns=["site_id", "tr"],
    )
    assert mixed_trs(rows) == [
        "site A mixes repetition times (2, 10 s): its subjects were not scanned alike."
    ]
    assert mixed_trs(rows.drop(columns="site_id")) == []
    assert mixed_trs(pd.DataFrame()) == []


def test_one_failure_does_not_stop_the_others():
    def make(subject: str) -> bool:
        if subject == "b":
            raise DataError("no scan\nof it.", where="b.nii", do="Look.")
        if subject == "c":
            raise ValueError("odd\n  numbers")
        return subject == "a"

    found = walk(["a", "b", "c", "d"], make)
    assert (found.made, found.kept) == (("a",), ("d",))
    assert found.failed == (
        ("sub-b", "b.nii: no scan of it. Look.", "error"),
        ("sub-c", "ValueError: odd numbers", "error"),
    )


def test_a_bug_is_not_a_failed_subject():
    def make(subject: str) -> bool:
        raise AttributeError("ours")

    with pytest.raises(AttributeError):
        walk(["a"], make)


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome(("a",), (), ()), 0),
        (Outcome((), ("a",), ()), 0),
        (Outcome((), (), ()), 0),
        (Outcome(("a",), (), (Failure("b", "why", "error"),)), 1),
        (Outcome((), (), (Failure("b", "why", "error"),)), 2),
    ],
)
def test_exit_codes(outcome, code, capsys):
    assert outcome.code == code
    outcome.print_summary(Path("out"), "have FC")
    lines = capsys.readouterr().err.splitlines()
    done = len(outcome.made) + len(outcome.kept)
    assert lines[-1].startswith(
        f"{done} of {done + len(outcome.failed)} subjects have FC in out"
    )
    assert len(lines) == 1 + bool(outcome.failed)


def test_wanted_are_those_named_or_all():
    assert wanted(["sub-02", "02", "01"], ["01", "09"], {"02": 1}) == ["01", "02"]
    assert wanted([], {"b": 1}, ["a", "b"]) == ["a", "b"]
    assert wanted(["sub-NYU1"], ["NYU_1", "UM_1"]) == ["NYU_1"]  # BIDS label of an id
    with pytest.raises(ConfigError, match="unknown participant label '1'"):
        wanted(["1"], ["01", "02"])


def test_the_column_of_ids_is_the_one_that_names_the_files(tmp_path):
    """The PCP's table has three columns of ids, and people without a file."""
    path = table(
        tmp_path / "Phenotypic_V1_0b_preprocessed1.csv",
        ",SUB_ID,subject,FILE_ID,SITE_ID,DX_GROUP",
        "0,50002,50002,no_filename,PITT,1",
        "1,50003,50003,Pitt_0050003,PITT,1",
        "2,50004,50004,no_filename,PITT,2",
    )
    assert find_table(tmp_path) == path
    assert list(read_people(path)) == ["50002", "50003", "50004"]
    assert list(read_people(path, ["0050003", "0050004"])) == [
        "50002",
        "50003",
        "50004",
    ]
    rows = read_people(path, ["Pitt_0050003"])
    assert list(rows) == ["Pitt_0050003"]
    assert (rows["Pitt_0050003"]["SITE_ID"], "" in rows["Pitt_0050003"]) == (
        "PITT",
        False,
    )

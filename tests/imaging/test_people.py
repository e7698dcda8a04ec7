"""Participants tables beside the data: found, read, one row per subject."""

from __future__ import annotations

from pathlib import Path

import pytest

from fcforge.errors import DataError
from fcforge.imaging.people import ParticipantTable, find_people, read_people, read_table


def table(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("mark", ["\t", ",", ";"])
def test_delimiters_comments_and_blank_lines(mark, tmp_path):
    rows = ["# made by hand", mark.join(["id", "site"]), "", mark.join(["007", " A "])]
    header, lines = read_table(table(tmp_path / "p.txt", *rows))
    assert header == ["id", "site"]
    assert lines == [(4, ["007", "A"])]


def test_quoted_cells_keep_their_commas(tmp_path):
    people = read_people(table(tmp_path / "p.csv", "id,site", '1,"Hospital, North"'))
    assert people.rows["1"]["site"] == "Hospital, North"


def test_ids_lose_sub_and_keep_zeros(tmp_path):
    people = read_people(table(tmp_path / "p.tsv", "Participant_ID\tCentre\tDX", "sub-007\tA\tASD"))
    assert list(people.rows) == ["007"]
    assert (people.site, people.diagnosis) == ("Centre", "DX")
    assert people.of("007") == {"site": "A", "diagnosis": "ASD"}
    assert people.of("008") == {"site": "n/a", "diagnosis": "n/a"}


def test_dx_group_keeps_its_name_and_other_columns_stay(tmp_path):
    rows = ["SUB_ID,SITE_ID,DX_GROUP,Age,file", "1,A,2,,x.npy"]
    people = read_people(table(tmp_path / "p.csv", *rows))
    assert people.of("1") == {"site": "A", "dx_group": "2", "age": "n/a"}


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        (["name\tsite", "1\tA"], "no column for the subject id"),
        (["id\tsite", "1\tA", "sub-1\tB"], "lists '1' twice"),
        (["id\tsite", "1"], "line 2 has 1 values for 2 columns"),
        (["# nothing"], "is empty"),
    ],
)
def test_tables_that_cannot_be_used(rows, match, tmp_path):
    with pytest.raises(DataError, match=match):
        read_people(table(tmp_path / "p.tsv", *rows))


def test_found_beside_or_above_and_named_ones_first(tmp_path):
    root = tmp_path / "study" / "derivatives" / "fmriprep"
    root.mkdir(parents=True)
    assert find_people(root) == ParticipantTable({})
    above = table(tmp_path / "study" / "participants.tsv", "id\tsite", "1\tA")
    assert find_people(root).path == above.resolve()
    beside = table(root / "participants.csv", "id,site", "2,B")
    assert list(find_people(root).rows) == ["2"]
    assert find_people(root).path == beside
    given = table(tmp_path / "mine.csv", "id,site", "3,C")
    assert list(find_people(root, given).rows) == ["3"]
    with pytest.raises(DataError, match=r"nobody.tsv: cannot be read"):
        find_people(root, tmp_path / "nobody.tsv")

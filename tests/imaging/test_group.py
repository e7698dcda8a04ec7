"""The group's table: rows from sidecars, earlier failures, sites and outliers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from fcforge.imaging.group import (
    mixed_trs,
    numbers,
    outliers,
    participant_rows,
    site_rows,
    write_failed,
)
from fcforge.imaging.people import ParticipantTable

SIDE = {
    "MeanFD": 0.12345, "Volumes": 150, "DegreesOfFreedom": None, "RepetitionTime": 2.0,
    "MeanFC": 0.25, "EmptyROIs": ["Vermis_3"], "MinCoverage": None,
}  # fmt: skip


def fc_file(out: Path, subject: str, **change) -> Path:
    path = out / f"sub-{subject}" / "func" / f"sub-{subject}_relmat.tsv"
    path.parent.mkdir(parents=True)
    path.with_suffix(".json").write_text(json.dumps({**SIDE, **change}))
    return path


def test_rows_join_the_users_columns_and_the_sidecars(tmp_path):
    people = ParticipantTable(
        {"1": {"id": "1", "where": "A", "dx": "ASD", "mean_fd": "9", "min_coverage": "0.8"}},
        site="where",
        diagnosis="dx",
    )
    unfinished = tmp_path / "sub-3" / "func" / "sub-3_relmat.tsv"
    files = {"1": fc_file(tmp_path, "1"), "2": fc_file(tmp_path, "2"), "3": unfinished}
    one, two = participant_rows(tmp_path, files, people)
    assert (one["participant_id"], one["original_id"], one["site"]) == ("sub-1", "1", "A")
    assert one["mean_fd"] == "0.1235"  # measured here: not the user's
    assert one["min_coverage"] == "0.8"  # unknown here: the user's
    assert (one["dof"], one["n_empty_rois"], one["tr"]) == ("n/a", 1, "2")
    assert one["file"] == "sub-1/func/sub-1_relmat.tsv"
    assert list(one) == list(two)
    assert two["site"] == "n/a"


def test_failures_of_earlier_runs_stay_until_asked_again(tmp_path):
    write_failed(tmp_path, [("sub-1", "old"), ("sub-2", "old")], ["1", "2"])
    assert write_failed(tmp_path, [("sub-3", "new")], ["2", "3"]) == [
        ("sub-1", "old"),
        ("sub-3", "new"),
    ]
    assert (tmp_path / "logs" / "failed.tsv").read_text().splitlines()[1:] == [
        "sub-1\told",
        "sub-3\tnew",
    ]


def test_sites_and_mixed_trs():
    rows = [
        {"site": "A", "diagnosis": "ASD", "tr": "2"},
        {"site": "A", "diagnosis": "TC", "tr": "3"},
        {"site": "B", "dx_group": "1", "tr": "2"},
    ]
    assert site_rows(rows) == [
        {"site": "A", "n": 2, "diagnosis": "ASD: 1, TC: 1", "tr": "2, 3"},
        {"site": "B", "n": 1, "diagnosis": "1: 1", "tr": "2"},
    ]
    assert mixed_trs(rows) == ["site A mixes TRs (2, 3 s): its subjects were not scanned alike."]


def test_outliers_by_hand():
    values = [0.30, 0.31, 0.29, 0.30, 0.32, 0.28, 0.30, 0.31, 0.9]
    rows = [{"participant_id": f"sub-{i}", "mean_fc": str(v)} for i, v in enumerate(values)]
    (line,) = outliers(rows)
    assert line.startswith("sub-8: mean FC 0.90 is far from the group's median 0.30")
    assert outliers(rows[:7]) == []  # too few to say
    assert np.isnan(numbers([{"x": "n/a"}, {"x": "2"}], "x")).tolist() == [True, False]

"""Written files: names, sidecars, tables, fingerprints; foreign files are not touched."""

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fcforge import __version__
from fcforge.core.errors import DataError
from fcforge.imaging.atlas import names_only
from fcforge.imaging.extract import Run, SubjectFC
from fcforge.imaging.layouts import Source
from fcforge.imaging.outputs import (
    base_name,
    bids_label,
    fingerprint,
    fingerprint_of,
    is_done,
    refuse_foreign,
    relmat_path,
    software,
    subject_folder,
    write_description,
    write_json,
    write_subject,
    write_table,
)

ATLAS = names_only("Mine", ("a", "b", "c"))


def source(**fields) -> Source:
    known = {"sub": "01", "task": "rest", "space": "MNI152", **fields}
    return Source(Path("/in/x.nii.gz"), "scan", "fmriprep", known)


def run(**fields) -> Run:
    series = np.array([[1.0, 2, 3], [2, 1, 5], [4, 2, 0.5]])
    report = {"DegreesOfFreedom": 30.0, "Confounds": ["csf"]}
    coverage = np.array([1.0, 0.5, 0.25])
    fd = np.array([np.nan, 0.1, 0.3])
    return Run(source(**fields), series, 2.0, coverage, fd, series.T, report, ("odd",))


def test_names_are_in_bids_order_and_hold_only_what_is_known():
    one = source(ses="pre", run="2", echo="1", acq="fast", dir="AP", desc="x")
    assert base_name(one) == (
        "sub-01_ses-pre_task-rest_acq-fast_dir-AP_run-2_echo-1_space-MNI152"
    )
    assert base_name(Source(Path("x"), "series", "series", {"sub": "s_1"})) == "sub-s1"
    assert subject_folder(Path("o"), one) == Path("o/sub-01/ses-pre/func")
    assert bids_label("50_002-b") == "50002b"


def test_the_fc_of_several_runs_is_named_by_what_they_share():
    runs = [source(ses="a", run="1", dir="AP"), source(ses="a", run="2")]
    name = relmat_path(Path("o"), runs, ATLAS)
    stem = "sub-01_ses-a_task-rest_space-MNI152_atlas-Mine_stat-pearsoncorrelation_relmat.tsv"
    assert name == Path("o/sub-01/ses-a/func") / stem
    across = relmat_path(Path("o"), [runs[0], source(ses="b")], ATLAS)
    assert across.parent == Path("o/sub-01/func")


def test_a_subject_is_written_and_its_sidecar_marks_it_done(tmp_path):
    runs = (run(run="1"), run(run="2"))
    result = SubjectFC("01", runs, np.eye(3), (2,), {"drop": 0}, ("odd",))
    path = write_subject(tmp_path, result, ATLAS, "key", Path("/in"))
    assert path.read_text().splitlines()[1] == "a\t1\t0\t0"
    side = json.loads(path.with_suffix(".json").read_text())
    assert side["Sources"] == ["bids:input:x.nii.gz", "bids:input:x.nii.gz"]
    assert len(side["Atlas"]["SHA256"]) == 64
    assert side["EmptyROIs"] == ["c"]
    assert side["Volumes"] == 6
    assert side["DegreesOfFreedom"] == 60.0
    assert side["MeanFD"] == pytest.approx(0.2)
    assert side["Warnings"] == ["odd"]
    assert side["Settings"] == {"drop": 0}
    assert is_done(path, "key")
    assert not is_done(path, "another")
    one = json.loads(next(path.parent.glob("*run-1*timeseries.json")).read_text())
    assert one["Coverage"] == [1.0, 0.5, 0.25]
    series = next(path.parent.glob("*run-2*timeseries.tsv")).read_text().splitlines()
    assert series == ["a\tb\tc", "1\t2\t3", "2\t1\t5", "4\t2\t0.5"]


def test_half_a_sidecar_is_not_done(tmp_path):
    path = tmp_path / "x_relmat.tsv"
    path.touch()
    (tmp_path / "x_relmat.json").write_text('{"Fingerprint": "k')
    assert not is_done(path, "k")


def test_tables_and_json_know_missing_numbers(tmp_path):
    write_table(
        tmp_path / "t.tsv", pd.DataFrame({"a": ["x", "y"], "b": [np.nan, 1 / 3]})
    )
    assert (tmp_path / "t.tsv").read_text() == "a\tb\nx\tn/a\ny\t0.333333333\n"
    write_json(tmp_path / "t.json", {"a": (None, Path("x")), "b": {1: 2.5}})
    assert json.loads((tmp_path / "t.json").read_text()) == {
        "a": [None, "x"],
        "b": {"1": 2.5},
    }


def test_the_dataset_says_who_made_it(tmp_path):
    write_description(tmp_path, Path("/in"), "FC")
    info = json.loads((tmp_path / "dataset_description.json").read_text())
    assert info["GeneratedBy"] == [{"Name": "fcforge", "Version": __version__}]


def test_another_tools_folder_and_the_input_are_refused(tmp_path):
    with pytest.raises(DataError, match="same folder as IN"):
        refuse_foreign(tmp_path / "x" / "..", tmp_path)
    (tmp_path / "dataset_description.json").write_text(
        '{"GeneratedBy": [{"Name": "fMRIPrep"}]}'
    )
    with pytest.raises(DataError, match="dataset of another tool"):
        refuse_foreign(tmp_path, tmp_path / "in")
    write_description(tmp_path, Path("/in"), "FC")
    refuse_foreign(tmp_path, tmp_path / "in")


def test_a_fingerprint_changes_with_file_setting_and_atlas(tmp_path):
    file = tmp_path / "x.nii.gz"
    file.write_bytes(b"1")
    one = Source(file, "scan", "nifti", {"sub": "01"})
    before = fingerprint([one], ATLAS, {"drop": 0})
    assert before == fingerprint([one], ATLAS, {"drop": 0})
    assert before != fingerprint([one], ATLAS, {"drop": 1})
    assert before != fingerprint(
        [one], names_only("Mine", ("a", "b", "d")), {"drop": 0}
    )
    os.utime(file, ns=(1, 1))
    assert before != fingerprint([one], ATLAS, {"drop": 0})
    assert fingerprint_of([tmp_path / "gone"], 1) == fingerprint_of([], 1)


def test_software_names_its_own_version_and_what_is_missing(monkeypatch):
    found = software()
    assert found["fcforge"] == __version__
    assert found["numpy"] == np.__version__

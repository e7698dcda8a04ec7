"""`fcforge fc` called as a BIDS App: levels, labels, sessions, filters, processes, URIs."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from imaging_calls import fc_command
from imaging_trees import describe, roi_signals, write_people, xcpd_tree
from typer.testing import CliRunner

from fcforge.cli import app
from fcforge.core.component import Component
from fcforge.core.errors import FCForgeError
from fcforge.data.datasets import load_dataset

NAMES = [f"LH_Vis_{i}" for i in range(6)] + [f"RH_Default_{i}" for i in range(6)]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    xcpd_tree(tmp_path / "in", NAMES, n=4)
    return tmp_path / "in"


def call(*words: object) -> tuple[int, str]:
    """Exit code and messages of `fcforge fc`."""
    done = CliRunner().invoke(app, ["fc", *map(str, words)])
    if isinstance(done.exception, FCForgeError):  # `main` prints it
        return 2, str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done
    return done.exit_code, done.stderr


def ids(out: Path) -> list[str]:
    return list(pd.read_csv(out / "participants.tsv", sep="\t")["participant_id"])


def options(*more: object) -> list[object]:
    return ["--atlas", "4S156Parcels", "--no-report", *more]


@pytest.mark.parametrize(
    "labels", [("01", "03"), ("sub-01", "03"), ("sub-03", "01", "sub-01")]
)
def test_labels_with_and_without_sub_anywhere_in_the_line(labels, tree, tmp_path):
    out = tmp_path / "out"
    code, _ = call(tree, out, "participant", *options("--participant-label", *labels))
    assert (code, ids(out)) == (0, ["sub-01", "sub-03"])
    code, said = call(
        *options("--participant-label", *labels), tree, out, "participant"
    )
    assert (code, ids(out)) == (0, ["sub-01", "sub-03"]), said
    assert "(0 made now, 2 from before)" in said


def test_labels_before_the_three_words(tree, tmp_path):
    out = tmp_path / "out"
    words = ["--participant-label", "01", "sub-02", tree, out, "participant"]
    code, said = call(*options(), *words)
    assert (code, ids(out)) == (0, ["sub-01", "sub-02"]), said


def test_a_label_that_does_not_exist_stops_before_anything_is_made(tree, tmp_path):
    out = tmp_path / "out"
    for label, hint in (
        ("1", "'01'"),
        ("sub-05", "'0"),
        ("99", "Known: 01, 02, 03, 04"),
    ):
        code, said = call(
            tree, out, "participant", *options("--participant-label", "01", label)
        )
        assert code == 2
        assert f"unknown participant label '{label.removeprefix('sub-')}'" in said
        assert hint in said
    assert not list(tmp_path.rglob("*_relmat.tsv"))


def test_the_group_level_makes_tables_and_one_file_of_all_fc(tree, tmp_path):
    out = tmp_path / "out"
    code, said = call(tree, out, "group", *options())
    assert (code, "holds no FC of atlas 4S156Parcels" in said) == (2, True)
    for label in ("01", "02", "04"):  # jobs of a cluster
        ask = options("--participant-label", label)
        assert call(tree, out, "participant", *ask)[0] == 0
    (out / "participants.tsv").unlink()
    (out / "quality.tsv").unlink()
    code, said = call(tree, out, "group", *options())
    assert code == 0, said
    assert "1 subject without FC: 03" in said
    assert ids(out) == ["sub-01", "sub-02", "sub-04"]
    assert len(pd.read_csv(out / "quality.tsv", sep="\t")) == 3
    file = out / "atlas-4S156Parcels_stat-pearsoncorrelation_relmat.npz"
    whole, table = (
        load_dataset(Component("folder", {"path": str(path)})) for path in (file, out)
    )
    np.testing.assert_allclose(whole.fc, table.fc, atol=1e-6)
    assert list(whole.site) == list(table.site)
    assert list(whole.y) == list(table.y)
    assert whole.roi_names == table.roi_names
    # the group's numbers are of the settings asked for, never of others
    code, said = call(tree, out, "group", *options("--drop", "2"))
    assert code == 2
    assert "Pass the options of the participant level" in said
    code, said = call(tree, out, "group", *options("--participant-label", "01"))
    assert (code, "no effect at the group level" in said) == (2, True)


def test_two_processes_give_the_files_of_one(tree, tmp_path):
    (tree / "sub-02").rename(tree / "gone")  # listed, without a scan
    one, two = tmp_path / "one", tmp_path / "two"
    code, said = call(tree, one, "participant", *options())
    assert code == 1
    code, also = call(tree, two, "participant", *options("--n-cpus", "2"))
    assert code == 1
    assert also.replace(str(two), str(one)) == said
    made = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert made == sorted(p.relative_to(two) for p in two.rglob("*") if p.is_file())
    for path in made:
        if path.suffix in (".tsv", ".md"):
            assert (one / path).read_bytes() == (two / path).read_bytes(), path


def sessions_tree(root: Path) -> None:
    describe(root, "XCP-D")
    for i, (subject, session) in enumerate(
        [("01", "pre"), ("01", "post"), ("02", "pre"), ("03", "post")]
    ):
        func = root / f"sub-{subject}" / f"ses-{session}" / "func"
        func.mkdir(parents=True)
        values = roi_signals(np.random.default_rng(i), 40, len(NAMES))
        name = f"sub-{subject}_ses-{session}_task-rest_space-MNI_seg-4S156Parcels"
        pd.DataFrame(values, columns=NAMES).to_csv(
            func / f"{name}_stat-mean_timeseries.tsv", sep="\t", index=False
        )
    write_people(root, ["01", "02", "03"])


def test_one_subject_in_two_sessions_is_chosen_by_session_label(tmp_path):
    root, out = tmp_path / "in", tmp_path / "out"
    sessions_tree(root)
    code, said = call(root, out, "participant", *options())
    assert code == 1
    assert "are not two runs of one scan" in said
    assert "--session-label" in said
    code, said = call(root, tmp_path / "pre", *options("--session-label", "ses-pre"))
    assert code == 1, said
    assert ids(tmp_path / "pre") == ["sub-01", "sub-02"]  # 03 was not there before
    code, said = call(root, out, *options("--session-label", "mid", "pre"))
    assert (code, "unknown session label 'mid'" in said) == (2, True)
    filters = tmp_path / "f.json"
    filters.write_text('{"bold": {"session": "post"}}')
    code, said = call(root, tmp_path / "post", *options("--bids-filter-file", filters))
    assert ids(tmp_path / "post") == ["sub-01", "sub-03"]
    code, said = call(
        root,
        tmp_path / "all",
        *options("--session-label", "pre", "post", "--session", "all"),
    )
    assert code == 0, said
    table = pd.read_csv(tmp_path / "all" / "participants.tsv", sep="\t")
    assert list(table["n_volumes"]) == [80, 40, 40]


def test_a_file_in_the_folder_of_another_subject_is_refused(tree, tmp_path):
    (path,) = (tree / "sub-02").rglob("*4S156*")
    path.rename(path.with_name(path.name.replace("sub-02", "sub-09")))
    code, said = call(tree, tmp_path / "out", "participant", *options())
    assert code == 2
    assert "is named sub-09, but lies in the folder sub-02" in said
    ask = options("--skip-bids-validation")
    assert call(tree, tmp_path / "out", "participant", *ask)[0] == 1
    assert "sub-09" in ids(tmp_path / "out")


def test_sources_are_bids_uris_that_lead_to_the_files(tree, tmp_path):
    out = tmp_path / "out"
    assert call(tree, out, "participant", *options())[0] == 0
    links = json.loads((out / "dataset_description.json").read_text())["DatasetLinks"]
    for side in out.rglob("sub-*.json"):
        (uri,) = json.loads(side.read_text())["Sources"]
        scheme, name, path = uri.split(":")
        assert scheme == "bids"
        assert (Path(links[name].removeprefix("file://")) / path).is_file()


TABLE = [
    "who\tscanner_site\tdx\tsite",
    *(f"sub-0{i}\tS{i % 2}\t{'ASD' if i > 2 else 'TC'}\tcity" for i in range(1, 5)),
]


def test_columns_are_named_by_role_as_in_run(tree, tmp_path):
    table = tmp_path / "people.tsv"
    table.write_text("\n".join(TABLE) + "\n")
    out = tmp_path / "out"
    ask = options("--participants", table)
    code, said = call(tree, out, "participant", *ask)
    assert (code, "no column for the subject id" in said) == (2, True)
    roles = "id=who,site=Scanner_Site,label=dx"
    code, said = call(tree, out, "participant", *ask, "--columns", roles)
    assert code == 0, said
    cohort = load_dataset(Component("folder", {"path": str(out)}))
    assert sorted(cohort.site_names) == ["S0", "S1"]
    assert list(cohort.y) == [0, 0, 1, 1]
    for wrong, why in (
        ("id=who,cite=scanner_site", "Did you mean 'site'"),
        ("id=who,site=scanner", "has no column 'scanner'"),
    ):
        code, said = call(tree, tmp_path / "o2", *ask, "--columns", wrong)
        assert (code, why in said) == (2, True), said
    both = f"1-5,{roles}"  # columns of the series, too
    assert call(tree, tmp_path / "o3", *ask, "--columns", both)[0] == 0


def test_the_pcps_table_is_recognised(shared_data, tmp_path):
    lines: list[str] = []
    root = shared_data / "abide_pcp_sample" / "ABIDE_pcp"
    out = tmp_path / "out"
    ask = {"source": root / "cpac" / "filt_noglobal", "out": out, "report": False}
    assert fc_command(**ask, say=lines.append) == 1
    assert "28 of 1035 subjects have FC" in lines[-1]
    assert not any("columns without names" in line for line in lines)  # AAL's codes
    cohort = load_dataset(Component("folder", {"path": str(out)}))
    assert set(cohort.site_names) == {"NYU", "UCLA_1", "UM_1", "USM"}
    theirs = load_dataset(Component("abide", {"path": str(root), "quality": "all"}))
    by_id = dict(
        zip(theirs.subject_id, zip(theirs.y, theirs.fc, strict=True), strict=True)
    )
    for who, y, fc in zip(cohort.subject_id, cohort.y, cohort.fc, strict=True):
        their_y, their_fc = by_id[who[-5:]]
        assert y == their_y
        np.testing.assert_allclose(fc, their_fc, atol=1e-6)

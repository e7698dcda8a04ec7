"""`fcforge fc`: derivative trees to FC to a loadable dataset; trouble is one line each."""

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from imaging_calls import fc_command
from imaging_trees import (
    SITES,
    cpac_tree,
    describe,
    dpabi_tree,
    fmriprep_subject,
    fmriprep_tree,
    roi_signals,
    subject_ids,
    write_people,
    xcpd_tree,
)

from fcforge.core.component import Component
from fcforge.data.checks import check_cohort
from fcforge.data.datasets import load_dataset
from fcforge.data.splits import make_sites
from fcforge.imaging.app import SENTENCES, describe_methods
from fcforge.imaging.atlas import Atlas, aal116, names_only
from fcforge.imaging.denoise import COMPONENTS, PRESETS
from fcforge.imaging.layouts import LAYOUTS, Source
from fcforge.imaging.options import FCRequest
from fcforge.imaging.people import Failure

SMALL = np.diag([12.0, 12, 12, 1])
SMALL[:3, 3] = [-90, -125, -71]
Command = Callable[..., int]


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def fc(tmp_path: Path, lines: list[str]) -> Command:
    """`fcforge fc` from "in" to "out", without pages: its exit code; its messages go to `lines`."""
    usual = {"source": tmp_path / "in", "out": tmp_path / "out", "report": False}
    return lambda **options: fc_command(say=lines.append, **{**usual, **options})


@pytest.fixture
def block_fc(fc: Command, blocks: tuple[Path, Path]) -> Command:
    """The same command with the user atlas of six ROIs."""
    return partial(fc, atlas=str(blocks[0]))


@pytest.fixture
def small_grid(block: Atlas) -> np.ndarray:
    return block.on_grid((15, 18, 15), SMALL)


def _errors(cohort) -> list[str]:
    return [str(f) for f in check_cohort(cohort) if f.severity == "error"]


RUN = """
[experiment]
title = "FC to run"
seeds = [0]
[dataset]
name = "folder"
path = "{path}"
[[learner]]
method = "analytic"
model = "linear"
"""


def _run(out: Path) -> None:
    """`fcforge run` on the output folder as it is."""
    from typer.testing import CliRunner

    from fcforge.cli import app

    config = out.parent / "experiment.toml"
    config.write_text(RUN.format(path=out))
    words = ["run", str(config), "--out", str(out.parent / "run"), "--jobs", "1"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "analytic" in done.stdout


def _load(out: Path):
    return load_dataset(Component("folder", {"path": str(out)}))


def _participants(out: Path) -> pd.DataFrame:
    return pd.read_csv(out / "participants.tsv", sep="\t")


def _file(root: Path, subject: str, pattern: str) -> Path:
    return next((root / f"sub-{subject}").rglob(pattern))


def _assert_failed(lines: list[str], reasons: Mapping[str, str]) -> None:
    """These subjects failed and no others, each in one line that has its reason."""
    failed = {line.split()[1].rstrip(":"): line for line in lines if "failed: " in line}
    assert set(failed) == set(reasons)
    for subject, reason in reasons.items():
        assert reason in failed[subject]
        assert "\n" not in failed[subject]


def test_a_tree_of_fmriprep_to_sites_without_editing(
    tmp_path: Path, aal_grid, fc, lines
):
    fmriprep_tree(tmp_path / "in", aal_grid, 20, n_volumes=60)
    assert fc(denoise="high_pass") == 0, lines
    cohort = _load(tmp_path / "out")
    assert cohort.fc.shape == (20, 116, 116)
    assert cohort.site_names == SITES
    assert _errors(cohort) == []
    assert cohort.covariates["mean_fd"].min() > 0
    assert len(make_sites(cohort, 0)) == 2
    _run(tmp_path / "out")


def test_fc_is_that_of_the_signals_put_in(
    tmp_path: Path, aal: Atlas, aal_grid, fc, lines
):
    truth = fmriprep_subject(tmp_path / "in", "01", aal_grid, n_volumes=150)
    assert fc(denoise="none", low_pass=0.2, high_pass=0, report=True) == 0, lines
    path = next((tmp_path / "out").rglob("*_relmat.tsv"))
    table = pd.read_csv(path, sep="\t", index_col="Node")
    assert list(table.columns) == list(table.index) == list(aal.roi_names)
    upper = np.triu_indices(116, 1)
    expected = np.corrcoef(truth, rowvar=False)[upper]
    assert np.corrcoef(table.to_numpy()[upper], expected)[0, 1] > 0.99
    series = pd.read_csv(next((tmp_path / "out").rglob("*_timeseries.tsv")), sep="\t")
    assert series.shape == (150, 116)


def test_output_names_sidecars_and_pages(tmp_path: Path, aal_grid, fc, lines):
    for subject in ("01", "02"):
        fmriprep_subject(tmp_path / "in", subject, aal_grid)
    write_people(tmp_path / "in", ["01", "02"])
    assert fc(report=True) == 0
    out = tmp_path / "out"
    methods = (out / "methods.md").read_text()
    assert "2 of 2 subjects have FC" in methods
    # the confounds hold cosines, which are the high-pass
    assert "kept frequencies below 0.1 Hz." in methods
    assert "motion = full" in (out / "group.html").read_text()
    assert lines[-2].endswith("methods.md")
    stem = "sub-01_task-rest_space-MNI152NLin2009cAsym_atlas-AAL116_stat-"
    made = sorted(p.name for p in (out / "sub-01" / "func").iterdir())
    assert made == [
        f"{stem}mean_timeseries.json",
        f"{stem}mean_timeseries.tsv",
        f"{stem}pearsoncorrelation_relmat.json",
        f"{stem}pearsoncorrelation_relmat.tsv",
    ]
    description = json.loads((out / "dataset_description.json").read_text())
    assert description["DatasetType"] == "derivative"
    assert description["GeneratedBy"][0]["Name"] == "fcforge"
    side = json.loads(
        (out / "sub-01" / "func" / f"{stem}pearsoncorrelation_relmat.json").read_text()
    )
    assert side["RepetitionTime"] == 2.0
    assert side["Runs"][0]["LoadConfounds"]["motion"] == "full"
    assert side["Settings"]["min_coverage"] == 0.5
    assert side["Atlas"]["SHA256"]
    assert "white_matter" in side["Runs"][0]["Confounds"]
    page = (out / "sub-01.html").read_text()
    assert (
        page.count("<svg") == 7
    )  # lines and carpet, spectrum, two matrices, three views of a brain
    assert "http:" not in page
    group = (out / "group.html").read_text()
    assert "2 of 2 subjects" in group
    assert "sub-02.html" in group
    assert [path.name for path in out.rglob(".*")] == [".bidsignore"]
    measures = (out / "quality.tsv").read_text().splitlines()[0].split("\t")
    assert [*json.loads((out / "quality.json").read_text())] == measures
    assert {"mean_fd", "dvars", "tsnr", "flags"} <= {*measures}
    columns = json.loads((out / "participants.json").read_text())
    assert list(columns) == list(_participants(out).columns)
    assert all(column["Description"] for column in columns.values())


def test_scans_of_ica_aroma_lose_tissue_signals_alone(
    tmp_path: Path, block_fc, small_grid, lines
):
    root = tmp_path / "in"
    describe(root, "fMRIPrep")
    fmriprep_subject(root, "01", small_grid, affine=SMALL)
    for path in root.rglob("*desc-preproc*"):
        path.rename(path.with_name(path.name.replace("preproc", "smoothAROMAnonaggr")))
    assert block_fc(denoise="ica_aroma", report=True) == 0, lines
    (side,) = (tmp_path / "out").rglob("*_timeseries.json")
    confounds = json.loads(side.read_text())["Confounds"]
    assert {"csf", "white_matter", "cosine00"} == set(confounds) - {"cosine01"}
    assert block_fc(out=tmp_path / "o2") == 2  # no scan of the usual kind
    assert "there is: desc-smoothAROMAnonaggr" in lines[-1]
    assert "--denoise ica_aroma" in lines[-1]


@pytest.mark.parametrize("tool", ["xcpd", "cpac", "dpabi"])
def test_trees_of_other_tools_to_sites_without_editing(
    tool: str, tmp_path: Path, aal, fc, lines
):
    root = tmp_path / "in"
    if tool == "xcpd":
        xcpd_tree(root, list(aal.roi_names))
    elif tool == "cpac":
        cpac_tree(root, aal.codes, drop=40)
    else:  # several atlases side by side, AAL first
        dpabi_tree(root)
    assert fc() == 0, lines
    cohort = _load(tmp_path / "out")
    assert cohort.fc.shape == (16, 116, 116)
    assert _errors(cohort) == []
    seed = {"xcpd": 11, "cpac": 13, "dpabi": 17}[tool]
    expected = np.corrcoef(
        roi_signals(np.random.default_rng([seed, 3]), 80, 116), rowvar=False
    )
    if tool == "cpac":  # C-PAC left one ROI out: a named reason, not a missing column
        expected[40] = expected[:, 40] = 0
        expected[40, 40] = 1
        assert any(
            "1 ROI without signal" in line and aal.roi_names[40] in line
            for line in lines
        )
    else:
        assert cohort.covariates["mean_fd"].min() > 0
    np.testing.assert_allclose(cohort.fc[3], expected, atol=1e-5)
    if tool == "dpabi":  # of all subjects in one line
        assert sum("took columns 1-116 (AAL)" in line for line in lines) == 1


def test_motion_tables_of_older_versions_are_read(
    tmp_path: Path, aal, fc, block_fc, small_grid, lines
):
    root = tmp_path / "fmriprep"
    fmriprep_tree(root, small_grid, 3, affine=SMALL)
    shutil.rmtree(root / "sub-03")
    fmriprep_subject(root, "03", small_grid, affine=SMALL, tr=3.0)
    for ending in ("tsv", "json"):  # as fMRIPrep before 20.2 named them
        (table,) = (root / "sub-01").rglob(f"*-confounds_timeseries.{ending}")
        table.rename(table.with_name(table.name.replace("timeseries", "regressors")))
    (table,) = (root / "sub-02").rglob("*-confounds_timeseries.tsv")
    table.unlink()
    fmriprep = partial(block_fc, source=root)
    assert fmriprep(out=tmp_path / "a", denoise="none") == 0, lines
    assert "sub-02: no motion table: mean_fd is unknown" in lines
    assert any(
        s.startswith("site North mixes repetition times (2, 3 s)") for s in lines
    )
    people = _participants(tmp_path / "a")
    assert people["mean_fd"].notna().tolist() == [True, False, True]
    # confounds are taken from the older name, too
    code = fmriprep(out=tmp_path / "b", denoise="motion", participant_label=["01"])
    assert code == 0, lines
    root = tmp_path / "xcpd"
    xcpd_tree(root, list(aal.roi_names), n=2)
    (table,) = (root / "sub-01").rglob("*_motion.tsv")
    table.rename(table.with_name(table.name.replace("motion", "desc-filtered_motion")))
    assert fc(source=root, out=tmp_path / "c") == 0, lines
    assert _participants(tmp_path / "c")["mean_fd"].notna().all()


def test_options_without_effect_are_refused(tmp_path: Path, aal, fc, lines):
    xcpd_tree(tmp_path / "in", list(aal.roi_names), n=2)
    assert fc(denoise="scrubbing", high_pass=0.02) == 2
    assert (
        "--denoise, --high-pass have no effect on the series found (layout xcpd)"
        in lines[-1]
    )
    assert fc(min_coverage=0.3) == 2
    assert "--min-coverage has no effect" in lines[-1]
    assert not (tmp_path / "out").exists()
    # options that state what is done anyway are accepted, and the default is explained
    assert fc(denoise="none", high_pass=0, low_pass=0) == 0, lines
    assert any("fcforge removes no confounds and does not filter" in s for s in lines)


def test_a_series_of_another_atlas_by_its_tools_name(tmp_path: Path, aal, fc, lines):
    xcpd_tree(tmp_path / "in", list(aal.roi_names), n=2)
    assert fc(out=tmp_path / "a", atlas="4S156Parcels") == 0
    table = pd.read_csv(next((tmp_path / "a").rglob("*_relmat.tsv")), sep="\t")
    assert list(table["Node"]) == [f"Parcel{k}" for k in range(5)]
    assert fc(out=tmp_path / "b", atlas="Glasser") == 2
    assert "Time series there are of: 4S156Parcels, AAL116" in lines[-1]


def test_trouble_is_one_line_each_and_the_others_finish(
    tmp_path: Path, block, blocks, block_fc, lines
):
    root = tmp_path / "in"
    file = partial(_file, root)
    grid = block.on_grid((15, 18, 15), SMALL)
    nan = np.zeros(grid.shape, dtype=bool)
    nan[:, : grid.shape[1] // 2] = True
    few = np.zeros(grid.shape, dtype=bool)
    few[3, 2, 3] = True
    for subject in subject_ids(8):
        extra = {"06": {"nan": nan}, "07": {"nan": few}}.get(subject, {})
        fmriprep_subject(root, subject, grid, affine=SMALL, **extra)
    write_people(root, subject_ids(9))  # 09 is listed, but has no scan
    cut = file("02", "*_bold.nii.gz")
    cut.write_bytes(cut.read_bytes()[:20000])
    shutil.rmtree(root / "sub-03")
    moved = SMALL.copy()
    moved[:3, 3] += 400
    fmriprep_subject(root, "03", grid, affine=moved)
    file("04", "*_bold.json").write_text('{"RepetitionTime": 3.0}')
    file("05", "*-confounds_timeseries.tsv").unlink()
    shutil.rmtree(root / "sub-08")
    fmriprep_subject(root, "08", grid, affine=SMALL, run="_run-1")
    fmriprep_subject(root, "08", grid, affine=SMALL, run="_run-20", tr=2.5)
    out = tmp_path / "out"
    assert block_fc(atlas_lut=blocks[1], report=True) == 1
    reasons = {
        "sub-02": "truncated or damaged",
        "sub-03": "wrong affine: only",
        "sub-04": "mixed TRs: the header says 2 s",
        "sub-05": "missing confounds: no *_desc-confounds_timeseries.tsv",
        "sub-06": "NaN voxels inside ROIs",
        "sub-08": "mixed TRs: its runs have 2 s, 2.5 s",
    }
    _assert_failed(lines, reasons)
    assert any(line == "sub-07: 1 NaN voxels inside ROIs left out" for line in lines)
    assert list(_participants(out)["participant_id"]) == ["sub-01", "sub-07"]
    log = (out / "logs" / "failed.tsv").read_text().splitlines()
    assert len(log) == 1 + len(reasons) + 1
    assert log[-1].startswith("sub-09\tis listed, but there is no scan")
    assert "1 listed subject without a scan or time series here: sub-09" in lines
    assert "2 of 9 subjects have FC" in (out / "group.html").read_text()
    assert "2 of 9 subjects have FC" in lines[-1]
    assert lines[-1].endswith(f"; next: fcforge check {out}")
    assert any(line.endswith(str(out / "group.html")) for line in lines)
    methods = (out / "methods.md").read_text()
    assert "10% such ROIs were excluded (1 subject)." in methods
    assert "No scan and no time series was found for 1 subject." in methods
    assert "The files of 5 subjects could not be used" in methods
    assert "2 of 9 subjects have FC." in methods
    # two jobs of a cluster, one subject each: neither removes the other's failures
    for subject, denoise in (("02", "simple"), ("05", "none")):
        block_fc(atlas_lut=blocks[1], participant_label=[subject], denoise=denoise)
    failed = pd.read_csv(out / "logs" / "failed.tsv", sep="\t")
    assert set(failed["participant_id"]) == {*reasons, "sub-09"} - {"sub-05"}
    assert sorted(set(failed["criterion"])) == ["empty_rois", "error", "no_data"]
    assert "3 of 9 subjects have FC." in (out / "methods.md").read_text()


def test_119_rois_is_one_line_and_the_others_finish(tmp_path: Path, fc, lines):
    rng = np.random.default_rng(0)
    for i in range(3):
        n = 119 if i == 1 else 116
        np.savetxt(tmp_path / f"s{i}.txt", rng.normal(size=(50, n)))
    assert fc(source=tmp_path) == 1
    assert next(ln for ln in lines if "failed: " in ln).startswith("failed: sub-s1: ")
    assert sum("119 ROIs, but atlas AAL116 has 116" in line for line in lines) == 1
    assert len(list((tmp_path / "out").rglob("*_relmat.tsv"))) == 2


def test_the_same_command_again_makes_nothing_and_a_new_setting_everything(
    tmp_path: Path, block_fc, small_grid, lines
):
    for subject in ("01", "02"):
        fmriprep_subject(tmp_path / "in", subject, small_grid, affine=SMALL)
    motion_fc = partial(block_fc, denoise="motion")
    assert motion_fc() == 0
    assert "(2 made now, 0 from before)" in lines[-1]
    assert motion_fc() == 0
    assert "(0 made now, 2 from before)" in lines[-1]
    _file(tmp_path / "out", "02", "*_relmat.json").unlink()  # stopped half-way
    assert motion_fc() == 0
    assert "(1 made now, 1 from before)" in lines[-1]
    before = {p: p.read_bytes() for p in (tmp_path / "out").rglob("*.*")}
    assert motion_fc(low_pass=0.08) == 2
    assert "OUT holds FC of 2 subjects (sub-01, sub-02)" in lines[-1]
    assert "--overwrite" in lines[-1]
    assert {p: p.read_bytes() for p in (tmp_path / "out").rglob("*.*")} == before
    assert motion_fc(low_pass=0.08, out=tmp_path / "other") == 0
    assert motion_fc(low_pass=0.08, overwrite=True) == 0
    assert "(2 made now, 0 from before)" in lines[-1]
    # FC made with other settings does not count for a subject that fails now
    assert motion_fc(min_dof=500, overwrite=True) == 2
    assert motion_fc(participant_label=["01"]) == 0
    people = _participants(tmp_path / "out")
    assert list(people["participant_id"]) == ["sub-01"]


def test_participant_label_takes_those_alone_and_keeps_earlier_rows(
    tmp_path: Path, block_fc, small_grid, lines
):
    for subject in ("01", "02", "03"):
        fmriprep_subject(tmp_path / "in", subject, small_grid, affine=SMALL)
    plain_fc = partial(block_fc, denoise="none")
    assert plain_fc(participant_label=["sub-02"]) == 0
    assert plain_fc(participant_label=["01", "77"]) == 2
    assert "unknown participant label '77'" in lines[-1]
    assert plain_fc(participant_label=["01"]) == 0
    people = _participants(tmp_path / "out")
    assert list(people["participant_id"]) == ["sub-01", "sub-02"]


def test_two_runs_are_joined_and_two_spaces_are_a_question(
    tmp_path: Path, block_fc, small_grid, lines
):
    for run in ("_run-1", "_run-20"):
        fmriprep_subject(tmp_path / "in", "01", small_grid, affine=SMALL, run=run)
    plain_fc = partial(block_fc, denoise="none")
    assert plain_fc() == 0
    side = json.loads(next((tmp_path / "out").rglob("*_relmat.json")).read_text())
    assert side["Volumes"] == 320
    assert len(side["Sources"]) == 2
    first = next((tmp_path / "in").rglob("*run-1_space*_bold.nii.gz"))
    shutil.copy(first, first.with_name(first.name.replace("2009cAsym", "6Asym")))
    assert plain_fc() == 2
    assert "are not two runs of one scan" in "\n".join(lines)
    assert plain_fc(select="space-MNI152NLin2009cAsym") == 0


def _two(root: Path, grid, first: str, second: str) -> None:
    """One subject with two scans of these names."""
    for k, name in enumerate((first, second)):
        fmriprep_subject(root, "01", grid, affine=SMALL, run=f"_run-{k}0")
        for file in (root / "sub-01" / "func").glob(f"*_run-{k}0*"):
            file.rename(file.with_name(file.name.replace(f"task-rest_run-{k}0", name)))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("task-rest_acq-a", "task-rest_acq-b"),
        ("task-rest_echo-1", "task-rest_echo-2"),
        ("task-rest", "task-rest_rec-b"),
        ("ses-1_task-rest", "ses-2_task-rest"),
    ],
)
def test_scans_of_another_kind_are_not_joined(
    first, second, tmp_path, block_fc, small_grid, lines
):
    _two(tmp_path / "in", small_grid, first, second)
    plain_fc = partial(block_fc, denoise="none")
    assert plain_fc() == 2
    (line,) = (s for s in lines if "are not two runs of one scan" in s)
    assert f"{first}_space" in line
    assert f"{second}_space" in line
    chosen = {"session": "1"} if "ses" in first else {"select": second.split("_")[-1]}
    assert plain_fc(**chosen) == 0, lines
    if "ses" in first:
        assert plain_fc(session="all") == 0
        (path,) = (tmp_path / "out" / "sub-01" / "func").glob("*_relmat.tsv")
        assert path.name.startswith("sub-01_task-rest_space-")
        assert json.loads(path.with_suffix(".json").read_text())["Volumes"] == 320


def test_phase_directions_are_runs(tmp_path, block_fc, small_grid, lines):
    _two(tmp_path / "in", small_grid, "task-rest_dir-AP", "task-rest_dir-PA")
    assert block_fc(denoise="none") == 0, lines
    (path,) = (tmp_path / "out").rglob("*_relmat.tsv")
    assert "dir-" not in path.name
    people = _participants(tmp_path / "out")
    # two runs of 160 volumes, 0.36 of the spectrum, without mean and trend
    assert people["dof"].tolist() == pytest.approx([2 * (160 * 0.36 - 2)], abs=0.1)


def test_low_coverage_rois_are_named_and_their_fc_is_zero(
    tmp_path: Path, aal, aal_grid, fc, lines
):
    cut = np.where(
        np.arange(aal_grid.shape[2]) < 4, -1, aal_grid
    )  # low slices not acquired
    fmriprep_subject(tmp_path / "in", "01", cut)
    assert fc(max_empty=0.3, report=True) == 0, lines
    side = json.loads(next((tmp_path / "out").rglob("*_relmat.json")).read_text())
    assert side["EmptyROIs"]
    assert all(name in aal.roi_names for name in side["EmptyROIs"])
    path = next((tmp_path / "out").rglob("*_relmat.tsv"))
    table = pd.read_csv(path, sep="\t", index_col="Node")
    row = table.loc[side["EmptyROIs"][0]].drop(side["EmptyROIs"][0])
    assert (row == 0).all()
    made = json.loads(next((tmp_path / "out").rglob("*timeseries.json")).read_text())
    assert len(made["Coverage"]) == 116
    assert "ROI without signal" in (tmp_path / "out" / "sub-01.html").read_text()


def test_plain_mni_scans_and_nothing_at_all(
    tmp_path: Path, block_fc, small_grid, lines
):
    from imaging_trees import write_scan

    rng = np.random.default_rng(0)
    write_scan(
        tmp_path / "in" / "anna.nii.gz", small_grid, roi_signals(rng, 60, 6), SMALL, rng
    )
    assert block_fc() == 0
    assert "no participants.tsv found" in lines[0]
    assert any("'simple' removes none" in line for line in lines)
    side = json.loads(next((tmp_path / "out").rglob("*relmat.json")).read_text())
    assert side["Runs"][0]["Method"] == "none"  # there was no table of confounds
    assert side["Runs"][0]["ButterworthHz"][1] == 0.1
    (tmp_path / "void").mkdir()
    assert block_fc(source=tmp_path / "void", out=tmp_path / "o2") == 2
    assert "no scan and no time series found" in lines[-1]
    assert block_fc(source=tmp_path / "nope", out=tmp_path / "o3") == 2
    assert "no such folder" in lines[-1]


def test_ids_that_would_share_a_file_are_refused(tmp_path: Path, fc, lines):
    rng = np.random.default_rng(0)
    for name in ("S1-1-0001", "S11-0001"):
        np.savetxt(tmp_path / f"{name}.txt", rng.normal(size=(40, 6)))
    six_fc = partial(fc, source=tmp_path, atlas="six", report=True)
    assert six_fc() == 2
    assert "'S1-1-0001' and 'S11-0001' would both be named sub-S110001" in lines[-1]
    (tmp_path / "S11-0001.txt").unlink()
    assert six_fc() == 0
    people = _participants(tmp_path / "out")
    assert people["original_id"].tolist() == ["S1-1-0001"]


def test_a_table_of_other_people_is_refused_before_anything_is_made(
    tmp_path: Path, fc, lines
):
    np.savetxt(
        tmp_path / "NYU_0050952.txt", np.random.default_rng(0).normal(size=(40, 6))
    )
    (tmp_path / "participants.tsv").write_text("participant_id\tsite\n50952\tNYU\n")
    assert fc(source=tmp_path, atlas="six") == 2
    assert (
        "none of the 1 subjects found (it has '50952', the files 'NYU_0050952')"
        in lines[-1]
    )
    assert not (tmp_path / "out").exists()


def test_ids_without_leading_zeros_and_subjects_without_a_row(
    tmp_path: Path, fc, lines
):
    rng = np.random.default_rng(0)
    for name in ("sub-0050952", "sub-0050953"):
        np.savetxt(tmp_path / f"{name}_ts.txt", rng.normal(size=(40, 6)))
    (tmp_path / "participants.tsv").write_text("participant_id\tsite\n50952\tNYU\n")
    assert fc(source=tmp_path, atlas="six") == 0, lines
    assert any("1 subject without a row" in s and "0050953" in s for s in lines)
    rows = pd.read_csv(tmp_path / "out" / "participants.tsv", sep="\t", dtype=str)
    assert rows["site"].fillna("n/a").tolist() == ["NYU", "n/a"]


def test_a_slip_in_an_id_of_the_table_is_asked_about(tmp_path: Path, lines):
    rng = np.random.default_rng(0)
    for name in ("sub-02", "sub-03"):
        np.savetxt(tmp_path / f"{name}_ts.txt", rng.normal(size=(40, 6)))
    table = "participant_id\tsite\nsub-02\tNYU\nsub-33\tNYU\n"
    (tmp_path / "participants.tsv").write_text(table)
    ask = {"atlas": "six", "report": False, "say": lines.append}
    fc_command(source=tmp_path, out=tmp_path / "o", **ask)
    (line,) = [line for line in lines if "without a row" in line]
    assert "The table has 33, which has no files: did you mean 03?" in line


def test_the_input_and_other_tools_folders_are_never_written_to(
    tmp_path: Path, block_fc, small_grid, lines
):
    fmriprep_tree(tmp_path / "in", small_grid, 2, affine=SMALL)
    before = (tmp_path / "in" / "participants.tsv").read_text()
    assert block_fc(out=tmp_path / "in") == 2
    assert "OUT is the same folder as IN" in lines[-1]
    shutil.copytree(tmp_path / "in", tmp_path / "other")
    assert block_fc(out=tmp_path / "other") == 2
    assert "OUT is a dataset of another tool" in lines[-1]
    assert (tmp_path / "in" / "participants.tsv").read_text() == before


def test_scans_that_cannot_be_right_fail_by_name(
    tmp_path: Path, block_fc, small_grid, lines
):
    """Each of these gave FC, or a message of a library."""
    import nibabel as nib

    root = tmp_path / "in"
    file = partial(_file, root)
    for subject in subject_ids(8):
        fmriprep_subject(root, subject, small_grid, affine=SMALL)
    write_people(root, subject_ids(8))

    def change(subject: str, value: float) -> None:
        image = nib.load(file(subject, "*_bold.nii.gz"))
        data = np.asarray(image.dataobj, dtype=np.float32)
        data[..., 50] = value
        image.set_data_dtype(np.float32)
        nib.save(
            nib.Nifti1Image(data, image.affine, image.header), image.get_filename()
        )

    change("01", 0)
    change("02", np.nan)
    confounds = "*_desc-confounds_timeseries.tsv"
    table = pd.read_csv(file("03", confounds), sep="\t", na_values="n/a")
    table.iloc[:-10].to_csv(file("03", confounds), sep="\t", index=False, na_rep="n/a")
    table.loc[5:9, "csf"] = np.nan
    table.to_csv(file("04", confounds), sep="\t", index=False, na_rep="n/a")
    shutil.copy(file("06", confounds), file("05", confounds))
    scan = file("07", "*_bold.nii.gz")
    mask = np.zeros(small_grid.shape, dtype=np.uint8)
    name = scan.name.replace("preproc_bold", "brain_mask")
    nib.save(nib.Nifti1Image(mask, SMALL), scan.with_name(name))
    scan = file("08", "*_bold.nii.gz")
    scan.rename(scan.with_name("sub-08_task-rest_space-T1w_desc-preproc_bold.nii.gz"))
    assert block_fc() == 1
    reasons = {
        "sub-01": "no signal in 1 volume of 160 (51)",
        "sub-02": "no signal in 1 volume of 160 (51)",
        "sub-03": "the scan has 160 volumes, and sub-03_task-rest_desc-confounds_timeseries.tsv has 150",
        "sub-04": "confounds have no value in 5 volumes (csf",
        "sub-07": "brain_mask.nii.gz is empty",
        "sub-08": "has no scan in MNI space, which FC needs; there is: T1w.",
    }
    _assert_failed(lines, reasons)
    doubts = [line for line in lines if "those of another run" in line]
    assert len(doubts) == 1
    assert doubts[0].startswith("sub-05: ")


def test_odd_surprises_fail_one_subject(
    tmp_path: Path, block_fc, small_grid, lines, monkeypatch
):
    from fcforge.imaging import app

    fmriprep_tree(tmp_path / "in", small_grid, 6, affine=SMALL)
    real = app.subject_fc

    def odd(own, *rest):
        if own[0].subject == "02":
            raise ValueError("array must not\ncontain infs")
        return real(own, *rest)

    monkeypatch.setattr(app, "subject_fc", odd)
    assert block_fc(denoise="none") == 1
    assert "failed: sub-02: ValueError: array must not contain infs" in lines
    assert len(_participants(tmp_path / "out")) == 5


def test_native_space_scans_are_not_taken_for_mni(
    tmp_path: Path, block_fc, small_grid, lines
):
    from imaging_trees import write_scan

    rng = np.random.default_rng(0)
    signals = roi_signals(rng, 60, 6)
    raw = tmp_path / "in" / "sub-01" / "func" / "sub-01_task-rest_bold.nii.gz"
    write_scan(raw, small_grid, signals, SMALL, rng)
    assert block_fc() == 2
    assert "is in scanner space, FC needs MNI space" in lines[-1]
    raw.rename(raw.with_name("sub-01_task-rest_space-T1w_desc-preproc_bold.nii.gz"))
    assert block_fc() == 2
    assert "is in T1w space" in lines[-1]
    assert block_fc(layout="nifti") == 0


def test_a_header_in_scanner_space_is_said(tmp_path: Path, block_fc, small_grid, lines):
    import nibabel as nib
    from imaging_trees import write_scan

    rng = np.random.default_rng(0)
    path = tmp_path / "in" / "anna.nii"
    write_scan(path, small_grid, roi_signals(rng, 60, 6), SMALL, rng)
    image = nib.load(path)
    image.set_sform(SMALL, 1)
    nib.save(image, tmp_path / "in" / "berta.nii")
    assert block_fc() == 0
    said = [line for line in lines if "scanner space" in line]
    assert len(said) == 1
    assert said[0].startswith("sub-berta: ")


@pytest.mark.data
def test_real_halfpipe_files(shared_data, tmp_path, fc, lines):
    """434 ROIs of two subjects of UCLA CNP, as HALFpipe left them."""
    root = shared_data / "halfpipe_sample"
    assert fc(source=root, atlas="Schaefer400") == 0, lines
    for subject in ("10159", "10171"):
        path = next((tmp_path / "out" / f"sub-{subject}").rglob("*_relmat.tsv"))
        ours = pd.read_csv(path, sep="\t", index_col="Node").to_numpy()
        side = json.loads(path.with_suffix(".json").read_text())
        theirs = np.loadtxt(
            next(root.rglob(f"sub-{subject}*_desc-correlation_matrix.tsv"))
        )
        seen = np.isfinite(np.diagonal(theirs))
        assert (ours.shape, side["Tool"], side["RepetitionTime"]) == (
            (434, 434),
            "halfpipe",
            2.0,
        )
        assert len(side["EmptyROIs"]) == (~seen).sum() == 28
        np.testing.assert_allclose(
            ours[np.ix_(seen, seen)], theirs[np.ix_(seen, seen)], atol=1e-6
        )
        assert side["MeanFD"] > 0.05  # from fMRIPrep's confounds beside it
        assert "simple" not in json.dumps(side)  # HALFpipe denoised, we did not
        of_series = {"drop", "max_empty", "min_dof", "columns", "variable"}
        assert set(side["Settings"]) == of_series
    assert fc(source=root, atlas="AAL116") == 2
    assert "Time series there are of: schaefer400" in lines[-1]


def test_a_damaged_description_of_the_input_costs_no_finished_work(
    tmp_path: Path, block_fc, small_grid, lines
):
    fmriprep_subject(tmp_path / "in", "01", small_grid, affine=SMALL)
    (tmp_path / "in" / "dataset_description.json").write_text('{"GeneratedBy": [')
    assert block_fc(denoise="motion") == 2
    assert "not JSON" in lines[-1]
    assert block_fc(denoise="motion", layout="fmriprep") == 0
    assert (
        "preprocessed by fMRIPrep (Esteban"
        in (tmp_path / "out" / "methods.md").read_text()
    )


def made(
    tool: str = "fmriprep",
    kind: str = "scan",
    made_by: str = "",
    atlas: Atlas | None = None,
    reports: Sequence[dict[str, Any]] | None = None,
    failed: Sequence[Failure] = (),
    **options: Any,
) -> str:
    request = FCRequest(source=Path("in"), out=Path("out"), **options)
    source = Source(Path("x.nii.gz"), kind, tool, {"sub": "01"})
    if reports is None:
        reports = [{} if source.denoised else {"ButterworthHz": request.denoising.band}]
    return describe_methods(
        request, atlas or aal116(), source, made_by, reports, failed, 38
    )


def test_the_default_of_fmriprep_in_full():
    failed = [Failure(f"sub-{i}", "why", "empty_rois") for i in range(2)]
    reports = [{"ButterworthHz": [None, 0.1]}]
    text = made(made_by="fMRIPrep 23.2.1", reports=reports, failed=failed)
    assert text.startswith(
        "Scans had been preprocessed by fMRIPrep 23.2.1 (Esteban et al. 2019, "
        "doi:10.1038/s41592-018-0235-4). Series are of 116 ROIs (AAL116; Tzourio-Mazoyer et al. "
        "2002, doi:10.1006/nimg.2001.0978). The signal of each ROI was "
        "the mean over its voxels with a signal, inside the brain mask where there was one. "
        "An ROI of which less than 50% was covered counts as one without signal. Series were "
        "detrended and regressed on the confounds of fMRIPrep that nilearn's load_confounds "
        "chooses with strategy = ('high_pass', 'motion', 'wm_csf'), demean = True, motion = full, "
        "wm_csf = basic (Wang et al. 2024, doi:10.1371/journal.pcbi.1011942), by nilearn (Abraham "
        "et al. 2014, doi:10.3389/fninf.2014.00014). A Butterworth filter of order 5 kept "
        "frequencies below 0.1 Hz. Functional connectivity (FC) is the "
        "Pearson correlation between the series of two ROIs; several runs of a subject were "
        "z-scored one by one and joined. The FC of an ROI without signal was set to 0. Subjects "
        "with more than 10% such ROIs were excluded (2 subjects). Subjects left with fewer than 15 "
        "degrees of freedom by denoising were excluded (0 subjects). 38 of 40 subjects have FC. "
        "Software: fcforge "
    )
    assert re.search(r"nilearn \d", text)


@pytest.mark.parametrize("tool", LAYOUTS)
@pytest.mark.parametrize("denoise", [*PRESETS, *COMPONENTS])
def test_nothing_is_left_to_fill_in(tool, denoise):
    assert "{" not in made(tool, denoise=denoise)


def test_thresholds_and_bands_are_those_asked_for():
    text = made(denoise="scrubbing", fd_threshold=0.3, low_pass=0.08, drop=4)
    assert "scrub = 5, std_dvars_threshold = 1.5, fd_threshold = 0.3" in text
    assert "wm_csf = full" in text
    assert "below 0.08 Hz" in text
    assert "The first 4 volumes were left out." in text
    text = made(denoise="motion+global_signal")
    assert "global_signal = basic" in text
    assert "above 0.01 Hz and below 0.1 Hz" in text
    text = made(denoise="none", high_pass=0, low_pass=0)
    assert "detrended and not regressed on confounds" in text
    assert "Butterworth" not in text


def test_scans_without_confounds_do_not_claim_any():
    text = made("nifti", denoise="simple")
    assert "not regressed on confounds" in text
    assert "above 0.01 Hz" in text


def test_series_of_another_tool_are_said_to_be_its():
    text = made(
        "xcpd", "series", made_by="XCP-D 0.10.0", atlas=names_only("Gordon", ("a", "b"))
    )
    assert text.startswith("Scans had been denoised by XCP-D 0.10.0 (Mehta")
    assert "Series are of 2 ROIs (Gordon; Gordon et al. 2016, doi:10.1093/" in text
    assert "detrended" not in text
    assert "covered" not in text
    assert "degrees of freedom" not in text
    assert made("cpac", "series").startswith(
        "ROI time series had been made and denoised by C-PAC"
    )
    short = [Failure("sub-1", "too short", "too_few_dof")]
    text = made("cpac", "series", failed=short, min_dof=18)
    assert "Subjects with fewer than 20 volumes were excluded (1 subject)." in text


def test_scans_of_aroma_are_said_to_be_those():
    assert "ICA-AROMA had removed" in made(denoise="ica_aroma")
    assert "AROMA" not in made()
    assert "AROMA" not in made("nifti", denoise="ica_aroma")


def test_own_preprocessing_says_that_t1w_was_not_used():
    text = made(made_by="fcforge preprocess (fMRIPrep layout) 0.2.0")
    assert "T1-weighted images were not used" in text
    assert "Esteban" not in text


def test_every_layout_has_its_sentence():
    assert {*LAYOUTS, "fcforge"} <= set(SENTENCES)


def test_bands_and_scrubbing_are_those_of_the_runs():
    runs = [
        {"ButterworthHz": [None, 0.1], "VolumesScrubbed": 3},
        {"ButterworthHz": [None, 0.1], "VolumesScrubbed": 0},
        {"ButterworthHz": [0.01, 0.1], "VolumesScrubbed": 4},
    ]
    text = made(denoise="scrubbing", reports=runs)
    assert "Scrubbing left out 7 volumes." in text
    assert (
        "kept frequencies below 0.1 Hz in 2 runs; above 0.01 Hz and below 0.1 Hz in 1 run."
        in text
    )
    assert "kept frequencies above 0.01 Hz." in made("nifti", low_pass=0)


def test_atlases_are_cited():
    for name, doi in (
        ("Schaefer400", "10.1093/cercor/bhx179"),
        ("CC200", "10.1002/hbm.21333"),
        ("DiFuMo256", "10.1016/j.neuroimage.2020.117126"),
    ):
        assert f"doi:{doi})" in made(atlas=names_only(name, ("a", "b")))
    assert "(Mine)" in made(atlas=names_only("Mine", ("a", "b")))


def test_exclusions_are_counted_by_reason():
    failed = [Failure(f"sub-{i}", "no scan.", "no_data") for i in range(1007)]
    failed.append(Failure("sub-x", "too short", "too_few_dof"))
    text = made(failed=failed)
    assert "such ROIs were excluded (0 subjects)." in text
    assert "by denoising were excluded (1 subject)." in text
    assert "No scan and no time series was found for 1007 subjects." in text
    assert "could not be used" not in text
    assert "38 of 1046 subjects have FC." in text

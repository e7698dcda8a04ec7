"""Which files are taken, and the true reason when none is."""

from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import pytest
from imaging_trees import describe

from fcforge.core.errors import DataError
from fcforge.imaging.layouts import (
    Source,
    entities,
    find_sources,
    read_json,
    sidecar_of,
)
from fcforge.imaging.options import FCRequest

MNI = "space-MNI152NLin2009cAsym_desc-preproc_bold.nii.gz"


def touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def find(root: Path, **options) -> tuple[list[Source], list[str]]:
    written = StringIO()
    with redirect_stderr(written):
        found = find_sources(FCRequest(root, root / "out", **options))
    return found, written.getvalue().splitlines()


def test_rest_is_taken_among_several_tasks(tmp_path):
    func = "sub-01/func/sub-01_task-"
    touch(tmp_path, f"{func}rest_{MNI}", f"{func}nback_{MNI}")
    sources, said = find(tmp_path)
    assert [s.entities["task"] for s in sources] == ["rest"]
    assert said == ["took task rest and left out: nback; choose another with --task"]
    sources, said = find(tmp_path, task="nback")
    assert ([s.entities["task"] for s in sources], said) == (["nback"], [])


def test_several_tasks_without_rest_are_a_question(tmp_path):
    func = "sub-01/func/sub-01_task-"
    touch(tmp_path, f"{func}movie_{MNI}", f"{func}nback_{MNI}")
    with pytest.raises(DataError, match=r"movie, nback.*--task movie"):
        find(tmp_path)


def test_sessions_are_chosen_or_joined(tmp_path):
    for ses in ("pre", "post"):
        touch(tmp_path, f"sub-01/ses-{ses}/func/sub-01_ses-{ses}_task-rest_{MNI}")
    assert [s.entities["ses"] for s in find(tmp_path, session="ses-pre")[0]] == ["pre"]
    assert len(find(tmp_path, session="all")[0]) == len(find(tmp_path)[0]) == 2
    with pytest.raises(DataError, match=r"there is: task-rest ses-post"):
        find(tmp_path, session="mid")


def test_further_entities_are_kept(tmp_path):
    touch(tmp_path, f"sub-01/func/sub-01_task-rest_acq-fast_dir-AP_run-2_echo-1_{MNI}")
    ((source,), _) = find(tmp_path)
    assert source.entity_values("acq", "dir", "echo", "run") == ("fast", "AP", "1", "2")


@pytest.mark.parametrize(
    ("tool", "names", "why"),
    [
        (
            "fMRIPrep",
            ["sub-01/func/sub-01_task-rest_space-T1w_desc-preproc_bold.nii.gz"],
            "no scan in MNI space, which FC needs; there is: T1w.*--output-spaces",
        ),
        (
            "",
            ["sub-01/func/sub-01_task-rest_bold.nii.gz"],
            "in scanner space, FC needs MNI",
        ),
        (
            "fMRIPrep",
            ["sub-01/func/sub-01_task-rest_bold.nii"],
            "no scan in MNI space, which FC needs; there is: scanner",
        ),
        (
            "XCP-D",
            ["sub-01/func/sub-01_task-rest_seg-Gordon_timeseries.tsv"],
            "are of: Gordon",
        ),
        ("", ["readme.txt"], "no scan and no time series found"),
    ],
)
def test_the_true_reason(tool, names, why, tmp_path):
    if tool:
        describe(tmp_path, tool)
    with pytest.raises(DataError, match=why):
        find(touch(tmp_path, *names))


def test_a_name_that_says_no_subject_is_told(tmp_path):
    """One such file stopped everybody's FC with a traceback."""
    touch(tmp_path, f"sub-01/func/sub-01_task-rest_{MNI}", f"sub-é/func/sub-é_{MNI}")
    describe(tmp_path, "fMRIPrep")
    with pytest.raises(DataError, match="contains no subject") as told:
        find(tmp_path)
    assert "sub-é" in str(told.value)


@pytest.mark.parametrize("folder", [".", "derivatives/halfpipe"])
def test_series_of_halfpipe_are_not_taken_for_xcpds(folder, tmp_path):
    root = tmp_path / "derivatives" / "halfpipe" if folder == "." else tmp_path
    func = tmp_path / "derivatives" / "halfpipe" / "sub-01" / "func" / "task-rest"
    touch(func, "sub-01_task-rest_feature-c_atlas-schaefer400_timeseries.tsv")
    ((source,), _) = find(root, atlas="Schaefer400")
    assert source.tool == "halfpipe"


def test_hcp_folders_name_the_subject(tmp_path):
    results = "MNINonLinear/Results"
    for subject in ("100307", "100408"):
        for run in ("rfMRI_REST1_LR", "rfMRI_REST1_RL", "tfMRI_WM_LR"):
            stem = f"{subject}/{results}/{run}/{run}"
            touch(
                tmp_path,
                f"{stem}.nii.gz",
                f"{stem}_Atlas.dtseries.nii",
                f"{stem}_SBRef.nii.gz",
                f"{subject}/{results}/{run}/Movement_RelativeRMS.txt",
            )
        touch(tmp_path, f"{subject}/MNINonLinear/T1w_restore.nii.gz")
    for atlas, ending in (("AAL116", ".nii.gz"), ("x.dlabel.nii", ".dtseries.nii")):
        sources, said = find(tmp_path, atlas=atlas)
        assert [(s.subject, s.entities["run"]) for s in sources] == [
            (subject, run)
            for subject in ("100307", "100408")
            for run in ("rfMRIREST1LR", "rfMRIREST1RL")
        ]
        assert all(s.path.name.endswith(ending) for s in sources)
        assert all(s.motion is not None and not s.denoised for s in sources)
        assert "left out: wm" in said[0]


@pytest.mark.parametrize("tool", ["fMRIPrep", ""])
def test_ica_aroma_without_fmripreps_scans_of_it(tool, tmp_path):
    touch(tmp_path, f"sub-01/func/sub-01_task-rest_{MNI}")
    if tool:
        describe(tmp_path, tool)
    with pytest.raises(DataError, match="smoothAROMAnonaggr") as told:
        find(tmp_path, denoise="ica_aroma")
    assert "--denoise" in told.value.do
    denoised = MNI.replace("preproc", "smoothAROMAnonaggr")
    touch(tmp_path, f"sub-01/func/sub-01_task-rest_{denoised}")
    ((source,), _) = find(tmp_path, denoise="ica_aroma")
    assert (source.tool, source.path.name) == (
        "fmriprep",
        f"sub-01_task-rest_{denoised}",
    )
    ((source,), _) = find(tmp_path)
    assert source.path.name.endswith(MNI)


NAME = "sub-01_ses-2_task-rest_run-3_space-MNI_desc-preproc_bold.nii.gz"


def test_a_name_says_what_a_file_is():
    found = entities(NAME)
    assert (found["sub"], found["ses"], found["task"], found["run"]) == (
        "01",
        "2",
        "rest",
        "3",
    )
    assert "bold" not in found
    assert entities("scan.nii") == {}


def test_a_mask_lies_beside_a_scan_of_fmriprep(tmp_path):
    mask = tmp_path / NAME.replace("preproc_bold", "brain_mask")
    scan = Source(tmp_path / NAME, "scan", "fmriprep", entities(NAME))
    assert (scan.subject, scan.entity_values("task", "echo")) == ("01", ("rest", ""))
    assert scan.mask is None
    mask.touch()
    assert scan.mask == mask
    assert Source(tmp_path / NAME, "scan", "xcpd", entities(NAME)).mask is None


def test_a_sidecar_lies_beside_and_holds_names_and_values(tmp_path):
    path = sidecar_of(tmp_path / "sub-01_bold.nii.gz")
    assert path == tmp_path / "sub-01_bold.json"
    assert read_json(path) == {}
    for text, says in (
        ("{", "not JSON"),
        ("[2]", "no names and values"),
        ("[" * 100_000, "not JSON"),
        ('{"a": ' + "1" * 5_000 + "}", "not JSON"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=says):
            read_json(path)
    path.write_text('{"RepetitionTime": 2}')
    assert (
        Source(tmp_path / "sub-01_bold.nii.gz", "scan", "x", {"sub": "01"}).sidecar_tr
        == 2.0
    )


@pytest.mark.parametrize("said", ['"fast"', "[2]", "NaN", "-2", "1e999"])
def test_a_repetition_time_is_a_number_of_seconds(said, tmp_path):
    scan = Source(tmp_path / NAME, "scan", "fmriprep", entities(NAME))
    assert scan.sidecar_tr is None
    sidecar_of(scan.path).write_text('{"RepetitionTime": 2}')
    assert scan.sidecar_tr == 2.0
    sidecar_of(scan.path).write_text(f'{{"RepetitionTime": {said}}}')
    with pytest.raises(DataError, match="RepetitionTime"):
        _ = scan.sidecar_tr

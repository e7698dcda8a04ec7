"""Files by their BIDS names, and what lies beside them."""

import pytest

from fcforge.errors import DataError
from fcforge.imaging.sources import Source, entities, read_json, sidecar_of

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
    assert (scan.subject, scan.said("task", "echo")) == ("01", ("rest", ""))
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
        Source(tmp_path / "sub-01_bold.nii.gz", "scan", "x", {"sub": "01"}).said_tr
        == 2.0
    )


@pytest.mark.parametrize("said", ['"fast"', "[2]", "NaN", "-2", "1e999"])
def test_a_repetition_time_is_a_number_of_seconds(said, tmp_path):
    scan = Source(tmp_path / NAME, "scan", "fmriprep", entities(NAME))
    assert scan.said_tr is None
    sidecar_of(scan.path).write_text('{"RepetitionTime": 2}')
    assert scan.said_tr == 2.0
    sidecar_of(scan.path).write_text(f'{{"RepetitionTime": {said}}}')
    with pytest.raises(DataError, match="RepetitionTime"):
        _ = scan.said_tr

"""Files by their BIDS names, and what lies beside them."""

from pathlib import Path

import pytest

from fcforge.errors import DataError
from fcforge.imaging.sources import entities, read_json, sidecar_of, source_of

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


def test_what_the_name_does_not_say_is_told():
    named = source_of(Path(NAME), "scan", "fMRIPrep", subject="other", task="none")
    assert (named.subject, named.task, named.space) == ("01", "rest", "MNI")
    plain = source_of(Path("scan.nii"), "scan", "HCP", subject="100307")
    assert (plain.subject, plain.session) == ("100307", "")


def test_a_sidecar_lies_beside_and_holds_names_and_values(tmp_path):
    path = sidecar_of(tmp_path / "sub-01_bold.nii.gz")
    assert path == tmp_path / "sub-01_bold.json"
    assert read_json(path) == {}
    for text, says in (("{", "not JSON"), ("[2]", "no names and values")):
        path.write_text(text)
        with pytest.raises(DataError, match=says):
            read_json(path)
    path.write_text('{"RepetitionTime": 2}')
    assert source_of(tmp_path / "sub-01_bold.nii.gz", "scan", "x").said_tr == 2.0

"""Filter files as fMRIPrep reads them; every mistake is named."""

import json
from pathlib import Path

import pytest

from fcforge.core.errors import ConfigError
from fcforge.imaging.bids_filters import read_filters

SCAN = {"sub": "01", "ses": "pre", "task": "rest", "run": "02"}


def write(path: Path, content) -> Path:
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("query", "taken"),
    [
        ({}, True),
        ({"task": "rest"}, True),
        ({"task": ["nback", "rest"]}, True),
        ({"task": "nback"}, False),
        ({"run": 2}, True),
        ({"run": ["1", "2"]}, True),
        ({"run": "002"}, True),
        ({"run": 1}, False),
        ({"acquisition": None}, True),
        ({"session": None}, False),
        ({"session": "*"}, True),
        ({"echo": "*"}, False),
        ({"echo": [None, 1]}, True),
        ({"session": "Query.ANY"}, True),
        ({"datatype": "func", "suffix": "bold", "extension": [".nii.gz"]}, True),
    ],
)
def test_entities_are_wanted_absent_or_any(query, taken, tmp_path):
    path = write(tmp_path / "f.json", {"bold": query, "t1w": {"session": "x"}})
    assert read_filters(path).takes(SCAN) is taken


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "the file is not JSON"),
        ([1], "not a mapping of queries"),
        ({"bold": "rest"}, "not a mapping of queries"),
        ({"blod": {}}, "unknown query 'blod'. Did you mean 'bold'"),
        ({"bold": {"taks": "rest"}}, "unknown entity 'taks'. Did you mean 'task'"),
        ({"bold": {"task": {"a": 1}}}, "cannot be the value of an entity"),
        ({"bold": {"run": True}}, "cannot be the value of an entity"),
        ({"bold": {"suffix": "sbref"}}, "FC is made of bold"),
    ],
)
def test_mistakes_are_named(content, why, tmp_path):
    with pytest.raises(ConfigError, match=why):
        read_filters(write(tmp_path / "f.json", content))
    with pytest.raises(ConfigError, match=r"nothing.json.*cannot be read"):
        read_filters(tmp_path / "nothing.json")

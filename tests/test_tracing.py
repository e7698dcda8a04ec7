"""The ways of an FC matrix through the packages, as docs/architecture.md names them."""

import re
from pathlib import Path

import pytest

from tracing import WAYS, run_command

ARCHITECTURE = Path(__file__).parents[1] / "docs" / "architecture.md"


def test_the_way_that_is_documented_is_taken(tmp_path) -> None:
    text = ARCHITECTURE.read_text().partition("## The way of one FC matrix")[2]
    rows = re.findall(r"\| \d+ \| `([\w/.]+)` \| `(\w+)` \|", text)
    assert len(rows) == 12
    way = WAYS["run to report"](tmp_path)
    elsewhere = ("imaging/extract.py", "methods/forge.py")  # it is fine-tuning
    steps = [(file, name) for file, name in rows if file not in elsewhere]
    assert not [s for s in steps if s[1] not in str(way.functions.get(s[0]))]


def test_a_command_that_fails_is_not_traced() -> None:
    with pytest.raises(RuntimeError, match="check no_such_folder ended with 2"):
        run_command(["check", "no_such_folder"])

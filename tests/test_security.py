"""What the security page promises is tested by tests that exist, point by point."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "security.md").read_text()
ROWS = re.findall(r"^\| (\d+) \| (.+) \|$", PAGE, flags=re.MULTILINE)
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)))


def test_there_are_twelve_points_with_a_command_and_a_test_each():
    assert [int(number) for number, _ in ROWS] == list(range(1, 13))
    for _, row in ROWS:
        typed, *_, tests = row.split(" | ")
        assert len(row.split(" | ")) == 4
        assert "`" in typed
        assert "::test_" in tests


@pytest.mark.parametrize("file", sorted({file for file, _ in NAMED}))
def test_every_test_named_exists(file):
    text = (TESTS / file).read_text()
    for name in (name for other, name in NAMED if other == file):
        assert f"\ndef {name}(" in text, name

"""The threat model names a test for every attempt, and these tests exist."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "security.md").read_text()
ATTEMPTS = PAGE.partition("| attempt | prevented by | tests |\n|---|---|---|\n")[2]
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)))


def test_every_attempt_has_a_test():
    rows = re.findall(r"^\| (.+) \|$", ATTEMPTS, flags=re.MULTILINE)
    assert len(rows) > 40
    for row in rows:
        attempt, prevention, tests = row.split(" | ")
        assert attempt
        assert prevention
        assert "::test_" in tests, attempt


@pytest.mark.parametrize("file", sorted({file for file, _ in NAMED}))
def test_every_test_named_exists(file):
    text = (TESTS / file).read_text()
    for name in (name for other, name in NAMED if other == file):
        assert f"\ndef {name}(" in text, name

"""Subject after subject: who is made, kept and failed, and what is said."""

from pathlib import Path

import pytest

from fcforge.errors import DataError
from fcforge.imaging.walk import Outcome, no_progress, walk, wanted


def test_one_failure_does_not_stop_the_others():
    said: list[str] = []

    def make(subject: str) -> bool:
        if subject == "b":
            raise DataError("no scan\nof it.", where="b.nii", do="Look.")
        if subject == "c":
            raise ValueError("odd\n  numbers")
        return subject == "a"

    found = walk(["a", "b", "c", "d"], make, no_progress, said.append)
    assert (found.made, found.kept) == (("a",), ("d",))
    assert found.failed == (
        ("sub-b", "b.nii: no scan of it. Look."),
        ("sub-c", "ValueError: odd numbers"),
    )
    assert said == [f"{who} failed: {why}" for who, why in found.failed]


def test_a_bug_is_not_a_failed_subject():
    def make(subject: str) -> bool:
        raise AttributeError("ours")

    with pytest.raises(AttributeError):
        walk(["a"], make, no_progress, print)


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome(("a",), (), ()), 0),
        (Outcome((), ("a",), ()), 0),
        (Outcome((), (), ()), 0),
        (Outcome(("a",), (), (("b", "why"),)), 1),
        (Outcome((), (), (("b", "why"),)), 2),
    ],
)
def test_exit_codes(outcome, code):
    assert outcome.code == code
    lines = outcome.summary(Path("out"), "have FC")
    done = len(outcome.made) + len(outcome.kept)
    assert lines[0].startswith(f"{done} of {done + len(outcome.failed)} subjects have FC in out")
    assert len(lines) == 1 + bool(outcome.failed)


def test_wanted_are_those_named_or_all():
    assert wanted(["sub-02", "02", "01"], ["09"]) == ["01", "02"]
    assert wanted([], {"b": 1}, ["a", "b"]) == ["a", "b"]

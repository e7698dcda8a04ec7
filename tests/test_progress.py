"""What is shown while something works."""

import time

import pytest

from fcforge import progress
from fcforge.progress import at_work, progress_of, progress_on_stderr


def test_lines_say_how_far_it_is(capsys, monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 0.0)
    with progress_on_stderr("training") as report:
        report(3, 5, "")
        report(5, 5, "ewc A>B")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["training: 3/5", "training: 5/5 ewc A>B"]


def test_work_is_shown_once_it_takes_long(capsys, monkeypatch):
    with at_work("attacking"):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    with at_work("attacking"):
        time.sleep(0.05)
    assert capsys.readouterr().err == "attacking ...\n"


def test_items_are_counted(capsys):
    assert [*progress_of("ab", 2)] == ["a", "b"]
    assert "subjects: 2/2" in capsys.readouterr().err


def test_what_goes_wrong_at_work_is_not_hidden(capsys):
    with pytest.raises(ValueError, match="odd"), at_work("attacking"):
        raise ValueError("odd")


def test_a_terminal_gets_a_bar_and_stdout_its_results(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    with at_work("attacking"):
        time.sleep(0.05)
        print("result")
    with progress_on_stderr("training") as report:
        report(1, 2, "A")
    assert capsys.readouterr().out == "result\n"

"""What is shown while something works."""

import time

import pytest

from fcforge.progress import at_work, progress_on_stderr


def test_lines_say_how_far_it_is(capsys):
    with progress_on_stderr("training", every=0.0) as report:
        report(3, 5, "")
        report(5, 5, "ewc A>B")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["training: 3/5", "training: 5/5 ewc A>B"]


def test_work_is_shown_once_it_takes_long(capsys):
    with at_work("attacking", patience=5.0):
        pass
    assert capsys.readouterr().err == ""
    with at_work("attacking", patience=0.0, every=0.01):
        time.sleep(0.05)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 1
    assert all(line.startswith("attacking: at work for ") for line in lines)


def test_what_goes_wrong_at_work_is_not_hidden(capsys):
    with pytest.raises(ValueError, match="odd"), at_work("attacking"):
        raise ValueError("odd")


def test_a_terminal_gets_a_bar_and_stdout_its_results(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with at_work("attacking", patience=0.0):
        time.sleep(0.05)
        print("result")
    with progress_on_stderr("training") as report:
        report(1, 2, "A")
    assert capsys.readouterr().out == "result\n"


def test_nothing_is_shown_unasked(capsys):
    with progress_on_stderr("learning", every=0.0, on=False) as report:
        report(1, 2, "A")
    assert capsys.readouterr().err == ""

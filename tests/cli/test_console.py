"""Progress lines where stderr is no terminal."""

from fcforge.cli._console import progress_on_stderr


def test_no_time_is_named_before_anything_was_done(capsys):
    with progress_on_stderr("training", every=0.0) as report:
        report(3, 5, "")
        report(4, 5, "ewc A")
        report(5, 5, "ewc A>B")
    first, second, last = capsys.readouterr().err.splitlines()
    assert first == "training: 3/5"
    assert second.startswith("training: 4/5, about ")
    assert second.endswith(" left ewc A")
    assert last == "training: 5/5 ewc A>B"

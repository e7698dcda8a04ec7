"""A round as hospitals and keepers type it."""

from real_runs import fcforge


def test_a_keeper_is_made_once_and_gives_its_card_away(tmp_path):
    made = fcforge("keepers", "new", "University", "--out", tmp_path / "u")
    assert made.code == 0
    assert f"--keeper {tmp_path / 'u.keeper'}" in made.out
    assert '"name":"University"' in (tmp_path / "u.keeper").read_text()
    again = fcforge("keepers", "new", "University", "--out", tmp_path / "u")
    assert (again.code, again.err.count("\n")) == (2, 1)
    assert "exists already" in again.err

"""Keys as a hospital types them."""

import pytest

from real_runs import fcforge


@pytest.fixture(autouse=True)
def ring_file(tmp_path, monkeypatch):
    monkeypatch.setenv("FCFORGE_KEYRING", str(tmp_path / "ring.json"))


def test_named_listed_and_revoked(tmp_path):
    assert "no key yet" in fcforge("keys", "list").out
    assert fcforge("keys", "new", tmp_path / "k").code == 0
    assert "is that of UCLA" in fcforge("keys", "add", "UCLA", tmp_path / "k.pub").out
    assert "UCLA  since 20" in fcforge("keys", "list").out
    assert '"name": "UCLA"' in fcforge("keys", "list", "--json").out
    assert fcforge("keys", "revoke", "UCLA").code == 0
    assert "UCLA  REVOKED 20" in fcforge("keys", "list").out
    again = fcforge("keys", "add", "UCLA", tmp_path / "k.pub")
    assert (again.code, again.out) == (2, "")
    assert "known already" in again.err
    assert again.err.count("\n") == 1


def test_a_lookalike_beside_a_known_name_is_one_line_and_exit_code_2(tmp_path):
    for name in "ab":
        fcforge("keys", "new", tmp_path / name)
    fcforge("keys", "add", "NYU", tmp_path / "a.pub")
    for name in ("nyu", "\u039d\u03a5U", "NYU\u202e"):
        told = fcforge("keys", "add", name, tmp_path / "b.pub")
        assert (told.code, told.err.count("\n")) == (2, 1)

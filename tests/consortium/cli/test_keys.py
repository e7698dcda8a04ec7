"""Keys as a hospital types them."""

import pytest
import small_exchange as small
from cryptography.hazmat.primitives import serialization as how
from exchange_records import key_of

from fcforge_consortium.records.exchange import save
from real_runs import consortium


@pytest.fixture(autouse=True)
def ring_file(tmp_path, monkeypatch):
    monkeypatch.setenv("FCFORGE_KEYRING", str(tmp_path / "ring.json"))


def test_named_listed_and_revoked(tmp_path):
    assert "no key yet" in consortium("keys", "list").out
    assert consortium("keys", "new", tmp_path / "k").code == 0
    assert (
        "is that of UCLA" in consortium("keys", "add", "UCLA", tmp_path / "k.pub").out
    )
    assert "UCLA  since 20" in consortium("keys", "list").out
    assert consortium("keys", "revoke", "UCLA").code == 0
    assert "UCLA  REVOKED 20" in consortium("keys", "list").out
    again = consortium("keys", "add", "UCLA", tmp_path / "k.pub")
    assert (again.code, again.out) == (2, "")
    assert "already known" in again.err
    assert again.err.count("\n") == 1


def test_a_lookalike_beside_a_known_name_is_one_line_and_exit_code_2(tmp_path):
    for name in "ab":
        consortium("keys", "new", tmp_path / name)
    consortium("keys", "add", "NYU", tmp_path / "a.pub")
    for name in ("nyu", "\u039d\u03a5U", "NYU\u202e"):
        told = consortium("keys", "add", name, tmp_path / "b.pub")
        assert (told.code, told.err.count("\n")) == (2, 1)


def test_a_key_is_rotated_and_the_old_one_signs_no_more(tmp_path):
    site = small.sites()[2]
    save(small.given(site, site).exchange, tmp_path / "a.fcx")
    form = (how.Encoding.PEM, how.PrivateFormat.PKCS8, how.NoEncryption())
    (tmp_path / "old").write_bytes(key_of(site).private_bytes(*form))
    consortium("keys", "new", tmp_path / "new")
    given = ["--site", site, "--state", tmp_path / "a.fcx"]
    said = ["rotate", tmp_path / "old", tmp_path / "new", *given, "--out"]
    done = consortium("keys", *said, tmp_path / "b.fcx")
    assert done.code == 0, done.err
    assert "still valid: 1 record" in done.out
    assert consortium("verify", tmp_path / "b.fcx").code == 0
    took = [
        "withdraw",
        site,
        "--state",
        tmp_path / "b.fcx",
        "--out",
        tmp_path / "c.fcx",
    ]
    assert "its withdrawal must be" in consortium(*took, "--sign", tmp_path / "old").err
    assert consortium(*took, "--sign", tmp_path / "new").code == 0
    again = consortium("keys", *said, tmp_path / "d.record")
    assert again.code == 0
    assert consortium("verify", tmp_path / "d.record").code == 0

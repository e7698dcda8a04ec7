"""Keys, and the keyring: names of keys, and keys that must no longer be trusted."""

import pytest
import small_consortium as small
from capsule_chains import SITES, cohort, settings

from fcforge.capsule import LearnOptions, learn
from fcforge.capsule.keys import (
    Keyring,
    keyring_file,
    read_keyring,
    read_private,
    read_public,
    write_keyring,
    write_keys,
)
from fcforge.capsule.ledger import public_hex
from fcforge.capsule.sealing import Trust, open_capsule, verify
from fcforge.consortium import read_consortium, write_consortium
from fcforge.consortium.files import verify as verify_group
from fcforge.errors import CapsuleError, ConfigError, DataError

A, B = "a" * 64, "b" * 64


def test_a_name_may_have_several_keys_and_a_key_one_name():
    ring = Keyring().add("UCLA", A).add("UCLA", B)
    assert ring.names == {A: "UCLA", B: "UCLA"}
    assert ring.said(A) == f"{A[:16]} (UCLA)"
    assert ring.said("c" * 64) == "c" * 16
    with pytest.raises(ConfigError, match="known already, as that of 'UCLA'"):
        ring.add("NYU", A)
    for name, key in (("x", "12"), ("", "c" * 64), ("evil\x1b", "c" * 64)):
        with pytest.raises(ConfigError, match="cannot be added"):
            ring.add(name, key)


def test_revoked_by_name_or_by_first_digits():
    ring = Keyring().add("UCLA", A).add("UCLA", B).add("NYU", "c" * 64)
    assert [bool(k.revoked) for k in ring.revoke("UCLA").keys] == [True, True, False]
    assert [bool(k.revoked) for k in ring.revoke(B[:10]).keys] == [False, True, False]
    with pytest.raises(ConfigError, match=r"unknown key 'UCL'\. Did you mean 'UCLA'"):
        ring.revoke("UCL")
    ring.require_valid(A, "it")
    with pytest.raises(
        CapsuleError, match="it is signed by a key of 'UCLA' that was revoked on"
    ):
        ring.revoke("UCLA").require_valid(A, "it")


def test_written_read_private_and_never_taken_for_empty(tmp_path, monkeypatch):
    monkeypatch.setenv("FCFORGE_KEYRING", str(tmp_path / "ring.json"))
    assert keyring_file() == tmp_path / "ring.json"
    assert read_keyring() == Keyring()
    ring = Keyring().add("UCLA", A).revoke("UCLA")
    assert write_keyring(ring).stat().st_mode & 0o077 == 0
    assert read_keyring() == ring
    for text in (
        "",
        "{}",
        '{"format": "x", "keys": []}',
        '{"format": "fcforge-keyring"}',
    ):
        (tmp_path / "ring.json").write_text(text)
        with pytest.raises(
            DataError, match=r"not a keyring file.*not taken for an empty one"
        ):
            read_keyring()


def test_what_a_revoked_key_signed_is_refused_wherever_it_signed(tmp_path, monkeypatch):
    monkeypatch.setenv("FCFORGE_KEYRING", str(tmp_path / "ring.json"))
    publics = {n: write_keys(tmp_path / n) for n in ("UCLA", "NYU")}
    keys = {n: LearnOptions(key=read_private(tmp_path / n)) for n in publics}
    one, two = tmp_path / "1.capsule", tmp_path / "2.capsule"
    learn(
        None,
        SITES[0],
        cohort(),
        one,
        settings=settings("majority"),
        options=keys["UCLA"],
    )
    learn(one, SITES[1], cohort(), two, options=keys["NYU"])
    ring = Keyring().add("UCLA", publics["UCLA"]).add("NYU", publics["NYU"])
    write_keyring(ring)
    (said,) = (
        c.detail for c in verify(two, trust=Trust.of([])) if c.name == "signatures"
    )
    assert f"{SITES[0]} by {publics['UCLA'][:16]} (UCLA)" in said
    assert open_capsule(two, trust=Trust.of(())).sites == SITES[:2]
    write_keyring(ring.revoke("UCLA"))
    with pytest.raises(
        CapsuleError, match="ledger line 1 is signed by a key of 'UCLA' that was"
    ):
        open_capsule(two, trust=Trust.of(()))
    write_keyring(ring.revoke("NYU"))
    with pytest.raises(
        CapsuleError, match="line 2 is signed by a key of 'NYU' that was revoked"
    ):
        open_capsule(two, trust=Trust.of(()))
    write_keyring(ring.revoke(publics["NYU"][:12]))
    assert open_capsule(one, trust=Trust.of(())).sites == SITES[:1]


def test_nobody_signs_for_a_site_whose_key_is_known(tmp_path, monkeypatch):
    """B rewrites A's line and signs it with B's own key: the signature fits, the key does not."""
    monkeypatch.setenv("FCFORGE_KEYRING", str(tmp_path / "ring.json"))
    a, b = (write_keys(tmp_path / n) for n in "ab")
    one = tmp_path / "1.capsule"
    options = LearnOptions(key=read_private(tmp_path / "b"))
    learn(None, SITES[0], cohort(), one, settings=settings("majority"), options=options)
    write_keyring(Keyring().add("somebody", a).add("another", b))
    assert open_capsule(one, trust=Trust.of(())).sites == SITES[:1]
    write_keyring(Keyring().add(SITES[0], a).add("another", b))
    with pytest.raises(
        CapsuleError, match=rf"\(another\), not by the key of '{SITES[0]}'"
    ):
        open_capsule(one, trust=Trust.of(()))
    write_keyring(
        Keyring().add(SITES[0], a).add(SITES[0], b)
    )  # a new key of the same hospital
    assert open_capsule(one, trust=Trust.of(())).sites == SITES[:1]
    bare = tmp_path / "bare.capsule"
    learn(None, SITES[0], cohort(), bare, settings=settings("majority"))
    with pytest.raises(
        CapsuleError, match="line 1 is signed by nobody, not by the key of"
    ):
        open_capsule(bare, trust=Trust.of(()))


def test_nobody_releases_for_a_site_whose_key_is_known(tmp_path, monkeypatch):
    monkeypatch.setenv("FCFORGE_KEYRING", str(tmp_path / "ring.json"))
    site, path = small.sites()[2], tmp_path / "all.capsule"
    write_consortium(small.empty().joined([small.release_of(site)]), path)
    assert all(check.ok for check in verify_group(path, Trust.of(())))
    write_keyring(Keyring().add(site, A))
    (bad,) = (check for check in verify_group(path, Trust.of(())) if not check.ok)
    assert "signed by nobody, not by the key of" in bad.detail
    with pytest.raises(CapsuleError, match="not by the key of"):
        read_consortium(path, Trust.of(()))


# -- keys --------------------------------------------------------------------------------------
def test_keys_are_private_and_may_have_a_passphrase(tmp_path, monkeypatch):
    public = write_keys(tmp_path / "k.pem", "horse battery")
    assert (tmp_path / "k.pem").stat().st_mode & 0o077 == 0
    assert read_public(tmp_path / "k.pem.pub") == public
    monkeypatch.delenv("FCFORGE_PASSPHRASE", raising=False)
    with pytest.raises(CapsuleError, match=r"has a passphrase.*FCFORGE_PASSPHRASE"):
        read_private(tmp_path / "k.pem")
    with pytest.raises(CapsuleError, match="no private key can be read"):
        read_private(tmp_path / "k.pem", "wrong")
    assert public_hex(read_private(tmp_path / "k.pem", "horse battery")) == public
    monkeypatch.setenv("FCFORGE_PASSPHRASE", "horse battery")
    assert public_hex(read_private(tmp_path / "k.pem")) == public
    plain = write_keys(tmp_path / "plain.pem")
    assert public_hex(read_private(tmp_path / "plain.pem")) == plain

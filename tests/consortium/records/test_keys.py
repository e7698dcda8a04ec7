"""Keys, and the keyring: names of keys, and keys that must no longer be trusted."""

import os
import stat

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from exchange_records import public_of, record

from fcforge.core.errors import ConfigError, ExchangeError
from fcforge_consortium.options import TrustRequest
from fcforge_consortium.records import kinds as records
from fcforge_consortium.records.keyring import (
    Keyring,
    keyring_file,
    read_keyring,
    write_keyring,
)
from fcforge_consortium.records.keys import (
    public_hex,
    read_private,
    read_public,
    write_keys,
)
from fcforge_consortium.records.signatures import fits, key_fault
from fcforge_consortium.records.trust import Trust

A = "a" * 62 + "0a"
B = "b" * 62 + "0b"
C = "c" * 62 + "0c"
PRIME = 2**255 - 19


@pytest.fixture(autouse=True)
def ring_file(tmp_path, monkeypatch):
    monkeypatch.setenv("FCFORGE_KEYRING", str(tmp_path / "ring.json"))
    monkeypatch.delenv("FCFORGE_PASSPHRASE", raising=False)
    return tmp_path / "ring.json"


# -- what a key is -------------------------------------------------------------------------------
def add(one, other):
    """Sum of two points of the curve -x^2 + y^2 = 1 + d x^2 y^2 over the field."""
    d = -121665 * pow(121666, -1, PRIME) % PRIME
    (x1, y1), (x2, y2) = one, other
    both = d * x1 * x2 * y1 * y2 % PRIME
    x = (x1 * y2 + x2 * y1) * pow(1 + both, -1, PRIME) % PRIME
    y = (y1 * y2 + x1 * x2) * pow(1 - both, -1, PRIME) % PRIME
    return x, y


def small_order_points():
    """The eight points that give (0, 1) when added up eight times, made from scratch."""
    d = -121665 * pow(121666, -1, PRIME) % PRIME
    i = pow(2, (PRIME - 1) // 4, PRIME)
    # a point of order 8 doubles to (±i, 0), so that y^2 = -x^2 and d x^4 = 2 x^2 + 1
    root = pow(1 + d, (PRIME + 3) // 8, PRIME)
    root = root if root * root % PRIME == (1 + d) % PRIME else root * i % PRIME
    for sign in (1, -1):
        square = (1 + sign * root) * pow(d, -1, PRIME) % PRIME
        x = pow(square, (PRIME + 3) // 8, PRIME)
        x = x if x * x % PRIME == square else x * i % PRIME
        if x * x % PRIME == square:
            break
    point, found = (x, i * x % PRIME), [(0, 1)]
    for _ in range(7):
        found.append(add(found[-1], point))
    assert add(found[-1], point) == (0, 1)
    assert len(set(found)) == 8
    return found


def test_keys_under_which_anybody_can_sign_are_refused():
    for x, y in small_order_points():
        for sign in (0, 1):
            key = (y | sign << 255).to_bytes(32, "little").hex()
            assert "small order" in key_fault(key), (x, y)
            assert not fits(key, "0" * 128, b"whatever")


def test_a_key_has_one_encoding():
    good = public_hex(Ed25519PrivateKey.generate())
    assert key_fault(good) == ""
    for other in (good.upper(), f" {good}", good[:-1], f"{good}\n", "g" * 64, ""):
        assert "hex digits" in key_fault(other)
    for beyond in (PRIME + 1, PRIME + 9, 2**255 - 1):
        assert "canonical encoding" in key_fault(beyond.to_bytes(32, "little").hex())


def test_a_signature_fits_its_message_its_key_and_one_encoding():
    key = Ed25519PrivateKey.generate()
    public = public_hex(key)
    signature = key.sign(b"message").hex()
    assert fits(public, signature, b"message")
    assert not fits(public, signature, b"massage")
    assert not fits(public_hex(Ed25519PrivateKey.generate()), signature, b"message")
    spaced = f"{signature[:2]} {signature[2:]}"
    for other in (signature.upper(), spaced, signature[:-2], ""):
        assert not fits(public, other, b"message")


# -- files ---------------------------------------------------------------------------------------
def test_keys_are_private_and_may_have_a_passphrase(tmp_path, monkeypatch):
    public = write_keys(tmp_path / "k.pem", "horse battery")
    assert stat.S_IMODE((tmp_path / "k.pem").stat().st_mode) == 0o600
    assert read_public(tmp_path / "k.pem.pub") == public
    with pytest.raises(ExchangeError, match="FCFORGE_PASSPHRASE"):
        read_private(tmp_path / "k.pem")
    with pytest.raises(ExchangeError, match="private key"):
        read_private(tmp_path / "k.pem", "wrong")
    assert public_hex(read_private(tmp_path / "k.pem", "horse battery")) == public
    monkeypatch.setenv("FCFORGE_PASSPHRASE", "horse battery")
    assert public_hex(read_private(tmp_path / "k.pem")) == public
    plain = write_keys(tmp_path / "plain.pem")
    assert public_hex(read_private(tmp_path / "plain.pem")) == plain
    with pytest.raises(ExchangeError, match="exists already"):
        write_keys(tmp_path / "plain.pem")


def test_what_is_not_a_key_is_told_and_says_how_to_make_one(tmp_path):
    write_keys(tmp_path / "k")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "text").write_text("not a key")
    (tmp_path / "large").write_bytes(b"-" * 100_000)
    for name in ("pipe", "text", "large", "none", "k"):
        with pytest.raises(
            ExchangeError, match=r"fcforge consortium keys new|Check the path"
        ) as told:
            read_public(tmp_path / name)
        assert told.value.where == str(tmp_path / name)
    with pytest.raises(ExchangeError, match="no private key"):
        read_private(tmp_path / "k.pub")


# -- the keyring ---------------------------------------------------------------------------------
def test_a_name_may_have_several_keys_and_a_key_one_name():
    ring = Keyring().add("UCLA", A).add(" UCLA", B)
    assert ring.names == {A: "UCLA", B: "UCLA"}
    assert ring.label(A) == f"{A[:16]} (UCLA)"
    assert ring.label(C) == C[:16]
    with pytest.raises(ConfigError, match="as a key of 'UCLA'"):
        ring.add("NYU", A)
    with pytest.raises(ConfigError, match="looks like 'UCLA'"):
        ring.add("ucla", C)
    for name, key in (("x", "12"), ("", C), ("evil\x1b", C), ("x", "01" + "0" * 62)):
        with pytest.raises((ConfigError, ValueError)):
            ring.add(name, key)


def test_revoked_by_name_or_by_first_digits():
    ring = Keyring().add("UCLA", A).add("UCLA", B).add("NYU", C)
    assert [bool(k.revoked) for k in ring.revoke("UCLA").keys] == [True, True, False]
    assert [bool(k.revoked) for k in ring.revoke(B[:10]).keys] == [False, True, False]
    with pytest.raises(ConfigError, match="Did you mean 'UCLA'"):
        ring.revoke("UCL")
    ring.require_valid(A, "it", "UCLA")
    for site in ("UCLA", "another"):  # wherever it signs
        with pytest.raises(ExchangeError, match="'UCLA' that was revoked"):
            ring.revoke("UCLA").require_valid(A, "it", site)


def test_written_read_private_and_never_taken_for_empty(ring_file):
    assert keyring_file() == ring_file
    assert read_keyring() == Keyring()
    ring = Keyring().add("UCLA", A).revoke("UCLA")
    assert stat.S_IMODE(write_keyring(ring).stat().st_mode) == 0o600
    assert read_keyring() == ring
    one = '{"name": "x", "key": "%s", "added": ""}'
    for text in (
        "",
        "{}",
        "[]",
        '{"format": "x", "keys": []}',
        '{"format": "fcforge-keyring"}',
        '{"format": "fcforge-keyring", "keys": [%s]}' % (one % "12"),
        '{"format": "fcforge-keyring", "keys": [], "more": 1}',
    ):
        ring_file.write_text(text)
        with pytest.raises(ExchangeError, match="keyring") as told:
            read_keyring()
        assert told.value.where == str(ring_file)


def test_nobody_signs_for_a_site_whose_key_is_known():
    ring = Keyring().add("NYU", A).add("another", B)
    ring.require_valid(A, "it", "NYU")
    ring.require_valid(C, "it", "UM")
    for key, by in ((B, "(another)"), (C, C[:16]), ("", "nobody")):
        with pytest.raises(ExchangeError, match="not by the key of 'NYU'") as told:
            ring.require_valid(key, "it", "NYU")
        assert by in told.value.what
    for name in ("nyu", "NYU.", "\u039d\u03a5U"):
        with pytest.raises(ExchangeError, match="looks like 'NYU'"):
            ring.require_valid(C, "it", name)


def test_a_known_key_signs_under_no_other_name():
    """A hospital whose key is known cannot pose as one whose key is not."""
    trust = Trust(keyring=Keyring().add("NYU", public_of("NYU")))
    trust.require(record(records.Notice, "NYU", signer="NYU"))
    trust.require(record(records.BaseModelRecord, "public people", signer="NYU"))
    trust.require(record(records.Notice, "UM", signer="UM"))
    for kind in (records.Notice, records.Chain):
        with pytest.raises(ExchangeError, match=r"by 'UM'.* as that of 'NYU'"):
            trust.require(record(kind, "UM", signer="NYU"))


# -- rotations -----------------------------------------------------------------------------------
def test_a_rotation_hands_over_and_vouches():
    line = (A, B)
    knows_old = Keyring().add("NYU", A)
    knows_old.require_valid(B, "it", "NYU", line)
    knows_new = Keyring().add("NYU", B)
    knows_new.require_valid(A, "it", "NYU", line)
    lost = Keyring().add("NYU", A).revoke("NYU").add("NYU", B)
    lost.require_valid(B, "it", "NYU", line)
    lost.require_valid(A, "it", "NYU", line)
    with pytest.raises(ExchangeError, match="revoked"):
        lost.require_valid(A, "it", "NYU")  # what no rotation vouches for
    with pytest.raises(ExchangeError, match="revoked"):
        lost.require_valid(A, "it", "NYU", (A, C))  # a thief's rotation
    with pytest.raises(ExchangeError, match="not by the key"):
        lost.require_valid(C, "it", "NYU", (A, C))
    with pytest.raises(ExchangeError, match="not by the key"):
        knows_old.require_valid(C, "it", "NYU", line)  # a key outside the line


# -- trust ---------------------------------------------------------------------------------------
def release(signer="", site="NYU"):
    """A release that somebody signed in the name of a site."""
    return record(records.Contribution, site=site, signer=signer)


def test_trust_in_named_keys(tmp_path):
    mine = write_keys(tmp_path / "k")
    trust = Trust.asked(TrustRequest(trust=[tmp_path / "k.pub"]))
    theirs = public_of("NYU")
    trust.require(release("NYU"), (mine, theirs))
    trust.require(record(records.Chain))  # the records name an unsigned root by its id
    trust.require_signed([record(records.Chain), release("NYU")])
    with pytest.raises(ExchangeError, match="chain 0 of 'NYU' is not signed"):
        trust.require_signed([record(records.Chain)])  # of which nobody said anything
    for signer, by in (("NYU", "not trusted"), ("", "by nobody")):
        with pytest.raises(ExchangeError, match=by):
            trust.require(release(signer))
    with pytest.raises(ExchangeError, match="not trusted"):
        trust.require(release("thief"), (mine, theirs))
    Trust().require(release("NYU"))


def test_the_name_of_a_known_key_is_not_taken_by_leaving_the_signature_out():
    root = record(records.Chain)
    Trust(keyring=Keyring().add("UM", A)).require(root)
    with pytest.raises(ExchangeError, match="by nobody, not by the key of 'NYU'"):
        Trust(keyring=Keyring().add("NYU", A)).require(root)


def test_signatures_are_all_there_or_as_required():
    some = [record(records.Chain), release("UM", "UM"), release()]
    with pytest.raises(ExchangeError, match="'NYU' is not signed, though"):
        Trust().require_signed(some)
    Trust().require_signed([release(), release(site="UM")])
    with pytest.raises(ExchangeError, match="'UM' is not signed"):
        Trust(required=True).require_signed([release(site="UM")])
    with pytest.raises(ExchangeError, match="chain 0"):
        Trust(required=True).require_signed([record(records.Chain)])

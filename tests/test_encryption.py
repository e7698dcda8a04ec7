"""Encryption for named recipients: both ways round, and every way in which it is refused."""

import sys

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fcforge.encryption import decrypt, encrypt, write_identity
from fcforge.errors import FCForgeError

CONTENT = bytes(range(256)) * 300  # more than one chunk of the format (64 KiB)


@pytest.fixture
def world(tmp_path):
    """A file, the identities of two recipients and of a stranger, and the public keys."""
    (tmp_path / "a.capsule").write_bytes(CONTENT)
    names = ("nyu", "um", "stranger")
    return tmp_path, {name: write_identity(tmp_path / f"{name}.txt") for name in names}


def test_every_recipient_reads_it_and_nobody_else(world):
    folder, public = world
    sealed = encrypt(folder / "a.capsule", [public["nyu"], public["um"]])
    assert sealed == folder / "a.capsule.age"
    assert CONTENT[:64] not in sealed.read_bytes()
    for name in ("nyu", "um"):
        out = decrypt(sealed, folder / f"{name}.txt", folder / f"{name}.capsule")
        assert out.read_bytes() == CONTENT
        assert out.stat().st_mode & 0o777 == 0o600
    with pytest.raises(
        FCForgeError, match=r"not encrypted for the identity in .*stranger"
    ):
        decrypt(sealed, folder / "stranger.txt", folder / "no.capsule")
    assert not (folder / "no.capsule").exists()


def test_recipients_from_a_file_and_ssh_keys(world):
    folder, public = world
    key, coding = Ed25519PrivateKey.generate(), serialization.Encoding
    form, locked = serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    (folder / "ssh").write_bytes(key.private_bytes(coding.PEM, form, locked))
    form = serialization.PublicFormat.OpenSSH
    ssh = key.public_key().public_bytes(coding.OpenSSH, form).decode()
    (folder / "all.txt").write_text(f"# hospitals\n{public['nyu']}\n\n{ssh}")
    sealed = encrypt(folder / "a.capsule", [str(folder / "all.txt")])
    for identity in ("nyu.txt", "ssh"):
        decrypt(sealed, folder / identity, overwrite=True)
        assert (folder / "a.capsule").read_bytes() == CONTENT


@pytest.mark.parametrize("place", [0, 30, 200, 400, -1])
def test_a_changed_byte_leaves_no_plaintext(world, place):
    folder, public = world
    sealed = encrypt(folder / "a.capsule", [public["nyu"]])
    data = bytearray(sealed.read_bytes())
    data[place] ^= 1
    sealed.write_bytes(data)
    before = sorted(folder.iterdir())
    with pytest.raises(
        FCForgeError, match=r"damaged or changed|age format|not encrypted for"
    ):
        decrypt(sealed, folder / "nyu.txt", folder / "out" / "b.capsule")
    assert sorted(folder.iterdir()) == before


def test_every_truncation_is_refused(world):
    folder, public = world
    sealed = encrypt(folder / "a.capsule", [public["nyu"]])
    data = sealed.read_bytes()
    for end in (0, 10, 100, 250, 65_000, 66_000, len(data) - 1):
        sealed.write_bytes(data[:end])
        with pytest.raises(FCForgeError, match=r"damaged or changed|age format"):
            decrypt(sealed, folder / "nyu.txt", folder / "b.capsule")
        assert not (folder / "b.capsule").exists()


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("age1nonsense", "'age1nonsense' is not a recipient"),
        ("ssh-nonsense", "is not a recipient"),
        ("nobody.txt", "does not exist"),
        ("nyu.txt", "holds a secret key"),
        ("a.capsule", "is not a recipient"),
        ("empty.txt", "names no recipient"),
    ],
)
def test_what_is_no_recipient(world, monkeypatch, to, said):
    folder, _ = world
    monkeypatch.chdir(folder)
    (folder / "empty.txt").write_text("# nobody yet\n")
    with pytest.raises(FCForgeError, match=said):
        encrypt("a.capsule", [to])
    assert not (folder / "a.capsule.age").exists()


def test_what_is_no_identity_or_not_encrypted(world):
    folder, public = world
    sealed = encrypt(folder / "a.capsule", [public["nyu"]])
    (folder / "key.pub").write_text(f"{public['nyu']}\n")
    (folder / "cut.txt").write_text("AGE-SECRET-KEY-1CUT\n")
    for identity, said in (
        ("key.pub", "holds no identity"),
        ("cut.txt", "cannot be used"),
    ):
        with pytest.raises(FCForgeError, match=said):
            decrypt(sealed, folder / identity, folder / "b")
    with pytest.raises(FCForgeError, match="not encrypted in the age format"):
        decrypt(folder / "a.capsule", folder / "nyu.txt")
    with pytest.raises(FCForgeError, match="is a folder"):
        encrypt(folder, [public["nyu"]])


def test_nothing_is_replaced_unasked(world):
    folder, public = world
    sealed = encrypt(folder / "a.capsule", [public["nyu"]])
    for again in (
        lambda: encrypt(folder / "a.capsule", [public["nyu"]]),
        lambda: decrypt(sealed, folder / "nyu.txt"),
        lambda: write_identity(folder / "nyu.txt"),
    ):
        with pytest.raises(FCForgeError, match="exists already"):
            again()
    (folder / "odd.bin").write_bytes(sealed.read_bytes())
    with pytest.raises(FCForgeError, match=r"does not end in \.age"):
        decrypt(folder / "odd.bin", folder / "nyu.txt")


def test_without_the_package_it_says_which(world, monkeypatch):
    folder, public = world
    monkeypatch.setitem(sys.modules, "pyrage", None)  # as if it were not installed
    with pytest.raises(
        FCForgeError, match=r"needs the package 'pyrage'.*fcforge\[age\]"
    ):
        encrypt(folder / "a.capsule", [public["nyu"]])

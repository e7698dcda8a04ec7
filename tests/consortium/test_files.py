"""Consortium files: round trips, sizes, damage, forgery."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_consortium import empty, release_of, sites, start

from fcforge.capsule import container as box
from fcforge.capsule import ledger
from fcforge.consortium import (
    Withdrawal,
    files,
    read_consortium,
    read_release,
    write_consortium,
    write_release,
)
from fcforge.errors import CapsuleError

HOSPITALS = sites()[2:]


@pytest.fixture(scope="module")
def keys():
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return [Ed25519PrivateKey.generate() for _ in range(2)]


@pytest.fixture(scope="module")
def group(keys):
    return empty().joined(
        [release_of(HOSPITALS[0], key=keys[0]), release_of(HOSPITALS[1], key=keys[1])]
    )


@pytest.fixture(scope="module")
def sealed(group, tmp_path_factory):
    return write_consortium(group, tmp_path_factory.mktemp("c") / "x.capsule")


def test_round_trip(group, sealed, tmp_path):
    back = read_consortium(sealed)
    assert back.digest == group.digest
    assert np.array_equal(back.beta, group.beta)
    assert back.start.papers == group.start.papers
    assert oct(os.stat(sealed).st_mode & 0o777) == "0o600"
    assert files.is_consortium(sealed)
    folder = write_consortium(group, tmp_path / "folder")
    assert folder.is_dir()
    assert files.is_consortium(folder)
    assert read_consortium(folder).digest == group.digest


def test_confounds_travel(tmp_path):
    from fcforge.consortium import Consortium

    path = write_consortium(
        Consortium(start(("age", "mean_fd"))), tmp_path / "x.capsule"
    )
    back = read_consortium(path).start
    assert back.digest == start(("age", "mean_fd")).digest
    assert back.removes == ("age", "mean_fd")


def test_a_hospital_adds_a_few_kilobytes(group, sealed, tmp_path):
    alone = write_consortium(empty(), tmp_path / "start.capsule")
    assert (sealed.stat().st_size - alone.stat().st_size) / 2 < 2_000
    path = write_release(group.releases[0], tmp_path / "a.release")
    assert path.stat().st_size < 2_000
    assert read_release(path).digest == group.releases[0].digest


@settings(max_examples=150, deadline=None)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_every_flipped_bit_is_refused(sealed, tmp_path_factory, place, bit):
    data = bytearray(sealed.read_bytes())
    data[int(place * len(data))] ^= 1 << bit
    path = tmp_path_factory.mktemp("f") / "x.capsule"
    path.write_bytes(bytes(data))
    with pytest.raises(CapsuleError):
        read_consortium(path)


@settings(max_examples=40, deadline=None)
@given(cut=st.floats(0, 1, exclude_max=True))
def test_every_truncation_is_refused(sealed, tmp_path_factory, cut):
    data = sealed.read_bytes()
    path = tmp_path_factory.mktemp("t") / "x.capsule"
    path.write_bytes(data[: int(cut * len(data))])
    with pytest.raises(CapsuleError):
        read_consortium(path)


def forged(sealed, tmp_path, change):
    """The capsule with something changed by one who knows the format and seals it again."""
    parts = box.read_parts(sealed, box.RELEASES)
    manifest = json.loads(parts[box.MANIFEST])
    records = [json.loads(line) for line in parts[box.RECORDS].splitlines()]
    change(manifest, records)
    parts[box.RECORDS] = b"".join(ledger.canonical(r) + b"\n" for r in records)
    manifest["parts"][box.RECORDS] = ledger.sha256(parts[box.RECORDS])
    manifest["parts"][box.MANIFEST] = ledger.sha256(ledger.canonical(manifest["says"]))
    parts[box.MANIFEST] = ledger.canonical(manifest)
    path = tmp_path / "forged.capsule"
    path.write_bytes(box.pack(parts))
    return path


@pytest.mark.parametrize(
    "field",
    [
        "numbers",
        "epsilon",
        "noise_sd",
        "site",
        "time",
        "commitment",
        "wave",
        "spent",
        "fcforge",
    ],
)
def test_a_rewritten_release_is_refused(sealed, tmp_path, field):
    def change(manifest, records):
        value = records[0][field]
        records[0][field] = {
            list: lambda v: [x + 1 for x in v],
            str: lambda v: "0" * len(v),
        }.get(type(value), lambda v: v * 2)(value)

    with pytest.raises(
        CapsuleError,
        match=r"the signature of the release of site .* does not fit|is not a",
    ):
        read_consortium(forged(sealed, tmp_path, change))


def test_a_stripped_signature_is_refused(sealed, tmp_path):
    def change(manifest, records):
        records[0]["signature"] = ""

    with pytest.raises(CapsuleError, match="stripped"):
        read_consortium(forged(sealed, tmp_path, change))


def test_another_key_for_the_same_site_is_refused(group, keys):
    stolen = replace(group.releases[0], wave=2, key="", signature="").signed(keys[1])
    with pytest.raises(CapsuleError, match="signed by different keys"):
        group.joined([stolen])
    unsigned = replace(group.releases[0], wave=2, key="", signature="")
    with pytest.raises(CapsuleError, match="signed by different keys"):
        group.joined([unsigned])


def test_only_the_hospital_withdraws_what_it_signed(group, keys):
    site = group.releases[0].site
    with pytest.raises(CapsuleError, match=r"is signed by key .*--sign"):
        group.withdrawn(site)
    with pytest.raises(CapsuleError, match=r"is signed by key .*--sign"):
        group.withdrawn(site, keys[1])
    forged = Withdrawal(
        site=site,
        start=group.start.digest,
        time=group.releases[0].time,
        fcforge="0",
        releases=(group.releases[0].digest,),
    )
    with pytest.raises(CapsuleError, match="signed by different keys"):
        group.joined([forged])
    stranger = replace(forged, site="another").signed(keys[1])
    with pytest.raises(
        CapsuleError, match="'another' cannot withdraw a release of site"
    ):
        group.joined([stranger])
    with pytest.raises(CapsuleError, match="cannot withdraw"):  # whichever comes first
        empty().joined([stranger]).joined(group.releases)
    assert site not in group.withdrawn(site, keys[0]).sites


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m, r: r[0].update(scan=[0.1] * 45), "field too many or too few"),
        (lambda m, r: m["says"].update(secret="x"), "field too many or too few"),
        (lambda m, r: m["says"].update(patients=1), "was made for start"),
        (lambda m, r: m.update(version=4), "reads fcforge-consortium version 3"),
        (lambda m, r: m.update(extra=1), "holds what is not part of a capsule"),
        (lambda m, r: r.append(r[0]), "repeat each other"),
        (lambda m, r: r.reverse(), "in disorder"),
        (
            lambda m, r: r[0].update(kind="scan"),
            "not a release, a withdrawal or an audit",
        ),
        (lambda m, r: r[0].update(numbers="x"), "is not a list"),
    ],
)
def test_hidden_or_false_content_is_refused(sealed, tmp_path, change, words):
    with pytest.raises(CapsuleError, match=words):
        read_consortium(forged(sealed, tmp_path, change))


def test_hidden_arrays_are_refused(sealed, tmp_path):
    from fcforge.capsule.arrays import load_arrays, save_arrays

    parts = box.read_parts(sealed, box.RELEASES)
    arrays = load_arrays(parts[box.START], box.START)
    parts[box.START] = save_arrays({**arrays, "extra": torch.zeros(172, 45)})
    says = json.loads(parts[box.MANIFEST])["says"]
    path = tmp_path / "x.capsule"
    path.write_bytes(box.pack(box.sealed(box.RELEASES, says, parts)))
    with pytest.raises(CapsuleError, match="other arrays than it should"):
        read_consortium(path)

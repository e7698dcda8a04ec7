"""Which versions are read: a capsule of each stays here for ever."""

import json
from pathlib import Path

import pytest
from capsule_chains import SITES, chain

from fcforge.capsule import container as box
from fcforge.capsule import open_capsule, verify
from fcforge.capsule.ledger import canonical, sha256
from fcforge.capsule.opening import Trust, intact
from fcforge.consortium import files
from fcforge.consortium.files import read_consortium
from fcforge.errors import CapsuleError

FIXTURES = Path(__file__).parent / "fixtures"


def test_version_1_is_read_by_the_release_that_is_named():
    with pytest.raises(CapsuleError, match=r"version 1, which fcforge 0\.1 reads; this fcforge"):
        open_capsule(FIXTURES / "version1.capsule")
    assert not intact(verify(FIXTURES / "version1.capsule"))


def test_version_2_is_read():
    capsule = open_capsule(FIXTURES / "version2.capsule", trusted=Trust(required=True))
    assert capsule.sites == SITES[:2]
    assert len(capsule.signed_by) == 64
    assert capsule.settings.classes == ("TC", "ASD")
    assert intact(verify(FIXTURES / "version2.capsule"))


def test_releases_of_version_2_are_read():
    path = FIXTURES / "releases2.capsule"
    group = read_consortium(path, Trust(required=True))
    assert group.sites == ("Sim-UM", "Sim-USM")
    assert [r.wave for r in group.releases] == [1, 1]
    assert all(check.ok for check in files.verify(path, Trust()))
    parts = box.unpack(path.read_bytes(), files.PARTS)
    newer = {**json.loads(parts[files.MANIFEST]), "version": 3}
    with pytest.raises(CapsuleError, match="version 3, this fcforge reads version 2"):
        files._opened({**parts, files.MANIFEST: canonical(newer)})


@pytest.mark.parametrize(
    ("version", "reader"), [(3, "a newer fcforge"), (0, "a newer"), ("2", "another"), (True, "ano")]
)
def test_an_unknown_version_says_who_reads_it(version, reader, tmp_path):
    path = chain("majority", SITES[:1], tmp_path)[0]
    parts = box.read_parts(path)
    manifest = json.loads(parts[box.MANIFEST])
    parts[box.MANIFEST] = canonical({**manifest, "version": version})
    seal = json.loads(parts[box.SEAL]) | {"manifest_sha256": sha256(parts[box.MANIFEST])}
    parts[box.SEAL] = canonical(seal)
    (tmp_path / "x.capsule").write_bytes(box.pack(parts))
    with pytest.raises(CapsuleError, match=f"version {version!r}, which {reader}"):
        open_capsule(tmp_path / "x.capsule")

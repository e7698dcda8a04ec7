"""Which versions are read: a capsule of each stays here for ever."""

import json
from pathlib import Path

import pytest
from capsule_chains import SITES, chain

from fcforge.capsule import container as box
from fcforge.capsule import open_capsule, verify
from fcforge.capsule.ledger import canonical
from fcforge.capsule.sealing import Trust
from fcforge.consortium import files
from fcforge.consortium.files import read_consortium
from fcforge.errors import CapsuleError

FIXTURES = Path(__file__).parent / "fixtures"


def test_version_3_is_read():
    path = FIXTURES / "version3.capsule"
    capsule = open_capsule(path, trust=Trust(required=True))
    assert capsule.sites == SITES[:2]
    assert len(capsule.signed_by) == 64
    assert capsule.settings.classes == ("TC", "ASD")
    assert all(check.ok for check in verify(path))


def test_releases_of_version_3_are_read():
    path = FIXTURES / "releases3.capsule"
    group = read_consortium(path, Trust(required=True))
    assert group.sites == ("Sim-UM", "Sim-USM")
    assert [r.wave for r in group.releases] == [1, 1]
    assert all(check.ok for check in files.verify(path, Trust()))


@pytest.mark.parametrize(
    ("version", "age"), [(4, "a newer"), (2, "an older"), ("3", "a newer")]
)
@pytest.mark.parametrize("form", [box.CHAIN, box.RELEASES])
def test_an_unknown_version_says_who_reads_it(version, age, form, tmp_path):
    path = FIXTURES / ("version3.capsule" if form == box.CHAIN else "releases3.capsule")
    parts = box.read_parts(path, form)
    manifest = {**json.loads(parts[box.MANIFEST]), "version": version}
    (tmp_path / "x").write_bytes(box.pack({**parts, box.MANIFEST: canonical(manifest)}))
    with pytest.raises(
        CapsuleError, match=f"version {version!r}; this.*version 3.*{age} fcforge"
    ):
        open_capsule(tmp_path / "x") if form == box.CHAIN else read_consortium(
            tmp_path / "x"
        )


def test_a_version_is_a_number(tmp_path):
    parts = box.read_parts(chain("majority", SITES[:1], tmp_path)[0], box.CHAIN)
    manifest = {**json.loads(parts[box.MANIFEST]), "version": True}
    (tmp_path / "x").write_bytes(box.pack({**parts, box.MANIFEST: canonical(manifest)}))
    with pytest.raises(CapsuleError, match="version True; this fcforge reads"):
        open_capsule(tmp_path / "x")

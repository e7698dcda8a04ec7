"""Receipts stay at home and prove who was learned."""

from dataclasses import replace

import numpy as np
import pytest
from capsule_chains import SITES, chain, cohort, first

from fcforge.capsule import open_capsule
from fcforge.capsule.audit import audit_capsule, site_as_learned
from fcforge.capsule.home import Home, Receipt, fingerprints, read_home, receipt_of
from fcforge.errors import DataError


def test_a_receipt_stays_at_home_and_proves_the_people(tmp_path):
    path = first(tmp_path, method="forge", held_out=16)
    (receipt,), capsule = read_home(receipt_of(path)).receipts, open_capsule(path)
    assert receipt.commitment == capsule.entries[0]["commitment"]
    assert receipt.salt.encode() not in path.read_bytes()
    site = site_as_learned(capsule, cohort(), SITES[0])
    ids = [who for part in ("train", "val") for who in site.subject_ids[part]]
    learning = site.learning(with_val=True)
    assert receipt.people == fingerprints(learning.fc.numpy(), ids, learning.y.numpy())


@pytest.mark.parametrize("place", [0, 1])
def test_an_audit_of_other_people_is_refused_for_every_site(place, tmp_path):
    """Ids renumbered, rows shuffled, strangers under the site's name, another's receipt, none."""
    paths = chain("majority", SITES[:2], tmp_path)
    capsule, name = open_capsule(paths[-1]), SITES[place]
    home = read_home(receipt_of(paths[place]))
    mine = cohort().site == name
    rng = np.random.default_rng(0)
    ids = cohort().subject_id.copy()
    ids[mine] = rng.permutation(ids[mine])
    fc = cohort().fc.copy()
    fc[mine] = fc[mine][rng.permutation(mine.sum())]
    strangers = cohort().site == SITES[2]
    names = np.where(strangers, name, np.where(mine, SITES[2], cohort().site))
    for data in (
        replace(cohort(), subject_id=ids),
        replace(cohort(), fc=fc),
        replace(cohort(), site=names),
    ):
        with pytest.raises(
            DataError, match=r"are not the \d+ people that were learned"
        ):
            audit_capsule(capsule, site_as_learned(capsule, data, name), home)
    site = site_as_learned(capsule, cohort(), name)
    turned = replace(site, train=replace(site.train, y=1 - site.train.y))
    with pytest.raises(DataError, match="with the same diagnoses"):
        audit_capsule(capsule, turned, home)
    other = read_home(receipt_of(paths[1 - place]))
    for wrong in (other, Home()):
        with pytest.raises(DataError, match=r"there is no receipt for site.*--local"):
            audit_capsule(capsule, site, wrong)


def test_a_receipt_without_ids_knows_the_scans_in_any_order():
    fc, y = cohort().fc[:5], np.array([0, 1, 1, 0, 0])
    receipt = Receipt("A", fingerprints(fc, [""] * 5, y))
    turned = fingerprints(fc[::-1], list("54321"), y[::-1])
    assert receipt.places(turned).tolist() == [4, 3, 2, 1, 0]
    with pytest.raises(DataError, match="1 are not in the data"):
        receipt.places(fingerprints(fc[:4], list("abcd"), y[:4]))
    with pytest.raises(DataError, match="have another diagnosis"):
        receipt.places(fingerprints(fc, list("abcde"), y[::-1]))
    assert Receipt("A", receipt.people).commitment != receipt.commitment  # the salt


@pytest.mark.parametrize(
    "text", ["", "{}", '{"format": "x"}', '{"format": "fcforge-home"}']
)
def test_what_is_not_a_receipt_is_told(text, tmp_path):
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(DataError, match="is not a home file of fcforge"):
        read_home(tmp_path / "r.json")

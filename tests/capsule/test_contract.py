"""One contract at every hospital: classes, ROIs, scans, budget, people."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from capsule_chains import N_ROIS, SITES, chain, cohort, settings

from fcforge.capsule import LearnOptions, learn, open_capsule, settings_for
from fcforge.capsule.audit import audit_capsule, site_as_learned
from fcforge.capsule.contents import require_fit
from fcforge.capsule.home import Home, Receipt, fingerprints, read_home, receipt_of
from fcforge.capsule.prediction import predict
from fcforge.capsule.turn import require_budget
from fcforge.errors import CapsuleError, ConfigError, DataError
from fcforge.sites.simulated import simulate
from fcforge.types import Component, LearnerSpec

NAMES = tuple(f"roi{i}" for i in range(N_ROIS))


def first(folder: Path, data=None, **rest) -> Path:
    path = folder / "a.capsule"
    made = settings(rest.pop("method", "majority"), **rest)
    learn(None, SITES[0], data or cohort(), path, settings=made)
    return path


# -- classes -----------------------------------------------------------------------------------
def test_other_words_for_patients_are_refused(tmp_path):
    path = first(tmp_path, classes=("TC", "ASD"))
    assert open_capsule(path).settings.classes == ("TC", "ASD")
    turned = replace(cohort(), classes=("ASD", "TC"))
    with pytest.raises(CapsuleError, match=r"patients are 'ASD'.*The other way round.*--positive"):
        learn(path, SITES[1], turned, tmp_path / "b.capsule")
    with pytest.raises(CapsuleError, match="those of these data 'MDD' and 'NC'"):
        learn(path, SITES[1], replace(cohort(), classes=("NC", "MDD")), tmp_path / "b.capsule")
    assert not (tmp_path / "b.capsule").exists()
    same = replace(cohort(), classes=("tc", "asd"))
    assert learn(path, SITES[1], same, tmp_path / "b.capsule").sites == SITES[:2]


def test_zero_and_one_are_controls_and_patients_everywhere():
    for ours, mine in (((0, 1), ("TC", "ASD")), (("TC", "ASD"), ("0", "1"))):
        require_fit(replace(cohort(), classes=mine), (), ours)


def test_an_audit_compares_classes_and_rois(tmp_path):
    path = first(tmp_path, classes=("TC", "ASD"))
    capsule = open_capsule(path)
    with pytest.raises(CapsuleError, match="The other way round"):
        site_as_learned(capsule, replace(cohort(), classes=("ASD", "TC")), SITES[0])


def test_diagnoses_that_are_turned_round_are_refused_unless_accepted(tmp_path):
    """The model that came in knows which people are patients."""
    data = simulate("easy", n_rois=20, n_sites=2, scale=1.0, seed=1)
    one, two = data.site_names
    path = tmp_path / "a.capsule"
    learn(None, one, data, path, settings=replace(settings("analytic", held_out=0), n_rois=20))
    turned = replace(data, y=1 - data.y)
    with pytest.raises(DataError, match=r"the wrong way round \(AUROC 0\..*--accept-labels"):
        learn(path, two, turned, tmp_path / "b.capsule")
    anyway = LearnOptions(accept=["accept_labels"])
    made = learn(path, two, turned, tmp_path / "b.capsule", options=anyway)
    assert made.entries[-1]["flags"] == ["accept_labels"]
    said = []
    made = learn(path, two, data, tmp_path / "c.capsule", options=LearnOptions(say=said.append))
    assert made.entries[-1]["flags"] == []
    assert re.search(r"came in reaches accuracy 0\.\d+ on the \d+ people to be learned", said[-1])


# -- ROIs --------------------------------------------------------------------------------------
def test_other_roi_names_are_refused_at_learn_and_predict(tmp_path):
    named = replace(cohort(), roi_names=NAMES)
    path = first(tmp_path, named, roi_names=NAMES)
    swapped = (NAMES[1], NAMES[0], *NAMES[2:])
    with pytest.raises(CapsuleError, match="ROI 1 is 'roi1', the capsule has 'roi0' there"):
        learn(path, SITES[1], replace(named, roi_names=swapped), tmp_path / "b.capsule")
    learn(path, SITES[1], named, tmp_path / "b.capsule")
    learn(path, SITES[2], replace(named, roi_names=()), tmp_path / "c.capsule")
    scan = {"fc": cohort().fc[:3], "subject_id": np.arange(3)}
    for names, status in ((NAMES, "ok"), (swapped, "cannot be used")):
        np.savez(tmp_path / "scans.npz", **scan, roi_names=np.array(names))
        rows = predict(open_capsule(path), tmp_path / "scans.npz")
        assert [row.status for row in rows] == [status] * 3
    assert rows[0].note == "ROI 1 is 'roi1', the capsule has 'roi0' there."


def test_shuffled_rois_are_noticed_without_their_names(tmp_path):
    path = first(tmp_path, held_out=48)
    order = [3, 8, 0, 5, 9, 2, 7, 1, 6, 4]
    shuffled = replace(cohort(), fc=cohort().fc[:, order][:, :, order])
    with pytest.raises(DataError, match=r"does not resemble.*--accept-scans"):
        learn(path, SITES[1], shuffled, tmp_path / "b.capsule")
    anyway = LearnOptions(accept=["accept_scans"])
    made = learn(path, SITES[1], shuffled, tmp_path / "b.capsule", options=anyway)
    assert made.entries[-1]["flags"] == ["accept_scans"]


# -- budget ------------------------------------------------------------------------------------
def private(epsilon: float):
    learner = LearnerSpec(Component("dp_analytic", {"epsilon": epsilon}), Component("linear"))
    return settings_for(learner, N_ROIS, held_out=0)


def test_no_more_than_the_hospital_allows_is_spent(tmp_path):
    path, said = tmp_path / "a.capsule", list[str]()
    for most in (0.5, 1.9):
        with pytest.raises(ConfigError, match=r"spend epsilon 2 per person, more than"):
            learn(None, SITES[0], cohort(), path, settings=private(2.0),
                  options=LearnOptions(epsilon=most))  # fmt: skip
    asked = LearnOptions(epsilon=2.0)
    learn(None, SITES[0], cohort(), path, settings=private(2.0),
          options=replace(asked, say=said.append))  # fmt: skip
    assert said == ["each person of this site spends epsilon 2 (delta 0.001)"]
    with pytest.raises(ConfigError, match="promises nothing"):
        require_budget(settings("majority"), 1.0)
    assert require_budget(settings("majority"), None) == ""


# -- people ------------------------------------------------------------------------------------
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
        with pytest.raises(DataError, match=r"are not the \d+ people that were learned"):
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


@pytest.mark.parametrize("text", ["", "{}", '{"format": "x"}', '{"format": "fcforge-home"}'])
def test_what_is_not_a_receipt_is_told(text, tmp_path):
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(DataError, match="is not a home file of fcforge"):
        read_home(tmp_path / "r.json")

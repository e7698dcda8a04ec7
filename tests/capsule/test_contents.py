"""What a capsule says: classes and ROIs that must fit, arrays that are listed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from capsule_chains import N_ROIS, SITES, chain, cohort, entry, first

from fcforge.capsule import Capsule, learn, open_capsule
from fcforge.capsule.audit import site_as_learned
from fcforge.capsule.contents import OwnTest, arrays, own_tests, require_fit, wilson
from fcforge.capsule.prediction import predict
from fcforge.errors import CapsuleError
from fcforge.graphs import edges

NAMES = tuple(f"roi{i}" for i in range(N_ROIS))


def test_other_words_for_patients_are_refused(tmp_path):
    path = first(tmp_path, classes=("TC", "ASD"))
    assert open_capsule(path).settings.classes == ("TC", "ASD")
    turned = replace(cohort(), classes=("ASD", "TC"))
    with pytest.raises(
        CapsuleError, match=r"patients are 'ASD'.*The other way round.*--positive"
    ):
        learn(path, SITES[1], turned, tmp_path / "b.capsule")
    with pytest.raises(CapsuleError, match="those of these data 'MDD' and 'NC'"):
        learn(
            path,
            SITES[1],
            replace(cohort(), classes=("NC", "MDD")),
            tmp_path / "b.capsule",
        )
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


def test_other_roi_names_are_refused_at_learn_and_predict(tmp_path):
    named = replace(cohort(), roi_names=NAMES)
    path = first(tmp_path, named, roi_names=NAMES)
    swapped = (NAMES[1], NAMES[0], *NAMES[2:])
    with pytest.raises(
        CapsuleError, match="ROI 1 is 'roi1', the capsule has 'roi0' there"
    ):
        learn(path, SITES[1], replace(named, roi_names=swapped), tmp_path / "b.capsule")
    learn(path, SITES[1], named, tmp_path / "b.capsule")
    learn(path, SITES[2], replace(named, roi_names=()), tmp_path / "c.capsule")
    scan = {"fc": cohort().fc[:3], "subject_id": np.arange(3)}
    for names, status in ((NAMES, "ok"), (swapped, "cannot be used")):
        np.savez(tmp_path / "scans.npz", **scan, roi_names=np.array(names))
        rows = predict(open_capsule(path), tmp_path / "scans.npz")
        assert [row.status for row in rows] == [status] * 3
    assert rows[0].note == "ROI 1 is 'roi1', the capsule has 'roi0' there."


def opened(name: str, folder: Path) -> Capsule:
    return open_capsule(chain(name, SITES[:1], folder)[0])


def test_inspect_lists_what_is_really_there(tmp_path):
    """By hand: sizes in bytes, and rows that correlate with the site's mean pattern."""
    capsule = opened("ewc", tmp_path)
    listed = {a["name"]: a for a in arrays(capsule)}
    stored = {f"state/{k}": v for k, v in capsule.lane.state.items()}
    assert stored.keys() <= listed.keys()
    for key, value in stored.items():
        assert listed[key]["shape"] == list(value.shape)
        assert listed[key]["bytes"] == 4 * value.numel()
    assert listed["held_out/upper"]["scan_like"] == len(capsule.held_out)
    assert not any(a["scan_like"] for k, a in listed.items() if k.startswith("params"))


def test_scans_that_are_declared_are_counted(tmp_path):
    """PDGNN keeps embeddings of real subjects, FORGE's closed form the edges of synthetic ones."""
    capsule = opened("analytic", tmp_path)
    hidden = replace(
        capsule,
        lane=capsule.lane._replace(
            state={"root": edges(torch.from_numpy(cohort().fc[:5]))}
        ),
    )
    (row,) = (a for a in arrays(hidden) if a["name"] == "state/root")
    assert row["scan_like"] == 5


def test_own_tests_by_hand():
    """37 of 59 right where 33 are patients: 62.7 % against 55.9 %."""
    found = own_tests([entry("NYU", 0.6271, 33, 26), entry("UM", None, 10, 10)])
    assert len(found) == 1
    test = found[0]
    assert (test.site, test.n, test.majority) == ("NYU", 59, pytest.approx(33 / 59))
    assert (test.low, test.high) == (
        pytest.approx(0.4998, abs=1e-3),
        pytest.approx(0.739, abs=1e-3),
    )
    assert not test.useful
    assert own_tests([entry("UM", 0.95, 50, 50)])[0].useful


def test_small_counts_have_no_interval():
    (found,) = own_tests([entry("X", 0.5, None, 30)])
    assert found == OwnTest("X", 0.5)
    assert not found.useful


def test_wilson_is_scipys():
    from scipy.stats import binomtest

    for k, n in ((0, 12), (5, 12), (12, 12), (370, 590)):
        exact = binomtest(k, n).proportion_ci(method="wilson")
        assert wilson(k / n, n) == pytest.approx((exact.low, exact.high), abs=1e-6)

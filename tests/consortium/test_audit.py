"""The audit of a release: references at both ends, proof by the receipt, words for a board."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from small_consortium import empty, people, sites

from fcforge.capsule.keys import read_private, write_keys
from fcforge.consortium import Home, read_consortium, write_consortium
from fcforge.consortium import few_vector as vector
from fcforge.consortium.audit import (
    Contributors,
    audit_people,
    audit_release,
    contributors,
    halves,
    released_people,
    require_numbers,
)
from fcforge.consortium.learning import Budget, learn
from fcforge.errors import CapsuleError, DataError
from fcforge.privacy.accounting import ceiling_of
from fcforge.privacy.release_attacks import KNOWN, SAMPLE
from fcforge.report import audits
from fcforge.studies.audit_result import AuditPlan

SITE = sites()[2]
PLAN = AuditPlan(worlds=40, n_draws=40)


def mine():
    return people().select_sites([SITE])


@cache
def turn(mechanism="gaussian"):
    return learn(empty(), people(), SITE, Home(), Budget(mechanism))


@cache
def everybody():
    start = empty().start
    features = start.features(mine().fc, {})
    return contributors(start.arrays, features, mine().y)


@cache
def audit():
    return audit_people(empty().start.arrays, everybody(), (None, 8.0, 1.0), 1e-3, PLAN)


def test_halves_are_halves_and_differ():
    found = halves(21, PLAN)
    assert found.shape == (40, 21)
    assert set(found.sum(1)) == {10}
    assert len({tuple(row) for row in found}) == 40


def test_contributions_are_those_of_a_release():
    start = empty().start.arrays
    np.testing.assert_allclose(
        np.linalg.norm(everybody().rows, axis=1).max(),
        vector.sensitivity(start),
        rtol=1e-9,
    )
    assert turn("none").release.numbers == pytest.approx(
        everybody().rows.sum(0).tolist()
    )


def test_references_hide_nobody_and_strangers_everybody():
    assert audit().row("bootstrap", "distance ratio").auc.value == 1.0
    assert audit().row("exact ridge statistics", "leverage").auc.value > 0.9
    for row in audit().rows:
        if row.release == "untrained":
            assert abs(row.auc.value - 0.5) < 0.08, row
        assert row.is_reference == (not row.release.startswith("release"))


def test_noise_hides_people_and_no_attack_exceeds_the_ceiling():
    exact = audit().row("release without noise", KNOWN).auc.value
    private = audit().row("release at epsilon 1", KNOWN).auc.value
    assert exact > 0.6
    assert private < exact - 0.05
    for row in audit().rows:
        if row.release == "release at epsilon 1":
            assert row.auc.low < audit().about["ceilings"][row.release], row


def test_an_attack_has_a_row_at_every_budget():
    names = {
        row.attack for row in audit().rows if row.release == "release at epsilon 8"
    }
    assert names == {
        SAMPLE,
        KNOWN,
        "class mean",
        "leverage",
        "loss",
        "loss against public head",
        "shadow models",
    }


def test_ceiling_by_hand():
    assert ceiling_of(None, 1e-3) == 1.0
    assert ceiling_of(1.0, 1e-3) == pytest.approx(0.608, abs=5e-4)  # sigma 2.5747


def test_too_few_people_are_told():
    few = Contributors(*(array[:31] for array in everybody()))
    with pytest.raises(DataError, match=r"31 people are too few to audit a release"):
        audit_people(empty().start.arrays, few, (1.0,), 1e-3, PLAN)


def test_the_receipt_proves_the_people_in_any_order_and_among_others():
    shuffled = people().select(np.random.default_rng(0).permutation(len(people())))
    release, chosen, _ = released_people(turn().group, shuffled, SITE, turn().home)
    assert release == turn().release
    assert chosen.subject_id.tolist() == [i for i, *_ in turn().home.receipts[0].people]


def test_other_people_are_refused_by_name():
    gone = mine().subject_id[3]
    with pytest.raises(DataError, match=rf"1 are not in the data \(first: {gone}\)"):
        audit_release(
            turn().group, mine().select(mine().subject_id != gone), SITE, turn().home
        )
    fc = mine().fc.copy()
    fc[5] = 0.9 * fc[5] + 0.1 * np.eye(fc.shape[1])
    with pytest.raises(
        DataError, match=rf"another scan \(first: {mine().subject_id[5]}\)"
    ):
        audit_release(turn().group, replace(mine(), fc=fc), SITE, turn().home)


def test_without_the_receipt_nothing_is_attacked():
    with pytest.raises(DataError, match="there is no receipt for release 1"):
        audit_release(turn().group, mine(), SITE, Home())
    other = replace(turn().home.receipts[0], salt="00")
    with pytest.raises(DataError, match="there is no receipt for release 1"):
        audit_release(turn().group, mine(), SITE, Home((other,)))


def test_other_diagnoses_are_refused():
    exact = turn("none")
    y = mine().y.copy()
    y[0] = 1 - y[0]
    for made in (exact, turn()):
        with pytest.raises(
            DataError,
            match=rf"1 have another diagnosis \(first: {mine().subject_id[0]}",
        ):
            audit_release(made.group, replace(mine(), y=y), SITE, made.home)
    require_numbers(turn().release, everybody().rows)
    with pytest.raises(DataError, match="add up to"):
        require_numbers(turn().release, everybody().rows + 10.0)


def test_a_later_wave_is_audited_where_its_people_are_there():
    half = np.arange(len(mine())) % 2 == 0
    first = learn(empty(), mine().select(half), SITE, Home(), Budget())
    both = learn(first.group, mine().select(~half), SITE, first.home, Budget())
    assert released_people(both.group, mine(), SITE, both.home)[0].wave == 2
    assert (
        released_people(both.group, mine().select(half), SITE, both.home)[0].wave == 1
    )


def test_words_for_a_board():
    found = audit_release(turn().group, people(), SITE, turn().home, PLAN)
    said = audits.sentences(found)
    assert "is right" in said[0]
    right = found.row("release at epsilon 1", SAMPLE).auc.value
    assert f"is right {100 * right:.0f} times in 100" in said[0]
    assert "no attack is right more than 57 times in 100" in said[2]
    assert "epsilon 1 (delta 1e-06)" in said[2]
    exact = audit_release(turn("none").group, people(), SITE, turn("none").home, PLAN)
    assert "There is no noise in this release" in audits.sentences(exact)[2]


def test_an_audit_is_recorded_beside_its_release_and_leaves_with_it(tmp_path):
    found = audit_release(turn().group, people(), SITE, turn().home, PLAN)
    group = turn().group.audited(found)
    (record,) = group.audits
    assert record.release == turn().release.digest
    assert group.digest == turn().group.digest
    assert np.array_equal(group.head.weight, turn().group.head.weight)
    rows = {row["release"] for row in record.result["rows"] if not row["reference"]}
    assert rows == {
        "release at epsilon 1"
    }  # what was tried without noise is not of this release
    path = write_consortium(group, tmp_path / "x.capsule")
    assert read_consortium(path).audits == (record,)
    assert (
        turn().group.merged(group).audits
        == group.merged(turn().group).audits
        == (record,)
    )
    assert group.withdrawn(SITE).audits == ()
    assert group.withdrawn(SITE).merged(group).audits == ()
    with pytest.raises(CapsuleError, match="is of a release that is not here"):
        empty().joined([record])


def test_only_the_key_of_the_release_audits_it(tmp_path):
    write_keys(tmp_path / "k.pem")
    key = read_private(tmp_path / "k.pem")
    found = audit_release(turn().group, people(), SITE, turn().home, PLAN)
    with pytest.raises(CapsuleError, match="is not signed; its audit must be, too"):
        turn().group.audited(found, key)
    (record,) = turn().group.audited(found).audits
    for wrong in (
        {"release": "x"},
        {"site": "Elsewhere"},
        {"result": {**record.result, "rows": []}},
    ):
        with pytest.raises(CapsuleError, match=r"cannot be read|is not a SHA-256"):
            replace(record, **wrong).check()

"""The audit of a release: references at both ends, proof by the entry."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from small_exchange import given, learned, people, sites, start

from fcforge.core.errors import DataError
from fcforge.evaluation.privacy.attacks import KNOWN, SAMPLE
from fcforge.evaluation.privacy.audit_result import AuditPlan
from fcforge_consortium.audit_target import AuditTarget
from fcforge_consortium.base_model import vectors as vector
from fcforge_consortium.contributions.audit import (
    Trial,
    audit_contribution,
    audit_people,
    contributed_people,
    require_numbers,
)
from fcforge_consortium.contributions.contribution import own_features
from fcforge_consortium.ledger.ledger import Ledger
from fcforge_consortium.privacy.noise import ceiling_of

SITE = sites()[2]
PLAN = AuditPlan(worlds=40, n_draws=40)


def mine():
    return people().select_sites([SITE])


def asked(done, cohort=None, entries=None) -> AuditTarget:
    """What the hospital that gave `done` attacks."""
    held = [done.entry] if entries is None else entries
    private = Ledger(Path("fcforge.private"), held)
    return AuditTarget(SITE, mine() if cohort is None else cohort, private, PLAN)


def attacked(done, **change):
    return audit_contribution(done.exchange.model, asked(done, **change))


@cache
def everybody():
    """The start, and the features of this site's people."""
    model = start().model
    return model.base_model.space, own_features(model, mine())


def rows():
    return vector.contribution_rows(*everybody(), mine().y)


@cache
def audit(epsilon=1.0):
    return audit_people(*everybody(), mine().y, epsilon, 1e-3, PLAN)


@cache
def found():
    return attacked(given(SITE))


def test_halves_are_halves_and_differ():
    members = Trial(*everybody(), mine().y, PLAN).inside
    n = members.shape[1]
    assert set(members.sum(1)) == {n // 2}
    assert len({tuple(row) for row in members}) == 40


def test_contributions_are_those_of_a_release():
    largest = np.linalg.norm(rows(), axis=1).max()
    assert largest == pytest.approx(vector.SENSITIVITY, rel=1e-4)
    exact = start(exact_allowed=True)
    done = learned(exact, SITE, mechanism="none")
    numbers = done.exchange.model.given[0].numbers
    assert np.array_equal(numbers, rows().sum(0))


def test_references_hide_nobody_and_strangers_everybody():
    assert audit().row("bootstrap", "distance ratio").auc.value == 1.0
    for row in audit().rows:
        if row.release == "untrained":
            assert abs(row.auc.value - 0.5) < 0.08, row
        assert row.is_reference == (not row.release.startswith("contribution"))


def test_noise_hides_people_and_no_attack_exceeds_the_ceiling():
    exact = audit(None).row("contribution without noise", KNOWN).auc.value
    private = audit().row("contribution at epsilon 1", KNOWN).auc.value
    assert exact > 0.6
    assert private < exact - 0.05
    for row in audit().rows:
        if row.release == "contribution at epsilon 1":
            assert row.auc.low < audit().about["ceilings"][row.release], row


def test_every_attack_has_a_row():
    rows = [row for row in audit().rows if row.release == "contribution at epsilon 1"]
    named = {"class mean", "loss against base model"}
    assert {row.attack for row in rows} == {SAMPLE, KNOWN, "shadow models", *named}


def test_ceiling_by_hand():
    assert ceiling_of(None, 1e-3) == 1.0
    assert ceiling_of(1.0, 1e-3) == pytest.approx(0.608, abs=5e-4)  # sigma 2.5747


def test_too_few_people_are_told():
    arrays, features = everybody()
    with pytest.raises(DataError, match="31 people are too few"):
        audit_people(arrays, features[:31], mine().y[:31], 1.0, 1e-3, PLAN)


def test_the_entry_proves_the_people_in_any_order_and_among_others():
    done = given(SITE)
    shuffled = people().select(np.random.default_rng(0).permutation(len(people())))
    record, features, y = contributed_people(done.exchange.model, asked(done, shuffled))
    assert record == done.new[0]
    np.testing.assert_array_equal(y, mine().y)
    np.testing.assert_allclose(features, own_features(done.exchange.model, mine()))


def test_other_people_are_refused_by_name():
    gone = mine().subject_id[3]
    with pytest.raises(DataError, match=rf"1 are not in the data \(first: {gone}\)"):
        attacked(given(SITE), cohort=mine().select(mine().subject_id != gone))
    fc = mine().fc.copy()
    fc[5] = 0.9 * fc[5] + 0.1 * np.eye(fc.shape[1])
    other = mine().subject_id[5]
    with pytest.raises(DataError, match=rf"another scan \(first: {other}\)"):
        attacked(given(SITE), cohort=replace(mine(), fc=fc))
    y = mine().y.copy()
    y[0] = 1 - y[0]
    other = mine().subject_id[0]
    with pytest.raises(DataError, match=rf"another diagnosis \(first: {other}"):
        attacked(given(SITE), cohort=replace(mine(), y=y))


def test_without_the_entry_nothing_is_attacked():
    with pytest.raises(DataError, match="no entry for the contribution 1"):
        attacked(given(SITE), entries=[])
    with pytest.raises(DataError, match="has contributed nothing"):
        audit_contribution(
            given(SITE).exchange.model, replace(asked(given(SITE)), site="Elsewhere")
        )


def test_numbers_must_be_those_of_these_people():
    done = given(SITE)
    model = done.exchange.model
    require_numbers(model, done.new[0], rows())
    with pytest.raises(DataError, match="not the sum over these people"):
        require_numbers(model, done.new[0], rows() + vector.UNIT)


def test_what_was_given_last_is_audited():
    half = np.arange(len(mine())) % 2 == 0
    first = learned(start(), SITE, cohort=mine().select(half))
    private = Ledger(Path("fcforge.private"), [first.entry])
    both = learned(first.exchange, SITE, private, cohort=mine().select(~half))
    entries = [first.entry, both.entry]
    model = both.exchange.model
    everyone = contributed_people(model, asked(both, mine(), entries))[0]
    assert everyone.number == 2
    with pytest.raises(DataError, match="are not in the data"):
        contributed_people(model, asked(both, mine().select(half), entries))

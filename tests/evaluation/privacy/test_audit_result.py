"""What an audit found: as JSON, and its strongest attack."""

import json
from dataclasses import replace

import pytest
from report_world import audit

from fcforge.core.estimate import Estimate
from fcforge.evaluation.privacy.audit_result import AuditResult


@pytest.fixture(scope="module")
def found() -> AuditResult:
    return audit("NYU", leak=0.94)


def test_an_audit_is_read_back_from_json(found):
    again = AuditResult.from_json(json.loads(json.dumps(found.to_json())))
    assert again.rows == found.rows
    assert again.about["not_attacked"] == ["state bandit"]


def test_the_strongest_attack_is_told_in_sentences(found):
    short, full = found.words()
    assert short == "An attacker can tell who took part."
    assert "right one 94 times in 100; guessing gets 50." in full


def test_the_strongest_attack_has_the_highest_auc_not_the_narrowest_interval(found):
    narrow = replace(found.rows[3], auc=Estimate(0.60, 0.59, 0.61), attack="narrow")
    wide = replace(found.rows[3], auc=Estimate(0.70, 0.55, 0.85), attack="wide")
    assert "'wide'" in AuditResult((narrow, wide)).words()[1]


def test_references_are_never_the_strongest_attack():
    short, full = audit(leak=0.5).words()  # the copy has AUC 1, what is released .53
    assert short == "No attack tried told who took part."
    assert "53 times" in full


def test_what_was_given_away_decides_not_what_it_is_compared_with(found):
    given = AuditResult(found.rows, {**found.about, "released": "synthetic subjects"})
    assert "53 times" in given.words()[1]


def test_an_attack_must_beat_what_it_does_on_people_nobody_trained_on(found):
    """AUC 0.57 to 0.69 is above 0.5, but the untrained row reaches 0.70 with the same attack."""
    high = Estimate(0.63, 0.57, 0.69)
    blind = replace(found.rows[1], auc=Estimate(0.6, 0.5, 0.7), attack="loss")
    row = replace(found.rows[3], auc=high)
    assert not AuditResult((blind, row)).beats_chance(row)
    assert AuditResult((row,)).beats_chance(row)


def test_nothing_attacked_has_no_strongest_attack(found):
    assert AuditResult(found.rows[:2]).words() == []

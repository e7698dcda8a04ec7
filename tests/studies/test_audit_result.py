"""An audit in a ledger: numbers and no count of people, and JSON that is none."""

import json
from dataclasses import replace

import pytest
from page_parser import EVIL
from report_world import audit

from fcforge.studies.audit_result import Audit
from fcforge.types import Estimate


@pytest.fixture(scope="module")
def found() -> Audit:
    return audit("NYU", leak=0.94)


def test_a_ledger_keeps_numbers_and_no_count_of_people(found):
    kept = found.to_ledger()
    assert kept["site"] == "NYU"
    assert "people" not in json.dumps(kept["about"])
    again = Audit.from_ledger(json.loads(json.dumps(kept)))
    assert again.rows == found.rows
    assert again.about["not_attacked"] == ["state bandit"]


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"rows": [], "about": {}},
        {"rows": [{"auc": 7}], "about": {}},
        {"rows": 3, "about": {}},
        {"rows": [[1]], "about": None},
        {"words": ["all is well"]},
    ],
)
def test_a_ledger_may_hold_any_json(odd):
    assert Audit.from_ledger(odd) is None


def test_a_ledger_with_impossible_shares_is_not_an_audit(found):
    kept = found.to_ledger()
    kept["rows"][0]["auc"] = [1.6, 0.5, 0.7]
    assert Audit.from_ledger(kept) is None
    kept["rows"][0]["auc"] = [0.6, 0.5, 0.7]
    kept["about"] = {"epsilon_of_method": "small", "not_attacked": [1, EVIL]}
    assert Audit.from_ledger(kept).about == {"not_attacked": ["1", EVIL]}


def test_the_strongest_attack_is_told_in_sentences(found):
    worst = found.strongest()
    assert worst.beats_chance
    assert (worst.row.attack, worst.row.release) == ("loss", "network")
    assert worst.short == "An attacker can tell who took part."
    assert "right one 94 times in 100; guessing gets 50." in worst.full


def test_references_are_never_the_strongest_attack():
    worst = audit(leak=0.5).strongest()  # the copy has AUC 1, what is released has none
    assert not worst.beats_chance
    assert worst.row.release == "synthetic subjects"
    assert worst.short == "No attack tried told who took part."


def test_an_attack_must_beat_what_it_does_on_people_nobody_trained_on(found):
    """AUC 0.57 to 0.69 is above 0.5, but the untrained row reaches 0.70 with the same attack."""
    high = Estimate(0.63, 0.57, 0.69)
    blind = replace(found.rows[1], auc=Estimate(0.6, 0.5, 0.7), attack="loss")
    row = replace(found.rows[3], auc=high)
    assert not Audit((blind, row)).beats_chance(row)
    assert Audit((row,)).beats_chance(row)


def test_nothing_attacked_has_no_strongest_attack(found):
    assert Audit(found.rows[:2]).strongest() is None

"""An audit in a ledger: numbers and no count of people, and JSON that is none."""

import json

import pytest
from consortium_world import audit
from page_parser import EVIL

from fcforge.studies.audit_result import Audit


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

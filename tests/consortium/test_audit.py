"""What an audit puts on record: nothing that tells how many people there were."""

from pathlib import Path

import numpy as np
import pytest
from small_chains import SITES, chained, joined

from fcforge.core.errors import ConfigError, ExchangeError
from fcforge.core.estimate import Estimate
from fcforge.evaluation.privacy.audit_result import Audit, AuditRow
from fcforge_consortium.audit import attack_rows, audit_as_asked, on_record
from fcforge_consortium.options import AuditRequest
from fcforge_consortium.records import kinds as records


def audit(n: int = 20, parents: tuple[str, ...] = ()) -> Audit:
    """An attack that is right about all of n people."""
    sure = Estimate(1.0, 0.025 ** (1 / n), 1.0)
    area = Estimate(0.5234, 0.45, 0.6)
    rows = (
        AuditRow("bootstrap", "distance ratio", sure, sure, sure, area, True),
        AuditRow("network", "loss", area, Estimate(7 / n, 0.1, 0.9), None, area),
    )
    about = {"what": "the chain", "parents": parents, "plan": {}}
    return Audit(rows, about)


@pytest.mark.parametrize("n", [21, 34, 173])
def test_no_count_of_people_can_be_worked_out(n):
    """The lower limit of a rate that is 1 is 0.025^(1 / n); a rate of k / n has n in it, too."""
    rows = attack_rows(audit(n))
    said = [value for row in rows for value in row.model_dump().values()]
    numbers = [v for v in said if isinstance(v, float)]
    assert all(round(v, 2) == v for v in numbers)
    assert 0.025 ** (1 / n) not in numbers
    rate = rows[1].tpr_at_1pct_fpr
    # every number of people from 20 on could have given this rate
    for other in range(20, 400):
        every = {round(round(k / other / 0.05) * 0.05, 2) for k in range(other + 1)}
        assert rate in every
    assert rows[0].beats_chance
    assert not rows[1].beats_chance


def test_an_audit_is_on_record_by_the_hospital_and_of_a_state():
    exchange = chained("majority", SITES[:2])[-1]
    first, last = exchange.model.steps
    found = audit(parents=(first.id, last.id))
    made = on_record(exchange, found, SITES[0], None)
    (record,) = made.of(records.Audit)
    assert (record.site, record.number) == (SITES[0], 1)
    again = on_record(made, found, SITES[0], None)
    assert [one.number for one in again.of(records.Audit)] == [1, 2]
    with pytest.raises(ExchangeError, match=f"'{SITES[0]}' gave"):
        on_record(exchange, found, SITES[1], None)
    # it is an audit of what travels now until somebody goes on
    answers = made.model.describe().answers
    assert f"Not audited as it travels now: {SITES[1]}." in answers[3].more
    after = joined(made, SITES[2])[0]
    assert "Not measured" in after.model.describe().answers[3].say


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "what to audit"),
        ({"generator": ["corr_gauss"], "site": []}, "name the site"),
        ({"generator": ["corr_gauss"], "reference": Path("x")}, "--reference"),
    ],
)
def test_what_cannot_be_asked(given, named, tmp_path):
    np.savez(tmp_path / "data.npz", fc=np.eye(3)[None])
    request = AuditRequest(
        **{"data": tmp_path / "data.npz", "site": [SITES[0]], **given}
    )
    with pytest.raises(ConfigError, match=named):
        audit_as_asked(request)

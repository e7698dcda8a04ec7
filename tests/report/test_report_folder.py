"""`fcforge report --audit`: an audit becomes a section of the page; a wrong file is one error."""

import json

import pytest

from fcforge.errors import DataError
from fcforge.privacy.measures import Measured
from fcforge.report.audits import section
from fcforge.studies.audit_inputs import read_audit
from fcforge.studies.audit_result import Audit, AuditRow


@pytest.fixture
def audit() -> Audit:
    some = Measured(0.7, 0.6, 0.8)
    rows = (
        AuditRow("untrained (reference)", "distance ratio", some, some, None, some, True),
        AuditRow("corr_gauss", "distance ratio", some, some, None, some),
    )
    return Audit(rows, {"what": "generators on <b>NYU</b>", "not_attacked": []})


def test_an_audit_file_becomes_a_section(audit, tmp_path):
    path = tmp_path / "audit.json"
    path.write_text(json.dumps(audit.to_json()))
    found = section(read_audit(path))
    assert found.title.startswith("Privacy audit")
    assert "corr_gauss" in str(found.html())
    assert "<b>NYU" not in str(found.html())


def test_another_file_is_refused(tmp_path):
    path = tmp_path / "audit.json"
    path.write_text("{}")
    with pytest.raises(DataError, match="not an audit"):
        read_audit(path)

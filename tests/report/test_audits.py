"""An audit in words, tables and files: exact sentences of hand-made numbers."""

import json
import stat
from dataclasses import replace

import pytest
from page_parser import EVIL, Page
from report_world import audit

from fcforge.core.errors import DataError
from fcforge.core.estimate import Estimate
from fcforge.evaluation.privacy.audit_result import AuditResult, AuditRow, read_audit
from fcforge.report import audits
from fcforge.report.audits import section


@pytest.fixture(scope="module")
def found() -> AuditResult:
    return audit("NYU", leak=0.94)


def test_sentences_are_exact(found):
    told, times, left, last = audits.sentences(found)
    assert told == "An attacker can tell who took part."
    assert times == (
        "Shown one person who took part and one who did not, the strongest attack ('loss', on "
        "network) picks the right one 94 times in 100; guessing gets 50."
    )
    assert left == "Released, but no attack tried fits it: state bandit."
    assert last.startswith("These are the attacks that were tried, not all there are")


def test_text_and_page_show_the_same_cells(found):
    row = ["network", "loss", "0.940 [0.880, 1.000]", "0.300 [0.100, 0.500]", "–"]
    page = Page(str(audits.section(found).html()))
    assert page.row("network")[:5] == row
    text = audits.as_text(found)
    assert "bootstrap (reference)" in text
    assert text.index("0.940") < text.index("[0.880, 1.000]") < text.index("94 times")


def test_files_can_be_read_back(found, tmp_path):
    audits.write_files(found, tmp_path / "a")
    for file in (tmp_path / "a").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    stored = json.loads((tmp_path / "a" / "audit.json").read_text())
    assert AuditResult.from_json(stored) == found
    assert stored["words"] == audits.sentences(found)


def test_foreign_names_are_text(found):
    row = replace(found.rows[3], release=EVIL, attack=EVIL)
    evil = AuditResult((row,), {"what": EVIL, "not_attacked": [EVIL]})
    html = str(audits.section(evil).html())
    assert "<script" not in html
    assert "<img" not in html


def test_rows_without_a_link_to_a_person_show_a_dash():
    some = Estimate(0.7, 0.6, 0.8)
    table = audits.audit_table(
        AuditResult((AuditRow("r", "a", some, some, None, some),))
    )
    assert [cell.text for cell in table.rows[0]] == [
        "r",
        "a",
        "0.700",
        "0.700",
        "–",
        "0.700",
    ]


@pytest.fixture
def an_audit() -> AuditResult:
    some = Estimate(0.7, 0.6, 0.8)
    rows = (
        AuditRow(
            "untrained (reference)", "distance ratio", some, some, None, some, True
        ),
        AuditRow("corr_gauss", "distance ratio", some, some, None, some),
    )
    return AuditResult(rows, {"what": "generators on <b>NYU</b>", "not_attacked": []})


def test_an_audit_file_becomes_a_section(an_audit, tmp_path):
    path = tmp_path / "audit.json"
    path.write_text(json.dumps(an_audit.to_json()))
    found = section(read_audit(path))
    assert found.title.startswith("Privacy audit")
    assert "corr_gauss" in str(found.html())
    assert "<b>NYU" not in str(found.html())


def test_another_file_is_refused(tmp_path):
    path = tmp_path / "audit.json"
    path.write_text("{}")
    with pytest.raises(DataError, match="not an audit"):
        read_audit(path)

"""The frame: what is printed is escaped, nothing is loaded; what commands print, word by word."""

import base64
import hashlib
import re
from types import SimpleNamespace

import pytest
from markupsafe import Markup
from page_parser import EVIL, Page, require_sound

from fcforge.capsule.prediction import Prediction
from fcforge.capsule.sealing import STEPS, Check
from fcforge.report.frame import Section, coded, flat, render, share, short, spoken
from fcforge.report.table import Table
from fcforge.runner.collect import RunProgress
from fcforge.runner.environment import Place
from fcforge.runner.run import Cost
from fcforge.sites import Fault
from fcforge.sites.simulated import simulate
from fcforge.studies.check import Verdict


def page(*sections: Section, **values) -> str:
    about = {"title": "T", "home": "", "kind": "k", "lead": "", **values}
    return render("sections.html.j2", sections=sections, **about)


def test_a_page_of_evil_text_is_sound():
    odd = f"{EVIL}\x1b[2J\u202e\u200b\ud800"
    body = (odd, {odd: {odd: [odd]}}, Table.of([odd], [[odd]], title=odd, note=odd))
    html = page(
        Section(odd, body, odd, odd), title=odd, lead=odd, warnings=[("caution", odd)]
    )
    found = require_sound(html)
    assert found.text.count("<script>alert(1)</script>") > 8
    assert html.encode()  # no lone surrogate is left


def test_only_the_pages_own_script_may_run():
    html = page(Section("a", "b"))
    script = re.findall(r"<script>(.*?)</script>", html, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    policy = next(m["content"] for m in Page(html).of("meta") if "http-equiv" in m)
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_sections_are_listed_and_can_be_reached():
    found = Page(page(Section("One", "x"), Section("Two", "y", note="small print")))
    assert [a["href"] for a in found.of("a")] == ["#main", "#section-1", "#section-2"]
    assert "small print" in found.text


def test_a_single_section_needs_no_contents():
    assert len(Page(page(Section("T", "x"))).of("nav")) == 0


def test_bodies_of_every_kind():
    section = Section("x", (Markup("<b>mine</b>"), "1 < 2", {"a": {"b": 1}}))
    html = str(section.html())
    assert "<b>mine</b>" in html
    assert "1 &lt; 2" in html
    assert Page(html).row("a.b") == ["a.b", "1"]


def test_commands_in_a_text_are_set_as_code():
    assert coded("run `fcforge <x>` now") == "run <code>fcforge &lt;x&gt;</code> now"


def test_settings_become_dotted_names():
    nested = {"a": {"b": 1, "c": {}}, "d": "text", "e": [1, None]}
    assert flat(nested) == [
        ("a.b", "1"),
        ("a.c", "{}"),
        ("d", "text"),
        ("e", "[1, null]"),
    ]


def test_places_on_an_axis():
    assert [share(v, 0.4, 0.9) for v in (0.4, 0.65, 0.9, 2.0)] == [
        "0.00",
        "50.00",
        "100.00",
        "100.00",
    ]
    assert short("abcdef", 4) == "abc…"
    assert short("abcd", 4) == "abcd"


def verdict(*findings: Fault) -> Verdict:
    cohort = simulate(n_rois=6, n_sites=2, scale=0.1, seed=0)
    return Verdict("x.toml", cohort, list(findings), ["a note"])


def check_lines(found: Verdict) -> list[tuple[str, str]]:
    """Lines of `fcforge check` and their colours."""
    lines = [
        line.partition("|") for line in spoken("check", verdict=found).splitlines()
    ]
    return [(text, style) for style, _, text in lines]


def test_check_without_findings():
    lines = check_lines(verdict())
    n = len(verdict().cohort)
    assert lines[0] == (f"x.toml: {n} subjects, 6 ROIs", "")
    assert lines[-2:] == [("  a note", ""), ("ok", "green")]


def test_check_counts_what_it_found():
    error = Fault("error", "FC holds NaN.", subject="s1")
    warning = Fault("warning", "FC is odd.", subject="s2")
    found = verdict(error, warning, warning)
    assert not found.ok
    lines = check_lines(found)
    assert lines[-1] == ("1 error, 2 warnings: nothing would be trained", "red")
    assert [style for _, style in lines[-4:-1]] == ["red", "yellow", "yellow"]
    assert (check_lines(verdict(warning)))[-1] == ("ok, 1 warning", "green")


@pytest.fixture
def plan():
    return SimpleNamespace(
        stages=[0] * 24, trainings=64, saving=" (96 without shared prefixes)"
    )


def test_plan(plan):
    told = "24 runs = 64 site trainings (96 without shared prefixes)"
    assert (
        spoken("plan", plan=plan, place=Place("cpu", 1)) == f"{told} on cpu, 1 worker"
    )
    there = Place("cpu", 4, "tcp://a:1")
    assert spoken("plan", plan=plan, place=there) == f"{told} on cpu, cluster tcp://a:1"


def test_cost(plan):
    assert spoken(
        "cost", cost=Cost(64, 10, 600.0, 178_000), plan=plan, jobs=2
    ).splitlines() == [
        "site trainings  64 (96 without shared prefixes)",
        "still to do     10",
        "estimated time  10 min of training on 2 idle CPU workers",
        "estimated disk  178 kB",
    ]


def test_status():
    learners = {"ewc/gcn": {"done": 3, "asked": 24}, "base": {"done": 24, "asked": 24}}
    found = RunProgress("Small", "runs/x", 70, 128, learners, 2_000_000)
    assert spoken("status", found=found).splitlines() == [
        "Small: 70 of 128 site trainings done",
        "  ewc/gcn  3/24 runs",
        "  base     24/24 runs",
        "  2 MB in runs/x",
    ]


def test_predictions_are_counted():
    rows = [
        Prediction("a", "ok", 0.3),
        Prediction("b", "unlike anything seen"),
        Prediction("c", "cannot be used"),
    ]
    text = spoken("prediction", rows=rows, sites=("NYU", "UM"))
    assert text == "3 scans; 1 unlike anything seen at NYU, UM; 1 cannot be used."


def test_verify_needs_every_step():
    good = [Check(name, True, "fine") for name in STEPS]
    assert spoken("verify", checks=good, ok=True).splitlines()[-1] == "intact"
    cut = [*good[:2], Check(STEPS[2], False, "forged")]
    lines = spoken("verify", checks=cut, ok=False).splitlines()
    assert lines[-2:] == [f"BAD  {STEPS[2]}: forged", "DO NOT USE THIS CAPSULE"]


def test_nothing_that_cannot_be_seen_reaches_the_terminal():
    """A capsule's damage, a subject's name and a title are somebody else's text."""
    bad = [Check("seal", False, "site '\x1b[31m\u202e\u200b' is odd")]
    assert "site '?[31m??' is odd" in spoken("verify", checks=bad, ok=False)
    fault = Fault("error", "FC holds \x1b NaN.", subject="s\u2066")
    for text, _ in check_lines(verdict(fault)):
        assert text.isprintable()

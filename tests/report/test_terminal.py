"""What commands print, word by word; no foreign name adds a line or an escape."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from fcforge.capsule.prediction import Prediction
from fcforge.capsule.sealing import STEPS, Check
from fcforge.report.terminal import (
    check_lines,
    cost_text,
    plan_text,
    prediction_text,
    status_text,
    verify_text,
)
from fcforge.runner.collect import RunProgress
from fcforge.runner.environment import Place
from fcforge.runner.run import Cost
from fcforge.sites import Fault
from fcforge.sites.simulated import simulate
from fcforge.studies.check import Verdict


def verdict(*findings: Fault) -> Verdict:
    cohort = simulate(n_rois=6, n_sites=2, scale=0.1, seed=0)
    return Verdict("x.toml", cohort, list(findings), ["a note"])


def test_check_without_findings():
    lines = check_lines(verdict())
    n = len(verdict().cohort)
    assert lines[0] == (f"x.toml: {n} subjects, 6 ROIs", "")
    assert lines[-2:] == [("  a note", ""), ("ok", "green")]


def test_check_counts_what_it_found():
    error = Fault("error", "FC holds NaN.", subject="s1")
    warning = Fault("warning", "FC is odd.", subject="s2")
    found = verdict(error, warning, replace(warning, subject="s3"))
    assert not found.ok
    lines = check_lines(found)
    assert lines[-1] == ("1 error, 1 warning: nothing would be trained", "red")
    assert [style for _, style in lines[-3:-1]] == ["red", "yellow"]
    assert lines[-2][0].startswith("warning: 2 subjects (s2, s3): FC is odd.")
    assert (check_lines(verdict(warning)))[-1] == ("ok, 1 warning", "green")


@pytest.fixture
def plan():
    return SimpleNamespace(
        stages=[0] * 24, trainings=64, saving=" (96 without shared prefixes)"
    )


def test_plan(plan):
    told = "24 runs = 64 site trainings (96 without shared prefixes)"
    assert plan_text(plan, Place("cpu", 1)) == f"{told} on cpu, 1 worker"
    there = Place("cpu", 4, "tcp://a:1")
    assert plan_text(plan, there) == f"{told} on cpu, cluster tcp://a:1"


def test_cost(plan):
    assert cost_text(Cost(64, 10, 600.0, 178_000), plan, 2).splitlines() == [
        "site trainings  64 (96 without shared prefixes)",
        "still to do     10",
        "estimated time  10 min of training on 2 idle CPU workers",
        "estimated disk  178 kB",
    ]


def test_status():
    learners = {"ewc/gcn": {"done": 3, "asked": 24}, "base": {"done": 24, "asked": 24}}
    found = RunProgress("Small", "runs/x", 70, 128, learners, 2_000_000)
    assert status_text(found).splitlines() == [
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
    text = prediction_text(rows, ("NYU", "UM"))
    assert text == "3 scans; 1 unlike anything seen at NYU, UM; 1 cannot be used."


def test_verify_needs_every_step():
    good = [Check(name, True, "fine") for name in STEPS]
    assert verify_text(good).splitlines()[-1] == "intact"
    cut = [*good[:2], Check(STEPS[2], False, "forged")]
    lines = verify_text(cut).splitlines()
    assert lines[-2:] == [f"BAD  {STEPS[2]}: forged", "DO NOT USE THIS FILE"]


def test_nothing_that_cannot_be_seen_reaches_the_terminal():
    """A capsule's damage, a subject's name and a title are somebody else's text."""
    bad = [Check("seal", False, "site '\x1b[31m\u202e\u200b' is odd")]
    assert "site '?[31m??' is odd" in verify_text(bad)
    fault = Fault("error", "FC holds \x1b NaN.", subject="s\u2066")
    for text, _ in check_lines(verdict(fault)):
        assert text.isprintable()

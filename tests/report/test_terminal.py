"""Printed output of commands, word by word; no foreign name adds a line or an escape."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from page_parser import EVIL, Page
from report_world import chain, releases
from small_exchange import given, sites

from fcforge.core.component import Component
from fcforge.core.estimate import Estimate
from fcforge.core.spec import LearnerSpec
from fcforge.data.faults import Fault
from fcforge.data.simulated import simulate
from fcforge.data.verdict import Verdict
from fcforge.evaluation.study import Study
from fcforge.experiments.collect import RunProgress
from fcforge.experiments.config import Experiment
from fcforge.experiments.cost import Cost
from fcforge.experiments.execute import Place
from fcforge.experiments.plan import make_plan
from fcforge.report.html import Section
from fcforge.report.tables import Cell, Heading, Table, interval_cell, interval_table
from fcforge.report.terminal import check_text, cost_text, status_text
from fcforge.report.text import json_text
from fcforge_consortium.contributions.prediction import Evaluation, Prediction
from fcforge_consortium.operations.verification import Check
from fcforge_consortium.options import ContributeRequest
from fcforge_consortium.report.describe import describe
from fcforge_consortium.report.terminal import (
    continued_text,
    described_text,
    evaluation_text,
    prediction_text,
    step_text,
    verify_text,
)


def verdict(*findings: Fault) -> Verdict:
    cohort = simulate(n_rois=6, n_sites=2, scale=0.1, seed=0)
    return Verdict("x.toml", cohort, list(findings), ["a note"])


def test_check_without_findings():
    lines = check_text(verdict()).splitlines()
    n = len(verdict().cohort)
    assert lines[0] == f"x.toml: {n} subjects, 6 ROIs"
    assert lines[-2:] == ["  a note", "ok"]


def test_check_counts_what_it_found():
    error = Fault("error", "FC holds NaN.", subject="s1")
    warning = Fault("warning", "FC is odd.", subject="s2")
    found = verdict(error, warning, replace(warning, subject="s3"))
    assert not found.ok
    lines = check_text(found).splitlines()
    assert lines[-1] == "1 error, 1 warning, nothing would be trained"
    assert lines[-2].startswith("warning: 2 subjects (s2, s3): FC is odd.")
    assert check_text(verdict(warning)).endswith("\nok, 1 warning")


@pytest.fixture
def plan():
    """All 24 orders of four sites."""
    learner = LearnerSpec(Component("finetune"), Component("linear"))
    experiment = Experiment(Component("simulated"), (learner,))
    return make_plan(experiment.specs("ABCD"), "ABCD")


def test_plan(plan):
    told = "24 runs = 64 site trainings"
    assert plan.words == told
    assert Place("cpu", 1).words == "cpu, 1 worker"
    assert Place("cpu", 4, "tcp://a:1").words == "cpu, cluster tcp://a:1"


def test_cost(plan):
    assert cost_text(Cost(10, 600.0, 178_000), plan, 2).splitlines() == [
        "site trainings  64",
        "still to do     10",
        "estimated time  10 min of training and fitting generators on 2 idle CPU workers,",
        "                without start-up of the workers, reading of data and report: up to a minute",
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
    told = "3 scans: 1 ok, 1 unlike anything seen, 1 cannot be used."
    assert prediction_text(rows) == told
    rows.append(Prediction("d", "abstained"))
    assert prediction_text(rows).endswith(", 1 abstained.")


def test_verify_needs_every_check():
    good = [Check("file", True, "fine"), Check("model", True, "fine")]
    assert verify_text(good).splitlines()[-1] == "intact"
    bad = [*good, Check("signatures", False, "forged")]
    last = ["BAD  signatures: forged", "DO NOT USE THIS FILE"]
    assert verify_text(bad).splitlines()[-2:] == last


def test_nothing_that_cannot_be_seen_reaches_the_terminal():
    """A capsule's damage, a subject's name and a title are somebody else's text."""
    bad = [Check("seal", False, "site '\x1b[31m\u202e\u200b' is odd")]
    assert "site '?[31m??' is odd" in verify_text(bad)
    fault = Fault("error", "FC holds \x1b NaN.", subject="s\u2066")
    for text in check_text(verdict(fault)).split("\n"):
        assert text.isprintable()


# -- a hospital's step -------------------------------------------------------------------------
def asked(**more) -> ContributeRequest:
    files = (Path("x.npz"), Path("y.fcx"))
    return ContributeRequest("UM", *files, state=Path("z.fcx"), **more)


def test_what_is_about_to_be_continued(monkeypatch, tmp_path):
    monkeypatch.setenv("FCFORGE_KEYRING", str(tmp_path / "none.json"))
    lines = continued_text(releases(), asked(epsilon=0.5)).splitlines()
    assert lines[0].startswith(f"About to continue file {releases().id[:16]}: ")
    assert lines[1] == f"  sites so far: {', '.join(releases().model.sites)}"
    assert lines[2].endswith(": nobody")
    spent, policy, worth = lines[-1].split("; ")
    assert spent == "  each person of this site spends: epsilon 0.5 (delta 1e-06)"
    assert policy == "policy: at most epsilon 8, delta 1e-05 in all"
    assert worth.startswith("nothing beyond chance is expected of that (")
    exact = continued_text(releases(), asked(mechanism="none"))
    assert exact.endswith("spends: everything: exact sums promise nothing")
    promised = continued_text(chain(), asked())
    assert "nothing is promised" in promised
    assert "policy" not in promised


def test_what_was_found_and_what_is_spent():
    done = given(sites()[2])
    lines = step_text(done).splitlines()
    n = int(done.before["people"])
    assert lines[0].startswith(f"site '{sites()[2]}': {n} people. The model that came")
    assert lines[-2].startswith(f"contribution 1 of '{sites()[2]}': ")
    assert lines[-1] == "Each person spends epsilon 1 (delta 1e-06)."
    worse = replace(done, before={**done.before, "auroc": 0.4})
    assert "WARNING: that is below chance" in step_text(worse)
    free = done.entry.model_copy(update={"epsilon": None})
    assert "no promise of privacy" in step_text(replace(done, entry=free))


def test_an_evaluation_is_a_table_beside_the_majority_class():
    nothing = Estimate(float("nan"), float("nan"), float("nan"))
    row = {
        "accuracy": Estimate(0.7, 0.6, 0.8),
        "balanced_accuracy": Estimate(0.65, 0.5, 0.75),
        "auroc": Estimate(0.72, 0.61, 0.82),
        "brier": nothing,
        "ece": nothing,
    }
    found = Evaluation(1, 1, 3, 0, 0.55, {"exchange": row}, ("One note.",))
    first, *table, last = evaluation_text(found).splitlines()
    assert first == "1 person, 1 patient; abstained from 3. 95 % intervals over people."
    assert last == "One note."
    shown = next(line for line in table if "exchange" in line)
    assert "0.700 [0.600, 0.800]" in shown
    assert shown.count("n/a") == 2
    assert "0.550" in next(line for line in table if "majority" in line)


# -- a consortium file --------------------------------------------------------------------------
@pytest.fixture(scope="module")
def described():
    return describe(chain())


def test_words(described):
    lines = described_text(described).splitlines()
    assert lines[0] == f"File {described.id[:16]}: chain of hospitals"
    assert lines[1] == f"  hospitals: {', '.join(described.sites)}"
    assert "  ROIs: 116" in lines
    answer = described.answers[2]
    asked = lines.index(answer.question)
    assert lines[asked + 1 : asked + 3] == [f"  {answer.say}", f"  {answer.more[0]}"]
    bare = replace(described, tables=(replace(described.tables[2], rows=()),))
    assert "Records:" not in described_text(bare)


def test_no_name_adds_a_line_or_an_escape(described):
    odd = replace(described, sites=("a\nb\x1b[2J",))
    assert "  hospitals: a?b?[2J" in described_text(odd).splitlines()


def test_programs_read_the_same(described):
    found = json.loads(json_text(asdict(described)))
    assert found["sites"] == list(described.sites)
    assert found["answers"][2]["say"] == described.answers[2].say


@pytest.fixture
def table() -> Table:
    return Table(
        (Heading("Learner", words=True), Heading("AAA", "mean", "high is good")),
        (
            (Cell("ridge"), Cell("0.700", ("[0.650, 0.750]", "± 0.010"), "bad")),
            (Cell("majority"), Cell("0.550")),
        ),
        quiet=frozenset({1}),
    )


def test_markdown(table):
    assert table.markdown().splitlines() == [
        "| Learner | AAA |",
        "|---|---|",
        "| ridge | 0.700 [0.650, 0.750] ± 0.010 |",
        "| majority | 0.550 |",
    ]


def test_title_and_note_stand_around_the_markdown():
    lines = Table.of(["a"], [["1"]], title="T", note="N").markdown().splitlines()
    assert lines[0] == "T"
    assert lines[-1] == "N"


def test_text_is_aligned_and_has_every_line_of_a_cell(table):
    lines = table.text(60).splitlines()
    assert lines[0].split() == ["Learner", "AAA"]
    ends = {
        len(line)
        for line in lines
        if line.endswith(("0.700", "0.750]", "0.010", "0.550"))
    }
    assert len(ends) == 1  # numbers are flush right
    assert [line.split()[0] for line in lines[2:]] == [
        "ridge",
        "[0.650,",
        "±",
        "majority",
    ]


def test_html_has_the_same_cells(table):
    page = Page(str(Section("x", table).html()))
    assert page.row("ridge") == ["ridge", "0.700 [0.650, 0.750] ± 0.010"]
    assert page.rows[0] == ["Learner", "AAA high is good"]
    assert [r.get("class") for r in page.of("tr")] == [None, None, "quiet"]
    assert page.of("span")[1] == {"class": "bad"}


def test_a_bar_or_a_line_break_does_not_end_a_cell():
    told = Table.of(["<b>"], [["< 0.01 </b>"]]).markdown()
    assert told.split("\n")[::2] == ["| \\<b> |", "| < 0.01 \\</b> |"]
    text = Table.of(["a|b"], [["c|d\ne\\"]]).markdown().splitlines()
    assert text == ["| a\\|b |", "|---|", "| c\\|d?e\\\\ |"]


def test_foreign_text_is_neither_markup_nor_rich_markup():
    odd = Table.of(["[b]x"], [["[red]y[/red]\x1b[2J"], [EVIL]])
    shown = odd.text(200)
    assert "[red]y[/red]?[2J" in shown
    assert "[b]x" in shown
    html = str(Section("x", odd).html())
    assert "<script" not in html
    assert "\x1b" not in html


def test_an_interval_without_width_is_left_out():
    assert interval_cell(Estimate(0.5, 0.4996, 0.5004)).below == ()
    assert interval_cell(Estimate(0.5, 0.4, 0.6)).line() == "0.500 [0.400, 0.600]"
    assert interval_cell(Estimate(0.5, float("nan"), float("nan"))).line() == "0.500"


def test_interval_table_leaves_unknown_cells_empty():
    e = Estimate(0.6, 0.5, 0.7)
    study = Study("At unseen sites", {"ridge": {"1": e}, "x": {"2": e}})
    found = interval_table(study)
    assert found.markdown().splitlines()[2:] == [
        "| learner | 1 | 2 |",
        "|---|---|---|",
        "| ridge | 0.600 [0.500, 0.700] |  |",
        "| x |  | 0.600 [0.500, 0.700] |",
    ]


# -- the results of a run -----------------------------------------------------------------------

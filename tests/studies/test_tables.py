"""The paper's numbers are matched to learners by label: a label that moves would drop a row."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from fcforge.runner.config import load_experiment

ROOT = Path(__file__).parents[2]


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    yield importlib.import_module
    for name in ("paper_tables", "tables_schedule"):
        sys.modules.pop(name, None)


def labels(name: str) -> set[str]:
    experiment = load_experiment(ROOT / "experiments" / f"{name}.toml")
    return {learner.title for learner in experiment.learners}


def test_every_printed_number_has_a_learner(benchmarks):
    paper = benchmarks("paper_tables")
    for name, column in (("main_abide", "asd"), ("main_mdd", "mdd"), ("main_bsnip", "bsnip")):
        assert set(paper.MAIN[column]) <= labels(name)
        assert len(paper.MAIN[column]) == 12
    for name in ("ablation", "ablation_mdd", "ablation_bsnip", "ladder", "buffer", "tau"):
        printed = getattr(paper, name.upper())
        assert set(printed) <= labels(name)
    assert set(paper.LEAKS) >= labels("leaks") - {"Cumulative"}


def test_schedule_names_learners_that_exist(benchmarks):
    schedule = benchmarks("tables_schedule")
    for name, seeds, wanted in schedule.WANTED:
        assert seeds >= 1
        assert set(wanted or ()) <= labels(name.partition("+")[0])
    main = [w for n, _, w in schedule.WANTED if n == "main_abide"]
    assert set(main[0]) == labels("main_abide")
    for name in ("main_mdd", "main_bsnip"):
        asked = {label for n, _, w in schedule.WANTED if n == name for label in w}
        assert asked == labels(name)

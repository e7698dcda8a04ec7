"""The paper's numbers are matched to learners by label: a label that moves would drop a row."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from fcforge.config import load_experiment

ROOT = Path(__file__).parents[2]


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    yield importlib.import_module
    for name in ("paper_tables", "tables_partial", "tables_schedule"):
        sys.modules.pop(name, None)


def labels(name: str) -> set[str]:
    experiment = load_experiment(ROOT / "experiments" / f"{name}.toml")
    return {learner.title for learner in experiment.learners}


def test_every_printed_number_has_a_learner(benchmarks):
    paper = benchmarks("paper_tables")
    for name, column in (("main_abide", "asd"), ("main_mdd", "mdd"), ("main_bsnip", "bsnip")):
        assert set(paper.MAIN[column]) <= labels(name)
        assert len(paper.MAIN[column]) == 12
    for name in ("ablation", "ladder", "buffer", "tau"):
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


def test_missing_trainings_leave_the_mean_over_orders_unbiased(benchmarks):
    """Two sites: AAA is the mean of (a, b) at depth 1 and (ab, ba) at depth 2, by hand."""
    tables = benchmarks("tables_partial")
    whole = {("a",): 0.6, ("b",): 0.8, ("a", "b"): 0.5, ("b", "a"): 0.7}
    partner = {(0, p): np.array([v, v + 0.02, v - 0.02]) for p, v in whole.items()}
    assert tables.mean_over_prefixes(partner)[0] == pytest.approx((0.7 + 0.6) / 2)
    known = {(0, ("b", "a")): partner[0, ("b", "a")] + 0.1}  # a quarter is there, 0.1 better
    aaa, difference, share = tables.partial(known, partner)
    assert share == 0.25
    # depth 1 is shared, depth 2 differs by 0.1: half of it in the mean over depths
    assert difference.mean == pytest.approx(0.05)
    assert difference.low == pytest.approx(0.05) == difference.high
    assert aaa.mean == pytest.approx(0.65 + 0.05)
    assert aaa.low < aaa.mean < aaa.high


def test_prefixes_give_the_aaa_of_the_table(benchmarks, tmp_path):
    tables = benchmarks("tables_partial")
    from fcforge.metrics import score_matrix
    from fcforge.metrics.continual import aaa
    from fcforge.runner.collect import collect
    from fcforge.runner.experiment import Experiment
    from fcforge.runner.run import open_store, prepare, run_experiment
    from fcforge.types import Component, LearnerSpec

    data = Component("simulated", {"n_sites": 3, "n_rois": 12, "scale": 0.2})
    learner = LearnerSpec(Component("analytic"), Component("linear"))
    prepared = prepare(Experiment(data, (learner,)))
    store = open_store(prepared, tmp_path / "run")
    run_experiment(prepared, store, group=1)
    results, _ = collect(store)
    title = results[0].spec.learner.title
    runs = [aaa(score_matrix(r)) for r in results if r.spec.learner.title == title]
    found = tables.mean_over_prefixes(tables.prefix_accuracy(tmp_path / "run", title, 10))
    assert found[0] == pytest.approx(np.mean(runs))

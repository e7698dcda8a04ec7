"""The paper's tables: every printed number has a learner, and our side is what the runs say."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path

import numpy as np
import pytest

import fake_runs
from fcforge.metrics import score_matrix, summary
from fcforge.report.studies import paper_markdown
from fcforge.runner.config import load_experiment
from fcforge.studies import tables
from fcforge.studies.scores import read_table
from fcforge.studies.tables import MAJORITY, Finished, Line, paper_tables, printed_tables

ROOT = Path(__file__).parents[2]
SHIPPED = [name for name in printed_tables() if name != "main_abide_tuned"]  # written by `tune`


def titles(name: str) -> set[str]:
    experiment = load_experiment(ROOT / "experiments" / f"{name}.toml")
    return {learner.title for learner in experiment.learners}


@pytest.mark.parametrize("name", SHIPPED)
def test_every_printed_number_has_a_learner(name):
    """A title that moves would drop a row."""
    table = printed_tables()[name]
    there = titles(name)
    if name == "leaks":
        assert there - {"Cumulative"} <= set(table.printed)
    else:
        assert set(table.printed) <= there
    for learner in there:
        if table.minus:
            title = table.minus.format(first=learner.split()[0], row=learner)
            where = table.of_row.get(learner, table.of or name)
            known = titles(where)
            assert title in known or learner == "Base", (name, learner)


def test_main_tables_print_twelve_methods():
    for name in ("main_abide", "main_mdd", "main_bsnip"):
        assert len(printed_tables()[name].printed) == 12
        assert all(0.5 < aaa < 0.8 for aaa, _ in printed_tables()[name].printed.values())


# -- our side ----------------------------------------------------------------------------------
def finished(**groups) -> Finished:
    runs = {
        title: fake_runs.fake_learner(title, seeds=(0,), skill=skill, method=method)
        for title, (skill, method) in groups.items()
    }
    return Finished(runs, dict.fromkeys(runs, "nothing"))


@pytest.fixture(scope="module")
def found() -> dict[str, Finished]:
    main = {
        "Base": (0.6, "finetune"),
        "ER": (1.0, "er"),
        "DER++": (1.4, "derpp"),
        "DER": (0.9, "der"),
    }
    return {
        "main_abide": finished(**main),
        "leaks": finished(Base=(0.9, "finetune"), ER=(1.4, "er")),
        "buffer": finished(**{"ER 128": (0.8, "er"), "ER 256": (1.2, "er")}),
    }


@pytest.fixture(scope="module")
def made(found) -> dict[str, tables.PaperTable]:
    return {table.name: table for table in paper_tables(found, n_draws=30)}


def aaa(runs) -> float:
    """Mean over stages of the mean over the sites learned so far, by hand."""
    per_run = []
    for r in runs:
        a = score_matrix(r)
        per_run.append(np.mean([a[t, : t + 1].mean() for t in range(len(a))]))
    return float(np.mean(per_run))


def test_only_tables_that_have_runs_are_made(made):
    assert list(made) == ["main_abide", "leaks", "buffer"]


def test_main_table_is_ranked_below_the_majority_class(made, found):
    lines = made["main_abide"].lines
    assert lines[0].learner == MAJORITY
    means = [line.numbers["aaa"].mean for line in lines[1:]]
    assert means == sorted(means, reverse=True)
    er = next(line for line in lines if line.learner == "ER")
    assert er.printed == (0.6369, 0.2397)
    assert er.numbers["aaa"].mean == pytest.approx(aaa(found["main_abide"].groups["ER"]))
    assert er.leaky.mean == pytest.approx(aaa(found["leaks"].groups["ER"]))
    assert er.difference is None
    assert next(line for line in lines if line.learner == "DER++").leaky is None


def test_leaks_are_compared_with_the_same_learner_without(made, found):
    line = next(x for x in made["leaks"].lines if x.learner == "ER")
    with_leaks, without = (aaa(found[k].groups["ER"]) for k in ("leaks", "main_abide"))
    assert line.against.mean == pytest.approx(without)
    assert line.difference.difference == pytest.approx(with_leaks - without)
    assert line.difference.low < line.difference.difference < line.difference.high


def test_a_row_is_not_compared_with_itself(made):
    small, usual = made["buffer"].lines
    assert usual.learner == "ER 256"
    assert usual.difference is None
    assert small.difference.difference < 0
    assert small.printed == (0.6008, 0.2746)


def line(ours: float, theirs: float | None) -> Line:
    from fcforge.stats import Estimate

    numbers = {"aaa": Estimate(ours, 0, ours, ours)}
    return Line("x", "", (theirs, 0.1) if theirs else None, numbers)


def test_rank_correlation():
    lines = [line(0.1 * k, 0.5 + 0.01 * k) for k in range(1, 6)]
    assert tables.rank_correlation(lines) == pytest.approx(1)
    turned = [line(-0.1 * k, 0.5 + 0.01 * k) for k in range(1, 6)]
    assert tables.rank_correlation(turned) == pytest.approx(-1)
    assert math.isnan(tables.rank_correlation([*lines[:3], line(0.3, None)]))


def test_a_missing_learner_is_named():
    table = Finished(finished(Base=(1.0, "finetune")).groups, {}, missing=("ER",))
    text = tables.about(table)
    assert text.startswith("24 orders, seeds [0], [60] epochs, float32")
    assert text.endswith("not finished: ER")


def test_markdown_shows_all_of_it(made, found):
    text = paper_markdown(made["main_abide"], found["main_abide"])
    assert "| ER | nothing | 0.637 / 0.240 | 0." in text
    assert "AAA, leaks on" in text
    assert "accuracy after 4" in text
    assert "Spearman's correlation" in text
    assert "compared with" not in text
    assert "compared with" in paper_markdown(made["leaks"])


# -- benchmarks/run_tables.py ------------------------------------------------------------------
@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    yield importlib.import_module("run_tables")
    sys.modules.pop("run_tables", None)


def test_every_wanted_table_can_be_loaded(script):
    for name in script.WANTED:
        experiment = script.load(name, "tf32")
        assert experiment.training.precision == "tf32"
        assert bool(experiment.leaks.active()) == ("leaks" in name)
    assert {n for n in printed_tables() if not n.startswith("edges")} - {"main_abide_tuned"} <= set(
        script.WANTED
    )


def test_run_and_read_end_to_end(script, tmp_path, capsys):
    """Two tables of one dataset share their nodes; packed and unpacked they read the same."""
    from argparse import Namespace
    from dataclasses import replace

    from fcforge.types import Component

    data = Component("simulated", {"preset": "easy", "n_rois": 10, "n_sites": 2, "scale": 0.1})
    plan = tmp_path / "plan"
    plan.mkdir()
    for name in ("main_abide", "buffer"):
        whole = script.load(name)
        rows = tuple(le for le in whole.learners if le.title in ("Base", "ER", "ER 256"))
        small = replace(whole.training, epochs=1)
        experiment = replace(whole, dataset=data, learners=rows, seeds=(0,), training=small)
        asked = {"experiment": experiment.to_json(), "commit": "abc", "settings": []}
        (plan / f"{name}.json").write_text(script.json.dumps(asked))
    args = Namespace(
        folder=plan, root=tmp_path / "root", out=tmp_path / "out", device="cpu", group=1, limit=600
    )
    script.run(args)
    said = capsys.readouterr().out
    assert "main_abide 0/8" in said
    assert [line.split()[2:] for line in said.splitlines() if "buffer" in line] == [
        ["buffer", "4/4"]
    ]
    results = tmp_path / "results"
    script.read(Namespace(folder=args.out, root=tmp_path / "back", results=results, only=None))
    assert "buffer: 1 learners" in capsys.readouterr().out
    for name in ("main_abide", "buffer"):
        table, about = read_table(results / f"{name}.npz")
        assert about["commit"] == "abc"
        stored = tables.read_folder(args.root / name).groups
        assert list(table.groups) == list(stored)
        for title, runs in table.groups.items():
            for ours, theirs in zip(runs, stored[title], strict=True):
                assert ours.spec.order == theirs.spec.order
                assert summary(ours) == summary(theirs)
    assert "| ER 256 |" in paper_markdown(paper_tables({"buffer": table}, n_draws=5)[0])

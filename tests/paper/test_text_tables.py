"""Leaks one by one, the paper's own order, its grid and its augmentation table."""

import json
from dataclasses import replace
from statistics import fmean

import pytest
import text_tables
from paper_tables import Finished

import fake_runs
from fcforge.core.formatting import number
from fcforge.evaluation.forgetting import summary
from fcforge.evaluation.pooled import select_subjects

LEARNERS = {"Base": 0.6, "ER": 1.0, "FORGE as printed": 0.8}


def table(bonus: float = 0.0, only: tuple[str, ...] = ()) -> Finished:
    runs = {
        title: fake_runs.fake_learner(title, seeds=(0,), skill=skill + bonus)
        for title, skill in LEARNERS.items()
        if not only or title in only
    }
    return Finished(runs, dict.fromkeys(runs, "nothing"), n_draws=20)


@pytest.fixture(scope="module")
def found() -> dict[str, Finished]:
    forges = ("FORGE as printed",)
    return {
        "leaks": table(),
        "leaks+epoch": table(1.0),
        "leaks+context": table(0.2, forges),
        "leaks+generator": table(0.4, forges),
        "leaks+all": table(1.2, forges),
    }


def cells(text: str, learner: str, table: int = 0) -> list[str]:
    lines = text.split("\n\n")[table].splitlines()
    line = next(x for x in lines if x.startswith(f"| {learner} |"))
    return [c.strip() for c in line.strip("|").split("|")]


def test_what_cannot_use_a_leak_has_its_numbers_without_it(found):
    text = text_tables.leaks("leaks", found)
    base = cells(text, "Base")
    assert base[1] == base[3] == base[4]  # no context, no generator
    assert base[2] == base[5]  # all its leaks are the epoch
    forge = cells(text, "FORGE as printed")
    assert len(set(forge[1:])) == 5
    changed = cells(text, "Base", 1)
    assert changed[2] == changed[3] == "–"
    assert changed[1].startswith("+0.")


def test_learners_are_compared_under_the_same_leak(found):
    text = text_tables.leaks_minus("leaks", "ER", found)
    base = cells(text, "Base")
    assert base[1] == base[3] == base[4]
    assert base[1].startswith("\N{MINUS SIGN}0.")
    with pytest.raises(StopIteration):
        cells(text, "ER")


def test_one_order_stands_beside_the_mean_of_all(found):
    runs = found["leaks"].groups["ER"]
    order = runs[0].spec.order
    text = text_tables.own_order("leaks", " > ".join(order), found)
    mine = [summary(r)["for_literal"] for r in runs if r.spec.order == order]
    every = [summary(r)["for_literal"] for r in runs]
    pair = cells(text, "ER")[-1].replace("\N{MINUS SIGN}", "-").split(" / ")
    for shown, values in zip(pair, (mine, every), strict=True):
        assert float(shown) == pytest.approx(sum(values) / len(values), abs=6e-4)


def test_the_grid_names_the_place_of_the_papers_choice():
    runs = {
        f"l1 {a} l2 0.35 l3 {c}": fake_runs.fake_learner(
            f"l1 {a} l2 0.35 l3 {c}", seeds=(0,), skill=a + c
        )
        for a in (0.2, 0.9)
        for c in (0.1, 0.7)
    }
    known = {"grid": Finished(runs, dict.fromkeys(runs, "nothing"), n_draws=20)}
    text = text_tables.grid("grid", "0.2 0.35 0.1", known)
    assert "4 points" in text
    assert text.endswith("place 4.")
    assert len(cells(text, "0.2")) == 4


def test_augmentation_shows_four_numbers_and_the_papers(tmp_path):
    numbers = {"acc": 0.6, "pre": 0.5, "rec": 0.4, "f1": 0.444}
    records = [
        {
            "row": "real",
            "site": "NYU",
            "seed": seed,
            "diagnostics": {},
            "numbers": {f"aug_gcn_{k}": v for k, v in numbers.items()},
        }
        for seed in range(5)
    ]
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"records": records}))
    line = text_tables.augmentation(path).splitlines()[-1]
    assert "0.600 / 0.500 / 0.400 / 0.444" in line
    assert "0.762 / 0.748 / 0.772 / 0.758" in line


def test_a_learner_that_was_not_run_whole_has_no_cell(found):
    part = replace(table(1.0, ("Base",)), missing=("ER", "FORGE as printed"))
    some = {"leaks": found["leaks"], "leaks+epoch": part}
    text = text_tables.leaks("leaks", some)
    assert text.splitlines()[0] == "| learner | no leak | epoch on test |"
    assert cells(text, "ER")[2] == cells(text, "ER", 1)[1] == "–"
    assert cells(text, "Base", 1)[1].startswith("+0.")
    minus = text_tables.leaks_minus("leaks", "Base", some)
    assert cells(minus, "ER")[2] == "–"


def test_moved_shows_tables_in_which_somebody_is_no_longer_scored():
    as_run = table(only=("Base",))
    run = as_run.groups["Base"][0]
    gone = run.subject_ids["NYU"][0]
    once = {"Base": select_subjects(as_run.groups["Base"], lambda _, who: who != gone)}
    shown = replace(as_run, groups=once)
    text = text_tables.moved([("a", as_run, shown), ("b", as_run, as_run)])
    expected = fmean(
        summary(b)["aaa"] - summary(a)["aaa"]
        for a, b in zip(as_run.groups["Base"], once["Base"], strict=True)
    )
    assert cells(text, "a")[1] == "1"
    assert cells(text, "a")[2] == cells(text, "a")[3] == number(expected, 4, sign=True)
    assert "| b |" not in text


def test_studies_are_shown_as_they_are_stored(tmp_path):
    sites = {"mean": 4.0, "low": None, "high": None}
    share = {"mean": 0.61, "low": 0.5, "high": 0.7}
    nobody = {"mean": None, "low": None, "high": None}
    rows = {"ridge": {"sites": sites, "share": share, "nobody": nobody}}
    (tmp_path / "p.json").write_text(json.dumps({"found": {"a / b": rows}}))
    text = text_tables.studies(tmp_path / "p.json", "a / b")
    assert cells(text, "ridge")[1:] == ["4", "0.610 [0.500, 0.700]", "–"]


def test_own_thresholds_stand_beside_the_common_one(tmp_path):
    def row(learner, value, **more):
        three = [value, value - 0.1, value + 0.1]
        columns = {"aaa": three, "bacc": three, "auroc": three}
        place = {"hospitals": "unequal", "learner": learner}
        return place | columns | more

    gains = {"aaa_gain": [0.1, 0.05, 0.15, 0.0008], "bacc_gain": [-0.02, -0.1, 0, 0.4]}
    own = row("ridge, own threshold", 0.7, **gains)
    path = tmp_path / "own.json"
    path.write_text(json.dumps({"rows": [own, row("ridge", 0.6)]}))
    text = text_tables.own_threshold(path)
    found = [c.strip() for c in text.splitlines()[-1].strip("|").split("|")]
    assert found[:2] == ["unequal", "ridge"]
    assert found[2:5] == [
        "0.600 [0.500, 0.700]",
        "0.700",
        "+0.100 [+0.050, +0.150] p ≤ 0.001",
    ]
    assert found[5:] == [*found[2:4], "−0.020 [−0.100, 0.000] p 0.400", "0.600 / 0.700"]
    assert len(text.splitlines()) == 3  # no row of its own


def test_a_learner_trained_twice_is_compared_on_the_seeds_of_both():
    first = fake_runs.fake_learner("Base", seeds=(0, 1), skill=0.6)
    again = fake_runs.fake_learner("Base again", seeds=(1,), skill=1.4)
    tables = {
        "main": Finished({"Base": first}, {}),
        "other": Finished({"Base again": again}, {}),
    }
    text = text_tables.twice("main", ["Base = other: Base again"], tables)
    shared = [summary(r)["aaa"] for r in first if r.spec.seed == 1]
    moved = fmean(summary(r)["aaa"] for r in again) - fmean(shared)
    found = cells(text, "Base")
    assert found[1] == "other: Base again"
    assert found[2:] == [number(moved, sign=True), number(abs(moved))]

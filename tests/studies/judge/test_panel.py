import math
from functools import partial

import pytest
from simulated_site import simulate

from fcforge.studies.judge.panel import (
    REAL,
    Interval,
    Panel,
    acceptance,
    augment,
    best_tstr,
    interval,
    judge_site,
    summarise,
    synthesise,
)
from fcforge.types import Component, Site


def site(seed: int) -> Site:
    parts = [simulate(n, seed=10 * seed + i) for i, n in enumerate((24, 8, 16))]
    return Site("A", *parts, subject_ids={})


def test_records_of_a_site_and_their_table(tmp_path) -> None:
    panel = Panel({"edges": Component("edge_gauss")}, classifiers=("linear",), augment=("linear",))
    said: list[str] = []
    make = partial(synthesise, multiple=2, folder=tmp_path)
    records = judge_site(panel, {0: site(0), 1: site(1)}, make=make, say=said.append)
    assert [(r["seed"], r["row"]) for r in records] == [
        (s, r) for s in (0, 1) for r in (REAL, "bootstrap", "corr_gauss", "edges")
    ]
    assert len(list(tmp_path.iterdir())) == 6
    assert said
    table = summarise(records)
    assert table["corr_gauss"]["psd_share"].mean == 1.0
    assert table["real"]["edge_mean_r"].mean == pytest.approx(1.0)
    # Adding nothing is what the real row does.
    first = records[0]["numbers"]
    assert first["aug_linear_acc"] == first["tstr_linear_acc"]
    asked = {f.what: f for f in acceptance(table, "corr_gauss")}
    assert asked["positive semidefinite share"].ok
    assert not {f.what: f for f in acceptance(table, "edges")}["positive semidefinite share"].ok


def test_interval_by_hand() -> None:
    out = interval([1.0, 2.0, 3.0])
    assert out.mean == 2.0
    assert out.high - out.mean == pytest.approx(4.302653 / math.sqrt(3))
    assert math.isnan(interval([1.0]).low)
    assert math.isnan(interval([]).mean)
    assert interval([1.0, math.nan]).mean == 1.0


def test_sites_are_averaged_within_a_seed() -> None:
    records = [
        {"row": "x", "seed": s, "diagnostics": {}, "numbers": {"m": v, "warnings": []}}
        for s, v in ((0, 1.0), (0, 3.0), (1, 4.0))
    ]
    assert summarise(records)["x"]["m"].mean == 3.0


def test_best_classifier_counts() -> None:
    one = {"tstr_gcn_acc": Interval(0.6, 0, 1), "tstr_linear_acc": Interval(0.7, 0, 1)}
    assert best_tstr({"a": one}, "a") == 0.7


def test_references_are_always_there_unless_they_are_the_rows() -> None:
    assert list(Panel({}).rows) == [REAL, "bootstrap", "corr_gauss"]
    own = Component("corr_gauss", {"rank": 3})
    rows = Panel({"corr_gauss": own}).rows
    assert list(rows) == [REAL, "bootstrap", "corr_gauss"]
    assert rows["corr_gauss"] == own
    assert rows[REAL] is None


def test_augmentation_adds_as_many_synthetic_subjects() -> None:
    train, fake = simulate(10), simulate(25, seed=3)
    assert augment(REAL, train, fake) is train
    both = augment("x", train, fake)
    assert len(both) == 20
    assert (both.fc[10:] == fake.fc[:10]).all()


def requirements(**changes: float) -> dict[str, bool]:
    mine = {
        "class_difference_r": 0.5,
        "variance_ratio": 1.0,
        "edge_mean_r": 0.99,
        "psd_share": 1.0,
        "tstr_linear_acc": 0.7,
        **changes,
    }
    real = {"class_difference_r": 0.6, "tstr_linear_acc": 0.71}
    summary = {
        row: {k: Interval(v, v, v) for k, v in numbers.items()}
        for row, numbers in ((REAL, real), ("x", mine))
    }
    return {f.what: f.ok for f in acceptance(summary, "x")}


def test_a_generator_is_asked_for_each_requirement() -> None:
    assert all(requirements().values())
    assert len(requirements()) == 5
    assert not requirements(variance_ratio=1.5)["within-class edge variance ratio"]
    assert not requirements(edge_mean_r=0.97)["edge-mean r with the training subjects"]
    assert not requirements(class_difference_r=0.4)["class-difference r / real sample's"]
    gap = "train-on-real minus train-on-synthetic accuracy"
    assert not requirements(tstr_linear_acc=0.68)[gap]
    assert not requirements(psd_share=0.9)["positive semidefinite share"]
    assert requirements(active_units=9)["active units"]
    assert not requirements(active_units=7)["active units"]

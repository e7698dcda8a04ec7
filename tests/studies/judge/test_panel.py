import math
from functools import partial

import pytest
from simulated_site import simulate

from fcforge.studies.judge.panel import (
    REAL,
    Interval,
    Panel,
    acceptance,
    add_utility,
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


def test_nothing_to_classify_is_no_error() -> None:
    add_utility([], "aug", [], ["gcn"], Panel({}), "cpu", print)

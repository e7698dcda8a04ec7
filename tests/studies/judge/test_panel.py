import math

import pytest
import torch
from simulated_site import simulate

from fcforge.generators.corr_gauss import CorrGauss, EdgeGauss
from fcforge.messages import DataError
from fcforge.randomness import torch_rng
from fcforge.studies.judge.panel import (
    JudgedSet,
    Panel,
    collapse_warnings,
    judge,
    judge_fidelity,
    judge_site,
)
from fcforge.studies.judge.summary import REAL, interval, possible, summarise
from fcforge.studies.judge.utility import Task, classify
from fcforge.types import Component, Estimate, FCBatch, Site, Training


def site(seed: int) -> Site:
    parts = [simulate(n, seed=10 * seed + i) for i, n in enumerate((24, 8, 16))]
    return Site("A", *parts, subject_ids={})


def test_records_of_a_site_and_their_table(tmp_path) -> None:
    panel = Panel(
        {"edges": Component("edge_gauss")},
        classifiers=("linear",),
        augment=("linear",),
        multiple=2,
    )
    said: list[str] = []
    sites = {0: site(0), 1: site(1)}
    records = judge_site(panel, sites, folder=tmp_path, say=said.append)
    assert [(r["seed"], r["row"]) for r in records] == [
        (s, r) for s in (0, 1) for r in (REAL, "bootstrap", "corr_gauss", "edges")
    ]
    assert len(list(tmp_path.iterdir())) == 6
    assert said
    table = summarise(records)
    assert table["corr_gauss"]["psd_share"].value == 1.0
    assert table["real"]["edge_mean_r"].value == pytest.approx(1.0)
    # Adding nothing is what the real row does.
    first = records[0]["numbers"]
    assert first["aug_linear_acc"] == first["tstr_linear_acc"]


def test_interval_by_hand() -> None:
    out = interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert out.value == 3.0
    # t(0.975, 4) = 2.776445, SD = sqrt(2.5)
    assert out.high - out.value == pytest.approx(2.776445 * math.sqrt(2.5 / 5))
    assert math.isnan(interval([1.0, 2.0, 3.0, 4.0]).low)  # too few to tell
    assert math.isnan(interval([]).value)
    assert interval([1.0, math.nan]).value == 1.0


def test_no_interval_leaves_what_is_possible() -> None:
    seeds = [0.2, 0.9, 0.99, 1.0, 1.0]
    free = interval(seeds)
    assert free.high > 1.0
    assert interval(seeds, possible("aug_gcn_acc")) == Estimate(
        free.value, free.low, 1.0
    )
    assert possible("class_difference_r") == (-1.0, 1.0)
    assert possible("variance_ratio")[0] == 0.0
    assert possible("mmd2") == (-math.inf, math.inf)


def test_sites_are_averaged_within_a_seed() -> None:
    records = [
        {"row": "x", "seed": s, "diagnostics": {}, "numbers": {"m": v, "warnings": []}}
        for s, v in ((0, 1.0), (0, 3.0), (1, 4.0))
    ]
    assert summarise(records)["x"]["m"].value == 3.0


def test_references_are_always_there_unless_they_are_the_rows() -> None:
    assert list(Panel({}).rows) == [REAL, "bootstrap", "corr_gauss"]
    own = Component("corr_gauss", {"shrink": 0.03})
    rows = Panel({"corr_gauss": own}).rows
    assert list(rows) == [REAL, "bootstrap", "corr_gauss"]
    assert rows["corr_gauss"] == own
    assert rows[REAL] is None


def test_augmentation_adds_as_many_synthetic_subjects() -> None:
    train, fake = simulate(10), simulate(25, seed=3)
    assert len(JudgedSet(train, train, fake, 0, {}, is_real=True).augmented) == 10
    both = JudgedSet(train, train, fake, 0, {}).augmented
    assert len(both) == 20
    assert (both.fc[10:] == fake.fc[:10]).all()


def sampled(generator, train: FCBatch, times: int = 4) -> FCBatch:
    state = generator.fit(train, torch_rng(0))
    return generator.sample(state, train.y.repeat(times), torch_rng(1))


def test_a_good_and_a_bad_generator_are_told_apart(real) -> None:
    train, test = real
    good = judge(train, test, sampled(CorrGauss(), train), panel=Panel({}, ("linear",)))
    bad = judge(train, test, sampled(EdgeGauss(), train), panel=Panel({}, ("linear",)))
    assert good["psd_share"] == 1.0
    assert bad["psd_share"] < 0.5
    assert good["c2st_auc"] < bad["c2st_auc"]
    assert good["tstr_linear_acc"] > 0.7
    assert good["warnings"] == []


def test_collapse_is_said(real) -> None:
    train, test = real
    means = torch.stack([train.fc[train.y == c].mean(0) for c in (0, 1)])
    copies = FCBatch(means[train.y] + 0.01 * (train.fc - train.fc.mean(0)), train.y)
    out = judge(
        train, test, copies, panel=Panel({}, ()), diagnostics={"active_units": 0}
    )
    assert [w.split()[0] for w in out["warnings"]] == ["no", "within-class"]


def test_augmentation_uses_real_and_as_many_synthetic(real) -> None:
    train, test = real
    out = judge(train, test, train, panel=Panel({}, (), ("linear",)))
    # Real subjects twice are the real subjects to a ridge with a penalty per subject.
    (alone,) = classify([Task(train, test, 0)], "linear", Training())
    assert out["aug_linear_acc"] == pytest.approx(alone["acc"], abs=0.06)
    names = {f"aug_linear_{m}" for m in ("acc", "pre", "rec", "f1", "auc")}
    assert names <= out.keys()


def test_unusable_sets_are_refused(real) -> None:
    train, test = real
    with pytest.raises(DataError, match="too few"):
        judge(train, test, train.select(slice(0, 2)))
    broken = train.fc.clone()
    broken[0, 0, 1] = float("nan")
    with pytest.raises(DataError, match="NaN"):
        judge(train, test, FCBatch(broken, train.y))


def test_other_rois_are_refused(real) -> None:
    train, test = real
    small = FCBatch(train.fc[:, :8, :8], train.y)
    with pytest.raises(DataError, match="synthetic FC has 8 ROIs, not 12"):
        judge(train, test, small, panel=Panel({}, ()))
    with pytest.raises(DataError, match="held-out FC has 8 ROIs"):
        judge(train, FCBatch(test.fc[:, :8, :8], test.y), train, panel=Panel({}, ()))


def test_fidelity_is_repeatable_and_follows_its_seed(real) -> None:
    train, test = real
    fake = sampled(CorrGauss(), train)
    one, two, other = (judge_fidelity(train, test, fake, seed=s) for s in (0, 0, 1))
    assert one == two
    # which synthetic subjects are compared one by one depends on the seed, their mean does not
    assert one["mmd2"] != other["mmd2"]
    assert one["edge_mean_r"] == other["edge_mean_r"]


def test_real_against_real_is_the_best_there_is(real) -> None:
    train, test = real
    same = judge_fidelity(train, test, train)
    noise = judge_fidelity(train, test, sampled(EdgeGauss(), train))
    for metric in ("mmd2", "c2st_auc", "spectrum_distance"):
        assert same[metric] < noise[metric]


@pytest.mark.parametrize(
    ("ratio", "units", "n"), [(0.5, 4, 0), (0.19, 4, 1), (0.5, 0, 1), (0.0, 0, 2)]
)
def test_collapse_has_two_signs(ratio, units, n) -> None:
    assert (
        len(collapse_warnings({"variance_ratio": ratio}, {"active_units": units})) == n
    )
    assert (
        collapse_warnings({"variance_ratio": 0.5}, {}) == []
    )  # a Gaussian has no units

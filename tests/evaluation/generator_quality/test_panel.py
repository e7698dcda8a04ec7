import math

import numpy as np
import pytest
import torch
from simulated_site import simulate

from fcforge.core.component import Component
from fcforge.core.errors import DataError
from fcforge.core.estimate import Estimate
from fcforge.core.randomness import torch_rng
from fcforge.core.spec import Training
from fcforge.core.subjects import FCBatch
from fcforge.evaluation.generator_quality.classification import (
    RIDGE_PER_SUBJECT,
    Task,
    _train_together,
    classify,
    linear_scores,
    network_scores,
)
from fcforge.evaluation.generator_quality.measures import ridge_scores
from fcforge.evaluation.generator_quality.panel import (
    JudgedSet,
    Panel,
    collapse_warnings,
    judge,
    judge_fidelity,
)
from fcforge.evaluation.generator_quality.summary import interval, possible, summarise
from fcforge.generators.corr_gauss import CorrGauss
from fcforge.generators.edge_gauss import EdgeGauss
from fcforge.graphs import edges, fisher_z


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


def test_augmentation_adds_as_many_synthetic_subjects() -> None:
    train, fake = simulate(10), simulate(25, seed=3)
    assert len(JudgedSet(train, train, train, 0, {}).augmented) == 10
    both = JudgedSet(train, train, fake, 0, {}).augmented
    assert len(both) == 20
    assert (both.fc[10:] == fake.fc[:10]).all()


def sampled(generator, train: FCBatch, times: int = 4) -> FCBatch:
    state = generator.fit(train, torch_rng(0))
    return generator.sample(state, train.y.repeat(times), torch_rng(1))


def test_a_good_and_a_bad_generator_are_told_apart(real) -> None:
    train, test = real
    good = judge(
        train, test, sampled(CorrGauss(), train), panel=Panel(classifiers=("linear",))
    )
    bad = judge(
        train, test, sampled(EdgeGauss(), train), panel=Panel(classifiers=("linear",))
    )
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
        train,
        test,
        copies,
        panel=Panel(classifiers=()),
        diagnostics={"active_units": 0},
    )
    assert [w.split()[0] for w in out["warnings"]] == ["no", "within-class"]


def test_augmentation_by_the_real_subjects_themselves_adds_nobody(real) -> None:
    train, test = real
    out = judge(train, test, train, panel=Panel(classifiers=(), augment=("linear",)))
    (alone,) = classify([Task(train, test, 0)], "linear", Training())
    assert alone == {
        m: out[f"aug_linear_{m}"] for m in ("acc", "pre", "rec", "f1", "auc")
    }


def test_unusable_sets_are_refused(real) -> None:
    train, test = real
    with pytest.raises(DataError, match="too few"):
        judge(train, test, train.select(slice(0, 2)))
    broken = train.fc.clone()
    broken[0, 0, 1] = float("nan")
    with pytest.raises(DataError, match="NaN"):
        judge(train, test, FCBatch(broken, train.y))


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


# -- what synthetic subjects are worth to a classifier
def test_networks_learn_and_equal_seeds_agree(real) -> None:
    train, test = real
    task = Task(train, test, 0)
    a, b = network_scores([task, task], Component("gcn"), Training(epochs=1))
    assert (a == b).all()
    (numbers,) = classify([task], "mlp", Training(epochs=10, lr=1e-3))
    assert numbers["auc"] > 0.6


def test_side_by_side_equals_alone(real) -> None:
    train, test = real
    tasks = [Task(train, test, 0), Task(FCBatch(train.fc, 1 - train.y), test, 1)]
    training = Training(epochs=2)
    together = _train_together(tasks, Component("mlp"), training, "cpu")
    alone = network_scores(tasks, Component("mlp"), training)
    assert abs(alone[0] - alone[1]).max() > 1e-3
    for a, b in zip(together, alone, strict=True):
        assert abs(a - b).max() < 1e-4


def test_linear_scores_are_ridge_on_fisher_z(real) -> None:
    train, test = real
    expected = ridge_scores(
        fisher_z(edges(train.fc)), train.y, fisher_z(edges(test.fc)), RIDGE_PER_SUBJECT
    )
    found = linear_scores(Task(train, test, 0))
    np.testing.assert_allclose(found, (0.5 * (expected + 1)).numpy(), rtol=1e-5)
    (numbers,) = classify([Task(train, test, 0)], "linear", Training())
    assert numbers["auc"] > 0.7


def test_tasks_of_other_sizes_keep_their_places(real) -> None:
    train, test = real
    few = train.select(slice(0, 30))
    tasks = [Task(train, test, 0), Task(few, test, 0), Task(train, test, 1)]
    together = network_scores(tasks, Component("mlp"), Training(epochs=1))
    for task, scores in zip(tasks, together, strict=True):
        (alone,) = network_scores([task], Component("mlp"), Training(epochs=1))
        assert (alone == scores).all()


def test_swapped_diagnoses_turn_a_classifier_round(real) -> None:
    train, test = real
    tasks = [Task(train, test, 0), Task(FCBatch(train.fc, 1 - train.y), test, 0)]
    right, wrong = classify(tasks, "linear", Training())
    assert right["auc"] + wrong["auc"] == pytest.approx(1.0, abs=0.02)
    assert classify([], "gcn", Training()) == []  # nothing to classify


def test_a_network_never_sees_the_test_subjects(real) -> None:
    train, test = real
    (one,) = classify([Task(train, test, 0)], "mlp", Training(epochs=2))
    other = FCBatch.concat([test.select(slice(0, 20)), train.select(slice(0, 20))])
    (two,) = network_scores(
        [Task(train, other, 0)], Component("mlp"), Training(epochs=2)
    )
    (three,) = network_scores(
        [Task(train, test, 0)], Component("mlp"), Training(epochs=2)
    )
    np.testing.assert_allclose(two[:20], three[:20], atol=1e-6)
    assert 0.0 <= one["acc"] <= 1.0

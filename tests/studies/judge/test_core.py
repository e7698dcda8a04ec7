import pytest
import torch

from fcforge.errors import DataError
from fcforge.generators.corr_gauss import CorrGauss
from fcforge.generators.edge_gauss import EdgeGauss
from fcforge.randomness import torch_rng
from fcforge.studies.judge import judge
from fcforge.studies.judge.utility import Task, _train_together, classify, network_scores
from fcforge.types import Component, FCBatch, Training


def sampled(generator, train: FCBatch, times: int = 4) -> FCBatch:
    state = generator.fit(train, torch_rng(0))
    return generator.sample(state, train.y.repeat(times), torch_rng(1))


def test_a_good_and_a_bad_generator_are_told_apart(real) -> None:
    train, test = real
    good = judge(train, test, sampled(CorrGauss(), train), classifiers=("linear",))
    bad = judge(train, test, sampled(EdgeGauss(), train), classifiers=("linear",))
    assert good["psd_share"] == 1.0
    assert bad["psd_share"] < 0.5
    assert good["c2st_auc"] < bad["c2st_auc"]
    assert good["tstr_linear_acc"] > 0.7
    assert good["warnings"] == []


def test_collapse_is_said(real) -> None:
    train, test = real
    means = torch.stack([train.fc[train.y == c].mean(0) for c in (0, 1)])
    copies = FCBatch(means[train.y] + 0.01 * (train.fc - train.fc.mean(0)), train.y)
    out = judge(train, test, copies, classifiers=(), diagnostics={"active_units": 0})
    assert len(out["warnings"]) == 2
    assert all(w.startswith("COLLAPSED") for w in out["warnings"])


def test_augmentation_uses_real_and_as_many_synthetic(real) -> None:
    train, test = real
    out = judge(train, test, train, classifiers=(), augment=("linear",))
    # Real subjects twice are the real subjects to a ridge with a penalty per subject.
    (alone,) = classify([Task(train, test, 0)], "linear", Training())
    assert out["aug_linear_acc"] == pytest.approx(alone["acc"], abs=0.06)
    assert {"aug_linear_pre", "aug_linear_rec", "aug_linear_f1"} <= out.keys()


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


def test_unusable_sets_are_refused(real) -> None:
    train, test = real
    with pytest.raises(DataError, match="too few"):
        judge(train, test, train.select(slice(0, 2)))
    broken = train.fc.clone()
    broken[0, 0, 1] = float("nan")
    with pytest.raises(DataError, match="NaN"):
        judge(train, test, FCBatch(broken, train.y))

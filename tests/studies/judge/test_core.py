import pytest
import torch

from fcforge.errors import DataError
from fcforge.generators.corr_gauss import CorrGauss
from fcforge.generators.references import EdgeGauss
from fcforge.randomness import torch_rng
from fcforge.studies.judge import judge
from fcforge.studies.judge.core import collapse_warnings, judge_fidelity
from fcforge.studies.judge.utility import Task, classify
from fcforge.types import FCBatch, Training


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
        judge(train, test, small, classifiers=())
    with pytest.raises(DataError, match="held-out FC has 8 ROIs"):
        judge(train, FCBatch(test.fc[:, :8, :8], test.y), train, classifiers=())


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
    assert len(collapse_warnings({"variance_ratio": ratio}, {"active_units": units})) == n
    assert collapse_warnings({"variance_ratio": 0.5}, {}) == []  # a Gaussian has no units

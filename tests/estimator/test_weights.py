"""Weights of subjects and classes, by every method."""

import numpy as np
import pytest
import torch
from sklearn.model_selection import cross_validate

from fcforge.core.errors import ConfigError
from fcforge.data.simulated import simulate
from fcforge.estimator import ForgeClassifier, ForgeRegressor, InputError
from fcforge.methods import METHODS
from fcforge_consortium.estimator import ConsortiumClassifier

SMALL = {"memory": 16, "candidates": 16, "dev": 8, "replay": 8}
CLOSED = ["analytic", "forge_ridge", "replay_ridge"]
LEARN_IN_TURN = [
    name
    for name, cls in METHODS.items()
    if cls.depends_on != "all" and not cls.needs_public and cls.weighs
]


@pytest.fixture(scope="module")
def uneven():
    """Two sites at which three of four people are patients."""
    cohort = simulate(n_rois=10, scale=0.5, n_sites=2, preset="easy")
    rng = np.random.default_rng(0)
    kept = (cohort.y == 1) | (rng.random(len(cohort.y)) < 0.3)
    return cohort.fc[kept], cohort.y[kept], cohort.site[kept]


def learner(method, **given):
    cls = METHODS[method]
    settings = {"epochs": 3, "model": next(iter(cls.models), "linear"), **given}
    if cls.needs_generator:
        settings["generator"] = "corr_gauss"
        settings["method_params"] = {k: v for k, v in SMALL.items() if hasattr(cls, k)}
    return ForgeClassifier(method, **settings)


@pytest.mark.parametrize("method", LEARN_IN_TURN)
def test_a_heavier_class_is_predicted_more_often(method, uneven) -> None:
    fc, y, site = uneven
    patients = [
        learner(method, class_weight={0: w}).fit(fc, y, site).predict(fc).mean()
        for w in (0.02, 1, 50)
    ]
    assert patients[0] >= patients[1] >= patients[2]
    assert patients[0] > patients[2] + 0.3


@pytest.mark.parametrize("method", LEARN_IN_TURN)
def test_weights_of_one_change_nothing_but_the_draw(method, uneven) -> None:
    """In closed form they are the unweighted solution; a trained learner sees everybody as often."""
    fc, y, site = uneven
    plain = learner(method).fit(fc, y, site).decision_function(fc)
    ones = learner(method).fit(fc, y, site, sample_weight=np.ones(len(y)))
    if not METHODS[method].fits:
        np.testing.assert_allclose(ones.decision_function(fc), plain, atol=1e-5)
    else:
        assert abs(ones.decision_function(fc).mean() - plain.mean()) < 1.0


@pytest.mark.parametrize("method", CLOSED)
def test_a_weight_of_zero_leaves_a_subject_out(method, uneven) -> None:
    fc, y, site = uneven
    weight = np.ones(len(y))
    weight[::7] = 0
    kept = weight > 0
    whole = learner(method).fit(fc, y, site, sample_weight=weight)
    less = learner(method).fit(
        fc[kept], y[kept], site[kept], sample_weight=weight[kept]
    )
    np.testing.assert_array_equal(
        whole.decision_function(fc), less.decision_function(fc)
    )
    assert whole._n_seen == kept.sum()


def test_a_weight_is_a_number_of_equal_subjects() -> None:
    """Ridge of a classifier and of a number, by repeated rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 6))
    weight = rng.integers(1, 4, 60)
    site = np.repeat(["a", "b"], 30)
    again = np.repeat(np.arange(60), weight)
    for model, y in (
        (ForgeClassifier(features="any"), (X[:, 0] > 0).astype(int)),
        (ForgeRegressor(features="any"), X[:, 0] + X[:, 1]),
    ):
        model.fit(X, y, site, sample_weight=weight)
        weighted = model.predict(X).copy()
        coefficients = model.coef_.copy()
        model.fit(X[again], y[again], site[again])
        np.testing.assert_allclose(coefficients, model.coef_, atol=1e-5)
        np.testing.assert_allclose(weighted, model.predict(X), atol=1e-5)


def test_balanced_classes_have_equal_weight_at_every_site(uneven) -> None:
    fc, y, site = uneven
    model = learner("cumulative", class_weight="balanced").fit(fc, y, site)
    held = model.model_.remembered
    assert held.weight is not None
    sums = [float(held.weight[held.y == label].sum()) for label in (0, 1)]
    assert sums[0] == pytest.approx(sums[1])
    assert sum(sums) == pytest.approx(len(y))


def test_synthetic_subjects_have_the_weight_of_their_class(uneven) -> None:
    fc, y, site = uneven
    weight = np.where(y == 0, 3.0, 0.5)
    model = learner("forge").fit(fc, y, site, sample_weight=weight)
    held = model.model_.remembered
    assert torch.equal(held.weight, torch.where(held.y == 0, 3.0, 0.5).double())


def test_weights_are_stored(uneven, tmp_path) -> None:
    fc, y, site = uneven
    first = site == site[0]
    model = learner("forge", class_weight={0: 2.0, 1: 0.5})
    model.fit(fc[first], y[first], site[first])
    model.save(tmp_path / "a.safetensors")
    loaded = ForgeClassifier.load(tmp_path / "a.safetensors")
    assert loaded.class_weight == {0: 2.0, 1: 0.5}
    for each in (model, loaded):
        each.partial_fit(fc[~first], y[~first], site=site[~first])
    np.testing.assert_array_equal(
        model.decision_function(fc), loaded.decision_function(fc)
    )


def test_cross_validation_passes_weights(uneven) -> None:
    fc, y, site = uneven
    given = {"site": site, "sample_weight": np.linspace(0.5, 2, len(y))}
    found = cross_validate(
        ForgeClassifier("ridge"), fc, y, params=given, cv=3, error_score="raise"
    )
    assert np.isfinite(found["test_score"]).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sample_weight": [1.0, 2.0]}, r"sample_weight has shape \(2,\), but X has"),
        ({"sample_weight": -1}, r"sample_weight\[0\] is -1"),
        ({"sample_weight": np.nan}, r"sample_weight\[0\] is nan"),
        ({"sample_weight": 0}, "every weight is zero"),
        ({"class_weight": "even"}, "class_weight='even' is neither"),
        ({"class_weight": {2: 1.0}}, "class_weight names 2, which is none of"),
        ({"class_weight": {0: -1.0}}, "a weight that cannot be used"),
    ],
)
def test_wrong_weights_are_refused(uneven, given, message) -> None:
    fc, y, site = uneven
    weight = given.pop("sample_weight", None) if "sample_weight" in given else None
    if np.isscalar(weight):
        weight = np.full(len(y), float(weight))
    with pytest.raises(InputError, match=message):
        ForgeClassifier("ridge", **given).fit(fc, y, site, sample_weight=weight)


def test_who_takes_no_weights_says_so(uneven) -> None:
    fc, y, site = uneven
    with pytest.raises(InputError, match="'pdgnn' takes no weights"):
        ForgeClassifier("pdgnn", "tem", class_weight="balanced").fit(fc, y, site)
    with pytest.raises((ConfigError, InputError), match="each of weight 1"):
        ConsortiumClassifier("ridge", class_weight="balanced").fit(fc, y, site)


def test_threads_do_not_change_scores(uneven) -> None:
    fc, y, site = uneven
    model = learner("finetune").fit(fc, y, site)
    alone = model.decision_function(fc)
    before = torch.get_num_threads()
    np.testing.assert_array_equal(
        model.set_params(n_jobs=4).decision_function(fc), alone
    )
    assert torch.get_num_threads() == before

"""ForgeRegressor: scikit-learn's checks, numbers of several sites, refusals by name."""

import pickle

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks

from fcforge import ForgeClassifier, ForgeRegressor
from fcforge.core.errors import ConfigError
from fcforge.estimator.inputs import InputError


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore:columns of X .* beyond:UserWarning")
@parametrize_with_checks([ForgeRegressor(features="any")])
def test_scikit_learn_checks(estimator, check) -> None:
    check(estimator)


def numbers(n=60, p=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, 20 + 3 * X[:, 0] + rng.normal(0, 0.1, n), np.repeat(["a", "b"], n // 2)


def test_two_sites_in_turn_are_ridge_on_all() -> None:
    """Statistics add up: standardised ridge of scikit-learn on everybody, penalty 1 per feature."""
    X, y, site = numbers()
    found = ForgeRegressor(features="any", limits=(0, 40)).fit(X, y, site)
    turned = ForgeRegressor(features="any", limits=(0, 40))
    for name in ("b", "a"):
        turned.partial_fit(X[site == name], y[site == name], site=name)
    np.testing.assert_allclose(found.predict(X), turned.predict(X), atol=1e-4)
    assert (found.sites_, turned.sites_) == (("a", "b"), ("b", "a"))
    z = (X - X.mean(0)) / X.std(0)
    n_edges = found.n_rois_ * (found.n_rois_ - 1) // 2
    oracle = Ridge(alpha=n_edges).fit(z, y).predict(z)
    np.testing.assert_allclose(found.predict(X), oracle, atol=2e-3)
    assert found.score(X, y) > 0.8


def test_a_pickled_one_predicts_and_holds_nobody() -> None:
    X, y, site = numbers()
    found = ForgeRegressor(features="any").fit(X, y, site)
    data = pickle.dumps(found)
    np.testing.assert_array_equal(pickle.loads(data).predict(X), found.predict(X))


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"method": "er", "model": "gcn"}, "model 'gcn' needs FC"),
        ({"method": "lwf", "model": "mlp"}, "method 'lwf' learns"),
        ({"positive": 1}, "positive= is for classes"),
        ({"calibrate": "inner_val"}, "calibrate='inner_val' is for two classes"),
        ({"limits": (0, 1)}, "beyond 0 to 1"),
    ],
)
def test_what_a_number_cannot_have_is_refused_by_name(params, match) -> None:
    X, y, _ = numbers()
    model = {"model": "linear"} | params
    with pytest.raises((ConfigError, InputError), match=match):
        ForgeRegressor(features="any", **model).fit(X, y)


def test_later_people_lie_within_the_limits_and_sites_may_return() -> None:
    X, y, _ = numbers()
    model = ForgeRegressor(features="any").fit(X, y, site="a")
    with pytest.raises(InputError, match=r"y goes from .* to 99, beyond"):
        model.partial_fit(X, np.where(y == y.max(), 99, y), site="b")
    model.partial_fit(X, y, site="a")
    assert model.sites_ == ("a",)


def scans():
    X, y, site = numbers()
    size = 0.3 + 0.2 * np.tanh(X[:, 0] / 2)
    fc = np.eye(4) + size[:, None, None] * (1 - np.eye(4))
    return fc, y, site


@pytest.mark.parametrize("method", ["analytic", "er"])
def test_a_number_is_remembered_and_travels_in_a_file(method, tmp_path) -> None:
    """ER keeps people with their numbers; a file speaks of the number within its limits."""
    fc, y, site = scans()
    asked = {"method": method, "model": "linear", "epochs": 60, "lr": 0.01}
    if method == "er":
        asked["method_params"] = {"memory": 8}
    model = ForgeRegressor(limits=(0, 40), **asked).fit(fc, y, site)
    remembered = model.model_.remembered
    assert len(remembered) == (8 if method == "er" else 0)
    told = np.sort(model.target_.scaled(y)).astype(np.float32)
    assert np.isin(remembered.y.numpy(), told).all()
    model.save(tmp_path / "age.exchange", allow_real_subjects=True)
    back = ForgeRegressor.load(tmp_path / "age.exchange")
    assert back.target_ == model.target_
    np.testing.assert_allclose(back.predict(fc), model.predict(fc))
    assert np.corrcoef(back.predict(fc), y)[0, 1] > 0.8
    back.partial_fit(fc[:20] * 0.9 + 0.1 * np.eye(4), y[:20], site="c")
    assert back.sites_ == ("a", "b", "c")
    with pytest.raises(ConfigError, match=r"about y \(0 to 40\)"):
        ForgeClassifier.load(tmp_path / "age.exchange")


def test_a_network_of_the_paper_learns_no_number() -> None:
    fc, y, _ = scans()
    with pytest.raises(InputError, match="model 'gcn' learns"):
        ForgeRegressor(method="er", model="gcn").fit(fc, y)


@pytest.mark.parametrize("value", [None, -9999.0])
def test_a_missing_number_is_no_number(value) -> None:
    X, y, site = numbers()
    y = y.astype(object)
    y[3] = value
    with pytest.raises(ValueError, match=r"NaN|missing"):
        ForgeRegressor(features="any").fit(X, y, site)


@pytest.mark.parametrize("word", ["ASD", "12,5"])
def test_a_word_is_no_number_and_is_named_with_its_row(word) -> None:
    X, y, site = numbers()
    y = y.astype(object)
    y[3] = word
    with pytest.raises(ValueError, match="could not convert string to float"):
        ForgeRegressor(features="any").fit(X, y, site)


def test_a_number_that_is_the_same_for_everybody_is_refused() -> None:
    X, y, site = numbers()
    with pytest.raises(InputError, match="30 for everybody"):
        ForgeRegressor(features="any").fit(X, np.full(len(y), 30.0), site)


@pytest.mark.parametrize("limits", [(80, 0), (5,), ("0", "80"), (0, np.inf), 7])
def test_limits_are_two_numbers(limits) -> None:
    X, y, site = numbers()
    with pytest.raises(ConfigError, match="limits="):
        ForgeRegressor(features="any", limits=limits).fit(X, y, site)

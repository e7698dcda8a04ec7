"""ForgeRegressor: scikit-learn's checks, numbers of several sites, refusals by name."""

import pickle

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks

from fcforge import ForgeRegressor
from fcforge.errors import ConfigError
from fcforge.estimator.inputs import InputError


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
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
        ({"method": "er"}, "'er' remembers subjects"),
        ({"method": "lwf", "model": "mlp"}, "method 'lwf' learns"),
        ({"class_weight": "balanced"}, "class_weight= is for classes"),
        ({"positive": 1}, "positive= is for two classes"),
        ({"calibrate": "inner_val"}, "calibrate='inner_val' is for two classes"),
        ({"limits": (0, 1)}, "beyond 0 to 1"),
    ],
)
def test_what_a_number_cannot_have_is_refused_by_name(params, match) -> None:
    X, y, _ = numbers()
    model = {"model": "linear"} | params
    with pytest.raises((ConfigError, InputError), match=match):
        ForgeRegressor(features="any", **model).fit(X, y)


def test_later_people_lie_within_the_limits_and_sites_are_new() -> None:
    X, y, _ = numbers()
    model = ForgeRegressor(features="any").fit(X, y, site="a")
    with pytest.raises(InputError, match=r"y goes from .* to 99, beyond"):
        model.partial_fit(X, np.where(y == y.max(), 99, y), site="b")
    with pytest.raises((ConfigError, InputError), match="site 'a' was learned already"):
        model.partial_fit(X, y, site="a")


def test_files_are_of_two_classes(tmp_path) -> None:
    X, y, _ = numbers()
    fc = np.stack([np.eye(4) + 0.1 * np.tanh(x[0]) * (1 - np.eye(4)) for x in X])
    model = ForgeRegressor().fit(fc, y)
    with pytest.raises(ConfigError, match="files are of two classes"):
        model.save(tmp_path / "age.exchange")


@pytest.mark.parametrize("value", [None, -9999.0])
def test_a_missing_number_is_no_number(value) -> None:
    X, y, site = numbers()
    y = y.astype(object)
    y[3] = value
    with pytest.raises(ValueError, match=r"NaN|missing"):
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

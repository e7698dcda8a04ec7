"""More than two classes in the estimator: probabilities, sites in turn, refusals by name."""

import numpy as np
import pytest

from fcforge import ForgeClassifier
from fcforge.errors import ConfigError
from fcforge.estimator.inputs import InputError


def three(n=90, seed=0):
    rng = np.random.default_rng(seed)
    label = np.arange(n) % 3
    X = rng.normal(size=(n, 6)) + 2 * np.eye(6)[label]
    return X, np.array(["HC", "SZ", "BP"])[label], np.repeat(["a", "b"], n // 2)


def test_three_diagnoses_in_turn() -> None:
    X, y, site = three()
    model = ForgeClassifier(features="any").fit(X, y, site)
    p = model.predict_proba(X)
    assert model.classes_.tolist() == ["BP", "HC", "SZ"]
    assert p.shape == (90, 3)
    np.testing.assert_allclose(p.sum(1), 1)
    assert (model.predict(X) == y).mean() > 0.7
    np.testing.assert_array_equal(model.classes_[p.argmax(1)], model.predict(X))
    np.testing.assert_allclose(np.log(p), model.decision_function(X))
    later = ForgeClassifier(features="any")
    for name in ("b", "a"):  # a site may lack a class that is named
        rows = (site == name) & (y != "BP" if name == "b" else True)
        later.partial_fit(X[rows], y[rows], classes=["HC", "SZ", "BP"], site=name)
    assert (later.predict(X) == y).mean() > 0.6


def test_what_speaks_of_patients_is_refused_by_name(tmp_path) -> None:
    X, y, _ = three()
    model = ForgeClassifier(features="any").fit(X, y)
    assert not hasattr(model, "coef_")
    with pytest.raises(ConfigError, match="only models of FC"):
        model.save(tmp_path / "x.exchange")
    with pytest.raises(InputError, match="explanations are of two classes"):
        model.explain(X)
    for params, match in (
        ({"positive": "SZ"}, "positive= is for two classes"),
        ({"method": "derpp", "model": "linear"}, "'derpp' remembers subjects"),
        ({"method": "forge_release"}, "forge_release"),
    ):
        with pytest.raises(InputError, match=match):
            ForgeClassifier(features="any", **params).fit(X, y)

"""Settings of the parts, one by one."""

import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from fcforge.estimator import ForgeClassifier
from fcforge.releases.start import StartSettings


def test_settings_of_the_parts_by_name() -> None:
    model = ForgeClassifier("analytic", method_params={"public_weight": 1.0})
    params = model.get_params()
    assert params["method__public_weight"] == 1.0
    assert params["method__penalty"] == StartSettings().penalty
    assert params["model__features"] == "log+diagonal"
    assert ForgeClassifier(features="any").get_params()["model__features"] == "z"
    assert params["training__weight_decay"] == 2e-4
    assert "training__epochs" not in params  # a parameter of its own
    assert not [name for name in model.get_params(deep=False) if "__" in name]
    model.set_params(method__penalty=3.0, training__clip=2.0, seed=5)
    assert model.method_params == {"public_weight": 1.0, "penalty": 3.0}
    assert (model.training, model.seed) == ({"clip": 2.0}, 5)
    model.set_params(
        method="finetune", model="mlp", method_params=None, model__hidden=8
    )
    assert model.model_params == {"hidden": 8}
    assert clone(model).get_params() == model.get_params()
    release = ForgeClassifier("forge_release").set_params(method__epsilon=2.0)
    assert release.method_params == {"epsilon": 2.0}


def test_a_wrong_name_is_told() -> None:
    with pytest.raises(
        ValueError, match=r"method setting 'penalti'\. Did you mean 'penalty'"
    ):
        ForgeClassifier().set_params(method__penalti=1.0)
    with pytest.raises(ValueError, match="Invalid parameter 'seeds'"):
        ForgeClassifier().set_params(seeds=1)


def test_a_search_over_a_setting(subjects) -> None:
    fc, y, _ = subjects
    search = GridSearchCV(ForgeClassifier(), {"method__penalty": [1.0, 1e3]}, cv=2).fit(
        fc, y
    )
    best = search.best_params_["method__penalty"]
    assert (
        search.best_estimator_.model_.settings.learner.method.params["penalty"] == best
    )

"""Analytic ridge: which rows it adds up, and what it is by default."""

import numpy as np
import pytest
import torch

from fcforge.base_model.features import log_features
from fcforge.base_model.model import PENALTY, fit_base_model
from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.core.spec import LearnerSpec
from fcforge.methods import build_learner, make_method
from fcforge.methods.analytic import Analytic, moment_rows
from small_world import World, cohort

LINEAR = Component("linear")


def test_rows_are_one_the_features_and_the_diagnosis():
    x = torch.arange(12.0).reshape(2, 6)
    learner = build_learner(LearnerSpec(Component("analytic"), LINEAR), 3)
    rows = moment_rows(learner.model, {"edges": x}, torch.tensor([0, 1]))
    assert rows.tolist() == [[1, *range(6), -1], [1, *range(6, 12), 1]]


def test_by_default_it_is_the_base_model_of_its_people():
    """The whole matrix logarithm with the same penalty: the same ridge, up to its scale."""
    world = World.of("analytic", model_params={"features": Analytic.features})
    names = cohort().site_names
    world.teach(names)
    seen = [world.view(name) for name in names]
    features = log_features(np.concatenate([view.fc.numpy() for view in seen]))
    y = np.concatenate([view.y.numpy() for view in seen])
    base = fit_base_model(features, y)
    head = world.lane.params
    own = features @ head["head.0.weight"][1].numpy() + head["head.0.bias"][1].numpy()
    public = base.score(base.standardise(features))
    scale = np.polyfit(public, own, 1)
    np.testing.assert_allclose(np.polyval(scale, public), own, atol=0.02 * own.std())


@pytest.mark.parametrize("method", ["analytic", "forge_ridge", "replay_ridge"])
def test_closed_forms_take_the_logarithm_unless_told(method):
    def features(model):
        spec = LearnerSpec(Component(method), model, Component("corr_gauss"))
        return build_learner(spec, 5).model.features

    assert features(LINEAR) == "log+diagonal"
    assert features(Component("linear", {"features": "centred"})) == "centred"


def test_the_penalty_is_per_feature_or_found():
    assert Analytic()._penalties(40) == [40 * PENALTY]
    assert Analytic(penalty=0.5)._penalties(40) == [20.0]
    found = Analytic(penalty="gcv")._penalties(40)
    assert (min(found), max(found)) == (40 * 10**-1.5, 40 * 100)
    for wrong in (0.0, 6786.0, "cv"):
        with pytest.raises(ConfigError, match=f"penalty = {wrong!r}"):
            make_method(Component("analytic", {"penalty": wrong}))

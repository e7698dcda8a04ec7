"""Analytic ridge: which rows it adds up, and what it asks of a model."""

import pytest
import torch

from fcforge.errors import ConfigError
from fcforge.graphs import centre_edges
from fcforge.methods import make_method
from fcforge.methods.analytic import Analytic
from fcforge.models import make_model
from fcforge.runner.learners import build_learner
from fcforge.types import Component, LearnerSpec


@pytest.mark.parametrize("centre", [False, True])
def test_rows_are_the_edges_with_or_without_roi_strength(centre):
    method = make_method(Component("analytic", {"centre": centre}))
    assert isinstance(method, Analytic)
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(6, 45, generator=rng, dtype=torch.float64)
    model = make_model(Component("linear"), 10)
    rows = method.statistics_rows(model, {"edges": x}, torch.tensor([0, 1, 0, 1, 1, 0]))
    assert rows[:, 0].tolist() == [1] * 6
    assert rows[:, -1].tolist() == [-1, 1, -1, 1, 1, -1]
    expected = centre_edges(x) if centre else x
    torch.testing.assert_close(rows[:, 1:-1], expected)
    # the map is its own transpose: weights of features score like weights of edges
    w = torch.randn(45, generator=rng, dtype=torch.float64)
    torch.testing.assert_close(x @ centre_edges(w[None])[0], centre_edges(x) @ w)


@pytest.mark.parametrize("features", ["log+diagonal", "centred+log"])
def test_strength_of_what_is_no_edge_is_an_error(features):
    """116 ROIs with their diagonal have as many numbers as 117 ROIs have edges."""
    spec = LearnerSpec(
        Component("analytic"), Component("linear", {"features": features})
    )
    with pytest.raises(ConfigError, match="ROI strength"):
        build_learner(spec, 116)


def test_without_centring_any_features_do():
    model = Component("linear", {"features": "log+diagonal"})
    build_learner(LearnerSpec(Component("analytic", {"centre": False}), model), 116)

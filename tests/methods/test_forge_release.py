"""FORGE from releases: equals the pure functions, whatever the order; the public head alone."""

import numpy as np
import pytest
import torch

from fcforge.errors import ConfigError
from fcforge.methods import make_method
from fcforge.models import make_model
from fcforge.releases import vector
from fcforge.releases.features import log_features
from fcforge.types import Component
from small_world import World, order


def taught(names, **settings):
    return World.of("forge_release", settings, dtype=torch.float64).teach(names)


def test_before_the_first_site_it_is_the_public_head():
    world = World.of("forge_release")
    alone = World.of("public_head").teach(order())
    assert all(
        torch.equal(world.lane.params[k], alone.lane.params[k])
        for k in world.lane.params
    )
    start = world.public().start
    x = world.public().inputs(world.learner.model)["edges"].double()
    logits = world.learner.model.apply(
        world.lane.params, {}, {"edges": x.float()}
    ).logits
    odds = (logits[:, 1] - logits[:, 0]).double()
    wanted = torch.from_numpy(
        start.score(start.standardise(x.numpy())) / start.temperature
    )
    torch.testing.assert_close(odds, wanted, atol=1e-3, rtol=1e-3)


def test_exact_releases_are_the_closed_form():
    world = taught(order(), mechanism="none")
    start, total = world.public().start, 0.0
    for name in order():
        view = world.view(name)
        x = log_features(view.fc.numpy(), start.shrink)
        total = total + vector.contributions(start, x, view.y.numpy()).sum(0)
    np.testing.assert_array_equal(world.lane.state["release.sum"].numpy(), total)
    beta = vector.solve(start, total, 0.0, len(order()))
    head = vector.on_features(start, vector.head(start, beta))
    weight = world.lane.params["head.0.weight"][1] * 2 * start.temperature
    np.testing.assert_allclose(weight.numpy(), head.weight, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("mechanism", ["gaussian", "none"])
def test_any_order_ends_in_the_same_head(mechanism):
    settings = {"mechanism": mechanism, "noise": "seeded"}
    one, two = taught(order(), **settings), taught(order()[::-1], **settings)
    torch.testing.assert_close(
        one.lane.state["release.sum"], two.lane.state["release.sum"]
    )
    assert float(one.lane.state["release.count"]) == 3


def test_noise_depends_on_seed_and_site_alone_or_on_nothing():
    alone = taught(order()[1:2], noise="seeded").lane.state["release.sum"]
    both = taught(order()[:2], noise="seeded").lane.state["release.sum"]
    first = taught(order()[:1], noise="seeded").lane.state["release.sum"]
    torch.testing.assert_close(both - first, alone)
    secret = [
        taught(order()[:1], noise="secret").lane.state["release.sum"] for _ in range(2)
    ]
    assert not torch.equal(*secret)


def test_more_noise_for_less_epsilon():
    loud = taught(order()[:1], epsilon=0.1, noise="seeded").lane.state[
        "release.variance"
    ]
    quiet = taught(order()[:1], epsilon=8.0, noise="seeded").lane.state[
        "release.variance"
    ]
    assert float(loud) > 100 * float(quiet) > 0
    assert (
        float(taught(order()[:1], mechanism="none").lane.state["release.variance"]) == 0
    )


@pytest.mark.parametrize("name", ["forge_release", "public_head"])
def test_other_features_are_refused(name):
    model = make_model(Component("linear"), 12)
    with pytest.raises(
        ConfigError, match=rf"'{name}'.*whole matrix logarithm.*log\+diagonal"
    ):
        make_method(Component(name)).check_model(model)


@pytest.mark.parametrize(
    "setting", [{"epsilon": 0.0}, {"delta": 1.0}, {"mechanism": "laplace"}]
)
def test_impossible_budgets_are_refused(setting):
    with pytest.raises(ConfigError, match="method 'forge_release'"):
        make_method(Component("forge_release", setting))

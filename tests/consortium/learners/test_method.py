"""FORGE from releases: equals the pure functions, whatever the order; the base model alone."""

import numpy as np
import pytest
import torch

from fcforge.base_model.calibration import class_logits
from fcforge.base_model.features import log_features
from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.core.randomness import numpy_rng
from fcforge.methods import make_method
from fcforge_consortium.base_model import vectors as vector
from fcforge_consortium.base_model.planning import noise_per_subject
from fcforge_consortium.base_model.space import SpaceSettings, fit_base_and_space
from fcforge_consortium.learners.method import model_params
from small_world import World, make_model, order


def made(**settings):
    return make_method(Component("contributions", settings))


def taught(names, **settings):
    return World.of("contributions", settings, dtype=torch.float64).teach(names)


def test_before_the_first_site_it_is_the_base_model_alone():
    world = World.of("contributions")
    alone = World.of("base_model_alone").teach(order())
    assert all(
        torch.equal(world.lane.params[k], alone.lane.params[k])
        for k in world.lane.params
    )
    start = world.learner.method.space(world.public().subjects)
    x = world.public().inputs(world.learner.model)["edges"].double()
    logits = world.learner.model.apply(
        world.lane.params, {}, {"edges": x.float()}
    ).logits
    odds = (logits[:, 1] - logits[:, 0]).double()
    wanted = torch.from_numpy(
        start.base.score(start.base.standardise(x.numpy())) / start.base.temperature
    )
    torch.testing.assert_close(odds, wanted, atol=1e-3, rtol=1e-3)


def exact_total(world, names):
    start = world.learner.method.space(world.public().subjects)
    found = 0
    for name in names:
        view = world.view(name)
        x = log_features(view.fc.numpy(), start.base.shrink)
        found = found + vector.contribution_rows(start, x, view.y.numpy()).sum(0)
    return found


@pytest.mark.parametrize("form", ["sum", "local"])
def test_exact_sums_are_the_closed_form_to_the_last_bit(form):
    """What the command line adds up is what an experiment adds up."""
    world = taught(order(), mechanism="none", form=form)
    start = world.learner.method.space(world.public().subjects)
    total = exact_total(world, order())
    assert np.array_equal(world.lane.state.total.numpy(), total)
    beta = vector.solve(start, total.astype(float), 0.0, len(order()))
    found = vector.stepped_model(start, beta)
    head = vector.on_features(start, found)
    scale = 2 * vector.temperature(start, found)
    weight = world.lane.params["head.0.weight"][1] * scale
    np.testing.assert_allclose(weight.numpy(), head.weight, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("form", ["sum", "local"])
@pytest.mark.parametrize("mechanism", ["gaussian", "none"])
def test_any_order_ends_in_the_same_head(mechanism, form):
    settings = {"mechanism": mechanism, "form": form, "noise": "seeded"}
    one, two = taught(order(), **settings), taught(order()[::-1], **settings)
    for key, value in one.lane.params.items():
        torch.testing.assert_close(value, two.lane.params[key])
    assert float(one.lane.state.sites) == 3


def test_local_noise_depends_on_seed_and_site_alone_or_on_nothing():
    settings = {"form": "local", "noise": "seeded"}
    alone = taught(order()[1:2], **settings).lane.state.total
    both = taught(order()[:2], **settings).lane.state.total
    first = taught(order()[:1], **settings).lane.state.total
    assert torch.equal(both - first, alone)
    secret = [
        taught(order()[:1], form="local", noise="secret").lane.state.total
        for _ in range(2)
    ]
    assert not torch.equal(*secret)


def test_aggregators_add_noise_to_the_head_and_never_to_the_sum():
    """Two doses once over all sites: the exact sum goes on to the next round's count."""
    world = taught(order()[:2], form="sum", noise="seeded")
    total = exact_total(world, order()[:2])
    assert np.array_equal(world.lane.state.total.numpy(), total)
    method = world.learner.method
    start = world.learner.method.space(world.public().subjects)
    drawn = method.drawn(start.n_numbers, 2, numpy_rng(0, "round", 2))
    units = vector.noise_units(1.0)
    assert 0.8 < drawn.std() / (units * 2**0.5) < 1.2
    beta = vector.solve(start, total + drawn, 2.0 * units**2, 2)
    found = vector.stepped_model(start, beta)
    head = vector.on_features(start, found)
    scale = 2 * vector.temperature(start, found)
    weight = world.lane.params["head.0.weight"][1] * scale
    np.testing.assert_allclose(weight.numpy(), head.weight, rtol=1e-3, atol=1e-6)


def test_the_space_is_fitted_for_the_planned_noise():
    """Few people have more noise each than many, local noise more than that of two aggregators."""
    few = made(people=200, form="local", hospitals=4)
    assert few.planned_noise == noise_per_subject(200, 1.0, 4)
    assert made(people=10_000).planned_noise == noise_per_subject(10_000, 1.0)
    assert made(mechanism="none").planned_noise == 0.0


@pytest.mark.parametrize("name", ["contributions", "base_model_alone"])
def test_other_features_are_refused(name):
    model = make_model(Component("linear"), 12)
    with pytest.raises(
        ConfigError, match=rf"'{name}'.*whole matrix logarithm.*features out"
    ):
        make_method(Component(name)).check_model(model)


@pytest.mark.parametrize(
    "setting", [{"epsilon": 0.0}, {"delta": 1.0}, {"mechanism": "laplace"}]
)
def test_impossible_budgets_are_refused(setting):
    with pytest.raises(ConfigError, match="method 'contributions'"):
        make_method(Component("contributions", setting))


def test_the_head_of_three_classes_gives_their_calibrated_logits():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 10))
    start = fit_base_and_space(x, np.arange(60) % 3, SpaceSettings(axes=4), 2)
    beta = 0.1 * rng.normal(size=(2, 11))
    params = model_params(start, beta, torch.device("cpu"), 3)
    found = vector.stepped_model(start, beta)
    scores = start.base.standardise(x) @ found.weight + found.bias
    wanted = class_logits(scores) / vector.temperature(start, found)
    linear = (
        params["head.0.weight"].numpy() @ x.T + params["head.0.bias"].numpy()[:, None]
    )
    np.testing.assert_allclose(linear.T, wanted, atol=1e-4)

"""Replay in closed form: the four references it becomes, against one regression by hand."""

import pytest
import torch

from fcforge.methods.replay_ridge import ReplayRidge
from fcforge.replay.memory import empty_memory
from small_world import R, World, order

PENALTY = 0.5


def by_hand(x, t, mass):
    """Weighted ridge with a free intercept from the normal equations."""
    one = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], dim=1)
    left = one.T @ (mass[:, None] * one)
    left[:-1, :-1] += PENALTY * x.shape[1] * torch.eye(x.shape[1], dtype=x.dtype)
    return torch.linalg.solve(left, one.T @ (mass * t))


def features(world, name):
    site = world.view(name)
    x = site.bank.inputs(world.learner.model)["edges"][site.rows].double()
    return x, 2.0 * site.y.double() - 1.0


def head(world):
    weight, bias = (
        world.lane.params["head.0.weight"][1],
        world.lane.params["head.0.bias"][1],
    )
    return torch.cat([weight, bias[None]]).double()


def test_without_a_memory_every_site_stands_alone():
    world = World.of("replay_ridge", {"memory": 0}).teach(order()[:2])
    x, t = features(world, order()[1])
    torch.testing.assert_close(
        head(world), by_hand(x, t, torch.ones_like(t)), rtol=1e-4, atol=1e-5
    )
    nothing = World.of("replay_ridge", {"memory": 50, "l1": 0.0, "l2": 0.0}).teach(
        order()[:2]
    )
    torch.testing.assert_close(head(nothing), head(world))


def test_with_room_for_everybody_it_is_cumulative():
    settings = {"memory": 500, "l1": 1.0, "l2": 0.0, "weigh": "subjects"}
    world = World.of("replay_ridge", settings).teach(order())
    x, t = (
        torch.cat(part)
        for part in zip(*(features(world, n) for n in order()), strict=True)
    )
    torch.testing.assert_close(
        head(world), by_hand(x, t, torch.ones_like(t)), rtol=1e-4, atol=1e-5
    )


def test_a_past_site_weighs_as_much_as_the_open_one():
    method = ReplayRidge(l1=1.0, l2=0.0)
    memory = empty_memory(3, 0, "cpu")._replace(
        y=torch.tensor([0, 1, 1]),
        site=torch.tensor([0, 0, 1]),
        logits=torch.tensor([[1.0, -1.0], [0.0, 0.0], [-3.0, 3.0]]),
    )
    target, mass = method.targets(memory, torch.arange(3), 40)
    assert target[:, 0].tolist() == [-1, 1, 1]
    assert mass.tolist() == [20, 20, 40]
    both = ReplayRidge(l1=0.5, l2=0.5, weigh="subjects")
    target, mass = both.targets(memory, torch.arange(3), 40)
    assert target[:, 0].tolist() == [-1, 0.5, 2]  # mean of diagnosis and old score
    assert mass.tolist() == [1, 1, 1]


@pytest.mark.parametrize("memory", [4, 16])
def test_the_memory_is_real_and_small(memory):
    world = World.of("replay_ridge", {"memory": memory}).teach(order())
    assert (world.lane.state.memory.site >= 0).sum() == memory
    assert world.lane.params["head.0.weight"].shape == (2, R * (R - 1) // 2)

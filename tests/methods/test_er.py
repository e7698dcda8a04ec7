"""ER against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from fcforge.methods import Batch, Lane, Replay, make_method
from fcforge.models import make_model
from fcforge.randomness import torch_rng
from fcforge.types import Component, Training
from small_world import World, order

KEY = torch.tensor(5, dtype=torch.int32)


def tiny():
    """Linear model on 3 edges, a current batch of 2 and a remembered one of 3."""
    model = make_model(Component("linear"), 3)
    rng = torch_rng(0)
    params = {
        "head.0.weight": torch.randn(2, 3, generator=rng),
        "head.0.bias": torch.zeros(2),
    }
    batch = Batch({"edges": torch.randn(2, 3, generator=rng)}, torch.tensor([0, 1]))
    x = torch.randn(3, 3, generator=rng)
    u = torch.randn(3, 2, generator=rng)
    replay = Replay(
        {"edges": x}, torch.tensor([1, 1, 0]), u, torch.zeros(3, 0), torch.full((3,), 1 / 3)
    )
    z = {
        "now": batch.inputs["edges"] @ params["head.0.weight"].T,
        "then": x @ params["head.0.weight"].T,
    }
    return model, params, Lane(params, {}, {}), batch, replay, z


def loss_of(method: str, settings: dict, replay_size: int = 3):
    model, params, lane, batch, replay, z = tiny()
    method = make_method(Component(method, {"replay": replay_size, **settings}))
    return float(method.loss(model, params, lane, batch, replay, KEY)[0]), batch, replay, z


@pytest.mark.parametrize("forward", ["joint", "separate"])
@pytest.mark.parametrize(("weighting", "scale"), [("mean", 1 / 1.5), ("sum", 1.0)])
def test_er_loss_by_hand(forward, weighting, scale):
    settings = {"strength": 0.5, "weighting": weighting, "forward": forward}
    got, batch, replay, z = loss_of("er", settings)
    now, then = F.cross_entropy(z["now"], batch.y), F.cross_entropy(z["then"], replay.y)
    assert got == pytest.approx(float(now + 0.5 * then) * scale, rel=1e-6)


def accuracy(world: World) -> float:
    model, lane = world.learner.model, world.lane
    inputs, y = world.bank.inputs(model), world.bank.y
    with torch.no_grad():
        logits = model.apply(lane.params, lane.stats, inputs).logits
    return float((logits.argmax(-1) == y).float().mean())


def test_er_with_room_for_everybody_comes_out_near_cumulative():
    """On all training subjects seen: as good as training on the union, unlike fine-tuning."""
    training = Training(epochs=40, batch_size=8, lr=3e-3)
    names = order()
    got = {
        name: accuracy(World.of(name, settings, "linear", training=training).teach(names))
        for name, settings in (
            ("er", {"memory": 500}),
            ("cumulative", {"warm": True}),
            ("finetune", {}),
        )
    }
    assert abs(got["er"] - got["cumulative"]) < 0.06, got
    assert got["er"] > got["finetune"] + 0.05, got

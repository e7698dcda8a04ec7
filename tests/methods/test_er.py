"""ER against numbers worked out by hand."""

import pytest
import torch
import torch.nn.functional as F
from tiny_models import loss_of

from fcforge.types import Training
from small_world import World, order


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

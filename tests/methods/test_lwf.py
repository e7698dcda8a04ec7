"""LwF against numbers worked out by hand."""

import torch
import torch.nn.functional as F

from fcforge.core.spec import Training
from fcforge.methods.lwf import distillation
from small_world import World, order


def test_lwf_distillation_by_hand():
    old, new = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 0.0]])
    p = 1 / (1 + torch.exp(torch.tensor(-1.0)))  # softmax of (2, 0) / 2
    by_hand = p * torch.log(p / 0.5) + (1 - p) * torch.log((1 - p) / 0.5)
    torch.testing.assert_close(distillation(old, new, 2.0), by_hand)
    torch.testing.assert_close(
        distillation(old, new, 2.0),
        F.kl_div(
            F.log_softmax(new / 2, -1),
            F.log_softmax(old / 2, -1),
            log_target=True,
            reduction="batchmean",
        ),
    )
    assert float(distillation(old, old, 2.0)) == 0.0


def test_lwf_stays_closer_to_the_last_network():
    training, gap = Training(epochs=20, batch_size=8, lr=3e-3), {}
    for strength in (0.0, 100.0):
        world = World.of("lwf", {"strength": strength}, "linear", training=training)
        world.teach(order()[:1])
        model, old = world.learner.model, world.lane
        new = world.teach(order()[1:2]).lane
        rows = world.view(order()[1]).train
        x = {k: v[rows] for k, v in world.bank.inputs(model).items()}
        gap[strength] = float(
            (
                model.apply(new.params, {}, x).logits
                - model.apply(old.params, {}, x).logits
            )
            .square()
            .mean()
        )
    assert gap[100.0] < 0.2 * gap[0.0], gap

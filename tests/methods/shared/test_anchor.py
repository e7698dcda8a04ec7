"""The quadratic pull that EWC, SI and TWP share, against one quadratic per site."""

import torch
from tiny_models import logistic

from fcforge.core.randomness import torch_rng
from fcforge.methods import Lane
from fcforge.methods.shared.anchor import Anchor, Anchored, add_anchor, loss_gradients


def test_squared_gradients_of_the_loss_by_hand():
    model, lane, inputs, y = logistic(6)
    x = inputs["edges"]
    p = torch.softmax(model.apply(lane.params, {}, inputs).logits, -1)[:, 1]
    residual = p - y  # gradient of the loss by z_1 - z_0
    weight = loss_gradients(model, lane, inputs, y)["head.0.weight"]
    torch.testing.assert_close(weight[1], (residual[:, None] * x).square().mean(0))


def test_merged_anchors_equal_one_quadratic_per_site():
    rng = torch_rng(1)

    def draw():
        return {"w": torch.rand(7, generator=rng, dtype=torch.float64)}

    anchors = [draw() for _ in range(4)]
    importances = [draw() for _ in range(4)]
    importances[0]["w"][2] = importances[1]["w"][2] = 0.0
    lane = Lane({}, {}, Anchor({}, {}))
    for anchor, importance in zip(anchors, importances, strict=True):
        lane = add_anchor(lane._replace(params=anchor), importance)
    theta = draw()

    def separate(theta):
        pairs = zip(anchors, importances, strict=True)
        return sum((i["w"] * (theta["w"] - a["w"]).square()).sum() for a, i in pairs)

    by_hand = torch.func.grad(separate)(theta)["w"]
    zero = {"w": torch.zeros(7, dtype=torch.float64)}
    pulled = Anchored().after_grad(None, lane._replace(params=theta), zero, None, None)
    torch.testing.assert_close(pulled["w"], by_hand)

"""EWC against numbers worked out by hand."""

from dataclasses import replace

import torch
from tiny_models import logistic

from fcforge.core.component import Component
from fcforge.core.randomness import torch_rng
from fcforge.core.spec import Training
from fcforge.methods import Lane, make_method
from fcforge.methods.ewc import exact_fisher
from fcforge.methods.shared.anchor import Anchor, add_anchor, loss_gradients
from small_world import World, order


def test_exact_fisher_of_logistic_regression():
    """p (1 - p) x_j^2 for every weight, p (1 - p) for the biases."""
    model, lane, inputs, _ = logistic(40)
    x = inputs["edges"]
    p = torch.softmax(model.apply(lane.params, {}, inputs).logits, -1)[:, 1]
    fisher = exact_fisher(model, lane, inputs)
    weight = ((p * (1 - p))[:, None] * x.square()).mean(0)
    torch.testing.assert_close(fisher["head.0.weight"], torch.stack([weight, weight]))
    torch.testing.assert_close(fisher["head.0.bias"], (p * (1 - p)).mean().expand(2))


def test_exact_fisher_is_the_sum_over_labels_on_a_graph_network():
    world = World.of("ewc").teach(order()[:1])
    model, lane = world.learner.model, world.lane
    inputs = {k: v[:5] for k, v in world.bank.inputs(model).items()}
    by_hand = {k: torch.zeros_like(v) for k, v in lane.params.items()}
    for n in range(5):
        one = {k: v[n : n + 1] for k, v in inputs.items()}
        p = torch.softmax(model.apply(lane.params, lane.stats, one).logits, -1)[0]
        for c in (0, 1):

            def log_p(params, one=one, c=c):
                return torch.log_softmax(
                    model.apply(params, lane.stats, one).logits, -1
                )[0, c]

            for k, g in torch.func.grad(log_p)(lane.params).items():
                by_hand[k] += p[c] * g.square() / 5
    fisher = exact_fisher(model, lane, inputs)
    for k in by_hand:
        torch.testing.assert_close(fisher[k], by_hand[k], rtol=1e-3, atol=1e-9)


def test_ewc_penalty_and_its_gradient_by_hand():
    method = make_method(Component("ewc", {"strength": 4.0}))
    lane = Lane({"w": torch.tensor([1.0, 2.0])}, {}, Anchor({}, {}))
    lane = add_anchor(lane, {"w": torch.tensor([3.0, 0.5])})
    lane = lane._replace(params={"w": torch.tensor([2.0, 0.0])})
    # of (lambda / 2) sum F d^2 the gradient is lambda F d = (12, -4)
    grads = method.after_grad(None, lane, {"w": torch.tensor([0.25, 0.25])}, None, None)
    assert grads["w"].tolist() == [12.25, -3.75]


def test_online_ewc_decays_and_moves_its_anchor():
    worlds = [
        World.of("ewc", {"online": True, "gamma": g, "strength": 0.0}).teach(
            order()[:2]
        )
        for g in (0.0, 0.5, 1.0)
    ]
    fishers = [w.lane.state.importance["conv0.weight"] for w in worlds]
    torch.testing.assert_close(fishers[1], (fishers[0] + fishers[2]) / 2)
    assert not torch.equal(fishers[0], fishers[2])
    anchor = worlds[0].lane.state.anchor
    assert all(torch.equal(anchor[k], p) for k, p in worlds[0].lane.params.items())


def test_a_huge_strength_freezes_what_the_fisher_knows():
    moved = {}
    training = Training(epochs=25, batch_size=8)
    for strength in (0.0, 1e9):
        world = World.of("ewc", {"strength": strength}, "mlp", training=training)
        before = world.teach(order()[:1]).lane
        after = world.teach(order()[1:2]).lane
        known = before.state.importance["embed.weight"] > 1e-4
        assert known.any()
        step = (after.params["embed.weight"] - before.params["embed.weight"]).abs()
        moved[strength] = float(step[known].mean())
    assert moved[1e9] < 0.3 * moved[0.0], moved


def test_importances_of_three_classes_are_sums_over_them():
    model, _, inputs, y = logistic(40)
    model = replace(model, n_outputs=3)
    lane = Lane({**model.init(torch_rng(0)), "head.0.bias": torch.arange(3.0)}, {})
    p = torch.softmax(model.apply(lane.params, {}, inputs).logits, -1)
    fisher = exact_fisher(model, lane, inputs)["head.0.bias"]
    torch.testing.assert_close(fisher, (p * (1 - p)).mean(0))
    by_loss = loss_gradients(model, lane, inputs, y)["head.0.bias"]
    own = torch.nn.functional.one_hot(y, 3)
    torch.testing.assert_close(by_loss, (own - p).square().mean(0))

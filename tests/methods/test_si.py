"""SI against numbers worked out by hand."""

from dataclasses import replace

import torch

from fcforge.core.component import Component
from fcforge.methods import Lane, make_method
from fcforge.replay.state import named
from small_world import TRAINING, World, make_model, order


def test_si_path_integral_by_hand():
    """Two steps of one parameter: omega = -(g1 d1 + g2 d2); negative omega counts as 0."""
    si = make_method(Component("si", {"strength": 2.0, "damping": 0.5}))
    model = make_model(Component("linear"), 3)
    lane = si.start(model, Lane({"w": torch.tensor([1.0, 1.0])}, {}))
    lane = si.begin_site(model, lane, None)
    for g, to in (([2.0, -1.0], [0.5, 0.9]), ([1.0, -3.0], [0.2, 0.7])):
        before = lane.params
        lane = lane._replace(params={"w": torch.tensor(to)})
        lane = si.after_step(before, lane, {"w": torch.tensor(g)})
    # omega_0 = 2 * 0.5 + 1 * 0.3 = 1.3; omega_1 = -(0.1 + 3 * 0.2) = -0.7
    torch.testing.assert_close(lane.state.path["w"], torch.tensor([1.3, -0.7]))
    lane = si.end_site(model, lane, None)
    big = 1.3 / (0.8**2 + 0.5)
    torch.testing.assert_close(lane.state.importance["w"], torch.tensor([big, 0.0]))
    assert set(named(lane.state)) == {"importance/w", "anchor/w"}
    lane = lane._replace(params={"w": torch.tensor([1.2, 5.0])})
    grads = si.after_grad(model, lane, {"w": torch.zeros(2)}, None, None)
    torch.testing.assert_close(grads["w"], torch.tensor([2 * 2.0 * big * 1.0, 0.0]))


def test_si_importance_is_never_negative_and_uses_the_unregularised_gradient():
    world = World.of("si", {"strength": 1e4}).teach(order())
    omega = world.lane.state.importance
    assert all((v >= 0).all() for v in omega.values())
    assert any((v > 0).any() for v in omega.values())
    # the engine hands after_step the gradient of the loss alone, whatever after_grad adds
    free = World.of("si", {"strength": 0.0}).teach(order()[:1])
    held = World.of("si", {"strength": 1e4}).teach(order()[:1])
    a, b = (w.lane.state.importance["conv0.weight"] for w in (free, held))
    assert torch.equal(a, b)


def test_si_holds_a_linear_model_if_its_strength_is_large():
    """Its importances are tiny: the default strength hardly acts on it, a large one does."""
    long = replace(TRAINING, epochs=40)
    first = World.of("si", model="linear", training=long).teach(order()[:1]).lane.params
    moved = {}
    for strength in (0.0, 1.0, 1e6):
        settings = {"strength": strength}
        world = World.of("si", settings, model="linear", training=long)
        after = world.teach(order()[:2]).lane.params
        moved[strength] = sum((after[k] - first[k]).norm() for k in first)
    assert moved[1.0] < moved[0.0]
    assert moved[1e6] < 0.5 * moved[0.0]

"""EWC, SI, TWP and LwF against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from fcforge import graphs
from fcforge.errors import ConfigError
from fcforge.methods import Lane, make_method
from fcforge.methods.ewc import exact_fisher
from fcforge.methods.lwf import distillation
from fcforge.methods.shared.penalty import (
    add_anchor,
    add_pull,
    batch_gradients,
    loss_gradients,
    part,
    penalty,
)
from fcforge.methods.twp import attention, topology_energy
from fcforge.models import make_model
from fcforge.randomness import torch_rng
from fcforge.types import Component, Training
from small_world import R, World, cohort, order


def logistic(n: int = 9, seed: int = 0):
    """Logistic regression on 3 ROIs (3 edges) with random parameters."""
    model = make_model(Component("linear"), 3)
    rng = torch_rng(seed)
    x = torch.randn(n, 3, generator=rng)
    params = {
        "head.0.weight": torch.randn(2, 3, generator=rng),
        "head.0.bias": torch.randn(2, generator=rng),
    }
    y = torch.arange(n) % 2
    return model, Lane(params, {}, {}), {"edges": x}, y


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
                return torch.log_softmax(model.apply(params, lane.stats, one).logits, -1)[0, c]

            for k, g in torch.func.grad(log_p)(lane.params).items():
                by_hand[k] += p[c] * g.square() / 5
    fisher = exact_fisher(model, lane, inputs)
    for k in by_hand:
        torch.testing.assert_close(fisher[k], by_hand[k], rtol=1e-3, atol=1e-9)


def test_empirical_and_batched_fisher_by_hand():
    model, lane, inputs, y = logistic(6)
    x = inputs["edges"]
    p = torch.softmax(model.apply(lane.params, {}, inputs).logits, -1)[:, 1]
    residual = p - y  # gradient of the loss by z_1 - z_0
    weight = loss_gradients(model, lane, inputs, y)["head.0.weight"]
    torch.testing.assert_close(weight[1], (residual[:, None] * x).square().mean(0))
    batched = batch_gradients(model, lane, inputs, y, size=4)["head.0.weight"][1]
    first = (residual[:4, None] * x[:4]).mean(0).square()
    second = (residual[4:, None] * x[4:]).mean(0).square()
    torch.testing.assert_close(batched, first * 4 / 6 + second * 2 / 6)


def test_ewc_penalty_and_its_gradient_by_hand():
    method = make_method(Component("ewc", {"strength": 4.0}))
    state = add_anchor({}, {"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([3.0, 0.5])})
    lane = Lane({"w": torch.tensor([2.0, 0.0])}, {}, state)
    # (lambda / 2) sum F d^2 = 2 (3 * 1 + 0.5 * 4) = 10, gradient lambda F d = (12, -4)
    assert float(penalty(lane.params, state)) * 4.0 / 2 == 10.0
    grads = method.after_grad({"w": torch.tensor([0.25, 0.25])}, lane)
    assert grads["w"].tolist() == [12.25, -3.75]


def test_merged_anchors_equal_one_quadratic_per_site():
    rng = torch_rng(1)

    def draw():
        return {"w": torch.rand(7, generator=rng, dtype=torch.float64)}

    anchors = [draw() for _ in range(4)]
    importances = [draw() for _ in range(4)]
    importances[0]["w"][2] = importances[1]["w"][2] = 0.0
    state: dict = {}
    for anchor, importance in zip(anchors, importances, strict=True):
        state = add_anchor(state, anchor, importance)
    theta = draw()

    def separate(theta):
        pairs = zip(anchors, importances, strict=True)
        return sum((i["w"] * (theta["w"] - a["w"]).square()).sum() for a, i in pairs)

    by_hand = torch.func.grad(separate)(theta)["w"]
    zero = {"w": torch.zeros(7, dtype=torch.float64)}
    torch.testing.assert_close(add_pull(zero, Lane(theta, {}, state), 1.0)["w"], by_hand)


def test_online_ewc_decays_and_moves_its_anchor():
    worlds = [
        World.of("ewc", {"online": True, "gamma": g, "strength": 0.0}).teach(order()[:2])
        for g in (0.0, 0.5, 1.0)
    ]
    fishers = [part(w.lane.state, "importance")["conv0.weight"] for w in worlds]
    torch.testing.assert_close(fishers[1], (fishers[0] + fishers[2]) / 2)
    assert not torch.equal(fishers[0], fishers[2])
    anchor = part(worlds[0].lane.state, "anchor")
    assert all(torch.equal(anchor[k], p) for k, p in worlds[0].lane.params.items())


def test_a_huge_strength_freezes_what_the_fisher_knows():
    moved = {}
    training = Training(epochs=25, batch_size=8)
    for strength in (0.0, 1e9):
        world = World.of("ewc", {"strength": strength}, "mlp", training=training)
        before = world.teach(order()[:1]).lane
        after = world.teach(order()[1:2]).lane
        known = part(before.state, "importance")["embed.weight"] > 1e-4
        assert known.any()
        step = (after.params["embed.weight"] - before.params["embed.weight"]).abs()
        moved[strength] = float(step[known].mean())
    assert moved[1e9] < 0.3 * moved[0.0], moved


def test_si_path_integral_by_hand():
    """Two steps of one parameter: omega = -(g1 d1 + g2 d2); negative omega counts as 0."""
    si = make_method(Component("si", {"strength": 2.0, "damping": 0.5}))
    model = make_model(Component("linear"), 3)
    lane = si.begin_site(model, Lane({"w": torch.tensor([1.0, 1.0])}, {}, {}), None, None)
    for g, to in (([2.0, -1.0], [0.5, 0.9]), ([1.0, -3.0], [0.2, 0.7])):
        before = lane.params
        lane = lane._replace(params={"w": torch.tensor(to)})
        lane = si.after_step(before, lane, {"w": torch.tensor(g)})
    # omega_0 = 2 * 0.5 + 1 * 0.3 = 1.3; omega_1 = -(0.1 + 3 * 0.2) = -0.7
    torch.testing.assert_close(lane.state["path/w"], torch.tensor([1.3, -0.7]))
    lane = si.end_site(model, lane, None, None)
    big = 1.3 / (0.8**2 + 0.5)
    torch.testing.assert_close(lane.state["importance/w"], torch.tensor([big, 0.0]))
    assert set(lane.state) == {"importance/w", "anchor/w"}
    lane = lane._replace(params={"w": torch.tensor([1.2, 5.0])})
    grads = si.after_grad({"w": torch.zeros(2)}, lane)
    torch.testing.assert_close(grads["w"], torch.tensor([2 * 2.0 * big * 1.0, 0.0]))


def test_si_importance_is_never_negative_and_uses_the_unregularised_gradient():
    world = World.of("si", {"strength": 1e4}).teach(order())
    omega = part(world.lane.state, "importance")
    assert all((v >= 0).all() for v in omega.values())
    assert any((v > 0).any() for v in omega.values())
    # the engine hands after_step the gradient of the loss alone, whatever after_grad adds
    free = World.of("si", {"strength": 0.0}).teach(order()[:1])
    held = World.of("si", {"strength": 1e4}).teach(order()[:1])
    key = "importance/conv0.weight"
    assert torch.equal(free.lane.state[key], held.lane.state[key])


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


def test_lwf_scale_is_four_times_the_strength_at_temperature_two():
    a = World.of("lwf", {"strength": 4.0, "scale_t2": False}).teach(order()[:2])
    b = World.of("lwf", {"strength": 1.0, "scale_t2": True}).teach(order()[:2])
    assert all(torch.equal(v, b.lane.params[k]) for k, v in a.lane.params.items())


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
            (model.apply(new.params, {}, x).logits - model.apply(old.params, {}, x).logits)
            .square()
            .mean()
        )
    assert gap[100.0] < 0.2 * gap[0.0], gap


def test_twp_attention_by_hand():
    h = torch.tensor([[[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0]]])
    near = torch.tensor([[[False, True, True], [True, False, False], [False, False, False]]])
    e = attention(h, near)[0]
    th = torch.tanh(torch.tensor(1.0))
    # node 0: <(1,0), tanh(0,2)> = 0 and <(1,0), tanh(-1,1)> = -tanh 1, leaky to -0.2 tanh 1
    soft = torch.softmax(torch.stack([torch.tensor(0.0), -0.2 * th]), 0)
    torch.testing.assert_close(e[0], torch.stack([torch.tensor(0.0), *soft]))
    assert e[1].tolist() == [1.0, 0.0, 0.0]
    assert e[2].tolist() == [0.0, 0.0, 0.0]  # no neighbour


@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_twp_importances_against_a_loop(model):
    world = World.of("twp", {"loss_strength": 3.0, "topology_strength": 5.0}, model)
    site = world.view(order()[0])
    world.teach(order()[:1])
    net, lane, rows = world.learner.model, world.lane, site.train
    fc, y = world.bank.fc(rows), world.bank.y[rows]
    inputs = {k: v[rows] for k, v in world.bank.inputs(net).items()}
    expected = {k: torch.zeros_like(v) for k, v in lane.params.items()}
    topology = torch.zeros_like(lane.params["conv0.weight"])
    for n in range(len(rows)):
        one = {k: v[n : n + 1] for k, v in inputs.items()}

        def loss(params, one=one, n=n):
            return F.cross_entropy(net.apply(params, lane.stats, one).logits, y[n : n + 1])

        for k, g in torch.func.grad(loss)(lane.params).items():
            expected[k] += 3.0 * g.square() / len(rows)
        near = graphs.adjacency(fc[n : n + 1], net.tau) != 0
        x = graphs.node_features(fc[n : n + 1])
        energy = torch.func.grad(lambda w, x=x, near=near: topology_energy(w, x, near))
        topology += energy(lane.params["conv0.weight"]).square() / len(rows)
    assert float(topology.max()) > 0  # attention is taken after the weight matrix
    expected["conv0.weight"] += 5.0 * topology
    importance = part(lane.state, "importance")
    for k, v in expected.items():
        torch.testing.assert_close(importance[k], v, rtol=1e-3, atol=1e-9)


def test_twp_beta_flattens_the_gradient():
    """beta by double backward is a real term: it changes the step and stays finite."""
    a, b = (World.of("twp", {"beta": v}).teach(order()[:2]).lane.params for v in (0.0, 0.1))
    assert any(not torch.equal(a[k], b[k]) for k in a)
    assert all(torch.isfinite(v).all() for v in b.values())


@pytest.mark.parametrize(
    ("method", "params", "word"),
    [
        ("ewc", {"strength": -1.0}, "too small"),
        ("ewc", {"fisher": "exakt"}, "Did you mean 'exact'\\? Known: batched, empirical, exact"),
        ("si", {"damping": 0.0}, "too small"),
        ("lwf", {"temperature": 0.0}, "too small"),
        ("twp", {"beta": -1.0}, "too small"),
        ("packnet", {"prune_first": 1.0}, "fraction"),
        ("packnet", {"route": "best"}, "Known: entropy"),
        ("er", {"rule": "fifo"}, "Known: balanced, reservoir"),
        ("der", {"form": "max"}, "Known: mean"),
        ("pdgnn", {"sampler": "best"}, "Known: degree"),
        ("ugcl", {"tau": 0.0}, "too small"),
    ],
)
def test_wrong_settings_say_what_is_known(method, params, word):
    with pytest.raises(ConfigError, match=word):
        make_method(Component(method, params))


def test_the_small_world_is_what_the_numbers_above_assume():
    assert cohort().fc.shape[1:] == (R, R)
    assert len(order()) == 3

"""ER, DER, DER++ and UGCL against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from fcforge.methods import Batch, Lane, Replay, make_method
from fcforge.methods.der import logit_distance
from fcforge.methods.shared.teacher import with_teacher
from fcforge.methods.ugcl import local_divergence, local_structure, neighbours
from fcforge.models import make_model
from fcforge.models.layers import mean_max
from fcforge.randomness import torch_rng
from fcforge.types import Component, Training
from small_world import World, assert_same, order

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


def test_der_loss_by_hand_in_both_forms():
    assert float(logit_distance(torch.tensor([[1.0, 3.0]]), torch.zeros(1, 2), "mean")) == 5.0
    assert float(logit_distance(torch.tensor([[1.0, 3.0]]), torch.zeros(1, 2), "sum")) == 10.0
    got, batch, replay, z = loss_of("der", {"alpha": 0.4})
    expected = F.cross_entropy(z["now"], batch.y) + 0.4 * F.mse_loss(z["then"], replay.logits)
    assert got == pytest.approx(float(expected), rel=1e-6)


def test_derpp_uses_its_first_draw_for_labels_and_its_second_for_logits():
    model, params, lane, batch, replay, z = tiny()
    twice = Replay(
        {
            "edges": torch.cat(
                [replay.inputs["edges"], batch.inputs["edges"], z["now"].new_ones(1, 3)]
            )
        },
        torch.cat([replay.y, torch.tensor([0, 0, 0])]),
        torch.cat([replay.logits, torch.zeros(3, 2)]),
        torch.zeros(6, 0),
        torch.full((6,), 1 / 6),
    )
    method = make_method(Component("derpp", {"alpha": 0.3, "beta": 0.7, "replay": 3}))
    got = float(method.loss(model, params, lane, batch, twice, KEY)[0])
    all_z = twice.inputs["edges"] @ params["head.0.weight"].T
    expected = (
        F.cross_entropy(z["now"], batch.y)
        + 0.7 * F.cross_entropy(all_z[:3], twice.y[:3])
        + 0.3 * F.mse_loss(all_z[3:], twice.logits[3:])
    )
    assert got == pytest.approx(float(expected), rel=1e-6)


def test_derpp_draws_twice_and_independently():
    world = World.of("derpp", {"memory": 16}).teach(order()[:1])
    slots, weight = world.learner.method.draw(world.lane, KEY)
    assert slots.shape == weight.shape == (64,)
    assert float(weight.sum()) == pytest.approx(1.0)
    assert not torch.equal(slots[:32], slots[32:])


@pytest.mark.parametrize("forward", ["joint", "separate"])
def test_derpp_without_logits_is_er_with_a_sum(forward):
    a = World.of("derpp", {"alpha": 0.0, "beta": 0.6, "forward": forward}).teach(order())
    b = World.of("er", {"strength": 0.6, "weighting": "sum", "forward": forward}).teach(order())
    assert_same(a.lane.params, b.lane.params)
    assert_same(a.lane.stats, b.lane.stats)


def test_joint_and_separate_differ_only_through_batch_norm():
    for norm, same in (("batch", False), ("none", True)):
        lanes = [
            World.of("er", {"forward": f}, "gcn", {"norm": norm, "dropout": 0.0})
            .teach(order()[:2])
            .lane
            for f in ("joint", "separate")
        ]
        close = all(
            torch.allclose(v, lanes[1].params[k], rtol=1e-2, atol=1e-4)
            for k, v in lanes[0].params.items()
        )
        assert close is same


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


def test_local_structure_by_hand():
    nodes = torch.tensor([[[0.0], [1.0], [3.0]]])
    near = torch.tensor([[[False, True, True], [True, False, False], [False, False, False]]])
    log_s = local_structure(nodes, near, tau=2.0)[0]
    # node 0: distances 1 and 9, over F tau = 2
    z = math.exp(-0.5) + math.exp(-4.5)
    assert log_s[0, 1:].exp().tolist() == pytest.approx([math.exp(-0.5) / z, math.exp(-4.5) / z])
    assert float(log_s[1, 0]) == pytest.approx(0.0)
    other = torch.tensor([[[0.0], [1.0], [1.0]]])
    q = [0.5, 0.5]
    p = [math.exp(-0.5) / z, math.exp(-4.5) / z]
    kl = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    # two of three nodes have a neighbour, only node 0 changes
    assert float(local_divergence(nodes, other, near, 2.0)) == pytest.approx(kl / 2)
    assert float(local_divergence(nodes, nodes, near, 2.0)) == 0.0


@pytest.mark.parametrize("model", ["gcn", "gat", "sage"])
def test_neighbours_are_the_edges_of_the_graph(model):
    world = World.of("ugcl", model=model)
    fc = world.bank.fc(world.view(order()[0]).train)
    net = world.learner.model
    expected = (fc >= net.tau) & ~torch.eye(fc.shape[-1], dtype=torch.bool)
    assert torch.equal(neighbours(net.prepare(fc)), expected)


def test_ugcl_loss_is_the_sum_of_its_terms():
    world = World.of("ugcl", {}, "gcn", {"dropout": 0.0, "norm": "none"}).teach(order()[:1])
    net, bank = world.learner.model, world.bank
    inputs = bank.inputs(net)
    now, then = torch.arange(6), torch.arange(6, 11)
    batch = Batch({k: v[now] for k, v in inputs.items()}, bank.y[now])
    replay = Replay(
        {k: v[then] for k, v in inputs.items()},
        bank.y[then],
        torch.zeros(5, 2),
        torch.zeros(5, 0),
        torch.full((5,), 0.2),
    )
    lane = with_teacher(world.lane)
    params = {
        k: v + 0.05 * torch.randn(v.shape, generator=torch_rng(1, k))
        for k, v in lane.params.items()
    }
    nodes, _ = net.encode(params, {}, replay.inputs, False, None)
    old_nodes, _ = net.encode(lane.params, {}, replay.inputs, False, None)
    z, u = (
        net.apply(params, {}, replay.inputs).logits,
        net.apply(lane.params, {}, replay.inputs).logits,
    )
    terms = {
        "rehearsal": F.cross_entropy(z, replay.y),
        "logits_weight": F.mse_loss(z, u),
        "global_weight": (1 - F.cosine_similarity(mean_max(nodes), mean_max(old_nodes))).mean(),
        "local_weight": local_divergence(old_nodes, nodes, neighbours(replay.inputs), 1.0),
    }
    base = F.cross_entropy(net.apply(params, {}, batch.inputs).logits, batch.y)
    for name, term in terms.items():
        assert float(term) > 0, name
        only = dict.fromkeys(terms, 0.0) | {name: 0.7}
        method = make_method(Component("ugcl", only))
        got, _ = method.loss(net, params, lane, batch, replay, KEY)
        torch.testing.assert_close(got, base + 0.7 * term, msg=name)

"""UGCL against numbers worked out by hand."""

import math

import pytest
import torch
import torch.nn.functional as F

from fcforge.core.component import Component
from fcforge.core.randomness import torch_rng
from fcforge.methods import Batch, Replay, make_method
from fcforge.methods.shared.teacher import with_teacher
from fcforge.methods.ugcl import local_divergence, local_structure, neighbours
from fcforge.nn.layers import mean_max
from small_world import World, order

KEY = torch.tensor(5, dtype=torch.int32)


def test_local_structure_by_hand():
    nodes = torch.tensor([[[0.0], [1.0], [3.0]]])
    near = torch.tensor(
        [[[False, True, True], [True, False, False], [False, False, False]]]
    )
    log_s = local_structure(nodes, near, tau=2.0)[0]
    # node 0: distances 1 and 9, over F tau = 2
    z = math.exp(-0.5) + math.exp(-4.5)
    assert log_s[0, 1:].exp().tolist() == pytest.approx(
        [math.exp(-0.5) / z, math.exp(-4.5) / z]
    )
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
    world = World.of("ugcl", {}, "gcn", {"dropout": 0.0}).teach(order()[:1])
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
    # both batches as one: batch norm sees them together
    both = {k: torch.cat([batch.inputs[k], v]) for k, v in replay.inputs.items()}
    joint, _ = net.encode(params, lane.stats, both, True, None)
    logits = net.apply(params, lane.stats, both, train=True).logits
    nodes, z = joint[6:], logits[6:]
    old_nodes, _ = net.encode(lane.params, lane.stats, replay.inputs, False, None)
    u = net.apply(lane.params, lane.stats, replay.inputs).logits
    terms = {
        "rehearsal": F.cross_entropy(z, replay.y),
        "logits_weight": F.mse_loss(z, u),
        "global_weight": (
            1 - F.cosine_similarity(mean_max(nodes), mean_max(old_nodes))
        ).mean(),
        "local_weight": local_divergence(
            old_nodes, nodes, neighbours(replay.inputs), 1.0
        ),
    }
    base = F.cross_entropy(logits[:6], batch.y)
    for name, term in terms.items():
        assert float(term) > 0, name
        only = dict.fromkeys(terms, 0.0) | {name: 0.7}
        method = make_method(Component("ugcl", only))
        got, _ = method.loss(net, params, lane, batch._replace(replay=replay), KEY)
        torch.testing.assert_close(got, base + 0.7 * term, msg=name)

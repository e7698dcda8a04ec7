"""TWP against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from fcforge import graphs
from fcforge.methods.shared.penalty import (
    part,
)
from fcforge.methods.twp import attention, topology_energy
from small_world import World, order


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

"""TWP against numbers worked out by hand."""

import pytest
import torch
import torch.nn.functional as F

from fcforge import graphs
from fcforge.methods.twp import attention, squared_energy, topology_importance
from small_world import World, order


def test_attention_by_hand():
    h = torch.tensor([[[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0]]])
    near = torch.tensor(
        [[[False, True, True], [True, False, False], [False, False, False]]]
    )
    e = attention(h, near)[0]
    th = torch.tanh(torch.tensor(1.0))
    # into node 0: <(0,2), tanh(1,0)> = 0 and <(-1,1), tanh(1,0)> = -tanh 1, leaky to -0.2 tanh 1
    soft = torch.softmax(torch.stack([torch.tensor(0.0), -0.2 * th]), 0)
    torch.testing.assert_close(e[0], torch.stack([torch.tensor(0.0), *soft]))
    assert e[1].tolist() == [1.0, 0.0, 0.0]
    assert e[2].tolist() == [0.0, 0.0, 0.0]  # no neighbour
    # the destination's features are squashed, not the neighbour's
    h = torch.tensor([[[3.0], [0.1], [0.2]]])
    scores = torch.tensor([0.1, 0.2]) * torch.tanh(torch.tensor(3.0))
    torch.testing.assert_close(attention(h, near)[0, 0, 1:], torch.softmax(scores, 0))


def test_importance_of_a_path_of_three_rois_by_hand():
    r"""One weight w = 1 on features 1, -2, 3 of the path 0 - 1 - 2, degrees 1, 2, 1.

    h = (1, -sqrt 2, 3). The ends have one neighbour each: coefficient 1. The middle has two, whose
    scores are 0.2 tanh(-sqrt 2) (1, 3): p = sigmoid(0.4 tanh sqrt 2) = 0.58792 for the first. So
    |e|^2 = 2 + p^2 + (1 - p)^2 = 2.51546. By w: d p = p (1 - p) 0.4 (tanh(sqrt 2) + sqrt 2 /
    cosh^2(sqrt 2)) = 0.11498, d |e|^2 = (4 p - 2) d p = 0.04043, d |e| = 0.01275, squared
    1.6248e-04. A second graph of the same kind doubles |e|^2 and so doubles the square.
    """
    x = torch.tensor([[[1.0], [-2.0], [3.0]]], dtype=torch.float64)
    near = torch.tensor([[[0, 1, 0], [1, 0, 1], [0, 1, 0]]]) > 0
    weight = torch.ones(1, 1, dtype=torch.float64)
    assert float(squared_energy(weight, x, near)) == pytest.approx(2.5154582, rel=1e-6)
    one = float(topology_importance(weight, x, near))
    assert one == pytest.approx(1.6248067e-04, rel=1e-6)
    many = topology_importance(weight, x.expand(40, 3, 1), near.expand(40, 3, 3))
    assert float(many) == pytest.approx(40 * one, rel=1e-9)


@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_importances_against_a_loop(model):
    world = World.of("twp", {"loss_strength": 3.0, "topology_strength": 5.0}, model)
    site = world.view(order()[0])
    world.teach(order()[:1])
    net, lane, rows = world.learner.model, world.lane, site.train
    fc, y = world.bank.fc(rows), world.bank.y[rows]
    inputs = {k: v[rows] for k, v in world.bank.inputs(net).items()}
    expected = {k: torch.zeros_like(v) for k, v in lane.params.items()}
    for n in range(len(rows)):
        one = {k: v[n : n + 1] for k, v in inputs.items()}

        def loss(params, one=one, n=n):
            return F.cross_entropy(
                net.apply(params, lane.stats, one).logits, y[n : n + 1]
            )

        for k, g in torch.func.grad(loss)(lane.params).items():
            expected[k] += 3.0 * g.square() / len(rows)

    def norm(weight):
        """Of all coefficients, edge by edge."""
        total = torch.zeros(())
        for x, adj in zip(
            graphs.node_features(fc), graphs.adjacency(fc, net.tau), strict=True
        ):
            near = adj != 0
            h = x / near.sum(1).clamp(min=1).sqrt()[:, None] @ weight.T
            for i in range(len(h)):
                if near[i].any():
                    score = F.leaky_relu(h[near[i]] @ torch.tanh(h[i]), 0.2)
                    total = total + torch.softmax(score, 0).square().sum()
        return total.sqrt()

    topology = torch.func.grad(norm)(lane.params["conv0.weight"]).square()
    assert float(topology.max()) > 0  # attention is taken after the weight matrix
    expected["conv0.weight"] += 5.0 * topology
    importance = lane.state.importance
    for k, v in expected.items():
        torch.testing.assert_close(importance[k], v, rtol=1e-3, atol=1e-9)

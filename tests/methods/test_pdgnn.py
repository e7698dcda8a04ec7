"""PDGNN: fixed embeddings, their memory and the balanced loss, by hand."""

import pytest
import torch
import torch.nn.functional as F

from fcforge import graphs
from fcforge.methods.pdgnn import mean_cross_entropy
from fcforge.models import make_model
from fcforge.models.edge import topology_embedding
from fcforge.types import Component
from small_world import R, World, order


def test_topology_embedding_by_hand():
    """Three ROIs, one edge of weight 0.5 between 0 and 1; one hop."""
    fc = torch.eye(3)[None].clone()
    fc[0, 0, 1] = fc[0, 1, 0] = 0.5
    fc[0, 1, 2] = fc[0, 2, 1] = 0.1
    # A + I has row sums 1.5, 1.5, 1: P_00 = 1/1.5, P_01 = 0.5/1.5, P_22 = 1
    p = torch.tensor([[2 / 3, 1 / 3, 0.0], [1 / 3, 2 / 3, 0.0], [0.0, 0.0, 1.0]])
    raw = torch.tensor([[0.0, 0.5, 0.0], [0.5, 0.0, 0.1], [0.0, 0.1, 0.0]])
    x = (raw - raw.mean(0)) / raw.std(0, unbiased=False)
    for hops in (1, 2):
        h = torch.linalg.matrix_power(p, hops) @ x
        torch.testing.assert_close(topology_embedding(fc, 0.4, "positive", hops)[0], h)
        pooled = make_model(Component("tem", {"hops": hops}), 3).prepare(fc)["topology"][0]
        torch.testing.assert_close(pooled, torch.cat([h.mean(0), h.amax(0)]))


def test_embedding_of_all_rois_by_hand():
    """One hidden unit that sums the features of a ROI: relu, then mean and maximum over ROIs."""
    model = make_model(Component("tem", {"te": "nodes", "hidden": 1, "hops": 1, "tau": 0.3}), 3)
    fc = torch.tensor([[[1.0, 0.5, 0.0], [0.5, 1.0, 0.4], [0.0, 0.4, 1.0]]])
    nodes = model.prepare(fc)["topology"]
    expected = graphs.gcn_norm(graphs.adjacency(fc, 0.3)) @ graphs.node_features(fc)
    torch.testing.assert_close(nodes, expected)
    params = {"embed.weight": torch.ones(1, 3), "head.weight": torch.tensor([[0.0, 0.0], [1, 2]])}
    summed = nodes[0].sum(-1).clamp(min=0)
    out = model.apply(params, {}, {"topology": nodes})
    torch.testing.assert_close(out.embedding[0], torch.stack([summed.mean(), summed.max()]))
    torch.testing.assert_close(out.logits[0, 1], summed.mean() + 2 * summed.max())


@pytest.mark.parametrize("sampler", ["degree", "kcenter"])
def test_memory_of_all_rois(sampler):
    settings = {"memory": 6, "sampler": sampler}
    world = World.of("pdgnn", settings, "tem", {"te": "nodes"}).teach(order()[:2])
    held = world.lane.state["memory.topology"]
    assert held.shape == (6, R, R)
    made = world.bank.inputs(world.learner.model)["topology"]
    assert all(any(torch.equal(x, row) for row in made) for x in held)


def test_balanced_cross_entropy_by_hand():
    logits = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.5, 0.0], [9.0, -9.0]])
    y = torch.tensor([0, 1, 1, 1])
    counts = torch.tensor([1.0, 1.0, 1.0, 0.0])  # the last is a free slot
    each = F.cross_entropy(logits, y, reduction="none")
    balanced = (each[0] + (each[1] + each[2]) / 2) / 2
    torch.testing.assert_close(mean_cross_entropy(logits, y, counts, True), balanced)
    torch.testing.assert_close(mean_cross_entropy(logits, y, counts, False), each[:3].mean())
    alone = mean_cross_entropy(logits[:1], y[:1], counts[:1], True)
    torch.testing.assert_close(alone, each[0])  # a class that is absent does not count


def test_a_free_slot_changes_nothing():
    small = World.of("pdgnn", {"memory": 60}).teach(order()[:2])
    large = World.of("pdgnn", {"memory": 90}).teach(order()[:2])
    assert int((small.lane.state["memory.site"] >= 0).sum()) < 60
    for k, v in small.lane.params.items():
        # another batch length, hence other dropout draws, is all that may differ
        assert v.shape == large.lane.params[k].shape
    plain = [
        World.of("pdgnn", {"memory": m}, model_params={"dropout": 0.0}).teach(order()[:2])
        for m in (60, 90)
    ]
    for k, v in plain[0].lane.params.items():
        torch.testing.assert_close(v, plain[1].lane.params[k], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("sampler", ["degree", "random", "kcenter"])
def test_memory_holds_the_embeddings_themselves_in_equal_shares(sampler):
    world = World.of("pdgnn", {"memory": 12, "sampler": sampler}).teach(order())
    state, model = world.lane.state, world.learner.model
    cell = 2 * state["memory.site"] + state["memory.y"]
    assert torch.bincount(cell).tolist() == [2] * 6
    everyone = world.bank.inputs(model)["topology"]
    matches = (state["memory.topology"][:, None] == everyone[None]).all(-1)
    assert (matches.sum(1) == 1).all()
    assert torch.equal(state["memory.y"], world.bank.y[matches.float().argmax(1)])
    assert "memory.row" not in state

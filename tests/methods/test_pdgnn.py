"""PDGNN: the memory of fixed embeddings and the balanced loss, by hand."""

import torch
import torch.nn.functional as F

from fcforge import graphs
from fcforge.methods.pdgnn import balanced_cross_entropy
from small_world import R, World, order


def test_memory_holds_embeddings():
    world = World.of("pdgnn", {"memory": 6}).teach(order()[:2])
    held = world.lane.state.memory.topology
    assert held.shape == (6, 2 * R)
    made = world.bank.inputs(world.learner.model)["topology"]
    assert all(any(torch.equal(x, row) for row in made) for x in held)


def test_balanced_cross_entropy_by_hand():
    logits = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.5, 0.0], [9.0, -9.0]])
    y = torch.tensor([0, 1, 1, 1])
    counts = torch.tensor([1.0, 1.0, 1.0, 0.0])  # the last is a free slot
    each = F.cross_entropy(logits, y, reduction="none")
    balanced = (each[0] + (each[1] + each[2]) / 2) / 2
    torch.testing.assert_close(balanced_cross_entropy(logits, y, counts), balanced)
    alone = balanced_cross_entropy(logits[:1], y[:1], counts[:1])
    torch.testing.assert_close(alone, each[0])  # a class that is absent does not count


def test_a_free_slot_changes_nothing():
    small = World.of("pdgnn", {"memory": 60}).teach(order()[:2])
    large = World.of("pdgnn", {"memory": 90}).teach(order()[:2])
    assert int((small.lane.state.memory.site >= 0).sum()) < 60
    for k, v in small.lane.params.items():
        # another batch length, hence other dropout draws, is all that may differ
        assert v.shape == large.lane.params[k].shape
    plain = [
        World.of("pdgnn", {"memory": m}, model_params={"dropout": 0.0}).teach(
            order()[:2]
        )
        for m in (60, 90)
    ]
    for k, v in plain[0].lane.params.items():
        torch.testing.assert_close(v, plain[1].lane.params[k], rtol=1e-3, atol=1e-5)


def test_memory_holds_the_embeddings_themselves_in_equal_shares():
    world = World.of("pdgnn", {"memory": 12}).teach(order())
    state, model = world.lane.state, world.learner.model
    cell = 2 * state.memory.site + state.memory.y
    assert torch.bincount(cell).tolist() == [2] * 6
    everyone = world.bank.inputs(model)["topology"]
    matches = (state.memory.topology[:, None] == everyone[None]).all(-1)
    assert (matches.sum(1) == 1).all()
    assert torch.equal(state.memory.y, world.bank.y[matches.float().argmax(1)])
    assert "memory.row" not in state


def test_embeddings_of_all_rois_are_pooled_behind_the_hidden_layer():
    settings = {"te": "nodes", "hops": 1}
    world = World.of("pdgnn", {"memory": 6}, model_params=settings).teach(order())
    held = world.lane.state.memory.topology
    assert held.shape == (6, R, R)
    model = world.learner.model
    fc = world.bank.fc(torch.arange(3))
    nodes = graphs.gcn_norm(graphs.adjacency(fc, model.tau)) @ graphs.node_features(fc)
    torch.testing.assert_close(model.prepare(fc)["topology"], nodes)
    params = world.lane.params
    hidden = torch.relu(nodes @ params["embed.weight"].T)
    pooled = torch.cat([hidden.mean(1), hidden.amax(1)], 1)
    out = model.apply(params, {}, {"topology": nodes})
    torch.testing.assert_close(out.logits, pooled @ params["head.weight"].T)
    assert model.readout_size == pooled.shape[1]

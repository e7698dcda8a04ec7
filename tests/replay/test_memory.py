"""A memory of fixed capacity as tensors of a lane's state."""

import torch

from fcforge.models import make_model
from fcforge.randomness import torch_rng
from fcforge.replay.memory import empty_memory, filled, readout_width, recall, teach
from fcforge.types import Component


def test_an_empty_memory_marks_free_slots():
    state = empty_memory(3, 2, "cpu")
    assert state["memory.row"].tolist() == [-1, -1, -1]
    assert state["memory.site"].tolist() == [-1, -1, -1]
    assert state["memory.embedding"].shape == (3, 2)
    assert int(filled(state)) == 0


def test_recall_hands_out_all_that_belongs_to_a_slot():
    state = empty_memory(3, 1, "cpu")
    state["memory.row"] = torch.tensor([4, 0, -1])
    state["memory.y"] = torch.tensor([1, 0, 0])
    state["memory.logits"] = torch.tensor([[1.0, 2.0], [3.0, 4.0], [0.0, 0.0]])
    state["memory.embedding"] = torch.tensor([[5.0], [6.0], [0.0]])
    inputs = {"edges": torch.arange(10.0).reshape(5, 2)}
    weight = torch.tensor([0.5, 0.5, 0.0])
    seen = recall(state, inputs, torch.tensor([1, 0, 2]), weight)
    assert seen.inputs["edges"].tolist() == [[0, 1], [8, 9], [0, 1]]  # a free slot weighs nothing
    assert seen.y.tolist() == [0, 1, 0]
    assert seen.logits.tolist() == [[3, 4], [1, 2], [0, 0]]
    assert seen.embedding.tolist() == [[6], [5], [0]]
    assert torch.equal(seen.weight, weight)


def test_the_teacher_speaks_in_eval_mode_and_without_gradient():
    model = make_model(Component("gcn", {"hidden": 4, "depth": 2, "dropout": 0.9}), 5)
    params, stats = model.init(torch_rng(0)), model.init_stats()
    params = {k: v.requires_grad_() for k, v in params.items()}
    series = torch.randn(3, 5, 20, generator=torch_rng(1))
    inputs = model.prepare(torch.stack([torch.corrcoef(s) for s in series]))
    (u, r), again = teach(model, params, stats, inputs), teach(model, params, stats, inputs)
    assert torch.equal(u, again[0])
    assert not u.requires_grad
    assert r.shape == (3, readout_width(model, params, stats)) == (3, 8)

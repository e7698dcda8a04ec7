"""The arrays that a chain accepts as a method's state are those that the method makes."""

from dataclasses import replace

import pytest
import torch

from fcforge.methods import METHODS
from fcforge.replay.state import named
from fcforge_consortium.chains.declared import Declared, alike, declared_state
from small_world import learner_spec, plan_of, run_plan, run_spec

ALONE = [m for m, c in METHODS.items() if c.depends_on != "all" and not c.needs_public]
VARIANTS = [(m, {}) for m in ALONE]
VARIANTS += [("forge", {"sampling": s}) for s in ("uniform", "reservoir")]
VARIANTS += [
    ("forge", {"sampler": "authors", "sampling": s})
    for s in ("hcts", "uniform", "reservoir")
]
VARIANTS += [("ewc", {"online": True}), ("forge", {"max_candidates": 12})]


@pytest.mark.parametrize(("method", "params"), VARIANTS)
def test_every_state_is_as_declared(method, params, tmp_path):
    plan = plan_of(run_spec(learner_spec(method, params)))
    trainer = run_plan(plan, tmp_path)
    for node in (n for n in plan.nodes.values() if n.depth):
        lane = trainer.load_lane(replace(node, parent=node.key))
        learner = trainer.parts.learner(node.spec)
        found = declared_state(learner.method, learner.model, lane, node.depth)
        state = named(lane.state)
        assert found.keys() == state.keys()
        wrong = {k: found[k].complaint(v) for k, v in state.items()}
        assert not any(wrong.values()), wrong


def test_complaints_by_hand():
    plain = Declared((2, None))
    assert plain.complaint(torch.zeros(2, 5)) == ""
    assert "type torch.float64" in plain.complaint(
        torch.zeros(2, 5, dtype=torch.float64)
    )
    assert "has shape (3, 5), not 2 x any" in plain.complaint(torch.zeros(3, 5))
    assert "has shape (2,)" in plain.complaint(torch.zeros(2))
    assert "not one number" in Declared(()).complaint(torch.zeros(1))
    for bad in (torch.nan, torch.inf, -torch.inf):
        assert "NaN or infinity" in plain.complaint(torch.tensor([[0.0], [bad]]))
    bounded = Declared((None,), torch.int64, low=-1, high=3)
    assert bounded.complaint(torch.tensor([-1, 3])) == ""
    assert bounded.complaint(torch.empty(0, dtype=torch.int64)) == ""
    assert "outside -1 to 3" in bounded.complaint(torch.tensor([4]))
    root = Declared((None, 3), torch.float64, triangular=True)
    assert root.complaint(torch.triu(torch.ones(2, 3, dtype=torch.float64))) == ""
    assert "not triangular" in root.complaint(torch.ones(2, 3, dtype=torch.float64))


def test_alike_copies_shape_and_type():
    found = alike({"a": torch.zeros(2, 3), "b": torch.zeros((), dtype=torch.bool)})
    assert found == {"a": Declared((2, 3)), "b": Declared((), torch.bool)}

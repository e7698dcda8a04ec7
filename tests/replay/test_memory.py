"""A memory of fixed capacity: who stays in it, and the state every method declares and keeps."""

from dataclasses import replace

import pytest
import torch

from fcforge.core.randomness import torch_rng
from fcforge.methods import METHODS
from fcforge.replay.memory import (
    Declared,
    admit,
    alike,
    empty_memory,
    random_priority,
    recall,
    uniform_slots,
    weighted_priority,
)
from small_world import World, learner_spec, order, plan_of, run_plan, run_spec


def test_an_empty_memory_marks_free_slots():
    state = empty_memory(3, 2, "cpu")
    assert state["memory.row"].tolist() == [-1, -1, -1]
    assert state["memory.site"].tolist() == [-1, -1, -1]
    assert state["memory.embedding"].shape == (3, 2)
    assert (state["memory.row"] == -1).all()


def test_recall_hands_out_all_that_belongs_to_a_slot():
    state = empty_memory(3, 1, "cpu")
    state["memory.row"] = torch.tensor([4, 0, -1])
    state["memory.y"] = torch.tensor([1, 0, 0])
    state["memory.logits"] = torch.tensor([[1.0, 2.0], [3.0, 4.0], [0.0, 0.0]])
    state["memory.embedding"] = torch.tensor([[5.0], [6.0], [0.0]])
    inputs = {"edges": torch.arange(10.0).reshape(5, 2)}
    weight = torch.tensor([0.5, 0.5, 0.0])
    seen = recall(state, inputs, torch.tensor([1, 0, 2]), weight)
    assert seen.inputs["edges"].tolist() == [
        [0, 1],
        [8, 9],
        [0, 1],
    ]  # a free slot weighs nothing
    assert seen.y.tolist() == [0, 1, 0]
    assert seen.logits.tolist() == [[3, 4], [1, 2], [0, 0]]
    assert seen.embedding.tolist() == [[6], [5], [0]]
    assert torch.equal(seen.weight, weight)


def empty_buffer(capacity: int, device: str) -> dict[str, torch.Tensor]:
    """Memory of real subjects with free slots."""
    priority = torch.zeros(capacity, dtype=torch.float64)
    return {**empty_memory(capacity, 0, device), "memory.priority": priority}


def subjects(rows: range, site: int, y: list[int], priority: torch.Tensor) -> dict:
    n = len(rows)
    return {
        "memory.row": torch.tensor(list(rows)),
        "memory.y": torch.tensor(y),
        "memory.logits": torch.tensor([[r, -r] for r in rows], dtype=torch.float32),
        "memory.embedding": torch.zeros(n, 0),
        "memory.site": torch.full((n,), site),
        "memory.priority": priority,
    }


@pytest.mark.rounding
def test_reservoir_keeps_the_highest_priorities_and_all_that_belongs_to_them():
    state = empty_buffer(3, "cpu")
    state = admit(
        state,
        subjects(range(2), 0, [0, 1], torch.tensor([0.9, 0.1]).double()),
        "reservoir",
    )
    assert state["memory.row"].tolist() == [0, 1, -1]
    state = admit(
        state,
        subjects(range(2, 5), 1, [1, 1, 0], torch.tensor([0.2, 0.8, 0.3]).double()),
        "reservoir",
    )
    assert state["memory.row"].tolist() == [0, 3, 4]
    assert state["memory.y"].tolist() == [0, 1, 0]
    assert state["memory.site"].tolist() == [0, 1, 1]
    assert state["memory.logits"].tolist() == [[0, 0], [3, -3], [4, -4]]


@pytest.mark.rounding
def test_balanced_gives_every_class_of_every_site_its_share():
    state, rng = empty_buffer(12, "cpu"), torch_rng(0)
    for site in range(3):
        rows = range(20 * site, 20 * site + 20)
        y = [0] * 4 + [1] * 16  # one class rare
        state = admit(
            state, subjects(rows, site, y, random_priority(20, rng, "cpu")), "balanced"
        )
        cell = 2 * state["memory.site"] + state["memory.y"]
        counts = torch.bincount(cell[state["memory.row"] >= 0]).tolist()
        assert counts == [[4, 8], [3, 3, 3, 3], [2, 2, 2, 2, 2, 2]][site]


@pytest.mark.rounding
def test_reservoir_is_a_uniform_sample_of_everybody_seen():
    """Chi-square over 600 memories of 6 from 5 + 9 + 10 subjects, arriving site by site."""
    times = torch.zeros(24)
    for trial in range(600):
        state, start = empty_buffer(6, "cpu"), 0
        for site, n in enumerate((5, 9, 10)):
            priority = random_priority(n, torch_rng(trial, "site", site), "cpu")
            new = subjects(range(start, start + n), site, [0] * n, priority)
            state, start = admit(state, new, "reservoir"), start + n
        assert len(state["memory.row"].unique()) == 6
        times[state["memory.row"]] += 1
    expected = 600 * 6 / 24
    # counts of a sample without replacement: variance is (1 - 6/24) of the multinomial's
    chi2 = float(((times - expected) ** 2 / expected).sum() / (1 - 6 / 24))
    assert 8 < chi2 < 45  # 23 degrees of freedom, 0.3 % in either tail


@pytest.mark.rounding
def test_weighted_priorities_sample_in_proportion():
    weight = torch.tensor([1.0, 2.0, 7.0])
    first = [int(weighted_priority(weight, torch_rng(i)).argmax()) for i in range(2000)]
    share = torch.bincount(torch.tensor(first), minlength=3) / 2000
    torch.testing.assert_close(share, weight / 10, atol=0.03, rtol=0)


@pytest.mark.rounding
def test_uniform_slots_reach_all_filled_slots_and_no_other():
    state = empty_buffer(10, "cpu")
    state["memory.row"][:7] = torch.arange(7)
    drawn = torch.cat(
        [
            uniform_slots(state, torch.tensor(k, dtype=torch.int32), 32)[0]
            for k in range(50)
        ]
    )
    assert torch.bincount(drawn, minlength=10)[:7].min() > 150  # 1600 / 7 = 229
    assert int(drawn.max()) == 6


@pytest.mark.rounding
@pytest.mark.parametrize("method", ["er", "der", "derpp", "ugcl"])
def test_stored_logits_are_those_of_the_network_in_eval_mode(method):
    world = World.of(method).teach(order()[:1])
    rows = world.lane.state["memory.row"]
    held = rows >= 0
    model, lane = world.learner.model, world.lane
    inputs = {k: v[rows[held]] for k, v in world.bank.inputs(model).items()}
    expected = model.apply(lane.params, lane.stats, inputs).logits
    torch.testing.assert_close(lane.state["memory.logits"][held], expected)


ALONE = [m for m, c in METHODS.items() if c.depends_on != "all" and not c.needs_public]
VARIANTS = [(m, {}) for m in ALONE]
VARIANTS += [("forge", {"sampling": s}) for s in ("uniform", "reservoir")]
VARIANTS += [
    ("forge", {"sampler": "official", "sampling": s})
    for s in ("hcts", "uniform", "reservoir")
]
VARIANTS += [("ewc", {"online": True})]


@pytest.mark.parametrize(("method", "params"), VARIANTS)
def test_every_state_is_as_declared(method, params, tmp_path):
    plan = plan_of(run_spec(learner_spec(method, params)))
    trainer = run_plan(plan, tmp_path)
    for node in (n for n in plan.nodes.values() if n.depth):
        lane = trainer.load_lane(replace(node, parent=node.key))
        learner = trainer.learner(node.spec)
        found = learner.method.declares(learner.model, lane, node.depth)
        assert found.keys() == lane.state.keys()
        wrong = {k: found[k].complaint(v) for k, v in lane.state.items()}
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

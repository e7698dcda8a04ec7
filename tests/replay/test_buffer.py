"""Who stays in a memory."""

import pytest
import torch

from fcforge.randomness import torch_rng
from fcforge.replay.memory import (
    admit,
    empty_memory,
    farthest_first_priority,
    random_priority,
    shares,
    uniform_slots,
    weighted_priority,
)
from small_world import World, order

pytestmark = pytest.mark.rounding


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


@pytest.mark.parametrize(
    ("counts", "capacity", "got"),
    [
        ([10, 2, 10], 12, [5, 2, 5]),
        ([3, 3], 10, [3, 3]),
        ([5, 5, 5], 2, [1, 1, 0]),
        ([0, 4], 3, [0, 3]),
        ([1, 100, 7], 20, [1, 12, 7]),
        ([], 5, []),
    ],
)
def test_shares_by_hand(counts, capacity, got):
    assert shares(counts, capacity) == got


def test_reservoir_keeps_the_highest_priorities_and_all_that_belongs_to_them():
    state = empty_buffer(3, "cpu")
    state = admit(
        state, subjects(range(2), 0, [0, 1], torch.tensor([0.9, 0.1]).double()), "reservoir"
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


def test_balanced_gives_every_class_of_every_site_its_share():
    state, rng = empty_buffer(12, "cpu"), torch_rng(0)
    for site in range(3):
        rows = range(20 * site, 20 * site + 20)
        y = [0] * 4 + [1] * 16  # one class rare
        state = admit(state, subjects(rows, site, y, random_priority(20, rng, "cpu")), "balanced")
        cell = 2 * state["memory.site"] + state["memory.y"]
        counts = torch.bincount(cell[state["memory.row"] >= 0]).tolist()
        assert counts == [[4, 8], [3, 3, 3, 3], [2, 2, 2, 2, 2, 2]][site]


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


def test_weighted_priorities_sample_in_proportion():
    weight = torch.tensor([1.0, 2.0, 7.0])
    first = [int(weighted_priority(weight, torch_rng(i)).argmax()) for i in range(2000)]
    share = torch.bincount(torch.tensor(first), minlength=3) / 2000
    torch.testing.assert_close(share, weight / 10, atol=0.03, rtol=0)


def test_farthest_first_covers():
    x = torch.tensor([[0.0], [0.1], [10.0], [10.1], [5.0]])
    for seed in range(5):
        order_ = farthest_first_priority(x, torch_rng(seed)).argsort(descending=True).tolist()
        assert sorted(order_) == [0, 1, 2, 3, 4]
        first = set(order_[:3])  # wherever it starts, three steps see both ends and the middle
        assert first & {0, 1}, order_
        assert first & {2, 3}, order_
        assert 4 in first, order_


def test_uniform_slots_reach_all_filled_slots_and_no_other():
    state = empty_buffer(10, "cpu")
    state["memory.row"][:7] = torch.arange(7)
    drawn = torch.cat(
        [uniform_slots(state, torch.tensor(k, dtype=torch.int32), 32)[0] for k in range(50)]
    )
    assert torch.bincount(drawn, minlength=10)[:7].min() > 150  # 1600 / 7 = 229
    assert int(drawn.max()) == 6


@pytest.mark.parametrize("method", ["er", "der", "derpp", "ugcl"])
def test_stored_logits_are_those_of_the_network_in_eval_mode(method):
    world = World.of(method).teach(order()[:1])
    rows = world.lane.state["memory.row"]
    held = rows >= 0
    model, lane = world.learner.model, world.lane
    inputs = {k: v[rows[held]] for k, v in world.bank.inputs(model).items()}
    expected = model.apply(lane.params, lane.stats, inputs).logits
    torch.testing.assert_close(lane.state["memory.logits"][held], expected)

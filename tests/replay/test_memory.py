"""A memory of fixed capacity: which subjects stay in it."""

import pytest
import torch

from fcforge.core.randomness import torch_rng
from fcforge.replay.memory import (
    RankedMemory,
    Replay,
    admit,
    drawn_by_weight,
    empty_memory,
    random_priority,
    ranked,
    recall,
    uniform_slots,
    weighted_priority,
)
from small_world import World, order


def test_an_empty_memory_marks_free_slots():
    state = empty_memory(3, 2, "cpu")
    assert state.rows.tolist() == [-1, -1, -1]
    assert state.site.tolist() == [-1, -1, -1]
    assert state.embedding.shape == (3, 2)
    assert (state.rows == -1).all()


def test_recall_hands_out_all_that_belongs_to_a_slot():
    state = empty_memory(3, 1, "cpu")
    state = state._replace(
        rows=torch.tensor([4, 0, -1]),
        y=torch.tensor([1, 0, 0]),
        logits=torch.tensor([[1.0, 2.0], [3.0, 4.0], [0.0, 0.0]]),
        embedding=torch.tensor([[5.0], [6.0], [0.0]]),
    )
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


def empty_buffer(capacity: int, device: str) -> RankedMemory:
    """Memory of real subjects with free slots."""
    priority = torch.zeros(capacity, dtype=torch.float64)
    return ranked(empty_memory(capacity, 0, device), priority)


def subjects(rows: range, site: int, y: list[int], priority: torch.Tensor):
    n = len(rows)
    return RankedMemory(
        rows=torch.tensor(list(rows)),
        y=torch.tensor(y),
        logits=torch.tensor([[r, -r] for r in rows], dtype=torch.float32),
        embedding=torch.zeros(n, 0),
        site=torch.full((n,), site),
        priority=priority,
    )


@pytest.mark.rounding
def test_reservoir_keeps_the_highest_priorities_and_all_that_belongs_to_them():
    state = empty_buffer(3, "cpu")
    state = admit(
        state,
        subjects(range(2), 0, [0, 1], torch.tensor([0.9, 0.1]).double()),
        "reservoir",
    )
    assert state.rows.tolist() == [0, 1, -1]
    state = admit(
        state,
        subjects(range(2, 5), 1, [1, 1, 0], torch.tensor([0.2, 0.8, 0.3]).double()),
        "reservoir",
    )
    assert state.rows.tolist() == [0, 3, 4]
    assert state.y.tolist() == [0, 1, 0]
    assert state.site.tolist() == [0, 1, 1]
    assert state.logits.tolist() == [[0, 0], [3, -3], [4, -4]]


@pytest.mark.rounding
def test_balanced_gives_every_class_of_every_site_its_share():
    state, rng = empty_buffer(12, "cpu"), torch_rng(0)
    for site in range(3):
        rows = range(20 * site, 20 * site + 20)
        y = [0] * 4 + [1] * 16  # one class rare
        state = admit(
            state, subjects(rows, site, y, random_priority(20, rng, "cpu")), "balanced"
        )
        cell = 2 * state.site + state.y
        counts = torch.bincount(cell[state.rows >= 0]).tolist()
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
        assert len(state.rows.unique()) == 6
        times[state.rows] += 1
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
    state.rows[:7] = torch.arange(7)
    drawn = torch.cat(
        [
            uniform_slots(state.rows, torch.tensor(k, dtype=torch.int32), 32)[0]
            for k in range(50)
        ]
    )
    assert torch.bincount(drawn, minlength=10)[:7].min() > 150  # 1600 / 7 = 229
    assert int(drawn.max()) == 6


@pytest.mark.rounding
@pytest.mark.parametrize("method", ["er", "der", "derpp", "ugcl"])
def test_stored_logits_are_those_of_the_network_in_eval_mode(method):
    world = World.of(method).teach(order()[:1])
    rows = world.lane.state.memory.rows
    held = rows >= 0
    model, lane = world.learner.model, world.lane
    inputs = {k: v[rows[held]] for k, v in world.bank.inputs(model).items()}
    expected = model.apply(lane.params, lane.stats, inputs).logits
    torch.testing.assert_close(lane.state.memory.logits[held], expected)


def test_replayed_subjects_are_drawn_again_by_weight():
    n = 32
    rows = torch.arange(n) + 5
    y = (torch.arange(n) * 5 % 32 < 16).long()  # in no order
    scores = torch.arange(2.0 * n).reshape(n, 2)
    share = torch.full((n,), 0.75 / n)
    replay = Replay({"x": scores}, y, scores, scores, share, rows)
    weight = torch.zeros(50, dtype=torch.float64)
    weight[rows] = torch.where(y == 1, 3.0, 1.0).double()
    shares = []
    for k in range(50):
        drawn = drawn_by_weight(replay, weight, torch.tensor(k, dtype=torch.int32))
        place = drawn.rows - 5
        assert torch.equal(drawn.y, y[place])
        assert torch.equal(drawn.inputs["x"], scores[place])
        assert torch.equal(drawn.logits, scores[place])
        assert float(drawn.weight.sum()) == pytest.approx(0.75)
        shares.append(float((drawn.weight * drawn.y).sum()) / 0.75)
    assert sum(shares) / 50 == pytest.approx(0.75, abs=0.03)


def test_subjects_without_a_part_are_not_drawn_again():
    share = torch.tensor([0.0, 0.5, 0.0, 0.5])
    rows = torch.arange(4)
    replay = Replay({}, rows, rows[:, None], rows[:, None], share, rows)
    for k in range(20):
        key = torch.tensor(k, dtype=torch.int32)
        drawn = drawn_by_weight(replay, torch.ones(4).double(), key)
        assert set(drawn.rows.tolist()) <= {1, 3}

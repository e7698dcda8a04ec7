"""Every subject in every epoch, in batches of one size."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fcforge.engine.lift import shapes, stack, unstack, where_better
from fcforge.engine.loop import minibatches
from fcforge.methods import Lane
from fcforge.randomness import torch_rng


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 200), size=st.integers(1, 64), epochs=st.integers(1, 4))
def test_every_subject_every_epoch(n, size, epochs):
    plan = minibatches(n, size, epochs, torch_rng(0, "x"))
    steps = -(-n // size)
    assert plan.shape[:2] == (epochs, steps)
    assert plan.shape[2] <= size
    for epoch in plan.reshape(epochs, -1):
        counts = torch.bincount(epoch, minlength=n)
        assert len(counts) == n
        assert counts.min() >= 1
        # nobody is wrapped around twice, and never more than one batch's worth is
        assert counts.max() <= 2
        assert int((counts == 2).sum()) == plan[0].numel() - n < steps
    for batch in plan.reshape(-1, plan.shape[2]):
        assert len(batch.unique()) == len(batch)


def test_the_last_batch_wraps_around_to_the_first_subjects():
    plan = minibatches(10, 4, 3, torch_rng(1, "x"))
    assert plan.shape == (3, 3, 4)
    for epoch in plan:
        assert torch.equal(epoch.flatten()[10:], epoch.flatten()[:2])


def test_epochs_differ_and_repeat_by_seed():
    a, b = (minibatches(30, 8, 4, torch_rng(2, "x")) for _ in range(2))
    assert torch.equal(a, b)
    assert not torch.equal(a[0], a[1])
    assert not torch.equal(a, minibatches(30, 8, 4, torch_rng(3, "x")))


def test_a_longer_training_begins_like_a_shorter_one():
    long, short = (minibatches(30, 8, e, torch_rng(2, "x")) for e in (9, 4))
    assert torch.equal(long[:4], short)


def test_stack_and_unstack_are_inverse():
    lanes = [Lane({"w": torch.randn(2, 3)}, {}, {"n": torch.tensor(i)}) for i in range(3)]
    together = stack(lanes)
    assert together.params["w"].shape == (3, 2, 3)
    for a, b in zip(unstack(together, 3), lanes, strict=True):
        assert torch.equal(a.params["w"], b.params["w"])
        assert torch.equal(a.state["n"], b.state["n"])
    assert stack(lanes[:1]) is lanes[0]


def test_shapes_tell_lanes_apart_that_cannot_be_stacked():
    lane = Lane({"w": torch.zeros(2)}, {}, {})
    assert shapes(lane) == shapes(Lane({"w": torch.ones(2)}, {}, {}))
    for other in (
        Lane({"w": torch.zeros(3)}, {}, {}),
        Lane({"w": torch.zeros(2, dtype=torch.float64)}, {}, {}),
        Lane({"w": torch.zeros(2)}, {}, {"n": torch.zeros(1)}),
        Lane({"v": torch.zeros(2)}, {}, {}),
    ):
        assert shapes(lane) != shapes(other)


@pytest.mark.parametrize("n", [1, 3])
def test_where_better_picks_per_lane(n):
    new = {"w": torch.ones(n, 2, 2) if n > 1 else torch.ones(2, 2)}
    old = {"w": torch.zeros_like(new["w"])}
    better = torch.tensor([True, False, True]) if n > 1 else torch.tensor(True)
    picked = where_better(better, new, old)["w"]
    means = picked.reshape(n, -1).mean(1)
    assert means.tolist() == ([1.0, 0.0, 1.0] if n > 1 else [1.0])

"""Which subjects the steps of a site see."""

import pytest
import torch

from fcforge.training.schedule import minibatches, weighted_minibatches


def rng():
    return torch.Generator().manual_seed(3)


def test_a_subject_comes_as_often_as_its_weight_says() -> None:
    weight = torch.tensor([0.5, 1.0, 1.5, 3.0, 4.0], dtype=torch.float64)
    plan = weighted_minibatches(weight, 2, 200, rng())
    assert plan.shape == minibatches(5, 2, 200, rng()).shape
    epochs = plan.flatten(1)[:, :5]  # the last place of the six wraps around
    counts = torch.stack([torch.bincount(one, minlength=5) for one in epochs])
    due = 5 * weight / weight.sum()
    assert bool(((counts >= due.floor()) & (counts <= due.ceil())).all())
    torch.testing.assert_close(counts.double().mean(0), due, atol=0.1, rtol=0)


def test_equal_weights_show_everybody_once_per_epoch() -> None:
    plan = weighted_minibatches(torch.full((7,), 0.3).double(), 7, 20, rng())
    assert bool((plan.sort(-1).values == torch.arange(7)).all())
    assert len({tuple(epoch.flatten().tolist()) for epoch in plan}) > 15


@pytest.mark.parametrize("n", [1, 2, 33])
def test_any_number_of_subjects(n) -> None:
    plan = weighted_minibatches(torch.rand(n, generator=rng()).double(), 8, 3, rng())
    assert 0 <= int(plan.min()) <= int(plan.max()) < n

"""corr_flow: the velocity field, its integral, and what is learnt."""

import math

import pytest
import torch

from fcforge.generators.corr_flow import (
    CorrFlow,
    flow_init,
    flow_loss,
    integrate,
    velocity,
)
from fcforge.generators.corr_gauss import CorrGauss, class_means
from fcforge.generators.layers import frozen
from fcforge.graphs import log_edges
from fcforge.randomness import torch_rng

QUICK = {"epochs": 3, "hidden": 16, "steps": 4}


def constant_field(v: list[float]) -> dict[str, torch.Tensor]:
    """Parameters with which the velocity is v everywhere."""
    params = flow_init(len(v), 4, torch_rng(0), gain=0.0)
    return {**params, "out.bias": torch.tensor(v)}


def test_a_constant_velocity_moves_by_itself() -> None:
    params, y = constant_field([1.0, -2.0]), torch.tensor([0, 1])
    x = torch.zeros(2, 2)
    assert torch.equal(
        velocity(params, x, y, torch.zeros(2)), torch.tensor([[1.0, -2.0]] * 2)
    )
    torch.testing.assert_close(
        integrate(params, x, y, 5), torch.tensor([[1.0, -2.0]] * 2)
    )


def test_midpoint_steps_are_of_second_order() -> None:
    """dx/dt = x from 1 gives e; halving the step quarters the error."""
    params = flow_init(1, 1, torch_rng(0), gain=0.0)
    scale = float(
        torch.selu(torch.tensor(1.0))
    )  # selu is linear for positive arguments
    params["in.weight"] = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    params["hidden.weight"] = torch.tensor([[1.0]])
    params["out.weight"] = torch.tensor([[1.0 / scale**2]])
    x = torch.ones(1, 1, dtype=torch.float64)
    params = {k: v.double() for k, v in params.items()}
    params["out.weight"] = 1.0 / torch.selu(torch.ones(1, 1, dtype=torch.float64)) ** 2

    def velocity_error(steps: int) -> float:
        h, value = 1.0 / steps, 1.0
        for _ in range(steps):
            value += h * (value + 0.5 * h * value)
        found = integrate(
            {k: v.float() for k, v in params.items()}, x.float(), y, steps
        )
        assert float(found) == pytest.approx(value, rel=1e-5)
        return abs(value - math.e)

    y = torch.tensor([0])
    assert velocity_error(10) / velocity_error(20) == pytest.approx(4.0, rel=0.1)


def test_loss_by_hand() -> None:
    params = constant_field([1.0])
    x0, x1 = torch.tensor([[0.0], [1.0]]), torch.tensor([[2.0], [1.0]])
    # targets 2 and 0, velocity 1: both miss by 1
    loss = flow_loss(params, x0, x1, torch.tensor([0, 1]), torch.tensor([0.1, 0.9]))
    assert float(loss) == pytest.approx(1.0)


def test_axes_are_orthonormal_and_the_spread_is_that_of_the_scores(small_site) -> None:
    state = CorrFlow(rank=6, **QUICK).fit(small_site, torch_rng(0))
    axes = state["axes"]
    torch.testing.assert_close(axes @ axes.T, torch.eye(6), atol=1e-4, rtol=0)
    x = log_edges(small_site.fc, 0.02)
    scores = (x - class_means(x, small_site.y)[small_site.y]) @ axes.T
    # the Gaussian keeps 90 % of every axis' variance as shared, the rest as independent noise
    expected = (0.9 * scores.square().sum(0) / 38).sqrt()
    torch.testing.assert_close(
        state["unit"] * state["spread"], expected, rtol=1e-3, atol=1e-5
    )


def test_means_and_outside_variance_are_those_of_the_gaussian(small_site) -> None:
    flow = CorrFlow(rank=5, variance_match=False, **QUICK).fit(small_site, torch_rng(0))
    gauss = CorrGauss(rank=5, variance_match=False).fit(small_site, torch_rng(0))
    for name in ("mean", "diagonal", "class_fc", "start"):
        assert torch.equal(flow[name], gauss[name])
    assert float(flow["scale"]) == 1.0


def test_training_learns_a_planted_shift_of_one_class() -> None:
    gen = CorrFlow(hidden=32, epochs=60, lr=1e-2, batch_size=32, jitter=0.1)
    y = torch.arange(200) % 2
    scores = torch.randn(200, 3, generator=torch_rng(0))
    scores[:, 0] += 3.0 * y
    params = frozen(gen._train(scores, y, torch.ones(3), torch_rng(1)))
    x1 = integrate(params, torch.randn(200, 3, generator=torch_rng(2)), y, 10)
    shift = x1[y == 1].mean(0) - x1[y == 0].mean(0)
    assert float(shift[0]) == pytest.approx(3.0, abs=0.5)
    assert float(shift[1:].abs().max()) < 0.6


def test_samples_are_valid_and_say_their_rank(small_site) -> None:
    gen = CorrFlow(**QUICK)
    state = gen.fit(small_site, torch_rng(0))
    out = gen.sample(state, torch.arange(20) % 2, torch_rng(1))
    assert torch.linalg.eigvalsh(out.fc.double()).min() > 0
    assert gen.diagnostics(state) == {"rank": 38, "noise_scale": float(state["scale"])}

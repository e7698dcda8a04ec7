"""corr_flow and dp_flow: the velocity field, its integral, what is learnt, spent and recorded."""

import math

import pytest
import torch

from fcforge.errors import ConfigError, DataError
from fcforge.generators import make_generator
from fcforge.generators.corr_flow import (
    CorrFlow,
    DPFlow,
    flow_init,
    flow_loss,
    integrate,
    per_subject_gradients,
    subject_loss,
    velocity,
)
from fcforge.generators.corr_gauss import CorrGauss, class_means
from fcforge.generators.layers import frozen
from fcforge.graphs import log_edges
from fcforge.privacy.mechanisms import sigma_for, spent
from fcforge.randomness import torch_rng
from fcforge.types import Component, FCBatch
from small_world import R, hundred_people, public_template

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


@pytest.fixture(scope="module")
def site() -> FCBatch:
    return hundred_people()


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> str:
    return public_template(tmp_path_factory.mktemp("public"))


def test_per_subject_gradients_equal_the_loop() -> None:
    params = flow_init(3, 8, torch_rng(0), gain=1.0)
    x1, x0 = (
        torch.randn(5, 3, generator=torch_rng(3)),
        torch.randn(5, 4, 3, generator=torch_rng(4)),
    )
    y, t = torch.tensor([0, 1, 1, 0, 1]), torch.rand(5, 4, generator=torch_rng(5))
    found = per_subject_gradients(params, x1, y, x0, t)
    for i in range(5):
        leaf = {k: v.clone().requires_grad_() for k, v in params.items()}
        subject_loss(leaf, x1[i], y[i], x0[i], t[i]).backward()
        for k, v in leaf.items():
            torch.testing.assert_close(found[k][i], v.grad, atol=1e-6, rtol=1e-5)


def test_flow_spends_what_it_says_and_keeps_only_public_numbers(site, template) -> None:
    made = DPFlow(
        public=template,
        epsilon=4.0,
        rank=4,
        hidden=8,
        steps=20,
        draws=2,
        noise="seeded",
    )
    state = made.fit(site, torch_rng(0))
    rate = 64 / len(site)
    assert float(state["epsilon"]) <= 4.0 + 1e-6
    found = spent(rate, float(state["sigma"]), 20, 1e-3)
    assert float(state["epsilon"]) == pytest.approx(found, rel=1e-4)
    other = FCBatch(site.fc.flip(0).mul(0.5) + 0.5 * torch.eye(R), site.y.flip(0))
    again = made.fit(other, torch_rng(0))
    trained = {k for k in state if not torch.equal(state[k], again[k])}
    assert trained
    assert all(
        k.startswith("flow.") for k in trained
    )  # nothing else depends on the subjects
    assert int(state["secret"]) == 0


def test_flow_without_noise_learns_a_planted_class_difference() -> None:
    made = DPFlow(rank=4, hidden=16, clip=100.0, steps=300, lr=1e-2, noise="seeded")
    y = torch.arange(200) % 2
    scores = torch.randn(200, 4, generator=torch_rng(0))
    scores[:, 0] += 3.0 * y
    params = made._train(scores, y, 0.5, 0.0, torch_rng(1))
    x0 = torch.randn(200, 4, generator=torch_rng(2))
    x1 = integrate(params, x0, y, 10)
    shift = x1[y == 1].mean(0) - x1[y == 0].mean(0)
    assert float(shift[0]) == pytest.approx(3.0, abs=0.6)
    assert float(shift[1:].abs().max()) < 0.7
    # drowned in noise it learns nothing of the kind
    noisy = made._train(scores, y, 0.5, 50.0, torch_rng(1))
    lost = integrate(noisy, x0, y, 10)
    assert abs(float(lost[y == 1, 0].mean() - lost[y == 0, 0].mean()) - 3.0) > 1.0


def test_flow_makes_correlation_matrices(site, template) -> None:
    made = make_generator(
        Component("dp_flow", {"public": template, "steps": 5, "rank": 8})
    )
    out = made.sample(
        made.fit(site, torch_rng(0)), torch.tensor([0, 1, 1]), torch_rng(1)
    )
    assert float(torch.linalg.eigvalsh(out.fc).min()) > 0
    assert made.diagnostics(made.fit(site, torch_rng(0)))["secret"] == 1.0


def test_the_noise_is_the_smallest_that_keeps_the_budget(site) -> None:
    made = DPFlow(
        epsilon=2.0, delta=1e-2, rank=4, hidden=8, steps=10, batch_size=25, draws=2
    )
    sigma = float(made.fit(site, torch_rng(0))["sigma"])
    assert sigma == pytest.approx(sigma_for(2.0, 1e-2, 0.25, 10), rel=1e-5)
    assert spent(0.25, sigma, 10, 1e-2) <= 2.0 + 1e-5
    assert spent(0.25, 0.99 * sigma, 10, 1e-2) > 2.0
    # more people than a batch holds: everyone is in every step, and the noise is higher
    everyone = DPFlow(
        epsilon=2.0, delta=1e-2, rank=4, hidden=8, steps=10, batch_size=500, draws=2
    )
    assert float(everyone.fit(site, torch_rng(0))["sigma"]) > 1.5 * sigma


def test_secret_noise_does_not_follow_the_seed(site) -> None:
    made = DPFlow(rank=4, hidden=8, steps=3, draws=2)
    one, two = (made.fit(site, torch_rng(0)) for _ in range(2))
    assert int(one["secret"]) == 1
    assert not torch.equal(one["flow.out.weight"], two["flow.out.weight"])


def test_counts_of_people_are_not_in_the_state(site) -> None:
    made = DPFlow(rank=4, hidden=8, steps=2, draws=2, noise="seeded")
    assert made.fit(site, torch_rng(0))["counts"].tolist() == [1, 1]
    controls = site.select(site.y == 0)
    state = made.fit(controls, torch_rng(0))
    assert state["counts"].tolist() == [1, 0]
    with pytest.raises(DataError, match="diagnosis 1 was asked"):
        made.sample(state, torch.tensor([1]), torch_rng(1))


def test_before_training_samples_are_public(site, template) -> None:
    """The flow starts as the identity: without a step it draws from the template alone."""
    made = DPFlow(
        public=template, rank=6, steps=1, lr=1e-30, noise="seeded", clip=1e-12
    )
    state = made.fit(site, torch_rng(0))
    other = made.fit(site.select(slice(0, 30)), torch_rng(0))
    y = torch.tensor([0, 1, 0])
    fc = [made.sample(s, y, torch_rng(4)).fc for s in (state, other)]
    torch.testing.assert_close(*fc, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"epsilon": 0.0}, "epsilon = 0.0 is too small"),
        ({"delta": 1.0}, "delta = 1.0 is not a fraction"),
        ({"noise": "none"}, "noise = 'none' is unknown"),
        ({"steps": 0}, "steps = 0 is too small"),
    ],
)
def test_a_budget_that_means_nothing_is_refused(setting, words) -> None:
    with pytest.raises(ConfigError, match=words):
        DPFlow(**setting)

"""dp_flow: what it computes, what it records, what it never looks at."""

import math

import pytest
import torch

from fcforge.errors import ConfigError, DataError
from fcforge.generators import make_generator
from fcforge.generators.corr_flow import (
    DPFlow,
    clipped_sum,
    flow_init,
    integrate,
    noisy_gradient,
    per_subject_gradients,
    subject_loss,
)
from fcforge.privacy.mechanisms import sigma_for, spent
from fcforge.privacy.template import write_template
from fcforge.randomness import torch_rng
from fcforge.sites.simulated import simulate
from fcforge.types import Component, FCBatch

R = 12


@pytest.fixture(scope="module")
def site() -> FCBatch:
    cohort = simulate("easy", n_rois=R, n_sites=1, scale=1.0, seed=3)
    return FCBatch.from_numpy(cohort.fc[:100], cohort.y[:100])


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> str:
    outside = simulate("easy", n_rois=R, n_sites=1, scale=1.0, seed=8)
    path = tmp_path_factory.mktemp("public") / "template.npz"
    write_template(path, torch.from_numpy(outside.fc), rank=10)
    return str(path)


def test_per_subject_gradients_equal_the_loop() -> None:
    params = flow_init(3, 8, torch_rng(0), gain=1.0)
    x1, x0 = torch.randn(5, 3, generator=torch_rng(3)), torch.randn(5, 4, 3, generator=torch_rng(4))
    y, t = torch.tensor([0, 1, 1, 0, 1]), torch.rand(5, 4, generator=torch_rng(5))
    found = per_subject_gradients(params, x1, y, x0, t)
    for i in range(5):
        leaf = {k: v.clone().requires_grad_() for k, v in params.items()}
        subject_loss(leaf, x1[i], y[i], x0[i], t[i]).backward()
        for k, v in leaf.items():
            torch.testing.assert_close(found[k][i], v.grad, atol=1e-6, rtol=1e-5)


def test_clipped_sum_is_opacus_optimizers() -> None:
    optimizers = pytest.importorskip("opacus.optimizers")
    rng = torch_rng(0)
    weight = torch.nn.Parameter(torch.zeros(3, 2))
    bias = torch.nn.Parameter(torch.zeros(3))
    scale = torch.tensor([0.1, 1.0, 10.0, 0.01])
    grads = {
        "w": scale[:, None, None] * torch.randn(4, 3, 2, generator=rng),
        "b": scale[:, None] * torch.randn(4, 3, generator=rng),
    }
    weight.grad_sample, bias.grad_sample = grads["w"].clone(), grads["b"].clone()  # type: ignore[attr-defined]
    theirs = optimizers.DPOptimizer(
        torch.optim.SGD([weight, bias], lr=1.0),
        noise_multiplier=0.0,
        max_grad_norm=0.7,
        expected_batch_size=4,
    )
    theirs.clip_and_accumulate()
    ours = clipped_sum(grads, 0.7)
    torch.testing.assert_close(ours["w"], weight.summed_grad, atol=1e-5, rtol=1e-5)  # type: ignore[attr-defined]
    torch.testing.assert_close(ours["b"], bias.summed_grad, atol=1e-5, rtol=1e-5)  # type: ignore[attr-defined]


def test_one_subject_moves_the_sum_by_at_most_the_clip() -> None:
    grads = {"w": 50 * torch.randn(6, 4, 3, generator=torch_rng(0)), "b": torch.ones(6, 2)}
    whole = clipped_sum(grads, 0.5)
    for i in range(6):
        keep = torch.arange(6) != i
        less = clipped_sum({k: g[keep] for k, g in grads.items()}, 0.5)
        gap = math.sqrt(sum(float((whole[k] - less[k]).square().sum()) for k in whole))
        assert gap == pytest.approx(0.5, abs=1e-4)


def test_gradient_noise_scale_and_an_empty_batch() -> None:
    empty = {"w": torch.zeros(0, 200, 50)}
    noisy = noisy_gradient(empty, 0.5, 3.0, 10.0, torch_rng(0))["w"]
    assert noisy.shape == (200, 50)
    assert float(noisy.std()) == pytest.approx(3.0 * 0.5 / 10.0, rel=0.03)


def test_flow_spends_what_it_says_and_keeps_only_public_numbers(site, template) -> None:
    made = DPFlow(public=template, epsilon=4.0, rank=4, hidden=8, steps=20, draws=2, noise="seeded")
    state = made.fit(site, torch_rng(0))
    rate = 64 / len(site)
    assert float(state["epsilon"]) <= 4.0 + 1e-6
    found = spent(rate, float(state["sigma"]), 20, 1e-3)
    assert float(state["epsilon"]) == pytest.approx(found, rel=1e-4)
    other = FCBatch(site.fc.flip(0).mul(0.5) + 0.5 * torch.eye(R), site.y.flip(0))
    again = made.fit(other, torch_rng(0))
    trained = {k for k in state if not torch.equal(state[k], again[k])}
    assert trained
    assert all(k.startswith("flow.") for k in trained)  # nothing else depends on the subjects
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
    made = make_generator(Component("dp_flow", {"public": template, "steps": 5, "rank": 8}))
    out = made.sample(made.fit(site, torch_rng(0)), torch.tensor([0, 1, 1]), torch_rng(1))
    assert float(torch.linalg.eigvalsh(out.fc).min()) > 0
    assert made.diagnostics(made.fit(site, torch_rng(0)))["secret"] == 1.0


def test_the_noise_is_the_smallest_that_keeps_the_budget(site) -> None:
    made = DPFlow(epsilon=2.0, delta=1e-2, rank=4, hidden=8, steps=10, batch_size=25, draws=2)
    sigma = float(made.fit(site, torch_rng(0))["sigma"])
    assert sigma == pytest.approx(sigma_for(2.0, 1e-2, 0.25, 10), rel=1e-5)
    assert spent(0.25, sigma, 10, 1e-2) <= 2.0 + 1e-5
    assert spent(0.25, 0.99 * sigma, 10, 1e-2) > 2.0
    # more people than a batch holds: everyone is in every step, and the noise is higher
    everyone = DPFlow(epsilon=2.0, delta=1e-2, rank=4, hidden=8, steps=10, batch_size=500, draws=2)
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
    made = DPFlow(public=template, rank=6, steps=1, lr=1e-30, noise="seeded", clip=1e-12)
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

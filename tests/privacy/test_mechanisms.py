"""Clipping, noise, sensitivity by brute force, the accountant against Opacus."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from fcforge.errors import ConfigError, DataError
from fcforge.privacy.mechanisms import (
    clip_rows,
    clipped_sum,
    gaussian_delta,
    gaussian_sigma,
    noisy_gradient,
    noisy_moments,
    rdp_of_step,
    read_template,
    secret_rng,
    sigma_for,
    spent,
)
from fcforge.randomness import torch_rng


def test_clipping_bound() -> None:
    rows = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    found = clip_rows(rows, 1.0)
    expected = torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(found, expected)
    many = clip_rows(torch_rows(200, 7), 0.5).norm(dim=1)
    assert float(many.max()) <= 0.5 + 1e-12


def torch_rows(n: int, q: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, q, generator=torch_rng(seed), dtype=torch.float64)


def as_vector(m: torch.Tensor) -> torch.Tensor:
    """Diagonal and sqrt(2) times the upper triangle: the same norm as the matrix."""
    i, j = torch.triu_indices(*m.shape, 1)
    return torch.cat([m.diagonal(), math.sqrt(2) * m[i, j]])


def test_sensitivity_of_the_moments_by_brute_force() -> None:
    """No neighbour (one person added, removed) moves the released vector further than bound^2."""
    bound = 1.3
    rows = 3.0 * torch_rows(12, 4)
    rows[0] *= 100.0
    still = torch_rng(0)
    whole = noisy_moments(rows, bound, 0.0, still)
    moves = []
    for i in range(len(rows)):
        keep = torch.arange(len(rows)) != i
        without = noisy_moments(rows[keep], bound, 0.0, still)
        moves.append(float((as_vector(whole) - as_vector(without)).norm()))
    assert max(moves) <= bound**2 + 1e-9
    assert max(moves) > 0.999 * bound**2  # the bound is reached: no noise is wasted


def test_noise_scale_of_the_moments() -> None:
    sigma, bound, rng = 2.5, 1.3, torch_rng(1)
    empty = torch.zeros(0, 3, dtype=torch.float64)
    draws = torch.stack(
        [as_vector(noisy_moments(empty, bound, sigma, rng)) for _ in range(4000)]
    )
    np.testing.assert_allclose(draws.std(0).numpy(), sigma * bound**2, rtol=0.06)
    matrix = noisy_moments(empty, bound, sigma, rng)
    assert torch.equal(matrix, matrix.mT)


def test_gaussian_mechanism_by_scipy_and_by_the_classical_bound() -> None:
    sigma, epsilon = 1.7, 0.9
    expected = norm.cdf(0.5 / sigma - epsilon * sigma)
    expected -= math.exp(epsilon) * norm.cdf(-0.5 / sigma - epsilon * sigma)
    assert gaussian_delta(sigma, epsilon) == pytest.approx(expected, rel=1e-9)
    for eps in (0.1, 1.0, 8.0, 100.0):
        found = gaussian_sigma(eps, 1e-3)
        assert gaussian_delta(found, eps) <= 1e-3
        assert gaussian_delta(0.99 * found, eps) > 1e-3
    classical = math.sqrt(2 * math.log(1.25 / 1e-5)) / 0.5
    assert gaussian_sigma(0.5, 1e-5) < classical


def test_accountant_equals_opacus() -> None:
    analysis = pytest.importorskip("opacus.accountants.analysis.rdp")
    orders = [2, 3, 5, 8, 16, 32, 63]
    for q, sigma, steps in (
        (0.05, 1.1, 300),
        (0.5, 4.0, 100),
        (1.0, 3.0, 1),
        (0.01, 0.7, 1000),
    ):
        theirs = analysis.compute_rdp(
            q=q, noise_multiplier=sigma, steps=steps, orders=orders
        )
        ours = [steps * rdp_of_step(q, sigma, a) for a in orders]
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
        epsilon, _ = analysis.get_privacy_spent(orders=orders, rdp=theirs, delta=1e-3)
        assert spent(q, sigma, steps, 1e-3, orders) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.filterwarnings("ignore:Optimal order is the:UserWarning")
def test_default_orders_are_near_opacus_own() -> None:
    accountants = pytest.importorskip("opacus.accountants")
    theirs = accountants.RDPAccountant()
    for _ in range(150):
        theirs.step(noise_multiplier=2.0, sample_rate=0.5)
    ours = spent(0.5, 2.0, 150, 1e-3)
    assert theirs.get_epsilon(1e-3) <= ours + 1e-6 <= 1.05 * theirs.get_epsilon(1e-3)


def test_accountant_is_monotone() -> None:
    base = spent(0.3, 2.0, 100, 1e-3)
    assert spent(0.3, 2.0, 101, 1e-3) > base
    assert spent(0.31, 2.0, 100, 1e-3) > base
    assert spent(0.3, 2.1, 100, 1e-3) < base
    assert spent(0.3, 2.0, 100, 1e-4) > base
    assert spent(0.3, 2.0, 0, 1e-3) == 0.0
    assert spent(0.0, 2.0, 100, 1e-3) < 0.2


def test_noise_is_found_for_the_budget() -> None:
    for epsilon in (1.0, 8.0):
        sigma = sigma_for(epsilon, 1e-3, 0.5, 150)
        assert 0.999 * epsilon < spent(0.5, sigma, 150, 1e-3) <= epsilon
    # reference/generators.md: n 129, batch 8, 100 epochs, epsilon 8 needs about 1.5
    assert sigma_for(8.0, 1e-3, 8 / 129, 1612) == pytest.approx(1.5, abs=0.1)


def test_secret_noise_does_not_follow_the_seed() -> None:
    a, b = (
        torch.rand(3, generator=secret_rng("secret", torch_rng(0))) for _ in range(2)
    )
    assert not torch.equal(a, b)
    c, d = (
        torch.rand(3, generator=secret_rng("seeded", torch_rng(0))) for _ in range(2)
    )
    assert torch.equal(c, d)
    with pytest.raises(ConfigError, match="not known"):
        secret_rng("public", torch_rng(0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.0, 1e-3), (1.0, 0.0), (1.0, 1.0), (-1, 0.1)]
)
def test_no_budget_is_an_error(epsilon, delta) -> None:
    with pytest.raises(ConfigError, match="not a privacy budget"):
        gaussian_sigma(epsilon, delta)


def test_foreign_template_is_one_clear_error(tmp_path) -> None:
    path = tmp_path / "t.npz"
    path.write_bytes(b"no zip")
    with pytest.raises(DataError, match="not a public template"):
        read_template(str(path), ("edge_axes",), 10)
    np.savez(path, edge_axes=np.zeros((2, 9)))
    with pytest.raises(DataError, match="another atlas"):
        read_template(str(path), ("edge_axes",), 10)


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
    grads = {
        "w": 50 * torch.randn(6, 4, 3, generator=torch_rng(0)),
        "b": torch.ones(6, 2),
    }
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

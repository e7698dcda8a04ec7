"""Budgets: exact delta by hand, by brute force on the grid, and by others' accountants."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import norm

from fcforge.errors import ConfigError
from fcforge.privacy.accounting import (
    GRID,
    MOST_EPSILON,
    ceiling,
    ceiling_of,
    epsilon_of,
    gaussian_delta,
    grid_delta,
    promise,
    sigma_for,
)


def test_delta_by_scipy_and_sigma_below_the_classical_bound():
    sigma = 1.7
    epsilon = 0.9
    expected = norm.cdf(0.5 / sigma - epsilon * sigma)
    expected -= math.exp(epsilon) * norm.cdf(-0.5 / sigma - epsilon * sigma)
    assert gaussian_delta(sigma, epsilon) == pytest.approx(expected, rel=1e-9)
    classical = math.sqrt(2 * math.log(1.25 / 1e-5)) / 0.5
    assert sigma_for(0.5, 1e-5) < classical


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0, MOST_EPSILON])
def test_sigma_is_the_smallest_that_keeps_the_budget(epsilon):
    for delta in (1e-3, 1e-6):
        sigma = sigma_for(epsilon, delta)
        assert grid_delta(sigma, epsilon) <= delta
        assert grid_delta(0.999 * sigma, epsilon) > delta
        assert epsilon_of(sigma, delta) == pytest.approx(epsilon, rel=1e-6)


def discrete_delta(sigma: float, shift: tuple[int, ...], epsilon: float) -> float:
    """Delta of discrete Gaussians of one or two integers, by summing over all of them."""
    reach = np.arange(-int(12 * sigma), int(12 * sigma) + 1)
    weight = np.exp(-(reach**2) / (2 * sigma**2))
    weight = weight / weight.sum()
    lost = np.zeros(1)
    chance = np.ones(1)
    for s in shift:  # privacy loss of a coordinate: (2 y s + s^2) / 2 sigma^2
        own = (2 * reach * s + s**2) / (2 * sigma**2)
        lost = (lost[:, None] + own).ravel()
        chance = (chance[:, None] * weight).ravel()
    return float((chance * np.maximum(1 - np.exp(epsilon - lost), 0)).sum())


@pytest.mark.parametrize("shift", [(40,), (1,), (24, 32), (0, 40), (17, 17)])
def test_the_grid_costs_no_more_than_stated(shift):
    """Exact delta on integers against the bound 52 d / s^2, at grids far coarser than ours."""
    for s in (30.0, 60.0):
        size = math.sqrt(sum(v**2 for v in shift))
        sigma = s / size
        cost = 52 * len(shift) / s**2
        for epsilon in (0.3, 1.0, 2.0):
            most = (1 + cost) * gaussian_delta(sigma, max(epsilon - cost, 1e-9))
            assert discrete_delta(s, shift, epsilon) <= most + 1e-15


def test_the_stated_cost_covers_the_products_grid():
    """Standard deviation at the largest epsilon, in grid units, and 400 ROIs."""
    unit = 2**20 * math.sqrt(1 + 1 / 16)
    s = sigma_for(MOST_EPSILON) * unit
    assert 52 * 80_202 / s**2 < GRID


def test_opendp_never_promises_less_noise():
    """Its conversion from zCDP bounds every mechanism with this rho; ours is a Gaussian."""
    reason = "OpenDP is a development extra (pip install opendp)"
    dp = pytest.importorskip("opendp.prelude", reason=reason)
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="i64")
    for epsilon in (1.0, 4.0):
        sigma = sigma_for(epsilon)
        made = dp.m.make_gaussian(*space, scale=sigma * 2**20)
        theirs = dp.c.make_zCDP_to_approxDP(made).map(2**20).epsilon(1e-6)
        assert epsilon <= theirs < 1.15 * epsilon


def test_ceiling_is_the_auc_of_the_best_test():
    rng = np.random.default_rng(0)
    out = rng.normal(size=20_000)
    inside = rng.normal(size=20_000) + 1 / 1.3
    assert ceiling(1.3) == pytest.approx((inside > out).mean(), abs=0.02)
    assert ceiling_of(None) == 1.0
    found = [ceiling_of(e) for e in (1.0, 2.0, 4.0, 8.0)]
    assert found == pytest.approx([0.566, 0.624, 0.723, 0.861], abs=6e-4)


def test_a_promise_says_epsilon_delta_and_ceiling():
    sigma = sigma_for(2.0, 1e-5)
    assert promise(sigma, 1e-5) == (
        pytest.approx(2.0, rel=1e-6),
        1e-5,
        pytest.approx(ceiling(sigma)),
    )


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        *itertools.product([0.0, -1.0, 33.0, math.nan, math.inf], [1e-6]),
        (1.0, 0.0),
        (1.0, 1.0),
    ],
)
def test_no_budget_is_an_error(epsilon, delta):
    with pytest.raises(ConfigError, match=f"epsilon {epsilon} and delta {delta}"):
        sigma_for(epsilon, delta)

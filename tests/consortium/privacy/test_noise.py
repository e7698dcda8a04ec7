"""Secret noise: exact probabilities, a distribution that fits, bits that nobody draws again."""

import ast
import itertools
import math
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chi2, chisquare, ks_2samp, norm

from fcforge.core.errors import ConfigError
from fcforge_consortium.privacy import noise
from fcforge_consortium.privacy.noise import (
    GRID,
    MOST_EPSILON,
    below,
    bernoulli_exp,
    ceiling,
    ceiling_of,
    discrete_gaussian,
    epsilon_of,
    gaussian_delta,
    grid_delta,
    sigma_for,
)

SURE = 1e-6  # a test that is right fails once in a million runs
SOURCES = Path(noise.__file__).parents[1]


def probabilities(sigma: int, reach: int) -> np.ndarray:
    """Of -reach ... reach."""
    weight = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    return weight / weight.sum()


@pytest.mark.parametrize("sigma", [1, 2, 7])
def test_draws_have_the_stated_probabilities(sigma):
    n = 40_000
    drawn = discrete_gaussian(sigma, n)
    reach = 4 * sigma
    wanted = n * probabilities(sigma, 12 * sigma)[8 * sigma : -8 * sigma]
    found = np.bincount(np.clip(drawn, -reach, reach) + reach, minlength=2 * reach + 1)
    inside = slice(1, -1)  # the ends hold the tails, too
    tails = n - wanted[inside].sum()
    seen = [*found[inside], found[0] + found[-1]]
    assert chisquare(seen, [*wanted[inside], tails]).pvalue > SURE


@pytest.mark.parametrize("sigma", [4_566_451, 2**31])
def test_large_draws_are_normal(sigma):
    """By twenty equally likely bins; a release at epsilon 1 has the first of these sigmas."""
    from scipy.stats import norm

    drawn = discrete_gaussian(sigma, 40_000) / sigma
    bins = np.searchsorted(norm.ppf(np.linspace(0, 1, 21)[1:-1]), drawn)
    assert chisquare(np.bincount(bins, minlength=20)).pvalue > SURE
    both = (drawn**2).sum()
    assert chi2.ppf(SURE, 40_000) < both < chi2.ppf(1 - SURE, 40_000)


def test_draws_are_those_of_opendp():
    reason = "OpenDP is a development extra (pip install opendp)"
    dp = pytest.importorskip("opendp.prelude", reason=reason)
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="i64")
    for sigma in (3, 1_000_003):
        theirs = dp.m.make_gaussian(*space, scale=float(sigma))([0] * 20_000)
        assert ks_2samp(discrete_gaussian(sigma, 20_000), theirs).pvalue > SURE


def test_draws_are_independent():
    drawn = discrete_gaussian(1000, 50_000) / 1000
    for lag in (1, 2, 1000):
        assert abs((drawn[lag:] * drawn[:-lag]).mean()) < 6 / len(drawn) ** 0.5


@pytest.mark.parametrize(
    ("numerator", "denominator"), [(0, 5), (1, 3), (1, 1), (7, 2), (2**62, 2**63)]
)
def test_bernoulli_draws_have_exponential_probabilities(numerator, denominator):
    n = 40_000
    drawn = bernoulli_exp(np.full(n, numerator, dtype=np.uint64), denominator).mean()
    wanted = np.exp(-numerator / denominator)
    assert abs(drawn - wanted) <= 5.5 * (wanted * (1 - wanted) / n) ** 0.5


def test_uniform_integers_are_not_biased_by_the_word(monkeypatch):
    """Words above the last whole multiple are drawn again, never wrapped."""
    words = iter([[2**64 - 1, 5], [7]])
    monkeypatch.setattr(
        noise, "_words", lambda size: np.array(next(words), dtype=np.uint64)
    )
    assert below(3, 2).tolist() == [1, 2]  # 2^64 - 1 = 3 * 6148914691236517205
    words = iter([[2**64 - 1, 5], [7]])
    assert below(5 * 2**60, 2).tolist() == [7, 5]


def test_a_large_release_takes_a_fraction_of_a_second():
    begun = time.process_time()
    assert discrete_gaussian(4_500_000, 80_000).shape == (80_000,)
    assert time.process_time() - begun < 1.0


@pytest.mark.parametrize("sigma", [0, -1, 2**31 + 1])
def test_noise_that_cannot_be_drawn_is_refused(sigma):
    with pytest.raises(ConfigError, match=str(sigma)):
        discrete_gaussian(sigma, 3)


# -- the attack that found the noise of earlier versions ------------------------------------------
BITS = 12  # of 32: the same search in a 2^20th of the time
CLIP, MOVED, SIGMA, SIZE = 2**20, 40 * 2**20, 4_500_000, 18


def as_torch(seed: int) -> np.ndarray:
    generator = torch.Generator().manual_seed(seed)
    return SIGMA * torch.randn(SIZE, generator=generator, dtype=torch.float64).numpy()


def as_numpy(seed: int) -> np.ndarray:
    return SIGMA * np.random.default_rng(seed).standard_normal(SIZE)


def seeds_that_fit(released: np.ndarray, draw) -> list[int]:
    """Seeds whose noise leaves a sum that forty people can have given.

    Noise of 18 numbers has a norm of about 19 million; the right seed leaves a hundredth of it.
    """
    fits = []
    for seed in range(2**BITS):
        if np.linalg.norm(released - draw(seed)) < MOVED / 200:
            fits.append(seed)
    return fits


@pytest.mark.parametrize("draw", [as_torch, as_numpy])
def test_every_seed_is_tried_and_none_fits(draw):
    """A seeded generator is broken by trying all its seeds; the secret noise is not."""
    total = np.full(SIZE, 0.02 * CLIP)
    assert seeds_that_fit(total + draw(1234), draw) == [1234]
    released = total + discrete_gaussian(SIGMA, SIZE)
    assert seeds_that_fit(released, draw) == []


def test_torch_keeps_32_bits_of_a_seed():
    """Why: not a matter of a longer seed."""
    assert np.array_equal(as_torch(5), as_torch(5 + 2**32))


# -- no other source ------------------------------------------------------------------------------
ALLOWED = {"secrets", "numpy", "fcforge.core.errors"}
ALLOWED |= {"math", "collections.abc"}  # which draw nothing
GENERATORS = {"random", "manual_seed", "default_rng", "RandomState", "numpy_rng"}


def imported(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_the_module_of_the_noise_knows_one_source_of_bits():
    tree = ast.parse(Path(noise.__file__).read_text())
    assert imported(tree) == ALLOWED
    named = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    named |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    assert not named & GENERATORS
    assert "token_bytes" in named


def test_who_asks_for_secret_noise_has_no_generator_at_hand():
    """Modules that call it import no torch, no random numbers, and no seeded noise.

    The one exception is the seeded noise itself, which experiments choose by name.
    """
    forbidden = {
        "torch",
        "random",
        "fcforge.core.randomness",
        "fcforge_consortium.privacy.seeded_noise",
    }
    users = []
    for path in SOURCES.rglob("*.py"):
        text = path.read_text()
        own = path.name in ("noise.py", "seeded_noise.py")
        if "discrete_gaussian" in text and not own:
            users.append(path)
            assert not imported(ast.parse(text)) & forbidden, path
            assert "np.random" not in text, path
    names = {path.name for path in users}
    assert names == {"aggregators.py", "contribution.py"}


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

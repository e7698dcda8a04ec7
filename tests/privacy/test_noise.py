"""Secret noise: exact probabilities, a distribution that fits, bits that nobody draws again."""

import ast
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chi2, chisquare, ks_2samp

from fcforge.errors import ConfigError
from fcforge.privacy import noise
from fcforge.privacy.noise import below, bernoulli_exp, discrete_gaussian

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
ALLOWED = {"secrets", "numpy", "fcforge.errors"}
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
        "fcforge.randomness",
        "fcforge.privacy.seeded_noise",
    }
    users = []
    for path in SOURCES.rglob("*.py"):
        text = path.read_text()
        if "fcforge.privacy.noise import" in text and path.name != "seeded_noise.py":
            users.append(path)
            assert not imported(ast.parse(text)) & forbidden, path
            assert "np.random" not in text, path
    assert users

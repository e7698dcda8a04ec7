"""Releases: sensitivity proved and attacked, the head by hand, exact limits."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from public_people import people

from fcforge.privacy.accounting import sigma_for
from fcforge.releases import vector
from fcforge.releases.start import StartSettings, make_start


@pytest.fixture(scope="module")
def start():
    return make_start(*people(), StartSettings(axes=4))


def hospital(seed, n=30):
    x, y, _ = people(n, seed=seed)
    return x + 0.1, y


def exact(start, x, y):
    return vector.release_vector(start, x, y, None, 1e-3, np.zeros(6))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 999), size=st.floats(0, 1e6), label=st.integers(0, 1))
def test_one_person_never_moves_a_release_by_more_than_the_sensitivity(
    start, seed, size, label
):
    """Neighbouring data sets: with and without one person, however extreme."""
    x, y = hospital(seed)
    stranger = np.random.default_rng(seed).normal(size=(1, x.shape[1])) * size
    without = exact(start, x, y)
    with_one = exact(start, np.concatenate([x, stranger]), np.append(y, label))
    moved = np.linalg.norm(with_one - without)
    assert moved <= vector.sensitivity(start) * (1 + 1e-9)


def test_the_bound_is_reached(start):
    """A far-away person moves it by exactly S: the sensitivity is not overstated either."""
    far = np.full((1, 45), 1e4)
    moved = vector.contributions(start, far, np.array([1]))
    assert np.linalg.norm(moved) == pytest.approx(vector.sensitivity(start))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_empirical_epsilon_stays_below_the_claimed_one(start, epsilon):
    """Attack: 200,000 releases with and without the worst person; the best threshold test.

    The lower bound on epsilon (Clopper-Pearson at 99.9 %) must not pass the claim, and must come
    near it: a check that could not fail would show nothing.
    """
    from scipy.stats import beta

    n, delta = 200_000, 1e-3
    worst = vector.contributions(start, np.full((1, 45), 1e4), np.array([1]))[0]
    sd = vector.noise_sd(start, epsilon, delta)
    direction = worst / np.linalg.norm(worst)
    noise = np.random.default_rng(0).normal(size=(2, n)) * sd
    without, with_one = noise[0], noise[1] + worst @ direction
    best = 0.0
    for cut in np.linspace(0.2, 2.2, 12) * np.linalg.norm(worst) * max(1.0, sd):
        false, true = int((without > cut).sum()), int((with_one > cut).sum())
        if min(false, true) < 20:
            continue
        most = beta.ppf(0.999, false + 1, n - false)
        least = beta.ppf(0.001, true, n - true + 1)
        best = max(best, math.log(max(least - delta, 1e-12) / most))
    assert 0.5 * epsilon < best <= epsilon
    weaker = vector.noise_sd(start, 4 * epsilon, delta)
    assert weaker < sd


def test_noise_is_calibrated_to_the_whole_vector(start):
    assert vector.noise_sd(start, None, 1e-3) == 0.0
    expected = sigma_for(1.0, 1e-3) * float(start.clip) * math.sqrt(1 + 1 / 16)
    assert vector.noise_sd(start, 1.0, 1e-3) == pytest.approx(expected)
    x, y = hospital(3)
    normal = np.arange(6.0)
    noisy = vector.release_vector(start, x, y, 1.0, 1e-3, vector.UNIT * normal)
    np.testing.assert_allclose(noisy - exact(start, x, y), expected * normal)


def test_the_last_number_counts_people(start):
    x, y = hospital(2)
    given_ = exact(start, x, y)
    assert float(given_[-1]) == pytest.approx(vector.COUNT * float(start.clip) * 30)


def test_a_contribution_by_hand(start):
    x, y = hospital(4, 2)
    z = start.standardise(x) @ start.axes
    r = np.clip(2.0 * y - 1 - start.score(start.standardise(x)), -2, 2)
    u = np.concatenate([z, np.full((2, 1), 0.5)], 1) * r[:, None]
    shrink = np.minimum(start.clip / np.linalg.norm(u, axis=1, keepdims=True), 1)
    np.testing.assert_allclose(vector.contributions(start, x, y)[:, :-1], u * shrink)


def test_exact_releases_give_one_ridge_step_with_public_moments(start):
    x, y = hospital(5)
    total = exact(start, x, y)
    beta = vector.solve(start, total, 0.0, 1)
    left = (30 * start.second + start.pull * np.eye(5)) @ beta
    np.testing.assert_allclose(left, total[:-1])


def test_no_release_is_the_public_head(start):
    beta = vector.solve(start, np.zeros(6), 0.0, 0)
    solution = vector.head(start, beta)
    assert np.array_equal(solution.weight, start.weight)
    assert solution.bias == start.bias


def test_noise_pulls_toward_the_public_head_and_many_people_away_from_it(start):
    x, y = hospital(6)
    total = exact(start, x, y)
    sizes = [
        np.linalg.norm(vector.solve(start, total, v, 1)) for v in (0.0, 1.0, 100.0, 1e6)
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 0.01 * sizes[0]
    # a thousand hospitals like this one, each with noise of variance one
    many = vector.solve(start, 1000 * total, 1000.0, 1000)
    limit = np.linalg.solve(start.second, total[:-1]) / 30
    np.testing.assert_allclose(many, limit, rtol=0.1, atol=0.01)


def test_the_posterior_mean_is_the_best_guess():
    """Simulated truth: the noise-aware solve has the least squared error among pulls."""
    start = make_start(*people(), StartSettings(axes=4))
    rng = np.random.default_rng(1)
    n, noise = 40, 8.0
    root = np.linalg.cholesky(n * start.second + noise**2 * np.eye(5))
    errors = {"aware": 0.0, "plain": 0.0}
    for _ in range(300):
        beta = rng.normal(size=5) / start.pull**0.5
        c = n * start.second @ beta + root @ rng.normal(size=5)
        total = np.append(c, vector.COUNT * start.clip * n)
        for name, variance in (("aware", noise**2), ("plain", 0.0)):
            off = vector.solve(start, total, variance, 1) - beta
            errors[name] += float(off @ off)
    assert errors["aware"] < 0.8 * errors["plain"]


def test_folding_the_standardisation_in_changes_no_score(start):
    x, _ = hospital(7)
    solution = vector.Head(start.weight, start.bias)
    raw = vector.on_features(start, solution)
    np.testing.assert_allclose(
        x @ raw.weight + raw.bias, start.score(start.standardise(x))
    )


def test_contributions_from_coordinates_by_hand(start):
    """Clipping of the residual at 2, of the whole at C; a quarter of C counts the person."""
    clip = float(start.clip)
    u = np.zeros((3, 5))
    u[:, 0] = [0.25 * clip, 0.25 * clip, 10.0]
    found = vector.contributions_on_axes(start, u, np.array([1.0, -5.0, 1.0]))
    np.testing.assert_allclose(found[:, 0], [0.25 * clip, -0.5 * clip, clip])
    np.testing.assert_allclose(found[:, -1], np.full(3, 0.25 * clip))
    assert np.abs(found[:, 1:-1]).max() == 0.0

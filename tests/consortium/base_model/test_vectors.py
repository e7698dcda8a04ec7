"""Contribution vectors: sensitivity proved and attacked, the solution by hand, exact limits."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from public_people import people

from fcforge.base_model.calibration import vertices
from fcforge.core.errors import ConfigError, DataError
from fcforge_consortium.base_model import vectors as vector
from fcforge_consortium.base_model.space import SpaceSettings, fit_base_and_space
from fcforge_consortium.privacy.noise import (
    GRID,
    ceiling,
    discrete_gaussian,
    epsilon_of,
    grid_cost,
    grid_delta,
    sigma_for,
)


def made(gamma=0.25, classes=2):
    x, y, _ = people(classes=classes)
    chosen = SpaceSettings(axes=4, gamma=gamma, directions=12)
    return fit_base_and_space(x, y, chosen, max(1, classes - 1))


@pytest.fixture(scope="module", params=[0.0, 0.25])
def start(request):
    return made(request.param)


def column_of(start, k):
    base = start.base
    one = replace(base, weight=base.weight[:, k], bias=base.bias[k])
    return replace(start, base=one)


def hospital(seed, n=30):
    x, y, _ = people(n, seed=seed)
    return x + 0.1, y


def total(start, x, y):
    return vector.contribution_rows(start, x, y).sum(0)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 999), size=st.floats(0, 1e9), label=st.integers(0, 1))
def test_one_person_never_moves_a_release_by_more_than_the_sensitivity(
    start, seed, size, label
):
    """In whole numbers, so exactly: with and without one person, however extreme."""
    stranger = np.random.default_rng(seed).normal(size=(1, 45)) * size
    row = vector.contribution_rows(start, stranger, np.array([label]))[0].astype(object)
    assert sum(v * v for v in row[:-1]) <= vector.UNIT**2
    assert sum(v * v for v in row) <= vector.UNIT**2 + vector.COUNT**2
    assert pytest.approx(2**18 * 17**0.5) == vector.SENSITIVITY


COLUMNS = {(k, gamma): made(gamma, k) for k in (0, 3, 5) for gamma in (0.0, 0.25)}


@settings(max_examples=60, deadline=None)
@given(
    classes=st.sampled_from([0, 3, 5]),
    gamma=st.sampled_from([0.0, 0.25]),
    seed=st.integers(0, 999),
    size=st.floats(0, 1e9),
    other=st.floats(-1e9, 1e9),
)
def test_neighbours_differ_by_no_more_than_the_sensitivity(
    classes, gamma, seed, size, other
):
    """Cohorts with and without one person, or with another in the same place, in whole numbers."""
    start = COLUMNS[classes, gamma]
    rng = np.random.default_rng(seed)
    x, y, _ = people(8, seed=seed, classes=classes)
    stranger = rng.normal(size=(2, 45)) * size
    who = rng.integers(classes, size=2) if classes else np.array([other, -other])
    every = vector.contribution_rows(start, np.r_[x, stranger], np.r_[y, who])
    sums = [every[:8].sum(0), every[:9].sum(0), every[[*range(8), 9]].sum(0)]
    without, one, another = (total.astype(object) for total in sums)
    assert sum(v * v for v in one - without) <= vector.UNIT**2 + vector.COUNT**2
    assert sum(v * v for v in one - another) <= vector.REPLACED**2


def test_a_contribution_to_three_classes_by_hand():
    """The corner less the public score, times the coordinates, column after column."""
    start = made(0.25, 3)
    x, y, _ = people(2, seed=4, classes=3)
    z = start.base.standardise(x)
    r = vertices(3)[y] - (z @ start.base.weight + start.base.bias)
    u = start.coordinates(z)
    v = np.concatenate([u * r[:, :1], u * r[:, 1:]], 1)
    shrink = np.minimum(start.clip / np.linalg.norm(v, axis=1, keepdims=True), 1)
    found = vector.contribution_rows(start, x, y)
    np.testing.assert_allclose(found[:, :-1], v * shrink / start.grid, atol=1.001)
    assert found[:, -1].tolist() == [2**18] * 2
    assert found.shape == (2, start.n_numbers)


@pytest.mark.parametrize("gamma", [0.0, 0.25])
def test_columns_are_solved_as_if_each_were_alone(gamma):
    """A column of three classes is what one target with the same numbers would be."""
    start = made(gamma, 3)
    x, y, _ = people(30, seed=5, classes=3)
    total = vector.contribution_rows(start, x, y).sum(0).astype(float)
    beta = vector.solve(start, total, 1e10)
    found = vector.stepped_model(start, beta)
    half = start.n_numbers // 2
    squares = 0.0
    for k in range(2):
        alone = column_of(start, k)
        own = np.append(total[k * half : (k + 1) * half], total[-1])
        step = vector.solve(alone, own, 1e10)
        np.testing.assert_allclose(beta[k], step)
        head = vector.stepped_model(alone, step)
        np.testing.assert_allclose(found.weight[:, k], head.weight)
        assert found.bias[k] == pytest.approx(head.bias)
        squares += vector.spread(alone, head.weight)
    assert vector.spread(start, found.weight) == pytest.approx(squares)
    raw = vector.on_features(start, found)
    z = start.base.standardise(x)
    wanted = z @ found.weight + found.bias
    np.testing.assert_allclose(x @ raw.weight + raw.bias, wanted)


def test_the_bound_is_reached(start):
    """A far-away person moves it by S: the sensitivity is not overstated either."""
    one = vector.contribution_rows(start, np.full((1, 45), 1e4), np.array([1]))
    assert np.linalg.norm(one) == pytest.approx(vector.SENSITIVITY, rel=1e-4)


def test_a_turned_diagnosis_turns_the_contribution():
    start = made(1.0)
    x = start.base.mean[None] + 9 * start.base.scale * start.axes[:, 0]
    u = start.coordinates(start.base.standardise(x))
    both = [vector.rows_of_residuals(start, u, np.array([r])) for r in (-1.5, 1.5)]
    moved = np.linalg.norm(both[1] - both[0])
    assert moved == pytest.approx(vector.REPLACED, rel=1e-4)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_empirical_epsilon_stays_below_the_claimed_one(epsilon):
    """Attack: 100,000 releases with and without the worst person; the best threshold test.

    The lower bound on epsilon (Clopper-Pearson at 99.9 %) must not pass the claim, and must come
    near it: a check that could not fail would show nothing.
    """
    from scipy.stats import beta

    n, delta = 100_000, 1e-3
    start = made()
    worst = vector.contribution_rows(start, np.full((1, 45), 1e4), np.array([1]))[0]
    units = vector.noise_units(epsilon, delta)
    without = discrete_gaussian(units, n)
    with_one = discrete_gaussian(units, n) + np.linalg.norm(worst)
    best = 0.0
    for cut in np.linspace(0.2, 2.2, 12) * max(np.linalg.norm(worst), units):
        false, true = int((without > cut).sum()), int((with_one > cut).sum())
        if min(false, true) < 20:
            continue
        most = beta.ppf(0.999, false + 1, n - false)
        least = beta.ppf(0.001, true, n - true + 1)
        best = max(best, math.log(max(least - delta, 1e-12) / most))
    assert 0.4 * epsilon < best <= epsilon


def test_noise_is_calibrated_to_the_whole_vector():
    assert vector.noise_units(None) == 0
    wanted = sigma_for(1.0, 1e-3) * vector.UNIT * math.sqrt(1 + 1 / 16)
    assert vector.noise_units(1.0, 1e-3) == math.ceil(wanted)
    added = vector.noise_units(1.0) / vector.SENSITIVITY
    replaced = vector.noise_units(1.0) / vector.REPLACED
    assert epsilon_of(added) == pytest.approx(1.0, rel=1e-5)
    assert 2.0 < epsilon_of(replaced) < 2.1
    assert 0.5 < ceiling(added) < ceiling(replaced) < 0.63


def test_the_last_number_counts_people(start):
    x, y = hospital(2)
    given_ = total(start, x, y)
    assert given_.dtype == np.int64
    assert given_[-1] == 30 * vector.COUNT


def test_a_contribution_by_hand(start):
    x, y = hospital(4, 2)
    z = start.base.standardise(x)
    r = np.clip(2.0 * y - 1 - start.base.score(z), -2, 2)
    u = start.coordinates(z) * r[:, None]
    shrink = np.minimum(start.clip / np.linalg.norm(u, axis=1, keepdims=True), 1)
    wanted = u * shrink / start.clip * 2**20
    found = vector.contribution_rows(start, x, y)[:, :-1]
    assert (np.abs(found) <= np.abs(wanted) + 1e-6).all()  # cut toward zero
    np.testing.assert_allclose(found, wanted, atol=1.001)


def test_whole_rows_by_hand(start):
    """Clipping of the residual at 2, of the whole at C; a quarter of C counts the person."""
    u = np.zeros((3, start.n_numbers - 1))
    u[:, 0] = [0.25 * start.clip, 0.25 * start.clip, 10.0]
    found = vector.rows_of_residuals(start, u, np.array([1.0, -5.0, 1.0]))
    wanted = [2**18, -(2**19), 2**20]
    np.testing.assert_allclose(found[:, 0], wanted, atol=1)
    assert found[:, -1].tolist() == [2**18] * 3
    assert np.abs(found[:, 1:-1]).max() == 0


def test_sums_are_exact_in_any_order_and_modulo_a_word(start):
    rows = vector.contribution_rows(start, *hospital(9))
    words = rows.astype(np.uint64)
    mask = np.frombuffer(np.random.default_rng(0).bytes(8 * rows.size), np.uint64)
    mask = mask.reshape(rows.shape)
    back = (words - mask).sum(0, dtype=np.uint64) + mask.sum(0, dtype=np.uint64)
    assert np.array_equal(back.view(np.int64), rows[::-1].sum(0))


def test_exact_sums_give_one_ridge_step_with_public_moments(start):
    """The closed form solves (n G + hold) beta = c, with G diagonal in the axes."""
    x, y = hospital(5)
    c = total(start, x, y)
    beta = vector.solve(start, c, 0.0)
    moved = c[:-1] * start.grid
    assert beta[-1] * (30 / 4 + start.hold) == pytest.approx(moved[-1])
    wanted = 30 * start.second + start.hold * start.share**2
    if start.gamma:
        along = start.axes.T @ beta[:-1]
        np.testing.assert_allclose(
            wanted[:-1] * along, start.axes.T @ moved[:-1], atol=0.02
        )
        off = beta[:-1] - start.axes @ along
        rest = moved[:-1] - start.axes @ (start.axes.T @ moved[:-1])
        np.testing.assert_allclose(wanted[-1] * off, rest, atol=0.02)
    else:
        np.testing.assert_allclose(wanted[:4] * beta[:-1], moved[:-1])


def test_no_release_is_the_base_model_alone(start):
    beta = vector.solve(start, np.zeros(start.n_numbers), 0.0, 0)
    solution = vector.stepped_model(start, beta)
    assert np.array_equal(solution.weight, start.base.weight)
    assert solution.bias == start.base.bias


def test_many_sums_are_solved_at_once(start):
    several = np.stack([total(start, *hospital(k)) for k in range(3)])
    each = np.stack([vector.solve(start, one, 5.0) for one in several])
    np.testing.assert_allclose(vector.solve(start, several, 5.0), each)


def test_the_score_of_a_scan_moves_by_its_coordinates_along_beta(start):
    x, y = hospital(8)
    beta = vector.solve(start, total(start, x, y), 0.0)
    z = start.base.standardise(x)
    solution = vector.stepped_model(start, beta)
    moved = z @ solution.weight + solution.bias - start.base.score(z)
    np.testing.assert_allclose(moved, start.coordinates(z) @ beta, atol=1e-9)


def test_noise_pulls_toward_the_base_model_alone_and_many_people_away_from_it(start):
    c = total(start, *hospital(6))
    sizes = []
    for noise in (0.0, 1.0, 10.0, 1e3):
        beta = vector.solve(start, c, (noise * vector.UNIT) ** 2)
        sizes.append(np.linalg.norm(beta))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 0.01 * sizes[0]
    # a million hospitals like this one, each with noise of the unit
    many = vector.solve(start, 10**6 * c, 10**6 * float(vector.UNIT) ** 2, 10**6)
    assert many[-1] == pytest.approx(c[-2] * start.grid / (30 / 4), rel=0.01)


def test_the_posterior_mean_is_the_best_guess():
    """Simulated truth: the noise-aware solve has the least squared error."""
    start = made(0.0)
    rng = np.random.default_rng(1)
    n, noise = 40, 20.0
    second = np.append(start.second[:4], 0.25)
    errors = {"aware": 0.0, "plain": 0.0}
    for _ in range(300):
        beta = rng.normal(size=5) / start.hold**0.5
        spread = np.sqrt(n * second + noise**2)
        c = n * second * beta + spread * rng.normal(size=5)
        sums = np.append(c / start.grid, vector.COUNT * n)
        for name, variance in (("aware", (noise / start.grid) ** 2), ("plain", 0.0)):
            off = vector.solve(start, sums, variance) - beta
            errors[name] += float(off @ off)
    assert errors["aware"] < 0.8 * errors["plain"]


def test_folding_the_standardisation_in_changes_no_score(start):
    x, _ = hospital(7)
    solution = vector.LinearModel(start.base.weight, start.base.bias)
    raw = vector.on_features(start, solution)
    np.testing.assert_allclose(
        x @ raw.weight + raw.bias, start.base.score(start.base.standardise(x))
    )


def test_the_temperature_grows_with_the_scores(start):
    """By hand: twice the weights are four times their variance; the base model keeps its own."""
    public = vector.LinearModel(start.base.weight, start.base.bias)
    assert vector.temperature(start, public) == pytest.approx(start.base.temperature)
    louder = vector.LinearModel(2 * start.base.weight, start.base.bias)
    assert vector.temperature(start, louder) == pytest.approx(
        4 * start.base.temperature
    )
    axis = vector.LinearModel(start.axes[:, 0], 0.0)
    ratio = vector.temperature(start, axis) / start.base.temperature
    h = np.diag(np.append(start.smooth[:-1], start.smooth[-1]))[:-1, :-1]
    along = start.axes.T @ start.base.weight
    off = start.base.weight - start.axes @ along
    wanted = along @ h @ along + start.smooth[-1] * off @ off
    assert ratio == pytest.approx(start.smooth[0] / wanted, rel=1e-2)


def test_how_far_scores_move_is_their_spread_over_public_people():
    """The quadratic form of the second moments, against people drawn with these variances."""
    start = made(0.25)
    beta = np.random.default_rng(0).normal(size=start.n_numbers - 1) * 0.1
    beta[-1] = 0.0
    normal = np.random.default_rng(1).normal(size=(20_000, 45))
    drawn = start.scaled(normal, np.sqrt(45 * start.smooth))
    moved = start.coordinates(drawn) @ beta
    step = vector.stepped_model(start, beta).weight - start.base.weight
    spread = (45 * vector.spread(start, step)) ** 0.5
    assert spread == pytest.approx(moved.std(), rel=0.03)


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan])
def test_what_is_no_number_never_becomes_a_whole_one(start, odd):
    """It became -2^63, which no noise hides."""
    u = np.ones((2, start.n_numbers - 1))
    u[1, 0] = odd
    with pytest.raises(DataError, match="not finite"):
        vector.rows_of_residuals(start, u, np.ones(2))
    with pytest.raises(DataError, match="not finite"):
        vector.rows_of_residuals(start, np.ones_like(u), np.array([0.5, np.nan]))


def test_the_grid_costs_what_its_numbers_ask_for():
    """Issue 39: at 2,000 ROIs and epsilon 8 the constant was too small."""
    size = 2_001_001
    usual = vector.noise_units(8.0)
    assert 52 * size / usual**2 > GRID
    units = vector.noise_units(8.0, size=size)
    assert units > usual
    cost = grid_cost(size, units)
    assert grid_delta(units / vector.SENSITIVITY, 8.0, cost) <= 1e-6
    assert vector.noise_units(8.0, size=80_202) == usual


def test_a_budget_for_which_no_noise_can_be_drawn_is_refused():
    """Issue 39: epsilon 0.001 was charged though no aggregator can draw that noise."""
    with pytest.raises(ConfigError, match="more noise than can be drawn"):
        vector.noise_units(0.001)
    assert vector.noise_units(0.01) > 0

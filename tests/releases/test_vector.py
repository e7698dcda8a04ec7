"""Releases: sensitivity proved and attacked, the head by hand, exact limits, synthetic subjects."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from public_people import people

from fcforge.graphs import log_features
from fcforge.privacy.mechanisms import gaussian_sigma
from fcforge.releases import vector
from fcforge.releases.start import StartSettings, make_start
from fcforge.sites.simulated import simulate


@pytest.fixture(scope="module")
def start():
    return make_start(*people(), StartSettings(axes=4))


def hospital(seed, n=30):
    x, y, _ = people(n, seed=seed)
    return x + 0.1, y


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 999), size=st.floats(0, 1e6), label=st.integers(0, 1))
def test_one_person_never_moves_a_release_by_more_than_the_sensitivity(
    start, seed, size, label
):
    """Neighbouring data sets: with and without one person, however extreme."""
    x, y = hospital(seed)
    stranger = (
        torch.from_numpy(np.random.default_rng(seed).normal(size=(1, x.shape[1])))
        * size
    )
    rng = torch.Generator()
    without = vector.release_vector(start, x, y, None, 1e-3, rng)
    with_one = vector.release_vector(
        start,
        torch.cat([x, stranger]),
        torch.cat([y, torch.tensor([label])]),
        None,
        1e-3,
        rng,
    )
    assert float((with_one - without).norm()) <= vector.sensitivity(start) * (1 + 1e-9)


def test_the_bound_is_reached(start):
    """A far-away person moves it by exactly S: the sensitivity is not overstated either."""
    far = torch.full((1, 45), 1e4).double()
    moved = vector.contributions(start, far, torch.tensor([1]))
    assert float(moved.norm()) == pytest.approx(vector.sensitivity(start))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_empirical_epsilon_stays_below_the_claimed_one(start, epsilon):
    """Attack: 200,000 releases with and without the worst person; the best threshold test.

    The lower bound on epsilon (Clopper-Pearson at 99.9 %) must not pass the claim, and must come
    near it: a check that could not fail would show nothing.
    """
    from scipy.stats import beta

    n, delta = 200_000, 1e-3
    worst = vector.contributions(
        start, torch.full((1, 45), 1e4).double(), torch.tensor([1])
    )[0]
    sd = vector.noise_sd(start, epsilon, delta)
    rng = torch.Generator().manual_seed(0)
    direction = worst / worst.norm()
    noise = torch.randn(2, n, generator=rng, dtype=torch.float64) * sd
    without, with_one = noise[0], noise[1] + worst @ direction
    best = 0.0
    for cut in np.linspace(0.2, 2.2, 12) * float(worst.norm()) * max(1.0, sd):
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
    expected = gaussian_sigma(1.0, 1e-3) * float(start.clip) * math.sqrt(1 + 1 / 16)
    assert vector.noise_sd(start, 1.0, 1e-3) == pytest.approx(expected)
    x, y = hospital(3)
    exact = vector.release_vector(start, x, y, None, 1e-3, torch.Generator())
    draws = torch.stack(
        [
            vector.release_vector(
                start, x, y, 1.0, 1e-3, torch.Generator().manual_seed(s)
            )
            for s in range(400)
        ]
    )
    assert float((draws - exact).std() / expected) == pytest.approx(1.0, abs=0.05)


def test_the_last_number_counts_people(start):
    x, y = hospital(2)
    given_ = vector.release_vector(start, x, y, None, 1e-3, torch.Generator())
    assert float(given_[-1]) == pytest.approx(vector.COUNT * float(start.clip) * 30)


def test_a_contribution_by_hand(start):
    x, y = hospital(4, 2)
    z = start.standardise(x) @ start.axes
    r = (2.0 * y - 1 - start.score(start.standardise(x))).clamp(-2, 2)
    u = torch.cat([z, torch.full((2, 1), 0.5).double()], 1) * r[:, None]
    shrink = (float(start.clip) / u.norm(dim=1, keepdim=True)).clamp(max=1)
    torch.testing.assert_close(vector.contributions(start, x, y)[:, :-1], u * shrink)


def test_exact_releases_give_one_ridge_step_with_public_moments(start):
    x, y = hospital(5)
    total = vector.release_vector(start, x, y, None, 1e-3, torch.Generator())
    beta = vector.solve(start, total, 0.0, 1)
    left = (30 * start.second + start.pull * torch.eye(5).double()) @ beta
    torch.testing.assert_close(left, total[:-1])


def test_no_release_is_the_public_head(start):
    beta = vector.solve(start, torch.zeros(6), 0.0, 0)
    solution = vector.head(start, beta)
    assert torch.equal(solution.weight, start.weight)
    assert torch.equal(solution.bias, start.bias)


def test_noise_pulls_toward_the_public_head_and_many_people_away_from_it(start):
    x, y = hospital(6)
    total = vector.release_vector(start, x, y, None, 1e-3, torch.Generator())
    sizes = [
        float(vector.solve(start, total, v, 1).norm()) for v in (0.0, 1.0, 100.0, 1e6)
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 0.01 * sizes[0]
    # a thousand hospitals like this one, each with noise of variance one
    many = vector.solve(start, 1000 * total, 1000.0, 1000)
    exact = torch.linalg.solve(start.second, total[:-1]) / 30
    torch.testing.assert_close(many, exact, rtol=0.1, atol=0.01)


def test_the_posterior_mean_is_the_best_guess():
    """Simulated truth: the noise-aware solve has the least squared error among pulls."""
    start = make_start(*people(), StartSettings(axes=4))
    rng = torch.Generator().manual_seed(1)
    n, noise = 40, 8.0
    root = torch.linalg.cholesky(n * start.second + noise**2 * torch.eye(5).double())
    errors = {"aware": 0.0, "plain": 0.0}
    for _ in range(300):
        beta = torch.randn(5, generator=rng, dtype=torch.float64) / start.pull.sqrt()
        c = n * start.second @ beta + root @ torch.randn(
            5, generator=rng, dtype=torch.float64
        )
        total = torch.cat([c, vector.COUNT * start.clip[None] * n])
        errors["aware"] += float(
            (vector.solve(start, total, noise**2, 1) - beta).square().sum()
        )
        errors["plain"] += float(
            (vector.solve(start, total, 0.0, 1) - beta).square().sum()
        )
    assert errors["aware"] < 0.8 * errors["plain"]


def test_folding_the_standardisation_in_changes_no_score(start):
    x, _ = hospital(7)
    solution = vector.Head(start.weight, start.bias)
    raw = vector.on_features(start, solution)
    torch.testing.assert_close(
        x @ raw.weight + raw.bias, start.score(start.standardise(x))
    )


def test_contributions_from_coordinates_by_hand(start):
    """Clipping of the residual at 2, of the whole at C; a quarter of C counts the person."""
    clip = float(start.clip)
    u = torch.zeros(3, 5).double()
    u[:, 0] = torch.tensor([0.25 * clip, 0.25 * clip, 10.0])
    found = vector.contributions_on_axes(
        start, u, torch.tensor([1.0, -5.0, 1.0]).double()
    )
    wanted = torch.tensor([0.25 * clip, -0.5 * clip, clip]).double()
    torch.testing.assert_close(found[:, 0], wanted)
    torch.testing.assert_close(found[:, -1], torch.full((3,), 0.25 * clip).double())
    assert float(found[:, 1:-1].abs().max()) == 0.0


@pytest.fixture(scope="module")
def world():
    cohort = simulate(n_rois=8, scale=0.5)
    features = log_features(torch.from_numpy(cohort.fc).double())
    y = torch.from_numpy(cohort.y)
    return make_start(
        features, y, cohort.site.tolist(), StartSettings(axes=4)
    ), features


def test_drawn_features_have_the_public_moments_on_the_axes(world):
    start, _ = world
    x = vector.draw_features(start, 40_000, torch.Generator().manual_seed(0))
    z = x @ start.axes
    torch.testing.assert_close(
        z.T @ z / len(z), start.second[:4, :4], atol=0.02, rtol=0.05
    )


def test_every_subject_is_a_correlation_matrix(world):
    start, _ = world
    x = vector.draw_features(start, 50, torch.Generator().manual_seed(1))
    fc = vector.to_fc(start, x)
    assert fc.dtype == torch.float32
    assert fc.shape == (50, 8, 8)
    assert torch.equal(fc.diagonal(dim1=1, dim2=2), torch.ones(50, 8))
    assert float(fc.abs().max()) <= 1.0
    assert float(torch.linalg.eigvalsh(fc.double()).min()) > -1e-5


def test_subjects_have_the_diagnoses_asked_for(world):
    start, _ = world
    head = vector.Head(start.weight * 3, start.bias)
    y = torch.arange(400) % 2
    x = vector.draw_subjects(start, head, y, torch.Generator().manual_seed(2))
    score = x @ head.weight + head.bias
    assert float(score[y == 1].mean()) > float(score[y == 0].mean()) + 0.1
    again = vector.draw_subjects(start, head, y, torch.Generator().manual_seed(2))
    assert torch.equal(x, again)


def test_the_head_of_many_synthetic_subjects_is_the_head(world):
    """Closed form and replay agree: least squares on replayed subjects gives the head back."""
    start, _ = world
    beta = torch.tensor([0.3, -0.2, 0.1, 0.2, 0.1]).double()
    head = vector.Head(*vector.head(start, beta))
    small = vector.Head(head.weight * 0.5, head.bias * 0.5)  # no score leaves [-1, 1]
    rng = torch.Generator().manual_seed(3)
    x = vector.draw_features(start, 60_000, rng)
    patient = torch.rand(len(x), generator=rng).double() < vector.patient_probability(
        small, x
    )
    t = 2.0 * patient.double() - 1.0
    value, vectors = torch.linalg.eigh(x.T @ x / len(x))
    kept = vectors[:, value > 1e-6 * value.max()]
    design = torch.cat([x @ kept, torch.ones(len(x), 1).double()], 1)
    found = torch.linalg.lstsq(design, t[:, None]).solution[:, 0]
    score = design @ found
    wanted = x @ small.weight + small.bias
    assert float(torch.corrcoef(torch.stack([score, wanted]))[0, 1]) > 0.97
    assert float((score - wanted).square().mean().sqrt()) < 0.25 * float(wanted.std())

"""Attacks on sums of contributions: by hand, where they must succeed and where they must fail."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from fcforge.privacy import attacks, noise, release_attacks
from fcforge.privacy.measures import auc
from fcforge.privacy.release_attacks import Expectation


def worlds(n: int, d: int, k: int, noise: float, seed: int = 0):
    """Rows (n, d), halves (k, n) and the sums of the halves (k, d)."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d)) + 0.3
    inside = np.stack([rng.permutation(n) < n // 2 for _ in range(k)])
    return rows, inside, inside @ rows + noise * rng.standard_normal((k, d))


def mean_auc(scores: np.ndarray, inside: np.ndarray) -> float:
    return float(
        np.mean([auc(s[i], s[~i]) for s, i in zip(scores, inside, strict=True)])
    )


def test_likelihood_ratio_by_hand():
    expected = Expectation(
        np.array([[2.0, 0.0]]), np.array([1.0, 0.0]), np.diag([4.0, 1.0])
    )
    rows = np.array([[3.0, 0.0], [1.0, 1.0]])
    found = release_attacks.likelihood_ratio(np.array([[6.0, -1.0]]), rows, expected)
    # person 0: 2 * 4 / 4 - 2^2 / 4 / 2 = 1.5; person 1: 1 * -1 / 1 - 1 / 2 = -1.5
    np.testing.assert_allclose(found, [[1.5, -1.5]], rtol=1e-6)


def test_likelihood_ratio_is_scipys():
    rng = np.random.default_rng(1)
    root = rng.standard_normal((3, 3))
    cov = root @ root.T + np.eye(3)
    mean, rows, total = (
        rng.standard_normal(3),
        rng.standard_normal((4, 3)),
        rng.standard_normal(3),
    )
    found = release_attacks.likelihood_ratio(
        total[None], rows, Expectation(5 * mean[None], mean, cov)
    )

    def density(centre: np.ndarray) -> float:
        return float(multivariate_normal(centre, cov).logpdf(total))

    wanted = [density(5 * mean + v - mean) - density(5 * mean) for v in rows]
    np.testing.assert_allclose(found[0], wanted, rtol=1e-5)


def test_what_an_attacker_expects_by_hand():
    rows = np.array([[0.0, 2.0], [2.0, 2.0], [4.0, 2.0], [6.0, 2.0]])
    found = release_attacks.from_everybody(rows, np.array([2, 2]), 3.0)
    np.testing.assert_allclose(found.total, [[6.0, 4.0], [6.0, 4.0]])
    # variance 20/3 of people; two of four: 2 (1 - 1/2) 20/3, and the noise 9
    np.testing.assert_allclose(found.covariance, [[20 / 3 + 9, 0.0], [0.0, 9.0]])
    many = np.random.default_rng(0).standard_normal((4000, 2)) * [2.0, 1.0]
    seen = release_attacks.from_reference(many, np.array([100]), 0.0)
    np.testing.assert_allclose(
        np.diag(seen.covariance),
        100 * (1 + 100 / 4000) * np.array([4.0, 1.0]),
        rtol=0.1,
    )


def test_leverage_is_that_of_the_released_row():
    rng = np.random.default_rng(2)
    totals, rows = rng.standard_normal((3, 5)), rng.standard_normal((7, 5))
    wanted = [attacks.leverage(rows, total[None]) for total in totals]
    np.testing.assert_allclose(
        release_attacks.leverage(totals, rows), wanted, rtol=1e-6
    )


def test_class_mean_by_hand():
    ref, ref_y = (
        np.array([[0.0], [2.0], [4.0]]),
        np.array([0, 0, 1]),
    )  # means 1 and 4, of all 2
    found = release_attacks.class_mean(
        np.array([[10.0]]),
        np.array([[3.0], [3.0]]),
        np.array([0, 1]),
        ref,
        ref_y,
        np.array([2]),
    )
    np.testing.assert_allclose(found, [[2.0 * 3.0, -1.0 * 3.0]])


def test_losses_by_hand():
    residual, u, step = (
        np.array([1.0, -2.0]),
        np.array([[1.0], [0.5]]),
        np.array([[0.4]]),
    )
    np.testing.assert_allclose(
        release_attacks.loss(residual, u, step), [[-0.36, -4.84]]
    )
    np.testing.assert_allclose(
        release_attacks.loss_drop(residual, u, step), [[0.64, -0.84]]
    )


def test_an_exact_release_of_two_people_gives_both_away():
    rows, inside, totals = worlds(4, 12, 60, 0.0)
    expected = release_attacks.from_everybody(rows, inside.sum(1), 0.0)
    assert (
        mean_auc(release_attacks.likelihood_ratio(totals, rows, expected), inside)
        == 1.0
    )


def test_strangers_give_nobody_away():
    rows, inside, _ = worlds(60, 12, 200, 0.0)
    _, _, totals = worlds(60, 12, 200, 0.0, seed=5)
    for expected in (
        release_attacks.from_everybody(rows, inside.sum(1), 0.0),
        release_attacks.from_reference(
            worlds(40, 12, 1, 0.0, seed=7)[0], inside.sum(1), 0.0
        ),
    ):
        found = release_attacks.likelihood_ratio(totals, rows, expected)
        assert abs(mean_auc(found, inside) - 0.5) < 0.02
    assert abs(mean_auc(release_attacks.leverage(totals, rows), inside) - 0.5) < 0.02


def test_more_noise_and_more_people_hide_better():
    def found(n: int, noise: float) -> float:
        rows, inside, totals = worlds(n, 12, 100, noise)
        expected = release_attacks.from_everybody(rows, inside.sum(1), noise)
        return mean_auc(
            release_attacks.likelihood_ratio(totals, rows, expected), inside
        )

    assert found(40, 0.0) > found(40, 8.0) + 0.05 > found(40, 60.0) + 0.05
    assert found(40, 0.0) > found(200, 0.0) + 0.05


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.5])
def test_no_attack_exceeds_the_ceiling_and_knowing_all_others_reaches_it(sigma):
    rng = np.random.default_rng(3)
    person = np.array([0.6, 0.8])  # contributes as much as anybody may
    without = sigma * rng.standard_normal(
        (20_000, 2)
    )  # the others are known and subtracted
    with_person = person + sigma * rng.standard_normal((20_000, 2))
    found = auc((with_person @ person)[:4000], (without @ person)[:4000])
    ceiling = noise.ceiling(sigma)
    assert ceiling == pytest.approx(norm.cdf(1 / (sigma * 2**0.5)))
    assert found == pytest.approx(ceiling, abs=0.02)

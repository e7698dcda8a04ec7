"""Attacks on planted leaks and on independent samples; oracles where there are any."""

import numpy as np
import pytest
from scipy.stats import gaussian_kde, multivariate_normal, norm

from fcforge.evaluation.privacy import attacks
from fcforge.evaluation.privacy.measures import auc
from fcforge_consortium.privacy import noise

P = 60


def area_of(inside: np.ndarray, outside: np.ndarray) -> float:
    """AUC of people who all count alike."""
    return float(auc(inside, outside, np.ones(len(inside)), np.ones(len(outside))))


def draw(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    axes = np.random.default_rng(99).standard_normal((8, P))
    return rng.standard_normal((n, 8)) @ axes + 0.5 * rng.standard_normal((n, P))


X = draw(80, 0)
REF = draw(60, 1)
Y = np.arange(80) % 2
REF_Y = np.arange(60) % 2
INSIDE = np.arange(80) < 40


def area(scores: np.ndarray) -> float:
    return area_of(scores[INSIDE], scores[~INSIDE])


@pytest.mark.parametrize(
    "attack", [attacks.distance_ratio, attacks.domias, attacks.other_scan]
)
def test_copies_are_found_and_strangers_are_not(attack) -> None:
    copies = np.repeat(X[:40], 3, axis=0)
    assert area(attack(X, copies, REF)) > 0.97
    assert abs(area(attack(X, draw(120, 2), REF)) - 0.5) < 0.12


def test_class_mean_alone_leaks() -> None:
    labels = Y[INSIDE]
    means = np.stack([X[:40][labels == c].mean(0) for c in (0, 1)])
    score = attacks.mean_shift(X, Y, means, np.array([0, 1]), REF, REF_Y)
    assert area(score) > 0.65
    blind = attacks.mean_shift(X, Y, draw(40, 3), labels, REF, REF_Y)
    assert abs(area(blind) - 0.5) < 0.13


def test_kde_is_scipys() -> None:
    points, x = draw(50, 4)[:, :5], draw(20, 5)[:, :5]
    expected = gaussian_kde(points.T).logpdf(x.T)
    np.testing.assert_allclose(attacks.kde_log_density(x, points), expected, atol=1e-6)


def test_domias_is_the_ratio_of_scipys_densities(monkeypatch) -> None:
    monkeypatch.setattr(attacks, "COMPONENTS", 4)
    s = draw(50, 6)
    centre = s.mean(0)
    axes = np.linalg.svd(s - centre, full_matrices=False)[2][:4]
    scores = [(v - centre) @ axes.T for v in (X, s, REF)]
    expected = gaussian_kde(scores[1].T).logpdf(scores[0].T)
    expected = expected - gaussian_kde(scores[2].T).logpdf(scores[0].T)
    np.testing.assert_allclose(attacks.domias(X, s, REF), expected, atol=1e-5)


def test_a_generator_that_always_says_the_same_does_not_break_the_audit() -> None:
    same = np.repeat(X[:1], 20, axis=0) + 1e-9 * draw(20, 7)
    assert np.isfinite(attacks.domias(X, same, REF)).all()
    assert np.isfinite(
        attacks.distance_ratio(X, np.repeat(X[:1], 5, axis=0), REF)
    ).all()


def test_correlations_by_hand() -> None:
    a, b = np.array([[0.0, 0.0, 3.0]]), np.array([[0.0, 4.0, 0.0], [0.0, 0.0, 3.0]])
    np.testing.assert_allclose(
        attacks.correlations(a, b), [[np.corrcoef(a[0], b[0])[0, 1], 1.0]]
    )


def test_fingerprint_links_by_hand() -> None:
    eye = np.eye(4)
    half = eye + 0.1 * np.roll(eye, 1, axis=1)  # the other scan of persons 0..3
    records = np.stack(
        [eye[0], eye[1], eye[2] + 0.9 * eye[3]]
    )  # 0 and 1 copied, 2 and 3 blended
    # 3's scan leads to the blend, the blend to person 2
    by_scan = attacks.linked(half, eye, records, attacks.correlations)
    assert by_scan.tolist() == [1, 1, 1, 0]
    by_distance = attacks.linked(eye, eye, records, attacks.nearness)
    assert by_distance.tolist() == [1, 1, 1, 0]


def test_leverage_sees_who_is_in_the_moments() -> None:
    wide = np.random.default_rng(0).standard_normal((80, 200))
    scores = attacks.leverage(wide, wide[:40])
    assert area(scores) == 1.0
    root = np.linalg.qr(wide[:40], mode="r")
    found = attacks.leverage(wide, root)
    np.testing.assert_allclose(found[:40], scores[:40], atol=1e-3)
    assert area(found) == 1.0
    # more people than features: the textbook hat matrix
    tall = wide[:, :10]
    hat = np.einsum("ij,jk,ik->i", tall, np.linalg.inv(tall[:40].T @ tall[:40]), tall)
    found = attacks.leverage(tall, tall[:40])
    np.testing.assert_allclose(found, -np.log(hat), atol=1e-5)
    others = np.random.default_rng(1).standard_normal((40, 200))
    assert abs(area(attacks.leverage(wide, others)) - 0.5) < 0.15


def test_shadow_models_learn_what_membership_looks_like() -> None:
    rng = np.random.default_rng(0)
    member = (rng.random((10, 60)) < 0.5).astype(int)
    own = 3.0 * rng.standard_normal(
        (1, 60, 1)
    )  # differs between people: a global threshold fails
    features = own + 0.8 * member[..., None] + 0.4 * rng.standard_normal((10, 60, 1))

    def mean_auc(scores: np.ndarray) -> float:
        return float(
            np.mean(
                [
                    area_of(s[m == 1], s[m == 0])
                    for s, m in zip(scores, member, strict=True)
                ]
            )
        )

    assert mean_auc(features[..., 0]) < 0.65
    assert mean_auc(attacks.shadow(features, member)) > 0.85
    noise = rng.standard_normal((10, 60, 2))
    assert abs(mean_auc(attacks.shadow(noise, member)) - 0.5) < 0.1


def test_likelihood_ratio_of_one_person_by_hand() -> None:
    # two people, pooled variances: in 0.5, out 0.5 (plus the error of the means)
    shadows = np.array([[[2.0], [0.0]], [[3.0], [1.0]], [[0.0], [2.0]], [[1.0], [3.0]]])
    inside = np.array([[True, False], [True, False], [False, True], [False, True]])
    own = np.array([[2.5], [0.5]])
    ratio = attacks._ratio(own, shadows, inside)
    # person 0: mu_in 2.5, mu_out 0.5, both variances 0.5 (1 + 1/2); (2.0)^2 / (2 * 0.75)
    np.testing.assert_allclose(ratio, [4.0 / 1.5, -4.0 / 1.5], rtol=1e-4)


# -- on sums ---------------------------------------------------------------------------------------
def worlds(n: int, d: int, k: int, noise: float, seed: int = 0):
    """Rows (n, d), halves (k, n) and the sums of the halves (k, d)."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d)) + 0.3
    inside = np.stack([rng.permutation(n) < n // 2 for _ in range(k)])
    return rows, inside, inside @ rows + noise * rng.standard_normal((k, d))


def mean_auc(scores: np.ndarray, inside: np.ndarray) -> float:
    return float(
        np.mean([area_of(s[i], s[~i]) for s, i in zip(scores, inside, strict=True)])
    )


def test_likelihood_ratio_by_hand():
    sums = np.array([[4.0, -1.0]])  # less what is expected
    rows = np.array([[2.0, 0.0], [0.0, 1.0]])  # less the mean
    zero = np.zeros(2)
    spread = np.diag([4.0, 1.0])
    found = attacks.likelihood_ratio(sums, zero[:1], rows, zero, spread, 0.0)
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
    people = (np.array([5]), rows, mean)
    found = attacks.likelihood_ratio(total[None], *people, cov, 0.0)

    def density(centre: np.ndarray) -> float:
        return float(multivariate_normal(centre, cov).logpdf(total))

    wanted = [density(5 * mean + v - mean) - density(5 * mean) for v in rows]
    np.testing.assert_allclose(found[0], wanted, rtol=1e-5)


def test_what_an_attacker_expects_by_hand(monkeypatch):
    seen = []
    monkeypatch.setattr(attacks, "likelihood_ratio", lambda *given: seen.append(given))
    rows = np.array([[0.0, 2.0], [2.0, 2.0], [4.0, 2.0], [6.0, 2.0]])
    attacks.site_known(np.zeros((2, 2)), np.array([2, 2]), rows, 3.0)
    *_, mean, spread, noise = seen[0]
    np.testing.assert_allclose(mean, [3.0, 2.0])
    # variance 20/3 of people; two of four: 2 (1 - 1/2) 20/3
    np.testing.assert_allclose(spread, [[20 / 3, 0.0], [0.0, 0.0]])
    assert noise == 3.0
    many = np.random.default_rng(0).standard_normal((4000, 2)) * [2.0, 1.0]
    attacks.sample_known(np.zeros((1, 2)), np.array([100]), rows, many, 0.0)
    wanted = 100 * (1 + 100 / 4000) * np.array([4.0, 1.0])
    np.testing.assert_allclose(np.diag(seen[1][4]), wanted, rtol=0.1)


def test_class_mean_of_a_sum_by_hand():
    ref, ref_y = (
        np.array([[0.0], [2.0], [4.0]]),
        np.array([0, 0, 1]),
    )  # means 1 and 4, of all 2
    rows = np.array([[3.0], [3.0]])
    given = (np.array([[10.0]]), np.array([2]), rows, np.array([0, 1]))
    found = attacks.sum_shift(*given, ref, ref_y)
    np.testing.assert_allclose(found, [[2.0 * 3.0, -1.0 * 3.0]])


def test_how_much_better_a_head_fits_by_hand():
    residual, u, step = (
        np.array([1.0, -2.0]),
        np.array([[1.0], [0.5]]),
        np.array([[0.4]]),
    )
    np.testing.assert_allclose(attacks.loss_drop(residual, u, step), [[0.64, -0.84]])


def test_an_exact_release_of_two_people_gives_both_away():
    rows, inside, totals = worlds(4, 12, 60, 0.0)
    found = attacks.site_known(totals, inside.sum(1), rows, 0.0)
    assert mean_auc(found, inside) == 1.0


def test_strangers_give_nobody_away():
    rows, inside, _ = worlds(60, 12, 200, 0.0)
    _, _, totals = worlds(60, 12, 200, 0.0, seed=5)
    given = (totals, inside.sum(1), rows)
    reference = worlds(40, 12, 1, 0.0, seed=7)[0]
    known = attacks.site_known(*given, 0.0)
    sampled = attacks.sample_known(*given, reference, 0.0)
    for found in (known, sampled):
        assert abs(mean_auc(found, inside) - 0.5) < 0.02


def test_more_noise_and_more_people_hide_better():
    def found(n: int, noise: float) -> float:
        rows, inside, totals = worlds(n, 12, 100, noise)
        known = attacks.site_known(totals, inside.sum(1), rows, noise)
        return mean_auc(known, inside)

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
    found = area_of((with_person @ person)[:4000], (without @ person)[:4000])
    ceiling = noise.ceiling(sigma)
    assert ceiling == pytest.approx(norm.cdf(1 / (sigma * 2**0.5)))
    assert found == pytest.approx(ceiling, abs=0.02)

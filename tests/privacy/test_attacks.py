"""Attacks on planted leaks and on independent samples; oracles where there are any."""

import numpy as np
import pytest
from scipy.stats import gaussian_kde

from fcforge.privacy import attacks
from fcforge.privacy.measures import auc

P = 60


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
    return auc(scores[INSIDE], scores[~INSIDE])


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


def test_domias_is_the_ratio_of_scipys_densities() -> None:
    s = draw(50, 6)
    centre = s.mean(0)
    axes = np.linalg.svd(s - centre, full_matrices=False)[2][:4]
    scores = [(v - centre) @ axes.T for v in (X, s, REF)]
    expected = gaussian_kde(scores[1].T).logpdf(scores[0].T)
    expected = expected - gaussian_kde(scores[2].T).logpdf(scores[0].T)
    np.testing.assert_allclose(attacks.domias(X, s, REF, 4), expected, atol=1e-5)


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
    eye, zero = np.eye(4), np.zeros((1, 4))
    half = eye + 0.1 * np.roll(eye, 1, axis=1)  # the other scan of persons 0..3
    records = np.stack(
        [eye[0], eye[1], eye[2] + 0.9 * eye[3]]
    )  # 0 and 1 copied, 2 and 3 blended
    # 3's scan leads to the blend, the blend to person 2
    np.testing.assert_array_equal(
        attacks.linked_by_scan(half, eye, records, zero), [1, 1, 1, 0]
    )
    np.testing.assert_array_equal(
        attacks.linked_by_distance(eye, records), [1, 1, 1, 0]
    )


def test_leverage_sees_who_is_in_the_moments() -> None:
    wide = np.random.default_rng(0).standard_normal((80, 200))
    moments = wide[:40].T @ wide[:40]
    scores = attacks.leverage(wide, moments)
    assert area(scores) == 1.0
    root = np.linalg.qr(wide[:40], mode="r")
    np.testing.assert_allclose(
        attacks.leverage(wide, root)[:40], scores[:40], atol=1e-3
    )
    assert area(attacks.leverage(wide, root)) == 1.0
    # more people than features: the textbook hat matrix
    tall = wide[:, :10]
    hat = np.einsum("ij,jk,ik->i", tall, np.linalg.inv(tall[:40].T @ tall[:40]), tall)
    found = attacks.leverage(tall, tall[:40].T @ tall[:40])
    np.testing.assert_allclose(found, -np.log(hat), atol=1e-5)
    others = np.random.default_rng(1).standard_normal((40, 200))
    assert abs(area(attacks.leverage(wide, others.T @ others)) - 0.5) < 0.15


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
                [auc(s[m == 1], s[m == 0]) for s, m in zip(scores, member, strict=True)]
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

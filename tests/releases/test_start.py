"""The start: hand-computed pieces, what it promises, and that it is the same everywhere."""

import numpy as np
import pytest
from public_people import people

from fcforge.errors import DataError
from fcforge.releases import start as module
from fcforge.releases.start import StartSettings, make_start


def test_rounding_keeps_twelve_bits():
    values = np.array([0.0, 1.0, -1.0 / 3.0, 1e-9, 12345.678, np.inf])
    kept = module.rounded(values)
    assert kept[0] == 0
    assert kept[1] == 1
    assert np.isinf(kept[5])
    wrong = np.abs((kept[1:5] - values[1:5]) / values[1:5])
    assert float(wrong.max()) <= 2.0**-12
    assert np.array_equal(module.rounded(kept), kept)
    # what two machines differ by does not show
    assert np.array_equal(module.rounded(values * (1 + 1e-13)), kept)


def test_leave_one_out_is_leaving_one_out():
    x, y, _ = people(12, 4)
    x = x - x.mean(0)
    t = 2.0 * y - 1
    coefficient, left_out = module.leave_one_out(x @ x.T, t, 0.7)
    w = np.linalg.solve(x.T @ x + 0.7 * np.eye(4), x.T @ (t - t.mean()))
    np.testing.assert_allclose(x.T @ coefficient, w)
    for i in range(12):
        rest = [k for k in range(12) if k != i]
        design = np.concatenate([np.ones((11, 1)), x[rest]], 1)
        penalty = 0.7 * np.eye(5)
        penalty[0, 0] = 0
        beta = np.linalg.solve(design.T @ design + penalty, design.T @ t[rest])
        assert float(left_out[i]) == pytest.approx(
            float(beta[0] + x[i] @ beta[1:]), abs=1e-9
        )


def test_temperature_is_the_logistic_optimum():
    rng = np.random.default_rng(0)
    score = rng.normal(size=4000)
    share = 1 / (1 + np.exp(-score / 0.4))
    t = np.where(rng.random(4000) < share, 1.0, -1.0)
    found = module.fit_temperature(score, t)
    assert found == pytest.approx(0.4, rel=0.1)
    slope = (t * score / (1 + np.exp(t * score / found))).sum()
    assert abs(float(slope)) < 1e-6


def test_axes_are_half_whitened_with_median_norm_one():
    x, y, site = people()
    made = make_start(x, y, site, StartSettings(axes=4))
    z = made.standardise(x) @ made.axes
    middle = np.quantile(np.linalg.norm(z, axis=1), 0.5, method="lower")
    assert middle == pytest.approx(1.0, abs=1e-3)
    cov = z.T @ z / len(z)
    np.testing.assert_allclose(cov, np.diag(cov.diagonal()), atol=1e-3)
    # spread s of a principal axis becomes sqrt(s): ratios of variances are square roots
    x0 = made.standardise(x)
    value = np.linalg.eigvalsh(x0.T @ x0 / len(x0))[::-1][:4]
    np.testing.assert_allclose(
        cov.diagonal() / cov[0, 0], (value / value[0]) ** 0.5, atol=2e-3
    )


def test_second_moments_clip_and_spreads():
    x, y, site = people()
    made = make_start(x, y, site, StartSettings(axes=3))
    u = module.coordinates(made, made.standardise(x))
    np.testing.assert_allclose(made.second, u.T @ u / len(u), rtol=1e-3, atol=1e-6)
    assert np.array_equal(u[:, -1], np.full(60, 0.5))
    assert 0 < float(made.clip) < 2 * np.linalg.norm(u, axis=1).max()
    wider = make_start(x, y, site, StartSettings(axes=3, clip=0.9))
    assert float(wider.clip) > float(made.clip)


def test_spreads_of_one_way_random_effects_by_hand():
    z = np.array([[0.0], [2.0], [10.0], [12.0]])
    persons, sites = module.between(z, ["a", "a", "b", "b"])
    assert float(persons[0]) == pytest.approx(2.0**0.5)  # pooled variance 2
    assert float(sites[0]) == pytest.approx(
        ((100.0 - 2.0) / 2) ** 0.5
    )  # (MSB - MSW) / n0
    alone = module.between(z, ["a"] * 4)[1]
    assert float(alone[0]) == 0.0


def test_pls_axes_are_orthonormal_and_begin_with_the_covariance():
    x, y, _ = people(40, 8)
    x = x - x.mean(0)
    t = 2.0 * y - 1
    axes = module.pls_axes(x, t, 3)
    np.testing.assert_allclose(axes.T @ axes, np.eye(3), atol=1e-10)
    first = x.T @ (t - t.mean())
    assert abs(float(first @ axes[:, 0] / np.linalg.norm(first))) == pytest.approx(1.0)


def test_same_people_same_start_in_any_order_and_with_rounding_noise():
    x, y, site = people()
    made = make_start(x, y, site)
    assert make_start(x, y, site).digest == made.digest
    assert make_start(x * (1 + 1e-13), y, site).digest == made.digest
    other = x.copy()
    other[0, 0] += 0.5
    assert make_start(other, y, site).digest != made.digest


def test_a_flat_feature_weighs_nothing():
    x, y, site = people()
    x[:, 7] = 3.0
    made = make_start(x, y, site, StartSettings(axes=4))
    assert abs(float(made.weight[7])) < 1e-9
    assert np.abs(made.axes[7]).max() < 1e-9


@pytest.mark.parametrize(("n", "ones"), [(10, 5), (30, 2)])
def test_too_few_people_are_refused(n, ones):
    x, _, site = people(n)
    y = np.zeros(n, dtype=int)
    y[:ones] = 1
    with pytest.raises(DataError, match=r"public people .* are too few for 16 axes"):
        make_start(x, y, site)

"""Space of contributions: coordinates by hand, clip, axes, and equal results everywhere."""

import numpy as np
import pytest
from public_people import people

from fcforge.base_model.calibration import class_logits, vertices
from fcforge.base_model.model import digest_of
from fcforge.core.errors import DataError
from fcforge_consortium.base_model import space as module
from fcforge_consortium.base_model.space import SpaceSettings, fit_base_and_space


def test_a_start_of_three_classes_is_ridge_of_each_column():
    """Scikit-learn's ridge on the corners; a class with four people is refused."""
    from sklearn.linear_model import Ridge

    x, y, _ = people(60, 12, classes=3)
    start = fit_base_and_space(x, y, SpaceSettings(axes=4), 2)
    z = start.base.standardise(x)
    fitted = Ridge(alpha=12.0).fit(z, vertices(3)[y])
    np.testing.assert_allclose(start.base.score(z), fitted.predict(z), atol=2e-3)
    assert (start.columns, start.n_numbers) == (2, 2 * (12 + 1) + 1)
    called = class_logits(start.base.score(z)).argmax(1)
    assert (called == y).mean() > 0.6
    few = np.where(np.arange(60) < 4, 2, np.arange(60) % 2)
    with pytest.raises(DataError, match="4 of the rarest class"):
        fit_base_and_space(x, few, SpaceSettings(axes=4), 2)


def test_principal_axes_by_scikit():
    from sklearn.decomposition import PCA

    x, _, _ = people(30, 8)
    x = x - x.mean(0)
    axes, variance = module.principal_axes(x, 3)
    fitted = PCA(3).fit(x)
    np.testing.assert_allclose(np.abs(axes.T), np.abs(fitted.components_), atol=1e-3)
    whole = (x**2).sum() / 30 / 8
    wanted = (x @ axes).var(0) / 8
    np.testing.assert_allclose(variance[:-1], wanted, rtol=1e-3)
    assert variance[-1] == pytest.approx((whole - wanted.sum()) / 5, rel=1e-2)
    lead = np.abs(axes).argmax(0)
    assert (axes[lead, np.arange(3)] > 0).all()
    axes, variance = module.principal_axes(x, 100)
    assert axes.shape == (8, 8)
    assert variance[-1] == 0  # exactly, on every CPU: no direction is left


@pytest.mark.parametrize("gamma", [0.0, 0.25, 1.0])
def test_coordinates_by_hand(gamma):
    """Half whitened with shrunk variances; the weight of all but the first directions is gamma."""
    x, y, _ = people()
    settings = SpaceSettings(axes=2, gamma=gamma, directions=4, even=0.5)
    made = fit_base_and_space(x, y, settings)
    p = 45
    z = made.base.standardise(x)
    h = 0.5 * made.variance + 0.5 / p
    weight = np.array([1.0, 1.0, gamma, gamma, gamma])
    scale = weight / h**0.25 / made.size / p**0.5
    along = (z @ made.axes) * scale[:-1]
    off = (z - (z @ made.axes) @ made.axes.T) * scale[-1]
    u = made.coordinates(z)
    assert np.array_equal(u[:, -1], np.full(60, 0.5))
    if gamma:
        wanted = along @ made.axes.T + off
        np.testing.assert_allclose(u[:, :-1], wanted, atol=1e-12)
        assert made.n_numbers == p + 2
    else:
        np.testing.assert_allclose(u[:, :-1], along[:, :2], atol=1e-12)
        assert made.n_numbers == 4
    middle = np.median(np.linalg.norm(u[:, :-1], axis=1))
    assert middle == pytest.approx(1.0, abs=1e-3)


def test_second_moments_are_those_of_the_shrunk_variances():
    x, y, _ = people()
    made = fit_base_and_space(x, y, SpaceSettings(axes=2, directions=4, even=1e-9))
    u = made.coordinates(made.base.standardise(x))[:, :-1]
    along = ((u @ made.axes) ** 2).mean(0)
    np.testing.assert_allclose(made.second[:-1], along, rtol=2e-2)


def test_clip_is_a_quantile_of_what_public_people_would_give():
    x, y, _ = people()
    made = fit_base_and_space(x, y)
    u = made.coordinates(made.base.standardise(x))
    assert 0 < made.clip < 2 * np.linalg.norm(u, axis=1).max()
    assert fit_base_and_space(x, y, SpaceSettings(clip=0.9)).clip > made.clip
    assert made.grid * 2**20 == made.clip


def digest(space):
    return digest_of(space.arrays())


def test_same_people_same_start_in_any_order_and_with_rounding_noise():
    x, y, _ = people()
    made = fit_base_and_space(x, y)
    assert digest(fit_base_and_space(x, y)) == digest(made)
    assert digest(fit_base_and_space(x * (1 + 1e-13), y)) == digest(made)
    other = x.copy()
    other[0, 0] += 0.5
    assert digest(fit_base_and_space(other, y)) != digest(made)


def test_a_flat_feature_weighs_nothing():
    x, y, _ = people()
    x[:, 7] = 3.0
    made = fit_base_and_space(x, y, SpaceSettings(axes=4))
    assert abs(float(made.base.weight[7])) < 1e-9
    assert np.abs(made.axes[7]).max() < 1e-9


@pytest.mark.parametrize(
    ("n", "axes", "match"), [(10, 8, "are too few"), (22, 20, "for 20 axes")]
)
def test_too_few_people_are_refused(n, axes, match):
    x, y, _ = people(n)
    with pytest.raises(DataError, match=match):
        fit_base_and_space(x, y, SpaceSettings(axes=axes))

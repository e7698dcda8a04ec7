"""The start: hand-computed pieces, what it promises, and that it is the same everywhere."""

import pytest
import torch
from public_people import people

from fcforge.errors import DataError
from fcforge.releases import start as module
from fcforge.releases.start import StartSettings, make_start


def test_rounding_keeps_twelve_bits():
    values = torch.tensor([0.0, 1.0, -1.0 / 3.0, 1e-9, 12345.678, torch.inf])
    kept = module.rounded(values)
    assert kept[0] == 0
    assert kept[1] == 1
    assert torch.isinf(kept[5])
    wrong = ((kept - values) / values)[1:5].abs()
    assert float(wrong.max()) <= 2.0**-12
    assert torch.equal(module.rounded(kept), kept)
    # what two machines differ by does not show
    assert torch.equal(module.rounded(values * (1 + 1e-13)), kept)


def test_leave_one_out_is_leaving_one_out():
    x, y, _ = people(12, 4)
    x = x - x.mean(0)
    t = 2.0 * y.double() - 1
    coefficient, left_out = module.leave_one_out(x @ x.T, t, 0.7)
    w = torch.linalg.solve(x.T @ x + 0.7 * torch.eye(4).double(), x.T @ (t - t.mean()))
    torch.testing.assert_close(x.T @ coefficient, w)
    for i in range(12):
        rest = [k for k in range(12) if k != i]
        design = torch.cat([torch.ones(11, 1).double(), x[rest]], 1)
        penalty = 0.7 * torch.eye(5).double()
        penalty[0, 0] = 0
        beta = torch.linalg.solve(design.T @ design + penalty, design.T @ t[rest])
        assert float(left_out[i]) == pytest.approx(
            float(beta[0] + x[i] @ beta[1:]), abs=1e-9
        )


def test_temperature_is_the_logistic_optimum():
    rng = torch.Generator().manual_seed(0)
    score = torch.randn(4000, generator=rng, dtype=torch.float64)
    t = torch.where(
        torch.rand(4000, generator=rng).double() < torch.sigmoid(score / 0.4), 1.0, -1.0
    )
    found = module.fit_temperature(score, t.double())
    assert found == pytest.approx(0.4, rel=0.1)
    slope = (t * score * torch.sigmoid(-t * score / found)).sum()
    assert abs(float(slope)) < 1e-6


def test_axes_are_half_whitened_with_median_norm_one():
    x, y, site = people()
    made = make_start(x, y, site, StartSettings(axes=4))
    z = made.standardise(x) @ made.axes
    assert float(z.norm(dim=1).median()) == pytest.approx(1.0, abs=1e-3)
    cov = z.T @ z / len(z)
    torch.testing.assert_close(cov, torch.diag(cov.diagonal()), atol=1e-3, rtol=0)
    # spread s of a principal axis becomes sqrt(s): ratios of variances are square roots
    x0 = made.standardise(x)
    value = torch.linalg.eigvalsh(x0.T @ x0 / len(x0)).flip(0)[:4]
    torch.testing.assert_close(
        cov.diagonal() / cov[0, 0], (value / value[0]).sqrt(), atol=2e-3, rtol=0
    )


def test_second_moments_clip_and_spreads():
    x, y, site = people()
    made = make_start(x, y, site, StartSettings(axes=3))
    u = module.coordinates(made, made.standardise(x))
    torch.testing.assert_close(made.second, u.T @ u / len(u), rtol=1e-3, atol=1e-6)
    assert torch.equal(u[:, -1], torch.full((60,), 0.5).double())
    assert 0 < float(made.clip) < 2 * float(u.norm(dim=1).max())
    wider = make_start(x, y, site, StartSettings(axes=3, clip=0.9))
    assert float(wider.clip) > float(made.clip)


def test_spreads_of_one_way_random_effects_by_hand():
    z = torch.tensor([[0.0], [2.0], [10.0], [12.0]]).double()
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
    t = 2.0 * y.double() - 1
    axes = module.pls_axes(x, t, 3)
    torch.testing.assert_close(axes.T @ axes, torch.eye(3).double(), atol=1e-10, rtol=0)
    first = x.T @ (t - t.mean())
    assert abs(float(first @ axes[:, 0] / first.norm())) == pytest.approx(1.0)


def test_same_people_same_start_in_any_order_and_with_rounding_noise():
    x, y, site = people()
    made = make_start(x, y, site)
    assert make_start(x, y, site).digest == made.digest
    assert make_start(x * (1 + 1e-13), y, site).digest == made.digest
    other = x.clone()
    other[0, 0] += 0.5
    assert make_start(other, y, site).digest != made.digest


def test_a_flat_feature_weighs_nothing():
    x, y, site = people()
    x[:, 7] = 3.0
    made = make_start(x, y, site, StartSettings(axes=4))
    assert abs(float(made.weight[7])) < 1e-9
    assert float(made.axes[7].abs().max()) < 1e-9


@pytest.mark.parametrize(("n", "ones"), [(10, 5), (30, 2)])
def test_too_few_people_are_refused(n, ones):
    x, _, site = people(n)
    y = torch.zeros(n, dtype=torch.int64)
    y[:ones] = 1
    with pytest.raises(DataError, match=r"public people .* are too few for 16 axes"):
        make_start(x, y, site)

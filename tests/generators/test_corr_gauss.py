"""Gaussians of matrix logarithms: moments by hand, class means that are met, what is kept."""

import pytest
import torch

from fcforge.core.errors import ConfigError
from fcforge.core.randomness import torch_rng
from fcforge.generators import matching
from fcforge.generators.coordinates import from_off_log
from fcforge.generators.corr_gauss import CorrGauss
from fcforge.generators.gaussian import (
    class_means,
    residual_factors,
    residual_noise,
    within_class_variance,
)
from fcforge.generators.matching import FEW, decode, matched_scale, target_means
from fcforge.graphs import edges, from_edges, log_edges


def difference(fc: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    e = edges(fc)
    return e[y == 1].mean(0) - e[y == 0].mean(0)


def test_corr_gauss_is_valid_and_carries_means_variance_and_class(small_site) -> None:
    gen = CorrGauss()
    labels = torch.arange(600) % 2
    out = gen.sample(gen.fit(small_site, torch_rng(0)), labels, torch_rng(1))
    assert torch.linalg.eigvalsh(out.fc.double()).min() > 0
    real, fake = edges(small_site.fc), edges(out.fc)
    assert (real.mean(0) - fake.mean(0)).abs().mean() < 0.04
    ratio = (
        within_class_variance(fake, labels).mean()
        / within_class_variance(real, small_site.y).mean()
    )
    assert 0.85 < ratio < 1.15
    pair = torch.stack(
        [difference(small_site.fc, small_site.y), difference(out.fc, labels)]
    )
    assert torch.corrcoef(pair)[0, 1] > 0.9


def test_the_scale_moves_the_variance_to_the_subjects(small_site) -> None:
    labels = torch.arange(300) % 2
    gen = CorrGauss()
    state = gen.fit(small_site, torch_rng(0))
    real = within_class_variance(edges(small_site.fc), small_site.y).mean()
    ratios = []
    for scale in (state.model.scale, torch.tensor(1.0)):
        changed = state._replace(model=state.model._replace(scale=scale))
        out = gen.sample(changed, labels, torch_rng(1))
        ratios.append(within_class_variance(edges(out.fc), labels).mean() / real)
    assert abs(ratios[0] - 1) < abs(ratios[1] - 1)


def test_moments_of_the_coordinates_are_those_of_the_subjects(small_site) -> None:
    """The state has their means; noise in off-log coordinates has their covariance."""
    state = CorrGauss().fit(small_site, torch_rng(0))
    x = log_edges(small_site.fc, 0.02)
    noise = residual_noise(*residual_factors(x, small_site.y, 0.0), 20000, torch_rng(1))
    for c in (0, 1):
        torch.testing.assert_close(state.model.mean[c], x[small_site.y == c].mean(0))
    residual = torch.cat(
        [x[small_site.y == c] - x[small_site.y == c].mean(0) for c in (0, 1)]
    )
    expected = residual.T @ residual / 38
    error = (torch.cov(noise.T) - expected).norm() / expected.norm()
    assert float(error) < 0.08  # sampling error of 20,000 draws is about 0.035


def test_class_keep_does_what_it_says(small_site) -> None:
    state = CorrGauss(class_keep=0.0).fit(small_site, torch_rng(0))
    assert state.model.factors.shape == (38, 66)
    torch.testing.assert_close(state.model.mean[0], state.model.mean[1])
    torch.testing.assert_close(state.model.class_fc[0], state.model.class_fc[1])


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"shrink = 1.0 is not a share below 1"):
        CorrGauss(shrink=1.0)


def data() -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    y = torch.tensor([0, 1] * 10)
    return torch.randn(20, 30, generator=rng) @ torch.randn(30, 30, generator=rng) + y[
        :, None
    ], y


def test_class_means_by_hand() -> None:
    x = torch.tensor([[0.0], [2.0], [4.0]])
    assert class_means(x, torch.tensor([0, 0, 1])).flatten().tolist() == [1.0, 4.0]
    assert class_means(x, torch.tensor([0, 0, 1]), keep=0.0).flatten().tolist() == [
        2.5,
        2.5,
    ]
    assert class_means(x, torch.tensor([1, 1, 1])).flatten().tolist() == [2.0, 2.0]


def test_factors_give_the_pooled_covariance() -> None:
    x, y = data()
    residual = torch.cat([x[y == c] - x[y == c].mean(0) for c in (0, 1)])
    cov = residual.T @ residual / 18
    factors, diagonal = residual_factors(x, y, shrink=0.0)
    assert factors.shape[0] == 18
    # The diagonal absorbs rounding only.
    assert torch.allclose(
        factors.T @ factors + diagonal.square().diag(), cov, rtol=1e-3, atol=1e-2
    )


def test_shrinkage_keeps_every_variance() -> None:
    x, y = data()
    factors, diagonal = residual_factors(x, y, 0.4)
    variance = factors.square().sum(0) + diagonal.square()
    assert torch.allclose(variance, within_class_variance(x, y), rtol=1e-4)


def test_shrinkage_scales_correlations() -> None:
    x, y = data()
    full, _ = residual_factors(x, y, 0.0)
    less, _ = residual_factors(x, y, 0.4)
    assert torch.allclose(0.6 * full.T @ full, less.T @ less, rtol=1e-3, atol=1e-2)


def test_samples_have_the_moments() -> None:
    x, y = data()
    means = class_means(x, y)
    factors, diagonal = residual_factors(x, y, 0.2)
    asked = torch.arange(8000) % 2
    rng = torch.Generator().manual_seed(3)
    out = means[asked] + residual_noise(factors, diagonal, 8000, rng)
    error = within_class_variance(x, y).sqrt() / 4000**0.5
    assert ((class_means(out, asked) - means).abs() < 6 * error).all()
    ratio = within_class_variance(out, asked) / within_class_variance(x, y)
    assert ratio.min() > 0.85
    assert ratio.max() < 1.15


def test_class_means_of_a_small_set_are_moved_to_the_target(
    small_site, monkeypatch
) -> None:
    gen = CorrGauss()
    state = gen.fit(small_site, torch_rng(0))
    labels = torch.tensor([0, 1] * 10)
    errors = []
    for few in (FEW, 11):
        monkeypatch.setattr(matching, "FEW", few)  # 10 of a class are too few then
        out = gen.sample(state, labels, torch_rng(1)).fc
        gap = [
            (out[labels == c].mean(0) - state.model.class_fc[c]).abs().mean()
            for c in (0, 1)
        ]
        errors.append(float(sum(gap)))
    assert errors[0] < 0.25 * errors[1]


def test_target_is_the_shrunk_class_mean(small_site) -> None:
    means = target_means(small_site, 0.1)
    expected = 0.9 * small_site.fc[small_site.y == 1].mean(0) + 0.1 * torch.eye(12)
    assert torch.allclose(means[1], expected, atol=1e-6)


def test_few_subjects_are_decoded_by_the_inverse_map(small_site) -> None:
    state = CorrGauss().fit(small_site, torch_rng(0))
    y = torch.tensor([0, 1])
    fc = decode(state.model.mean, y, state.model.start, state.model.class_fc)
    assert torch.linalg.eigvalsh(fc).min() > 0
    torch.testing.assert_close(log_edges(fc, 0.0), state.model.mean, atol=1e-2, rtol=0)


def test_scale_is_the_ratio_of_standard_deviations(small_site) -> None:
    """Edges whose variance is scale^2 times a known one: two secant steps find the root."""
    sd = 0.02
    noise = 2 * (torch.arange(64) % 4 >= 2).float() - 1  # +-1 within either class

    def draw(scale):
        return from_edges(scale * sd * noise[:, None] * torch.ones(64, 66))

    spread = within_class_variance(edges(draw(1.0)), torch.arange(64) % 2).mean()
    real = within_class_variance(edges(small_site.fc), small_site.y).mean()
    expected = min(float((0.9**2 * real / spread).sqrt()), 4.0)
    assert float(matched_scale(draw, small_site, 0.1)) == pytest.approx(
        expected, rel=1e-5
    )


def test_scale_is_bounded_where_all_samples_are_alike(small_site) -> None:
    flat = torch.eye(12).expand(64, 12, 12)
    assert float(matched_scale(lambda scale: flat, small_site, 0.0)) == 4.0


def test_only_a_class_of_enough_subjects_is_moved(small_site) -> None:
    state = CorrGauss().fit(small_site, torch_rng(0))
    y = torch.tensor([0] * FEW + [1] * (FEW - 1))
    x = state.model.mean[y] + 0.1
    plain, _ = from_off_log(x, start=state.model.start, tol=matching.TOLERANCE)
    moved = decode(x, y, state.model.start, state.model.class_fc)
    assert torch.allclose(moved[y == 1], plain[y == 1], atol=1e-3)
    gap = (moved[y == 0].mean(0) - state.model.class_fc[0]).abs().mean()
    assert gap < 0.1 * (plain[y == 0].mean(0) - state.model.class_fc[0]).abs().mean()


def test_many_rois_are_decoded_nearly_alike(small_site, monkeypatch) -> None:
    """Above `LARGE` ROIs the last steps are taken to first order: the same subjects, nearly."""
    generator = CorrGauss()
    state = generator.fit(small_site, torch.Generator().manual_seed(0))
    y = (torch.arange(40) >= 20).long()

    def sample():
        return generator.sample(state, y, torch.Generator().manual_seed(1)).fc

    exact = sample()
    monkeypatch.setattr(matching, "LARGE", 2)
    found = sample()
    assert not torch.equal(found, exact)
    assert (found - exact).square().mean().sqrt() < 3e-3
    assert torch.linalg.eigvalsh(found.double()).min() > 0

import torch

from fcforge.generators.corr_gauss import (
    class_means,
    mirrored_normal,
    residual_factors,
    residual_noise,
    within_class_variance,
)


def data() -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    y = torch.tensor([0, 1] * 10)
    return torch.randn(20, 30, generator=rng) @ torch.randn(30, 30, generator=rng) + y[:, None], y


def test_class_means_by_hand() -> None:
    x = torch.tensor([[0.0], [2.0], [4.0]])
    assert class_means(x, torch.tensor([0, 0, 1])).flatten().tolist() == [1.0, 4.0]
    assert class_means(x, torch.tensor([0, 0, 1]), keep=0.0).flatten().tolist() == [2.5, 2.5]
    assert class_means(x, torch.tensor([1, 1, 1])).flatten().tolist() == [2.0, 2.0]


def test_factors_give_the_pooled_covariance() -> None:
    x, y = data()
    residual = torch.cat([x[y == c] - x[y == c].mean(0) for c in (0, 1)])
    cov = residual.T @ residual / 18
    factors, diagonal = residual_factors(x, y, shrink=0.0)
    assert factors.shape[0] == 18
    # The diagonal absorbs rounding only.
    assert torch.allclose(factors.T @ factors + diagonal.square().diag(), cov, rtol=1e-3, atol=1e-2)


def test_shrinkage_and_rank_keep_every_variance() -> None:
    x, y = data()
    for shrink, rank in ((0.4, None), (0.1, 3)):
        factors, diagonal = residual_factors(x, y, shrink, rank)
        variance = factors.square().sum(0) + diagonal.square()
        assert torch.allclose(variance, within_class_variance(x, y), rtol=1e-4)
        assert rank is None or factors.shape[0] == rank


def test_shrinkage_scales_correlations() -> None:
    x, y = data()
    full, _ = residual_factors(x, y, 0.0)
    less, _ = residual_factors(x, y, 0.4)
    assert torch.allclose(0.6 * full.T @ full, less.T @ less, rtol=1e-3, atol=1e-2)


def test_antithetic_pairs_mirror_within_a_class() -> None:
    groups = torch.tensor([0, 1, 0, 1, 1])
    noise = mirrored_normal(groups, 3, torch.Generator().manual_seed(0), True)
    assert torch.equal(noise[0], -noise[2])
    assert torch.equal(noise[1], -noise[3])
    assert not torch.equal(noise[4].abs(), noise[1].abs())


def test_samples_have_the_moments() -> None:
    x, y = data()
    means = class_means(x, y)
    factors, diagonal = residual_factors(x, y, 0.2)
    asked = torch.arange(8000) % 2
    rng = torch.Generator().manual_seed(3)
    out = means[asked] + residual_noise(factors, diagonal, asked, rng, mirrored=True)
    assert torch.allclose(class_means(out, asked), means, atol=1e-4)
    ratio = within_class_variance(out, asked) / within_class_variance(x, y)
    assert ratio.min() > 0.85
    assert ratio.max() < 1.15

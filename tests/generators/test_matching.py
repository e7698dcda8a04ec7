import pytest
import torch

from fcforge.generators.corr_gauss import (
    FEW,
    CorrGauss,
    decode,
    matched_scale,
    target_means,
    within_class_variance,
)
from fcforge.graphs import edges, from_edges
from fcforge.randomness import torch_rng


def test_class_means_of_a_small_set_are_moved_to_the_target(small_site) -> None:
    gen = CorrGauss(mean_match=False)
    state = gen.fit(small_site, torch_rng(0))
    labels = torch.tensor([0, 1] * 10)
    errors = {}
    for match in (False, True):
        out = CorrGauss(mean_match=match).sample(state, labels, torch_rng(1)).fc
        gap = [(out[labels == c].mean(0) - state["class_fc"][c]).abs().mean() for c in (0, 1)]
        errors[match] = float(sum(gap))
    assert errors[True] < 0.25 * errors[False]


def test_few_subjects_are_left_alone(small_site) -> None:
    state = CorrGauss().fit(small_site, torch_rng(0))
    labels = torch.tensor([0, 1, 1])
    a = CorrGauss(mean_match=True).sample(state, labels, torch_rng(1)).fc
    b = CorrGauss(mean_match=False).sample(state, labels, torch_rng(1)).fc
    assert torch.equal(a, b)


def test_target_is_the_shrunk_class_mean(small_site) -> None:
    means = target_means(small_site, 0.1)
    expected = 0.9 * small_site.fc[small_site.y == 1].mean(0) + 0.1 * torch.eye(12)
    assert torch.allclose(means[1], expected, atol=1e-6)


def test_decode_without_target_is_the_inverse_map(small_site) -> None:
    state = CorrGauss().fit(small_site, torch_rng(0))
    fc = decode(state["mean"], torch.tensor([0, 1]), state["start"])
    assert torch.linalg.eigvalsh(fc).min() > 0


def test_scale_is_the_ratio_of_standard_deviations(small_site) -> None:
    """Edges whose variance is scale^2 times a known one: two secant steps find the root."""
    sd = 0.02
    noise = 2 * (torch.arange(64) % 4 >= 2).float() - 1  # +-1 within either class

    def draw(scale, y):
        return from_edges(scale * sd * noise[:, None] * torch.ones(64, 66))

    spread = within_class_variance(edges(draw(1.0, None)), torch.arange(64) % 2).mean()
    real = within_class_variance(edges(small_site.fc), small_site.y).mean()
    expected = min(float((0.9**2 * real / spread).sqrt()), 4.0)
    assert float(matched_scale(draw, small_site, 0.1)) == pytest.approx(expected, rel=1e-5)


def test_scale_is_bounded_where_all_samples_are_alike(small_site) -> None:
    flat = matched_scale(lambda scale, y: torch.eye(12).expand(64, 12, 12), small_site, 0.0)
    assert float(flat) == 4.0


def test_only_a_class_of_enough_subjects_is_moved(small_site) -> None:
    state = CorrGauss().fit(small_site, torch_rng(0))
    y = torch.tensor([0] * FEW + [1] * (FEW - 1))
    x = state["mean"][y] + 0.1
    plain = decode(x, y, state["start"])
    moved = decode(x, y, state["start"], state["class_fc"])
    assert torch.allclose(moved[y == 1], plain[y == 1], atol=1e-3)
    gap = (moved[y == 0].mean(0) - state["class_fc"][0]).abs().mean()
    assert gap < 0.1 * (plain[y == 0].mean(0) - state["class_fc"][0]).abs().mean()

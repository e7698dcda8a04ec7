import torch

from fcforge.generators.corr_gauss import CorrGauss
from fcforge.generators.matching import decode, target_means
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

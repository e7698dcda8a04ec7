"""BrainNetGAN's layers against their definition, and what its generator must give."""

from dataclasses import replace

import pytest
import torch
from simulated_site import simulate

from fcforge.core.randomness import torch_rng
from fcforge.generators.brainnetgan import (
    BrainNetGAN,
    BrainNetGANState,
    critic,
    generate,
)
from fcforge.graphs import edges, fisher_z

GAN = BrainNetGAN(steps=3, width=2, batch_size=8, noise=6)


@pytest.fixture(scope="module")
def start():
    return GAN.start(simulate(12, rois=5), torch_rng(0))


def test_generated_fc_is_symmetric_with_unit_diagonal(start) -> None:
    gen, _ = start
    noise = 3 * torch.randn(8, 6, generator=torch_rng(2))
    fc = generate(gen, noise, torch.arange(8) % 2)
    torch.testing.assert_close(fc, fc.mT)
    torch.testing.assert_close(fc.diagonal(dim1=-2, dim2=-1), torch.ones(8, 5))
    assert fc.abs().max() <= 1


def test_with_nothing_learnt_the_baseline_is_the_mean_fc(start) -> None:
    gen, _ = start
    gen = {**gen, "mix.weight": torch.zeros_like(gen["mix.weight"])}
    fc = generate(
        gen, torch.randn(3, 6, generator=torch_rng(0)), torch.tensor([0, 1, 1])
    )
    expected = torch.tanh(fisher_z(edges(simulate(12, rois=5).fc)).mean(0))
    torch.testing.assert_close(edges(fc), expected.expand(3, -1), atol=1e-5, rtol=1e-5)


def test_the_diagnosis_reaches_both_networks(start) -> None:
    gen, cri = start
    noise = torch.randn(4, 6, generator=torch_rng(1))
    zeros, ones = torch.zeros(4, dtype=torch.int64), torch.ones(4, dtype=torch.int64)
    assert not torch.allclose(generate(gen, noise, zeros), generate(gen, noise, ones))
    fc = simulate(4, rois=5).fc
    value = critic(cri, fc, zeros)
    assert value.shape == (4,)
    assert not torch.allclose(value, critic(cri, fc, ones))


def test_projection_makes_samples_valid() -> None:
    site = simulate(12, rois=8)
    gen, _ = GAN.start(site, torch_rng(0))
    gen["baseline"] = 2 * torch.randn(28, generator=torch_rng(1))
    model = BrainNetGANState(gen)
    raw = GAN.draw(model, site.y, torch_rng(2))
    clipped = replace(GAN, project="clip").draw(model, site.y, torch_rng(2))
    assert torch.linalg.eigvalsh(raw).min() < 0
    assert torch.linalg.eigvalsh(clipped.double()).min() > 0

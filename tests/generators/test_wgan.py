"""The WGAN loop: its two losses by hand, and several sites side by side as if each were alone."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from simulated_site import simulate

from fcforge.core.errors import ConfigError, DataError
from fcforge.core.randomness import torch_rng
from fcforge.core.subjects import FCBatch
from fcforge.generators.brainnetgan import BrainNetGAN, BrainNetGANState
from fcforge.generators.gr_spd_gan import GRSPDGAN
from fcforge.generators.wgan import PENALTY, WGAN, critic_loss, gradient_penalty

GANS = [
    BrainNetGAN(steps=3, width=2, batch_size=8),
    GRSPDGAN(steps=3, width=16, batch_size=8),
]


def linear_score(p, x, y):
    return x.flatten(1) @ p["w"]


def quadratic_score(p, x, y):
    return p["a"] * x.square().sum(-1)


@pytest.mark.rounding
@pytest.mark.parametrize("gan", GANS, ids=lambda g: g.name)
def test_a_lane_does_not_depend_on_its_company(gan) -> None:
    sites = [simulate(n, seed=i) for i, n in enumerate((20, 26, 33))]
    together = gan.fit_lanes(sites, [torch_rng(i) for i in range(3)])
    for i, site in enumerate(sites):
        alone, lane = gan.fit(site, torch_rng(i)).named(), together[i].named()
        assert set(alone) == set(lane)
        for name, value in alone.items():
            torch.testing.assert_close(lane[name], value, atol=1e-6, rtol=1e-4)
    first = together[0].model.network
    network = together[2].model.network
    moved = [k for k in network if not torch.equal(network[k], first[k])]
    assert moved  # lanes are not copies of each other


def test_an_unusable_site_among_lanes_is_refused() -> None:
    good = simulate(20)
    bad = FCBatch(good.fc * torch.nan, good.y)
    with pytest.raises(DataError, match="not a correlation"):
        GANS[0].fit_lanes([good, bad], [torch_rng(0), torch_rng(1)])


def test_gradient_penalty_of_a_linear_critic_by_hand() -> None:
    weight = {"w": torch.tensor([3.0, 4.0])}  # |gradient| is 5 everywhere
    x = torch.zeros(3, 2)
    found = gradient_penalty(
        linear_score, weight, x, x + 1, torch.zeros(3), torch.full((3,), 0.5)
    )
    assert torch.allclose(found, torch.full((3,), 16.0))


def test_gradient_penalty_is_taken_between_the_two_sets() -> None:
    # f = |x|^2 has gradient 2 |x| at x_t = t real + (1 - t) fake
    real, fake = torch.tensor([[1.0, 0.0]] * 3), torch.tensor([[0.0, 0.0]] * 3)
    t = torch.tensor([0.0, 0.5, 1.0])
    found = gradient_penalty(quadratic_score, {"a": torch.ones(())}, real, fake, t, t)
    assert torch.allclose(found, (2 * t - 1).square())


def test_a_critic_of_slope_one_pays_no_penalty() -> None:
    weight = {"w": torch.tensor([0.6, 0.8])}
    real, fake = torch.tensor([[1.0, 1.0], [3.0, 1.0]]), torch.zeros(2, 2)
    y = torch.zeros(2)
    loss = critic_loss(linear_score, weight, real, fake, y, torch.rand(2))
    gap = 0.6 * 2 + 0.8
    assert float(loss) == pytest.approx(-gap, abs=1e-5)
    steep = {"w": torch.tensor([1.2, 1.6])}
    loss = critic_loss(linear_score, steep, real, fake, y, torch.rand(2))
    assert float(loss) == pytest.approx(PENALTY - 2 * gap, rel=1e-5)


def test_draws_pair_subjects_with_their_diagnoses() -> None:
    real = [torch.arange(5.0)[:, None], 10 + torch.arange(7.0)[:, None]]
    y = [torch.arange(5) % 2, 1 - torch.arange(7) % 2]
    rngs = [torch_rng(0), torch_rng(1)]
    gan = Shift(batch_size=4, noise=3)
    x, label, noise, t = gan.drawn(real, y, rngs, between=True)
    assert x.shape == (2, 4, 1)
    assert noise.shape == (2, 4, 3)
    assert t.shape == (2, 4)
    assert (x[0] < 5).all()
    assert (x[1] >= 10).all()
    for lane in (0, 1):
        rows = (x[lane, :, 0] - 10 * lane).long()
        assert torch.equal(label[lane], y[lane][rows])
    alone = gan.drawn(real[:1], y[:1], [torch_rng(0)], between=True)
    assert torch.equal(alone[0][0], x[0])
    assert torch.equal(alone[2][0], noise[0])


def shifted(p, noise, y):
    return p["shift"] + 0.02 * noise


def slope(p, x, y):
    return x @ p["w"]


@dataclass(frozen=True)
class Shift(WGAN):
    """The smallest GAN: one edge per subject, a generator that shifts noise, a linear critic."""

    name: ClassVar[str] = "shift"
    betas: ClassVar[tuple[float, float]] = (0.0, 0.9)
    networks = (shifted, slope)
    state_type = BrainNetGANState

    def to_space(self, fc):
        return fc[:, 0, 1:2], {}

    def start(self, batch, rng):
        return {"shift": torch.tensor([-0.8])}, {"w": torch.tensor([0.1])}

    def draw(self, state, y, rng):
        raise AssertionError


def test_training_moves_the_generator_to_the_subjects() -> None:
    fc = torch.eye(2).expand(12, 2, 2).clone()
    fc[:, 0, 1] = fc[:, 1, 0] = 0.4
    site = FCBatch(fc, torch.arange(12) % 2)
    gan = Shift(steps=40, lr=0.02, noise=1)
    state = gan.fit(site, torch_rng(0))
    # Adam's steps have the size of the rate, all towards the subjects: -0.8 + 40 * 0.02
    assert float(state.model.network["shift"]) == pytest.approx(0.0, abs=0.2)


@pytest.mark.parametrize(
    "setting", ["steps", "n_critic", "batch_size", "noise", "width"]
)
def test_sizes_of_nothing_are_refused(setting) -> None:
    with pytest.raises(ConfigError, match=f"{setting} = 0 is too small"):
        BrainNetGAN(**{setting: 0})

"""GANs of several sites side by side: every lane as if it were alone."""

from __future__ import annotations

import pytest
import torch
from simulated_site import simulate

from fcforge.errors import DataError
from fcforge.generators.brainnetgan import BrainNetGAN
from fcforge.generators.gr_spd_gan import GRSPDGAN, graph_penalty
from fcforge.generators.wgan import gradient_penalty
from fcforge.randomness import torch_rng
from fcforge.types import FCBatch

GANS = [BrainNetGAN(steps=3, width=2, batch_size=8), GRSPDGAN(steps=3, width=16, batch_size=8)]


@pytest.mark.parametrize("gan", GANS, ids=lambda g: g.name)
def test_a_lane_does_not_depend_on_its_company(gan) -> None:
    sites = [simulate(n, seed=i) for i, n in enumerate((20, 26, 33))]
    together = gan.fit_lanes(sites, [torch_rng(i) for i in range(3)])
    for i, site in enumerate(sites):
        alone = gan.fit(site, torch_rng(i))
        assert set(alone) == set(together[i])
        for name, value in alone.items():
            torch.testing.assert_close(together[i][name], value, atol=1e-6, rtol=1e-4)
    moved = [k for k in alone if k.startswith("net.") and not torch.equal(alone[k], together[0][k])]
    assert moved  # lanes are not copies of each other


def test_an_unusable_site_among_lanes_is_refused() -> None:
    good = simulate(20)
    bad = FCBatch(good.fc * torch.nan, good.y)
    with pytest.raises(DataError, match="NaN"):
        GANS[0].fit_lanes([good, bad], [torch_rng(0), torch_rng(1)])


def test_gradient_penalty_of_a_linear_critic_by_hand() -> None:
    weight = {"w": torch.tensor([3.0, 4.0])}  # |gradient| is 5 everywhere
    x = torch.zeros(3, 2)
    score = lambda p, v, y: v @ p["w"]  # noqa: E731
    found = gradient_penalty(score, weight, x, x + 1, torch.zeros(3), torch.full((3,), 0.5))
    assert torch.allclose(found, torch.full((3,), 16.0))


def test_graph_penalty_of_lanes_is_that_of_each(small_site) -> None:
    v = small_site.fc.flatten(1)[:24].unflatten(0, (2, 12))
    y = small_site.y[:24].unflatten(0, (2, 12))
    both = graph_penalty(v + 0.1, v.flip(1), y, 4)
    for i in (0, 1):
        assert graph_penalty(v[i] + 0.1, v[i].flip(0), y[i], 4) == pytest.approx(float(both[i]))
    same = v[:1, :1].expand(1, 12, -1)  # copies of one subject have no distances
    assert graph_penalty(same, same, y[:1], 4).isfinite().all()

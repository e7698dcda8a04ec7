"""FCM-VAE of several sites side by side: every lane as if it were alone.

In float64: the keys' bias has no gradient but rounding, and Adam makes steps of any gradient.
"""

import pytest
import torch
from simulated_site import simulate

from fcforge.errors import DataError
from fcforge.generators.fcm_vae import FCMVAE
from fcforge.generators.fcm_vae.training import (
    LaneBatches,
    Lanes,
    adam_lanes,
    clip_lanes,
    train,
    train_together,
)
from fcforge.graphs import edges
from fcforge.randomness import torch_rng
from fcforge.types import FCBatch

SMALL = {"d_model": 8, "d_ff": 8, "d_z": 4, "rank": 4, "k_pe": 3, "batch_size": 8, "epochs": 3}


@pytest.fixture
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def sites_of(s, sizes=(9, 16, 21)):
    found = []
    for i, n in enumerate(sizes):
        site = s._site(simulate(n, rois=6, seed=i))
        found.append({k: v.double() if v.is_floating_point() else v for k, v in site.items()})
    return found


@pytest.mark.parametrize("preset", ["careful", "paper", "authors"])
def test_a_lane_is_the_site_alone(preset, double) -> None:
    """Sites of 2, 2 and 3 steps per epoch, the last ones of odd size."""
    s = getattr(FCMVAE, preset)(**{**SMALL, "heads": 2})
    sites = sites_of(s)
    together = train_together(sites, s, [torch_rng(i) for i in range(3)])
    for i, site in enumerate(sites):
        params, curve = train(site, s, torch_rng(i))
        for alone, laned in ((params, together[i][0]), (curve, together[i][1])):
            assert list(alone) == list(laned)
            for name, value in alone.items():
                torch.testing.assert_close(laned[name], value, atol=1e-7, rtol=1e-6)
    assert not torch.equal(together[0][0]["mu.weight"], together[1][0]["mu.weight"])


def test_fits_of_lanes_are_the_fits_alone() -> None:
    """The whole state, in float32 and to its tolerance; the authors' attention has no biases."""
    gen = FCMVAE.authors(**SMALL)
    batches = [simulate(n, rois=6, seed=i) for i, n in enumerate((10, 15))]
    together = gen.fit_lanes(batches, [torch_rng(i) for i in range(2)])
    for i, batch in enumerate(batches):
        alone = gen.fit(batch, torch_rng(i))
        assert set(alone) == set(together[i])
        y = torch.arange(6) % 2
        fc = [edges(gen.sample(state, y, torch_rng(9)).fc) for state in (alone, together[i])]
        torch.testing.assert_close(*fc, atol=1e-4, rtol=1e-3)
        assert torch.equal(alone["counts"], together[i]["counts"])


def test_adam_of_lanes_is_torchs_where_a_lane_works(double) -> None:
    rows = torch.randn(2, 5, generator=torch_rng(0))
    zero = torch.zeros(2, 5)
    lanes = Lanes(rows, zero, zero, torch.zeros(2, 1), torch.zeros(2, 3))
    theirs = [row.clone().requires_grad_() for row in rows]
    torchs = [torch.optim.Adam([row], lr=0.1) for row in theirs]
    for i in range(6):
        gradient = torch.randn(2, 5, generator=torch_rng(1, i))
        active = torch.tensor([True, i % 2 == 0])  # the second lane works every other step
        lanes = adam_lanes(lanes, gradient, active, lr=0.1)
        for lane in (0, 1):
            if active[lane]:
                theirs[lane].grad = gradient[lane].clone()
                torchs[lane].step()
    torch.testing.assert_close(lanes.params, torch.stack([t.detach() for t in theirs]))
    assert lanes.taken.flatten().tolist() == [6.0, 3.0]


def test_clipping_is_torchs_lane_by_lane() -> None:
    gradient = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    leaf = torch.zeros(2, requires_grad=True)
    leaf.grad = gradient[0].clone()
    torch.nn.utils.clip_grad_norm_([leaf], 1.0)
    clipped = clip_lanes(gradient, 1.0)
    torch.testing.assert_close(clipped[0], leaf.grad)
    assert torch.equal(clipped[1], gradient[1])
    assert clip_lanes(gradient, 0.0) is gradient


def test_an_epoch_shows_every_subject_once_and_lets_short_lanes_rest() -> None:
    s = FCMVAE(**SMALL)
    sites = [s._site(simulate(n, rois=6, seed=i)) for i, n in enumerate((5, 17))]
    for i, site in enumerate(sites):
        site["y"] = torch.arange(len(site["y"])) + 100 * i  # who is who
    batches = LaneBatches(sites, s, [torch_rng(0), torch_rng(1)])
    steps = list(batches.epoch())
    assert len(steps) == 3  # 17 subjects by eights
    assert [step.weight.sum(1).tolist() for step in steps] == [[5, 8], [0, 8], [0, 1]]
    for lane, n in ((0, 5), (1, 17)):
        rows = torch.cat([step.rows[lane][step.weight[lane] > 0] for step in steps])
        assert sorted(batches.bank["y"][rows].tolist()) == [100 * lane + i for i in range(n)]


def test_one_unusable_site_stops_all_before_training() -> None:
    good = simulate(12, rois=6)
    with pytest.raises(DataError, match="too few"):
        FCMVAE(**SMALL).fit_lanes([good, good.select(slice(0, 2))], [torch_rng(0), torch_rng(1)])
    bad = FCBatch(good.fc * torch.nan, good.y)
    with pytest.raises(DataError, match="NaN"):
        FCMVAE(**SMALL).fit_lanes([good, bad], [torch_rng(0), torch_rng(1)])

"""dp_analytic: what it computes, what it records, what it never looks at."""

import math

import numpy as np
import pytest
import torch

from fcforge.errors import ConfigError
from fcforge.methods.base import Lane
from fcforge.methods.dp_analytic import DPAnalytic
from fcforge.models import make_model
from fcforge.models.edge import edge_features
from fcforge.privacy.mechanisms import gaussian_sigma
from fcforge.randomness import torch_rng
from fcforge.replay.bank import Bank, PoolName, SiteView
from fcforge.types import Component, FCBatch
from small_world import R, hundred_people, public_template

LINEAR = make_model(Component("linear"), R)


@pytest.fixture(scope="module")
def site() -> FCBatch:
    return hundred_people()


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> str:
    return public_template(tmp_path_factory.mktemp("public"))


def teach(method: DPAnalytic, *batches: FCBatch, seed: int = 0) -> Lane:
    model, bank = make_model(Component("linear"), R), Bank()
    lane = method.start(model, Lane(model.init(torch_rng(0)), {}, {}), torch_rng(0))
    for i, batch in enumerate(batches):
        rows = bank.add(PoolName("real", f"s{i}", 0, "train"), batch)
        view = SiteView(f"s{i}", i, bank, rows, rows[:0])
        lane = method.end_site(model, lane, view, torch_rng(seed, i))
    return lane


def test_with_hardly_any_noise_it_is_ridge_on_the_projection(site, template) -> None:
    method = DPAnalytic(
        epsilon=1e9, public=template, projection=6, clip=50.0, noise="seeded"
    )
    lane = teach(method, site.select(slice(0, 60)), site.select(slice(60, 100)))
    inputs = {"edges": edge_features(site.fc)}
    x = method.statistics_rows(LINEAR, inputs, site.y)[:, 1:-1].numpy()
    t = 2.0 * site.y.numpy() - 1
    xc = x - x.mean(0)
    weight = np.linalg.solve(xc.T @ xc + 100 * np.eye(6), xc.T @ (t - t.mean()))
    expected = (x - x.mean(0)) @ weight + t.mean()
    edges = edge_features(site.fc)
    logits = edges @ lane.params["head.0.weight"].T + lane.params["head.0.bias"]
    np.testing.assert_allclose(logits[:, 1].numpy(), expected, atol=5e-2)
    assert np.corrcoef(logits[:, 1].numpy(), expected)[0, 1] > 0.9999


def test_released_row_is_never_longer_than_its_bound(site) -> None:
    """Brute force over people: removing anyone moves the noiseless release by at most 2."""
    wild = FCBatch(site.fc.clone(), site.y)
    wild.fc[0] = torch.eye(R)
    wild.fc[1] = torch.full((R, R), 0.999) + 0.001 * torch.eye(R)
    method = DPAnalytic(projection=5, clip=0.4, noise="seeded")
    inputs = {"edges": edge_features(wild.fc)}
    x = method.statistics_rows(LINEAR, inputs, wild.y)[:, 1:-1] / method._bound
    assert float(x.norm(dim=1).max()) <= 1 + 1e-12
    t = 2.0 * wild.y.double()[:, None] - 1
    rows = torch.cat([math.sqrt(0.5) * torch.ones_like(t), x, math.sqrt(0.5) * t], 1)
    moved = torch.stack([torch.outer(r, r).norm() for r in rows])
    assert float(moved.max()) <= 2 + 1e-12
    assert float(moved.max()) > 1.99


def test_noise_in_the_state_has_the_right_size(site) -> None:
    method = DPAnalytic(epsilon=2.0, projection=4, noise="seeded")
    batch = site.select(slice(0, 30))
    x = torch.stack([teach(method, batch, seed=s).state["moments"] for s in range(300)])
    sigma = gaussian_sigma(2.0, 1e-3)
    # counts: diagonal noise 2 sigma in units of SIDE^2 = 1/2; X'X off-diagonal sqrt(2) sigma b^2
    assert float(x[:, 0, 0].std()) == pytest.approx(4 * sigma, rel=0.15)
    assert float(x[:, 1, 2].std()) == pytest.approx(
        math.sqrt(2) * sigma * method._bound**2, rel=0.15
    )
    lane = teach(method, batch, batch)
    assert float(lane.state["noise"]) == pytest.approx(2 * sigma * method._bound**2)


def test_epsilon_is_recorded_and_seeded_noise_says_so(site) -> None:
    secret = teach(DPAnalytic(epsilon=3.0), site)
    assert (float(secret.state["epsilon"]), float(secret.state["secret"])) == (3.0, 1.0)
    other = teach(DPAnalytic(epsilon=3.0), site)
    assert not torch.equal(secret.state["moments"], other.state["moments"])
    assert float(teach(DPAnalytic(noise="seeded"), site).state["secret"]) == 0.0
    with pytest.raises(ConfigError, match=r"epsilon = 0\.0 is too small"):
        DPAnalytic(epsilon=0.0)

"""dp_analytic and dp_flow: what they compute, what they record, what they never look at."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fcforge.errors import ConfigError
from fcforge.generators import make_generator
from fcforge.generators.corr_flow import integrate
from fcforge.generators.dp_flow import (
    DPFlow,
    clipped_sum,
    flow_loss,
    noisy_gradient,
    per_subject_gradients,
)
from fcforge.generators.layers import linear_init
from fcforge.graphs import centre_edges
from fcforge.methods.base import Lane
from fcforge.methods.dp_analytic import DPAnalytic, private_ridge
from fcforge.models import make_model
from fcforge.models.edge import edge_features
from fcforge.privacy.mechanisms import gaussian_sigma, spent
from fcforge.privacy.template import principal_frame, write_template
from fcforge.randomness import torch_rng
from fcforge.replay.bank import Bank, PoolName, SiteView
from fcforge.sites.simulated import simulate
from fcforge.types import Component, FCBatch, SiteSeal

R = 12
LINEAR = make_model(Component("linear"), R)


@pytest.fixture(scope="module")
def site() -> FCBatch:
    cohort = simulate("easy", n_rois=R, n_sites=1, scale=1.0, seed=3)
    return FCBatch.from_numpy(cohort.fc[:100], cohort.y[:100])


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> str:
    outside = simulate("easy", n_rois=R, n_sites=1, scale=1.0, seed=8)
    path = tmp_path_factory.mktemp("public") / "template.npz"
    write_template(path, torch.from_numpy(outside.fc), rank=10)
    return str(path)


def teach(method: DPAnalytic, *batches: FCBatch, seed: int = 0) -> Lane:
    model, bank = make_model(Component("linear"), R), Bank()
    lane = method.start(model, Lane(model.init(torch_rng(0)), {}, {}), torch_rng(0))
    for i, batch in enumerate(batches):
        rows = bank.add(PoolName("real", f"s{i}", 0, "train"), batch)
        view = SiteView(f"s{i}", i, bank, rows, rows[:0], SiteSeal(f"s{i}"))
        lane = method.end_site(model, lane, view, torch_rng(seed, i))
    return lane


def test_with_hardly_any_noise_it_is_ridge_on_the_projection(site, template) -> None:
    method = DPAnalytic(epsilon=1e9, public=template, projection=6, clip=50.0, noise="seeded")
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


def test_private_ridge_by_hand() -> None:
    # two people x = -1, 1 with labels -1, 1: w = 2 / (2 + 2 penalty), no noise
    moments = torch.tensor([[2.0, 0, 0], [0, 2, 2], [0, 2, 2]], dtype=torch.float64)
    weight, bias = private_ridge(moments, 0.0, 1.0)
    assert float(weight) == pytest.approx(0.5)
    assert float(bias) == pytest.approx(0.0)
    weight, _ = private_ridge(moments, 1.0, 0.0)
    assert float(weight) == pytest.approx(2 / (2 + math.sqrt(2)))
    # noise has made X'X negative: still finite, still shrunk
    moments[1, 1] = -5.0
    weight, _ = private_ridge(moments, 1.0, 1.0)
    assert float(weight) == pytest.approx(2 / (2 + math.sqrt(2)))


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


def test_per_subject_gradients_equal_the_loop_and_opacus() -> None:
    params: dict[str, torch.Tensor] = {}
    linear_init(params, "in", 3 + 3, 8, torch_rng(0))
    linear_init(params, "hidden", 8, 8, torch_rng(1))
    linear_init(params, "out", 8, 3, torch_rng(2))
    x1, x0 = torch.randn(5, 3, generator=torch_rng(3)), torch.randn(5, 4, 3, generator=torch_rng(4))
    y, t = torch.tensor([0, 1, 1, 0, 1]), torch.rand(5, 4, generator=torch_rng(5))
    found = per_subject_gradients(params, x1, y, x0, t)
    for i in range(5):
        leaf = {k: v.clone().requires_grad_() for k, v in params.items()}
        flow_loss(leaf, x1[i], y[i], x0[i], t[i]).backward()
        for k, v in leaf.items():
            torch.testing.assert_close(found[k][i], v.grad, atol=1e-6, rtol=1e-5)


def test_clipped_sum_is_opacus_optimizers() -> None:
    optimizers = pytest.importorskip("opacus.optimizers")
    rng = torch_rng(0)
    weight = torch.nn.Parameter(torch.zeros(3, 2))
    bias = torch.nn.Parameter(torch.zeros(3))
    scale = torch.tensor([0.1, 1.0, 10.0, 0.01])
    grads = {
        "w": scale[:, None, None] * torch.randn(4, 3, 2, generator=rng),
        "b": scale[:, None] * torch.randn(4, 3, generator=rng),
    }
    weight.grad_sample, bias.grad_sample = grads["w"].clone(), grads["b"].clone()  # type: ignore[attr-defined]
    theirs = optimizers.DPOptimizer(
        torch.optim.SGD([weight, bias], lr=1.0),
        noise_multiplier=0.0,
        max_grad_norm=0.7,
        expected_batch_size=4,
    )
    theirs.clip_and_accumulate()
    ours = clipped_sum(grads, 0.7)
    torch.testing.assert_close(ours["w"], weight.summed_grad, atol=1e-5, rtol=1e-5)  # type: ignore[attr-defined]
    torch.testing.assert_close(ours["b"], bias.summed_grad, atol=1e-5, rtol=1e-5)  # type: ignore[attr-defined]


def test_one_subject_moves_the_sum_by_at_most_the_clip() -> None:
    grads = {"w": 50 * torch.randn(6, 4, 3, generator=torch_rng(0)), "b": torch.ones(6, 2)}
    whole = clipped_sum(grads, 0.5)
    for i in range(6):
        keep = torch.arange(6) != i
        less = clipped_sum({k: g[keep] for k, g in grads.items()}, 0.5)
        gap = math.sqrt(sum(float((whole[k] - less[k]).square().sum()) for k in whole))
        assert gap == pytest.approx(0.5, abs=1e-4)


def test_gradient_noise_scale_and_an_empty_batch() -> None:
    empty = {"w": torch.zeros(0, 200, 50)}
    noisy = noisy_gradient(empty, 0.5, 3.0, 10.0, torch_rng(0))["w"]
    assert noisy.shape == (200, 50)
    assert float(noisy.std()) == pytest.approx(3.0 * 0.5 / 10.0, rel=0.03)


def test_flow_spends_what_it_says_and_keeps_only_public_numbers(site, template) -> None:
    made = DPFlow(public=template, epsilon=4.0, rank=4, hidden=8, steps=20, draws=2, noise="seeded")
    state = made.fit(site, torch_rng(0))
    rate = 64 / len(site)
    assert float(state["epsilon"]) <= 4.0 + 1e-6
    found = spent(rate, float(state["sigma"]), 20, 1e-3)
    assert float(state["epsilon"]) == pytest.approx(found, rel=1e-4)
    other = FCBatch(site.fc.flip(0).mul(0.5) + 0.5 * torch.eye(R), site.y.flip(0))
    again = made.fit(other, torch_rng(0))
    trained = {k for k in state if not torch.equal(state[k], again[k])}
    assert trained
    assert all(k.startswith("flow.") for k in trained)  # nothing else depends on the subjects
    assert int(state["secret"]) == 0


def test_flow_without_noise_learns_a_planted_class_difference() -> None:
    made = DPFlow(rank=4, hidden=16, clip=100.0, steps=300, lr=1e-2, noise="seeded")
    y = torch.arange(200) % 2
    scores = torch.randn(200, 4, generator=torch_rng(0))
    scores[:, 0] += 3.0 * y
    params = made._train(scores, y, 0.5, 0.0, torch_rng(1))
    x0 = torch.randn(200, 4, generator=torch_rng(2))
    x1 = integrate(params, x0, y, 10)
    shift = x1[y == 1].mean(0) - x1[y == 0].mean(0)
    assert float(shift[0]) == pytest.approx(3.0, abs=0.6)
    assert float(shift[1:].abs().max()) < 0.7
    # drowned in noise it learns nothing of the kind
    noisy = made._train(scores, y, 0.5, 50.0, torch_rng(1))
    lost = integrate(noisy, x0, y, 10)
    assert abs(float(lost[y == 1, 0].mean() - lost[y == 0, 0].mean()) - 3.0) > 1.0


def test_flow_makes_correlation_matrices(site, template) -> None:
    made = make_generator(Component("dp_flow", {"public": template, "steps": 5, "rank": 8}))
    out = made.sample(made.fit(site, torch_rng(0)), torch.tensor([0, 1, 1]), torch_rng(1))
    assert float(torch.linalg.eigvalsh(out.fc).min()) > 0
    assert made.diagnostics(made.fit(site, torch_rng(0)))["secret"] == 1.0


def test_template_frame_is_pca(site) -> None:
    x = centre_edges(edge_features(site.fc))
    mean, axes, spread, outside = principal_frame(x, 5)
    torch.testing.assert_close(axes @ axes.T, torch.eye(5), atol=1e-4, rtol=0)
    _, single, _ = np.linalg.svd((x - x.mean(0)).double().numpy(), full_matrices=False)
    np.testing.assert_allclose(spread, single[:5] / math.sqrt(99), rtol=1e-4)
    scores = (x - mean) @ axes.T
    torch.testing.assert_close(scores.std(0), spread, rtol=1e-3, atol=1e-4)
    assert outside.shape == (R * (R - 1) // 2,)

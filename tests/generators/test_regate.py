"""ReGATE: its neighbourhoods, its decoder by hand, and its trait head."""

import pytest
import torch
from simulated_site import simulate

from fcforge.core.randomness import torch_rng
from fcforge.generators.regate import ReGATE, encode, log_rate, neighbour_mask
from fcforge.graphs import edges, from_edges


def test_neighbours_are_the_most_correlated_rois() -> None:
    fc = from_edges(torch.tensor([[0.9, 0.1, 0.2, 0.3, 0.8, 0.4]]))  # 01 02 03 12 13 23
    mask = neighbour_mask(fc, 1)
    assert mask.tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 1, 0, 1]]
    assert neighbour_mask(fc, 99).sum() == 16  # more than there are: all


def test_log_rate_by_hand() -> None:
    """eta_e = s_e (a_e + sum_r w_r u_ru u_rv) + b_e for two ROIs, one factor."""
    gen = ReGATE(d_z=1, rank=1)
    p = gen._init(2, torch_rng(0))
    p["geometry.weight"], p["geometry.bias"] = (
        torch.tensor([[1.0], [-1.0]]),
        torch.zeros(2),
    )
    p["neighbours"] = torch.tensor([[[1.0, 5.0], [0.5, 2.0]]])
    p["neighbours_bias"] = torch.tensor([[0.1, 0.2]])
    p["factor"], p["offset"] = torch.tensor([3.0]), torch.tensor([0.7])
    p["edge_scale"], p["edge_bias"] = torch.tensor([2.0]), torch.tensor([-1.0])
    mask = torch.tensor([[1.0, 0.0], [1.0, 1.0]])  # ROI 0 does not see ROI 1
    h = torch.sigmoid(torch.tensor([0.4, -0.4]))
    u0 = torch.sigmoid(1.0 * h[0] + 0.1)
    u1 = torch.sigmoid(0.5 * h[0] + 2.0 * h[1] + 0.2)
    expected = 2.0 * (0.7 + 3.0 * u0 * u1) - 1.0
    torch.testing.assert_close(log_rate(p, torch.tensor([[0.4]]), mask)[0, 0], expected)


def test_loss_of_one_subject_by_hand() -> None:
    gen = ReGATE(d_z=1, rank=1, hidden=2, weight=0.5)
    p = {k: torch.zeros_like(v) for k, v in gen._init(2, torch_rng(0)).items()}
    p["mu.bias"], p["head.weight"] = torch.tensor([1.0]), torch.tensor([[2.0]])
    # mu 1, log variance 0, rate exp 0: NLL 1 - x 0 = 1; KL 0.5; trait error (2 - 0.5)^2
    x, trait = torch.tensor([[3.0]]), torch.tensor([0.5])
    loss = gen._loss(p, x, trait, torch.ones(2, 2), torch_rng(1))
    assert float(loss) == pytest.approx(0.5 * (1.0 + 0.5) + 1.5**2)


def test_log_variances_stay_in_bounds() -> None:
    gen = ReGATE(d_z=3, hidden=4)
    p = gen._init(4, torch_rng(0))
    p["log_var.bias"] = torch.tensor([100.0, -100.0, 0.0])
    _, log_var = encode(p, torch.ones(2, 6))
    assert log_var[:, 0].tolist() == [4.0, 4.0]
    assert log_var[:, 1].tolist() == [-8.0, -8.0]


def test_fit_lowers_the_loss_and_learns_the_trait() -> None:
    site = simulate(40, rois=8, effect=2.0)
    gen = ReGATE(d_z=8, hidden=32, epochs=60, lr=5e-3)
    state = gen.fit(site, torch_rng(0))
    p = state.model.network
    z = torch.atanh(edges(site.fc).clamp(-0.9999, 0.9999))
    x = ((z - state.model.centre) / state.model.unit).exp()
    trait = (site.y - state.model.y_mean) / state.model.y_sd
    guess = torch.nn.functional.linear(
        encode(p, x)[0], p["head.weight"], p["head.bias"]
    )[:, 0]
    assert torch.corrcoef(torch.stack([guess, trait]))[0, 1] > 0.9
    assert gen.diagnostics(state)["active_units"] == int(state.model.active_units) >= 1


def test_one_class_alone_does_not_divide_by_zero() -> None:
    site = simulate(12, rois=6)
    controls = site.select(site.y == 0)
    state = ReGATE(epochs=2).fit(controls, torch_rng(0))
    assert float(state.model.y_sd) == pytest.approx(0.1)
    assert torch.isfinite(ReGATE().sample(state, controls.y, torch_rng(1)).fc).all()


def test_projection_makes_samples_valid() -> None:
    site = simulate(16, rois=8)
    model = ReGATE(epochs=2).learn(site, torch_rng(0))
    model.network["edge_bias"] = 3 * torch.randn(28, generator=torch_rng(2))
    raw = ReGATE().draw(model, site.y, torch_rng(1))
    clipped = ReGATE(project="clip").draw(model, site.y, torch_rng(1))
    assert torch.linalg.eigvalsh(raw).min() < 0
    assert torch.linalg.eigvalsh(clipped.double()).min() > 0
    torch.testing.assert_close(
        clipped.diagonal(dim1=-2, dim2=-1), torch.ones(len(site.y), 8)
    )

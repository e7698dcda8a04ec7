import math

import pytest
import torch

from fcforge.generators.coordinates import (
    _slope,
    clip_to_correlation,
    from_off_log,
    matrix_log,
    off_log,
    shrink_to_identity,
    unit_diagonal,
)
from fcforge.graphs import edges, from_edges


def test_off_log_of_two_rois_is_fisher_z() -> None:
    # log [[1, r], [r, 1]] has off-diagonal (log(1+r) - log(1-r)) / 2 = atanh r.
    fc = from_edges(torch.tensor([[0.5], [-0.3]]))
    assert torch.allclose(off_log(fc, 0.0)[:, 0], torch.atanh(torch.tensor([0.5, -0.3])))


def test_inverse_of_two_rois_is_tanh() -> None:
    fc, _ = from_off_log(torch.tensor([[0.7], [-2.0]]))
    assert fc[0, 0, 1].item() == pytest.approx(math.tanh(0.7), abs=5e-5)
    assert fc[1, 0, 1].item() == pytest.approx(math.tanh(-2.0), abs=5e-5)


def test_round_trip(small_site) -> None:
    shrunk = shrink_to_identity(small_site.fc, 0.02)
    back, _ = from_off_log(off_log(small_site.fc), chunk=7)
    assert torch.allclose(back, shrunk, atol=5e-5)


def test_any_point_is_a_correlation_matrix() -> None:
    rng = torch.Generator().manual_seed(0)
    fc, _ = from_off_log(1.5 * torch.randn(20, 66, generator=rng))
    assert torch.equal(fc.diagonal(dim1=-2, dim2=-1), torch.ones(20, 12))
    assert torch.equal(fc, fc.mT)
    assert torch.linalg.eigvalsh(fc.double()).min() > 0


def test_slope_matches_finite_differences() -> None:
    rng = torch.Generator().manual_seed(1)
    a = torch.randn(1, 5, 5, generator=rng, dtype=torch.float64)
    a = a + a.mT
    slope = _slope(*torch.linalg.eigh(0.5 * a))
    h = 1e-5
    for j in range(5):
        bump = torch.zeros(5, 5, dtype=torch.float64)
        bump[j, j] = h
        up = torch.linalg.matrix_exp(0.5 * a + bump).diagonal(dim1=-2, dim2=-1)
        down = torch.linalg.matrix_exp(0.5 * a - bump).diagonal(dim1=-2, dim2=-1)
        assert torch.allclose(slope[0, :, j], ((up - down) / (2 * h))[0], rtol=1e-4)


def test_matrix_log_inverts_matrix_exp() -> None:
    s = torch.tensor([[0.0, 0.4, -0.2], [0.4, 0.3, 0.1], [-0.2, 0.1, -0.5]])
    assert torch.allclose(matrix_log(torch.linalg.matrix_exp(s)), s, atol=1e-6)


def test_clip_leaves_valid_and_repairs_invalid() -> None:
    valid = from_edges(torch.tensor([[0.5, 0.2, 0.1]]))
    assert torch.allclose(clip_to_correlation(valid), valid, atol=1e-6)
    broken = from_edges(torch.tensor([[0.9, -0.9, 0.9]]))
    assert torch.linalg.eigvalsh(broken).min() < 0
    fixed = clip_to_correlation(broken)
    assert torch.linalg.eigvalsh(fixed.double()).min() > 0
    assert torch.sign(edges(fixed)).tolist() == [[1.0, -1.0, 1.0]]


def test_unit_diagonal_by_hand() -> None:
    out = unit_diagonal(torch.tensor([[[4.0, 1.0], [1.0, 1.0]]]))
    assert out[0, 0, 1].item() == pytest.approx(0.5)

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fcforge.generators import coordinates
from fcforge.generators.coordinates import (
    GAUSS,
    LOBATTO,
    _slope,
    fixed_point,
    from_off_log,
    in_parts,
    newton,
    number_at_once,
    shrink_to_identity,
    unit_diagonal,
)
from fcforge.graphs import edges, from_edges, log_edges


def test_off_log_of_two_rois_is_fisher_z() -> None:
    # log [[1, r], [r, 1]] has off-diagonal (log(1+r) - log(1-r)) / 2 = atanh r.
    fc = from_edges(torch.tensor([[0.5], [-0.3]]))
    assert torch.allclose(
        off_log(fc, 0.0)[:, 0], torch.atanh(torch.tensor([0.5, -0.3]))
    )


def test_inverse_of_two_rois_is_tanh() -> None:
    fc, _ = from_off_log(torch.tensor([[0.7], [-2.0]]))
    assert fc[0, 0, 1].item() == pytest.approx(math.tanh(0.7), abs=5e-5)
    assert fc[1, 0, 1].item() == pytest.approx(math.tanh(-2.0), abs=5e-5)


def test_round_trip(small_site) -> None:
    shrunk = shrink_to_identity(small_site.fc, 0.02)
    back, _ = from_off_log(off_log(small_site.fc))
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
    slope = _slope(*torch.linalg.eigh(0.5 * a), coarse=False)
    h = 1e-5
    for j in range(5):
        bump = torch.zeros(5, 5, dtype=torch.float64)
        bump[j, j] = h
        up = torch.linalg.matrix_exp(0.5 * a + bump).diagonal(dim1=-2, dim2=-1)
        down = torch.linalg.matrix_exp(0.5 * a - bump).diagonal(dim1=-2, dim2=-1)
        assert torch.allclose(slope[0, :, j], ((up - down) / (2 * h))[0], rtol=1e-4)


@pytest.mark.parametrize(("near", "error"), [(0.05, 1e-4), (0.3, 2e-3), (1.0, 2e-2)])
def test_a_last_step_without_eigendecomposition_is_near_enough(
    small_site, near, error
) -> None:
    x = off_log(small_site.fc)
    exact, _ = from_off_log(x)
    found, _ = from_off_log(x, near=near)
    torch.testing.assert_close(found, exact, atol=error, rtol=0)
    assert torch.linalg.eigvalsh(found.double()).min() > 0


@pytest.mark.parametrize("rule", [GAUSS, LOBATTO])
def test_rules_weigh_one(rule) -> None:
    assert sum(2 * weight for _, weight in rule) == pytest.approx(1.0)


def test_unit_diagonal_by_hand() -> None:
    out = unit_diagonal(torch.tensor([[[4.0, 1.0], [1.0, 1.0]]]))
    assert out[0, 0, 1].item() == pytest.approx(0.5)


def off_log(fc: torch.Tensor, shrink: float = 0.02) -> torch.Tensor:
    return log_edges(fc, shrink)


def random_fc(seed: int, rois: int, spread: float) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    a = torch.randn(3, rois, rois + 2, generator=rng, dtype=torch.float64)
    a = a + spread * torch.randn(3, 1, rois + 2, generator=rng, dtype=torch.float64)
    return unit_diagonal(a @ a.mT)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), rois=st.integers(2, 9), spread=st.floats(0.0, 3.0))
def test_coordinates_and_back(seed, rois, spread) -> None:
    fc = random_fc(seed, rois, spread)
    shrunk = shrink_to_identity(fc, 0.05)
    back, _ = from_off_log(off_log(fc, 0.05), tol=1e-9)
    torch.testing.assert_close(back, shrunk, atol=5e-5, rtol=0)


# Coordinates of scans, which generators draw alike, have a spread of 0.2 (116 ROIs) to 0.5 (8).
# Up to 1.5 all 7,000 draws converge; from 2 on some reach `MOST_STEPS` first.
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), rois=st.integers(2, 8), size=st.floats(0.1, 1.5))
def test_back_and_coordinates(seed, rois, size) -> None:
    """Every vector is the coordinates of exactly one correlation matrix."""
    rng = torch.Generator().manual_seed(seed)
    n_edges = rois * (rois - 1) // 2
    x = size * torch.randn(2, n_edges, generator=rng, dtype=torch.float64)
    fc, diagonal = from_off_log(x, tol=1e-10)
    assert torch.linalg.eigvalsh(fc).min() > 0
    assert torch.equal(
        fc.diagonal(dim1=-2, dim2=-1), torch.ones(2, rois, dtype=torch.float64)
    )
    log_fc = from_edges(x, diagonal=0.0) + torch.diag_embed(diagonal)
    # 2e-5 of shrinkage keeps float32 users positive definite
    torch.testing.assert_close(torch.linalg.matrix_exp(log_fc), fc, atol=1e-4, rtol=0)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999))
def test_the_order_of_rois_does_not_matter(seed) -> None:
    fc = random_fc(seed, 6, 0.5)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    swapped = from_edges(off_log(fc), diagonal=0.0)[:, order][:, :, order]
    torch.testing.assert_close(off_log(fc[:, order][:, :, order]), edges(swapped))


def test_a_start_near_the_answer_gives_the_same_answer(small_site) -> None:
    x = off_log(small_site.fc[:5])
    plain, diagonal = from_off_log(x)
    warm, _ = from_off_log(x, start=diagonal)
    torch.testing.assert_close(warm, plain, atol=2e-5, rtol=0)


def test_chunks_do_not_change_numbers(small_site, monkeypatch) -> None:
    x = off_log(small_site.fc)
    whole = from_off_log(x)[0]
    monkeypatch.setattr(coordinates, "number_at_once", lambda of_116, rois: 3)
    assert torch.allclose(from_off_log(x)[0], whole, atol=1e-6)


def test_edges_alone_are_those_of_the_matrices(small_site) -> None:
    x = off_log(small_site.fc[:5])
    assert torch.equal(from_off_log(x, flat=True)[0], edges(from_off_log(x)[0]))


def test_parts_are_the_whole(monkeypatch) -> None:
    assert number_at_once(64, 116) == 64
    assert number_at_once(64, 400) == 1
    given = torch.arange(7.0)
    for size in (7, 3, 1):
        monkeypatch.setattr(
            coordinates, "number_at_once", lambda of_116, rois, n=size: n
        )
        found = in_parts(lambda part: part[:, None] * torch.ones(2), given, 5)
        assert torch.equal(found, given[:, None].expand(7, 2))


@pytest.mark.parametrize("spread", [None, 0.3, 1.5])
def test_matrix_products_find_what_eigendecompositions_find(small_site, spread) -> None:
    """Compare the GPU's way (fixed point, matrix exponential) with the CPU's (Newton, eigh)."""
    x = off_log(small_site.fc[:12])
    if spread is not None:
        x = spread * torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    there, here = x.new_zeros(12, small_site.n_rois), x.new_zeros(12, small_site.n_rois)
    by_products = fixed_point(x, there, tol=1e-4)
    torch.testing.assert_close(
        by_products, newton(x, here, tol=1e-5), atol=1e-4, rtol=0
    )
    torch.testing.assert_close(
        there, here, atol=2e-2 if spread == 1.5 else 1e-3, rtol=0
    )
    assert torch.linalg.eigvalsh(by_products.double()).min() > 0
    assert torch.equal(by_products, by_products.mT)


def test_no_matrix_at_all_is_no_iteration() -> None:
    empty = torch.zeros(0, 3)
    assert fixed_point(empty, torch.zeros(0, 3), tol=1e-4).shape == (0, 3, 3)
    assert from_off_log(empty)[0].shape == (0, 3, 3)


def test_shrinking_makes_a_flat_roi_usable() -> None:
    fc = from_edges(torch.tensor([[1.0, 0.0, 0.0]]))  # ROIs 0 and 1 are copies
    assert torch.isfinite(off_log(fc, 0.02)).all()
    assert shrink_to_identity(fc, 0.02)[0, 0, 1].item() == pytest.approx(0.98)

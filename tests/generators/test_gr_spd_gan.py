"""GR-SPD-GAN: its charts, its population graph, and matrices that are always valid."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_site import simulate

from fcforge.core.randomness import torch_rng
from fcforge.generators.base import GeneratorState
from fcforge.generators.coordinates import shrink_to_identity
from fcforge.generators.gr_spd_gan import (
    GRSPDGAN,
    from_vector,
    graph_penalty,
    tangent_space,
    to_vector,
)
from fcforge.graphs import log_matrix

QUICK = GRSPDGAN(steps=2, width=16, batch_size=8, noise=5)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 999), rois=st.integers(1, 8))
def test_vectors_keep_the_norm_and_come_back(seed, rois) -> None:
    a = torch.randn(3, rois, rois, generator=torch_rng(seed), dtype=torch.float64)
    sym = a + a.mT
    vector = to_vector(sym)
    assert vector.shape == (3, rois * (rois + 1) // 2)
    torch.testing.assert_close(vector.norm(dim=1), sym.flatten(1).norm(dim=1))
    torch.testing.assert_close(from_vector(vector, rois), sym)


def test_tangent_space_is_standardised_and_leads_back() -> None:
    fc = simulate(20, rois=6).fc
    v, back = tangent_space(fc, 0.05)
    torch.testing.assert_close(v.mean(0), torch.zeros(21), atol=1e-4, rtol=0)
    assert float(v.std()) == pytest.approx(1.0, abs=1e-3)
    tangent = from_vector(back["centre"] + back["unit"] * v, 6)
    spd = back["root"] @ torch.linalg.matrix_exp(tangent) @ back["root"]
    torch.testing.assert_close(spd, shrink_to_identity(fc, 0.05), atol=1e-4, rtol=1e-3)


def test_the_point_of_tangency_is_the_log_euclidean_mean() -> None:
    fc = simulate(20, rois=6).fc
    _, back = tangent_space(fc, 0.05)
    mean = back["root"] @ back["root"]
    expected = log_matrix(fc, 0.05).mean(0)
    torch.testing.assert_close(log_matrix(mean, 0.0), expected, atol=1e-4, rtol=1e-3)


def test_graph_penalty_of_three_subjects_by_hand() -> None:
    real = torch.tensor([[0.0], [1.0], [3.0]])
    fake = torch.tensor([[0.0], [2.0], [5.0]])
    y = torch.tensor([0, 0, 1])
    # distances 1, 2, 3: median 2 over the six ordered pairs (1 1 2 2 3 3, lower median 2);
    # only subjects 0 and 1 share a class, and each is the other's nearest
    assert graph_penalty(fake, real, y, 1) == pytest.approx(4.0)
    # with all of one class and two neighbours every pair counts
    same = torch.zeros(3, dtype=torch.int64)
    w = {d: torch.tensor(-(d**2) / (2 * 2**2)).exp().item() for d in (1.0, 2.0, 3.0)}
    total = 2 * (w[1.0] * 4 + w[2.0] * 9 + w[3.0] * 25) / (2 * sum(w.values()))
    assert float(graph_penalty(fake, real, same, 2)) == pytest.approx(total, rel=1e-5)


def test_graph_penalty_of_lanes_is_that_of_each(small_site) -> None:
    v = small_site.fc.flatten(1)[:24].unflatten(0, (2, 12))
    y = small_site.y[:24].unflatten(0, (2, 12))
    both = graph_penalty(v + 0.1, v.flip(1), y, 4)
    for i in (0, 1):
        assert graph_penalty(v[i] + 0.1, v[i].flip(0), y[i], 4) == pytest.approx(
            float(both[i])
        )
    same = v[:1, :1].expand(1, 12, -1)  # copies of one subject have no distances
    assert graph_penalty(same, same, y[:1], 4).isfinite().all()


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 99), size=st.floats(0.0, 4.0))
def test_whatever_the_network_says_is_a_correlation_matrix(seed, size) -> None:
    state = _fitted()
    network = {**state.model.network}
    network["out.weight"] = size * network["out.weight"]
    state = state._replace(model=state.model._replace(network=network))
    fc = QUICK.sample(state, torch.arange(4) % 2, torch_rng(seed)).fc
    assert torch.linalg.eigvalsh(fc.double()).min() > 0
    assert torch.equal(fc.diagonal(dim1=-2, dim2=-1), torch.ones(4, 6))
    assert torch.equal(fc, fc.mT)


def _fitted(cache: list = []) -> GeneratorState:  # noqa: B006
    if not cache:
        cache.append(QUICK.fit(simulate(12, rois=6), torch_rng(0)))
    return cache[0]


def test_a_silent_network_draws_the_mean() -> None:
    state = _fitted()
    network = state.model.network
    network = {k: 0 * v if k.startswith("out") else v for k, v in network.items()}
    quiet = state._replace(model=state.model._replace(network=network))
    one, two = QUICK.sample(quiet, torch.tensor([0, 1]), torch_rng(0)).fc
    torch.testing.assert_close(one, two)


def test_the_regulariser_is_weighted_and_can_be_switched_off() -> None:
    x = torch.randn(2, 6, 4, generator=torch_rng(0))
    y = torch.arange(6).remainder(2).expand(2, 6)
    full = GRSPDGAN(graph_weight=0.4).regulariser(x, x, y)
    half = GRSPDGAN(graph_weight=0.2).regulariser(x, x, y)
    torch.testing.assert_close(full, 2 * half)
    assert (GRSPDGAN(graph_weight=0.0).regulariser(x, x, y) == 0).all()

"""Graphs: hand-computed cases, PyG's normalisation, disconnected graphs, signs."""

import math

import numpy as np
import pytest
import torch

from fcforge import graphs
from fcforge.core.errors import DataError
from fcforge.core.randomness import torch_rng
from fcforge.graphs import centre_edges, edges, log_edges

FC = torch.tensor([[[1.0, 0.4, -0.6], [0.4, 1.0, 0.2], [-0.6, 0.2, 1.0]]])


def random_fc(n: int, rois: int, seed: int = 0, shared: float = 0.8) -> torch.Tensor:
    rng = torch_rng(seed, "fc")
    series = torch.randn(n, rois, 60, generator=rng)
    series = series + shared * torch.randn(n, 1, 60, generator=rng)
    return torch.stack([torch.corrcoef(s) for s in series])


def path(*weights: float) -> torch.Tensor:
    rois = len(weights) + 1
    adj = torch.zeros(1, rois, rois)
    for i, w in enumerate(weights):
        adj[0, i, i + 1] = adj[0, i + 1, i] = w
    return adj


def test_adjacency_by_hand():
    expected = torch.zeros(1, 3, 3)
    expected[0, 0, 1] = expected[0, 1, 0] = 0.4
    assert torch.equal(graphs.adjacency(FC, 0.4), expected)  # inclusive, as A >= tau


def test_a_threshold_below_zero_lets_no_self_loop_in():
    assert graphs.adjacency(FC, -1.0).diagonal(dim1=1, dim2=2).sum() == 0


def test_binary():
    adj = graphs.adjacency(FC, 0.2)
    assert torch.equal(graphs.binary(adj)[0].sum(-1), torch.tensor([1.0, 2.0, 1.0]))


def test_gcn_norm_by_hand():
    p = graphs.gcn_norm(path(0.5))[0]
    assert torch.allclose(p, torch.tensor([[1.0, 0.5], [0.5, 1.0]]) / 1.5)


@pytest.mark.parametrize("tau", [0.2, 0.4, 0.6, 0.99])
def test_gcn_norm_equals_pyg(tau):
    norm = pytest.importorskip("torch_geometric.nn.conv.gcn_conv").gcn_norm
    adj = graphs.adjacency(random_fc(1, 20), tau)
    index = adj[0].nonzero().t()
    edges, weights = norm(index, adj[0][index[0], index[1]], 20)
    dense = torch.zeros(20, 20)
    dense[edges[1], edges[0]] = weights
    assert torch.allclose(graphs.gcn_norm(adj)[0], dense, atol=1e-6)


def test_gcn_norm_keeps_an_isolated_node_to_itself():
    assert torch.equal(
        graphs.gcn_norm(torch.zeros(2, 3, 3)), torch.eye(3).expand(2, 3, 3)
    )


def test_mean_norm_is_the_neighbours_mean_and_zero_for_isolated():
    m = graphs.mean_norm(torch.block_diag(path(0.5, 0.9)[0], torch.zeros(1, 1))[None])[
        0
    ]
    assert torch.equal(m.sum(-1), torch.tensor([1.0, 1.0, 1.0, 0.0]))
    assert torch.equal(m[1], torch.tensor([0.5, 0.0, 0.5, 0.0]))


def test_attention_mask_opens_neighbours_and_self():
    mask = graphs.attention_mask(path(0.5, 0.0))[0]
    assert torch.equal(
        mask == 0, torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 1]]).bool()
    )
    assert torch.isneginf(mask[mask != 0]).all()


def test_node_features_are_standardised_per_column():
    x = graphs.node_features(random_fc(3, 12))
    assert torch.allclose(x.mean(1), torch.zeros(3, 12), atol=1e-6)
    assert torch.allclose(x.var(1, correction=0), torch.ones(3, 12), atol=1e-4)


def test_real_and_synthetic_diagonals_give_equal_graphs():
    real = random_fc(2, 10)
    synthetic = real * (1 - torch.eye(10)) + 0.3 * torch.eye(10)
    for build in (graphs.node_features, graphs.adjacency):
        assert torch.equal(build(real), build(synthetic))


def test_a_flat_roi_gives_finite_features():
    fc = random_fc(1, 8)
    fc[:, 3], fc[:, :, 3] = 0.0, 0.0
    x = graphs.node_features(fc)
    assert torch.isfinite(x).all()
    assert (x[0, :, 3] == 0).all()


def test_laplacian_of_a_path_by_hand():
    # Path of 3: eigenvalues 0, 1, 2; for 1 the vector is (1, 0, -1) / sqrt 2, orthogonal to 1.
    xyz = graphs.laplacian_coordinates(path(1.0, 1.0), 2)[0]
    r = math.sqrt(0.5)
    assert torch.allclose(xyz[:, 0], torch.tensor([r, 0.0, -r]), atol=1e-6)
    assert torch.allclose(xyz[:, 1], torch.tensor([-0.5, r, -0.5]), atol=1e-6)


def test_all_null_vectors_of_a_disconnected_graph_are_skipped():
    # Two paths and an isolated ROI: three eigenvalues 0, and 6 - 3 = 3 vectors are left.
    adj = torch.block_diag(path(0.9, 0.5)[0], path(0.7)[0], torch.zeros(1, 1))[None]
    xyz = graphs.laplacian_coordinates(adj, 5)[0].double()
    lap = graphs.laplacian(adj.double())[0]
    values = (xyz * (lap @ xyz)).sum(0) / xyz.square().sum(0).clamp_min(1e-12)
    assert torch.allclose(values[:3], torch.tensor([1.0, 2.0, 2.0]).double(), atol=1e-6)
    assert (xyz[:, 3:] == 0).all()
    assert (xyz[5].abs() < 1e-9).all()  # the isolated ROI sits at the origin


def test_an_edgeless_graph_has_no_coordinates():
    assert (graphs.laplacian_coordinates(torch.zeros(2, 4, 4), 3) == 0).all()


def test_signs_do_not_depend_on_the_solver():
    adj = graphs.adjacency(random_fc(4, 15), 0.3)
    xyz = graphs.laplacian_coordinates(adj, 6)
    flips = torch.tensor([1.0, -1.0, 1.0, -1.0, -1.0, 1.0])
    assert torch.equal(graphs._fix_sign(xyz * flips), xyz)
    largest = xyz.gather(1, xyz.abs().argmax(1, keepdim=True))
    assert (largest >= 0).all()


def test_a_tie_is_broken_by_the_lowest_roi():
    v = torch.tensor([[[-0.5], [0.5 + 1e-9], [0.1]]])
    assert graphs._fix_sign(v)[0, 0, 0] == 0.5


def test_fisher_z_is_clipped_and_finite():
    z = graphs.fisher_z(torch.tensor([0.0, 0.5, 1.0, -1.0]))
    assert z[1] == pytest.approx(math.atanh(0.5))
    assert z[2] == -z[3] == pytest.approx(math.atanh(0.9999), rel=1e-3)


@pytest.mark.parametrize("rois", [2, 5, 116])
def test_edges_and_back(rois):
    fc = torch.randn(3, rois, rois, generator=torch_rng(1))
    fc = (fc + fc.transpose(1, 2)) / 2
    fc.diagonal(dim1=1, dim2=2).fill_(1.0)
    upper = graphs.edges(fc)
    assert upper.shape == (3, rois * (rois - 1) // 2)
    assert torch.equal(graphs.from_edges(upper), fc)


def test_edges_come_row_by_row_like_numpy():
    np = pytest.importorskip("numpy")
    fc = torch.arange(16.0).reshape(1, 4, 4)
    assert graphs.edges(fc)[0].tolist() == fc[0].numpy()[np.triu_indices(4, 1)].tolist()


def test_a_wrong_number_of_edges_is_an_error():
    with pytest.raises(DataError, match="4 edges"):
        graphs.from_edges(torch.zeros(1, 4))


def test_builders_work_under_vmap():
    fc = random_fc(4, 9).reshape(2, 2, 9, 9)

    def build(x):
        return (
            graphs.gcn_norm(graphs.adjacency(x)),
            graphs.node_features(x),
            graphs.edges(x),
        )

    lifted = torch.func.vmap(build)(fc)
    for a, b in zip(lifted, build(fc[1]), strict=True):
        assert torch.allclose(a[1], b, atol=1e-6)


def test_eigenvectors_in_threads_are_those_of_one_call() -> None:
    x = torch.randn(
        37, 9, 9, generator=torch.Generator().manual_seed(3), dtype=torch.float64
    )
    matrices = x + x.mT
    together, threaded = torch.linalg.eigh(matrices), graphs._eigh_in_threads(matrices)
    assert torch.equal(together.eigenvalues, threaded[0])
    assert torch.equal(together.eigenvectors, threaded[1])
    assert torch.equal(graphs._eigh_in_threads(matrices[0])[0], together.eigenvalues[0])


def test_centred_edges_have_no_strength_left_but_the_diagonals():
    rng = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 3, 45, generator=rng, dtype=torch.float64)
    # symmetric: <Ba, b> = <a, Bb>, so weights map back with the same function
    torch.testing.assert_close((centre_edges(a) * b).sum(), (a * centre_edges(b)).sum())
    strength = torch.rand(10, generator=rng, dtype=torch.float64)
    i, j = torch.triu_indices(10, 10, 1)
    pure = (strength[i] + strength[j])[None]
    assert centre_edges(pure).abs().max() < 0.5 * pure.abs().max()


def test_log_edges_of_a_diagonalised_matrix_by_hand():
    c = torch.tensor([[[1.0, 0.6], [0.6, 1.0]]], dtype=torch.float64)
    expected = 0.5 * (np.log(1.6) - np.log(0.4))  # eigenvalues 1.6 and 0.4
    assert float(log_edges(c, shrink=0.0)) == pytest.approx(expected)
    assert edges(c).shape == log_edges(c).shape

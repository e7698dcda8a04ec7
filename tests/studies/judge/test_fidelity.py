import networkx
import numpy as np
import pytest
import torch

from fcforge.graphs import from_edges
from fcforge.studies.judge import fidelity
from fcforge.types import FCBatch


def test_validity_counts_by_hand() -> None:
    good, bad = torch.tensor([0.5, 0.2, 0.1]), torch.tensor([0.9, -0.9, 0.9])
    out = fidelity.validity(from_edges(torch.stack([good, bad, bad, bad])))
    assert out["psd_share"] == 0.25
    # Eigenvalues of the bad one: 1 + 0.9 (twice) and 1 - 1.8.
    assert out["min_eigenvalue"] == pytest.approx(-0.8, abs=1e-6)


def test_moments_of_the_training_set_itself(real) -> None:
    train, test = real
    out = fidelity.moments(train, test, train)
    assert out["edge_mean_r"] == pytest.approx(1.0)
    assert out["variance_ratio"] == pytest.approx(1.0)
    assert out["edge_mean_mae"] == 0.0
    assert out["edge_mean_r_test"] < 1.0


def test_halved_deviations_quarter_the_variance(real) -> None:
    train, test = real
    fc = train.fc.clone()
    for c in (0, 1):
        mean = fc[train.y == c].mean(0)
        fc[train.y == c] = mean + 0.5 * (fc[train.y == c] - mean)
    out = fidelity.moments(train, test, FCBatch(fc, train.y))
    assert out["variance_ratio"] == pytest.approx(0.25, rel=1e-4)
    assert out["sd_ratio"] == pytest.approx(0.5, rel=1e-4)


def test_class_effect_sees_flipped_labels(real) -> None:
    train, test = real
    same = fidelity.class_effect(train, test, train)
    flipped = fidelity.class_effect(train, test, FCBatch(train.fc, 1 - train.y))
    assert same["class_difference_r"] > 0.5
    assert flipped["class_difference_r"] == pytest.approx(-same["class_difference_r"], abs=1e-9)
    assert same["class_difference_norm"] == pytest.approx(1.0)
    one = fidelity.class_effect(train, test, FCBatch(train.fc, torch.zeros_like(train.y)))
    assert np.isnan(one["class_difference_r"])


def test_pairwise_r_is_the_mean_over_pairs(real) -> None:
    train, test = real
    few = train.select(slice(0, 5))
    corr = np.corrcoef(fidelity.edges(few.fc).numpy())
    expected = corr[np.triu_indices(5, 1)].mean()
    out = fidelity.moments(train, test, few)
    assert out["pairwise_r"] == pytest.approx(expected, abs=1e-5)


def test_topology_against_networkx(real) -> None:
    fc = real[0].fc[:3]
    out = fidelity.topology(fc, density=0.3)
    graphs = fidelity.matched_density(fc, 0.3)
    assert (graphs != 0).sum((1, 2)).tolist() == [2 * round(0.3 * 66)] * 3
    for i in range(3):
        g = networkx.from_numpy_array((graphs[i] != 0).int().numpy())
        assert out["efficiency"][i].item() == pytest.approx(networkx.global_efficiency(g), abs=1e-5)
        assert out["clustering"][i].item() == pytest.approx(
            networkx.average_clustering(g), abs=1e-5
        )
        best = networkx.community.modularity(g, networkx.community.louvain_communities(g, seed=0))
        assert 0 < out["modularity"][i].item() <= best + 0.05


def test_spectrum_distance_is_zero_only_for_equal_sets(real) -> None:
    train, _ = real
    assert fidelity.shape_of_graphs(train.fc, train.fc)["spectrum_distance"] == 0.0
    eye = torch.eye(12).expand_as(train.fc) * 1.0
    assert fidelity.shape_of_graphs(train.fc, eye + 1e-3 * train.fc)["spectrum_distance"] > 0.3


def test_topology_of_copies_and_of_equal_edges_is_finite() -> None:
    flat = from_edges(torch.full((3, 4005), 0.5))  # 90 ROIs, every eigenvalue but one repeated
    ring = from_edges(torch.zeros(2, 4005))
    for fc in (flat, ring):
        assert all(bool(v.isfinite().all()) for v in fidelity.topology(fc).values())


def test_correlation_of_a_constant_is_not_a_number() -> None:
    a = torch.tensor([1.0, 2.0, 3.0])
    assert fidelity.correlation(a, 2 * a + 1) == pytest.approx(1.0)
    assert np.isnan(fidelity.correlation(a, torch.ones(3)))


def test_matched_density_keeps_the_strongest_edges_of_each_subject() -> None:
    fc = from_edges(torch.tensor([[0.9, 0.1, 0.5, 0.3, -0.8, 0.2], [0.2, 0.3, 0.1, 0.6, 0.5, 0.4]]))
    kept = fidelity.matched_density(fc, density=1 / 3)
    assert fidelity.edges(kept)[0].tolist() == pytest.approx([0.9, 0, 0.5, 0, 0, 0])
    assert fidelity.edges(kept)[1].tolist() == pytest.approx([0, 0, 0, 0.6, 0.5, 0])
    assert (kept.diagonal(dim1=-2, dim2=-1) == 0).all()


def test_topology_of_a_triangle_and_a_path_by_hand() -> None:
    # edges 01 02 12 of four ROIs: a triangle and an isolated ROI; 01 12 23: a path
    triangle = torch.tensor([[0.9, 0.9, 0.0, 0.9, 0.0, 0.0]])
    path = torch.tensor([[0.9, 0.0, 0.0, 0.9, 0.0, 0.9]])
    a, b = (fidelity.topology(from_edges(e), density=0.5) for e in (triangle, path))
    assert a["strength"].item() == pytest.approx(0.9)
    assert a["clustering"].item() == pytest.approx(3 / 4)  # three closed corners, one lonely ROI
    assert a["efficiency"].item() == pytest.approx(6 / 12)  # six ordered pairs at distance 1
    assert b["clustering"].item() == 0.0
    # ordered pairs: 6 at distance 1, 4 at distance 2, 2 at distance 3
    assert b["efficiency"].item() == pytest.approx((6 + 4 / 2 + 2 / 3) / 12)


def test_distances_of_graphs_are_kolmogorov_smirnov(real) -> None:
    train, test = real
    same = fidelity.shape_of_graphs(train.fc, train.fc)
    assert all(v == 0.0 for v in same.values())
    other = fidelity.shape_of_graphs(train.fc, test.fc)
    assert set(other) == set(same)
    assert all(0.0 <= v <= 1.0 for k, v in other.items() if k.startswith("topology"))

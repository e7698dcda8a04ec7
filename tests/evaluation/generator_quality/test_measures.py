import networkx
import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from fcforge.core.subjects import FCBatch
from fcforge.evaluation.generator_quality import measures
from fcforge.graphs import from_edges


def test_validity_counts_by_hand() -> None:
    good, bad = torch.tensor([0.5, 0.2, 0.1]), torch.tensor([0.9, -0.9, 0.9])
    out = measures.validity(from_edges(torch.stack([good, bad, bad, bad])))
    assert out["psd_share"] == 0.25
    # Eigenvalues of the bad one: 1 + 0.9 (twice) and 1 - 1.8.
    assert out["min_eigenvalue"] == pytest.approx(-0.8, abs=1e-6)


def test_moments_of_the_training_set_itself(real) -> None:
    train, _ = real
    out = measures.moments(train, train)
    assert out["edge_mean_r"] == pytest.approx(1.0)
    assert out["variance_ratio"] == pytest.approx(1.0)


def test_halved_deviations_quarter_the_variance(real) -> None:
    train, _ = real
    fc = train.fc.clone()
    for c in (0, 1):
        mean = fc[train.y == c].mean(0)
        fc[train.y == c] = mean + 0.5 * (fc[train.y == c] - mean)
    out = measures.moments(train, FCBatch(fc, train.y))
    assert out["variance_ratio"] == pytest.approx(0.25, rel=1e-4)
    assert out["sd_ratio"] == pytest.approx(0.5, rel=1e-4)


def test_class_effect_sees_flipped_labels(real) -> None:
    train, test = real
    same = measures.class_effect(train, test, train)
    flipped = measures.class_effect(train, test, FCBatch(train.fc, 1 - train.y))
    assert same["class_difference_r"] > 0.5
    assert flipped["class_difference_r"] == pytest.approx(
        -same["class_difference_r"], abs=1e-9
    )
    assert same["class_difference_norm"] == pytest.approx(1.0)
    one = measures.class_effect(
        train, test, FCBatch(train.fc, torch.zeros_like(train.y))
    )
    assert np.isnan(one["class_difference_r"])


def test_topology_against_networkx(real) -> None:
    fc = real[0].fc[:3]
    out = measures.topology(fc, density=0.3)
    graphs = measures.matched_density(fc, 0.3)
    assert (graphs != 0).sum((1, 2)).tolist() == [2 * round(0.3 * 66)] * 3
    for i in range(3):
        g = networkx.from_numpy_array((graphs[i] != 0).int().numpy())
        assert out["efficiency"][i].item() == pytest.approx(
            networkx.global_efficiency(g), abs=1e-5
        )
        assert out["clustering"][i].item() == pytest.approx(
            networkx.average_clustering(g), abs=1e-5
        )
        best = networkx.community.modularity(
            g, networkx.community.louvain_communities(g, seed=0)
        )
        assert 0 < out["modularity"][i].item() <= best + 0.05


def test_spectrum_distance_is_zero_only_for_equal_sets(real) -> None:
    train, _ = real
    assert measures.shape_of_graphs(train.fc, train.fc)["spectrum_distance"] == 0.0
    eye = torch.eye(12).expand_as(train.fc) * 1.0
    assert (
        measures.shape_of_graphs(train.fc, eye + 1e-3 * train.fc)["spectrum_distance"]
        > 0.3
    )


def test_topology_of_copies_and_of_equal_edges_is_finite() -> None:
    flat = from_edges(
        torch.full((3, 4005), 0.5)
    )  # 90 ROIs, every eigenvalue but one repeated
    ring = from_edges(torch.zeros(2, 4005))
    for fc in (flat, ring):
        assert all(bool(v.isfinite().all()) for v in measures.topology(fc).values())


def test_correlation_of_a_constant_is_not_a_number() -> None:
    a = torch.tensor([1.0, 2.0, 3.0])
    assert measures.correlation(a, 2 * a + 1) == pytest.approx(1.0)
    assert np.isnan(measures.correlation(a, torch.ones(3)))


def test_matched_density_keeps_the_strongest_edges_of_each_subject() -> None:
    fc = from_edges(
        torch.tensor([[0.9, 0.1, 0.5, 0.3, -0.8, 0.2], [0.2, 0.3, 0.1, 0.6, 0.5, 0.4]])
    )
    kept = measures.matched_density(fc, density=1 / 3)
    assert measures.edges(kept)[0].tolist() == pytest.approx([0.9, 0, 0.5, 0, 0, 0])
    assert measures.edges(kept)[1].tolist() == pytest.approx([0, 0, 0, 0.6, 0.5, 0])
    assert (kept.diagonal(dim1=-2, dim2=-1) == 0).all()


def test_topology_of_a_triangle_and_a_path_by_hand() -> None:
    # edges 01 02 12 of four ROIs: a triangle and an isolated ROI; 01 12 23: a path
    triangle = torch.tensor([[0.9, 0.9, 0.0, 0.9, 0.0, 0.0]])
    path = torch.tensor([[0.9, 0.0, 0.0, 0.9, 0.0, 0.9]])
    a, b = (measures.topology(from_edges(e), density=0.5) for e in (triangle, path))
    assert a["strength"].item() == pytest.approx(0.9)
    assert a["clustering"].item() == pytest.approx(
        3 / 4
    )  # three closed corners, one lonely ROI
    assert a["efficiency"].item() == pytest.approx(
        6 / 12
    )  # six ordered pairs at distance 1
    assert b["clustering"].item() == 0.0
    # ordered pairs: 6 at distance 1, 4 at distance 2, 2 at distance 3
    assert b["efficiency"].item() == pytest.approx((6 + 4 / 2 + 2 / 3) / 12)


def test_distances_of_graphs_are_kolmogorov_smirnov(real) -> None:
    train, test = real
    same = measures.shape_of_graphs(train.fc, train.fc)
    assert all(v == 0.0 for v in same.values())
    other = measures.shape_of_graphs(train.fc, test.fc)
    assert set(other) == set(same)
    assert all(0.0 <= v <= 1.0 for k, v in other.items() if k.startswith("topology"))


def normal(
    n: int, shift: float = 0.0, scale: float = 1.0, seed: int = 0
) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    return shift + scale * torch.randn(n, 5, generator=rng, dtype=torch.float64)


def test_equal_sets_cannot_be_told_apart() -> None:
    a, b = normal(80, seed=1), normal(80, seed=2)
    out = measures.mmd(a, b, np.random.default_rng(0))
    assert out["mmd_p"] > 0.05
    assert 0.3 < measures.classifier_test(a, b, np.random.default_rng(0)) < 0.7


@pytest.mark.parametrize(("shift", "scale"), [(1.5, 1.0), (0.0, 3.0)])
def test_other_mean_or_spread_is_seen(shift, scale) -> None:
    a, b = normal(80, seed=1), normal(80, shift, scale, seed=2)
    out = measures.mmd(a, b, np.random.default_rng(0))
    assert out["mmd_p"] < 0.01
    assert measures.classifier_test(a, b, np.random.default_rng(0)) > 0.85


def test_mmd_by_hand() -> None:
    a = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    b = torch.tensor([[2.0], [3.0]], dtype=torch.float64)
    # Squared distances: 1 (x3), 4 (x2), 9 (x1); doubled in the matrix, lower median 1.
    k = lambda d2: np.exp(-d2 / 1.0)  # noqa: E731
    expected = k(1) + k(1) - 2 * (k(4) + k(9) + k(1) + k(4)) / 4
    out = measures.mmd(a, b, np.random.default_rng(0), permutations=5)
    assert out["mmd2"] == pytest.approx(expected)


def test_coverage_of_a_collapsed_and_of_an_equal_set() -> None:
    real = normal(60, seed=1)
    same = measures.coverage(real, normal(60, seed=2))
    point = measures.coverage(real, 1e-3 * normal(60, seed=3))
    assert same["recall"] > 0.7
    assert point["precision"] == 1.0
    assert point["recall"] == 0.0
    far = measures.coverage(real, normal(60, 50.0, seed=4))
    assert far["precision"] == far["coverage"] == 0.0


def test_ridge_is_sklearns() -> None:
    x, query = normal(20, seed=1), normal(7, seed=2)
    y = torch.tensor([0, 1] * 10)
    got = measures.ridge_scores(x, y, query, 0.5)
    sd, mean = x.std(0), x.mean(0)
    model = Ridge(alpha=10.0).fit(((x - mean) / sd).numpy(), (2 * y - 1).numpy())
    assert np.allclose(got.numpy(), model.predict(((query - mean) / sd).numpy()))


def test_embedding_keeps_distances(real) -> None:
    train, test = real
    a, b = measures.embed(train.fc[:20], test.fc[:20], dimensions=50)
    from fcforge.graphs import edges, fisher_z

    raw = torch.cdist(
        fisher_z(edges(train.fc[:20])), fisher_z(edges(test.fc[:20]))
    ).double()
    assert a.shape[1] == 39
    assert torch.allclose(torch.cdist(a, b), raw, rtol=1e-3)


def test_coverage_of_points_on_a_line_by_hand() -> None:
    real = torch.tensor([[0.0], [1.0], [2.0], [10.0]], dtype=torch.float64)
    fake = torch.tensor([[0.5], [1.5], [30.0]], dtype=torch.float64)
    out = measures.coverage(real, fake, k=1)
    # radii of the real ones 1, 1, 1, 8; of the generated ones 1, 1, 28.5
    assert out["precision"] == pytest.approx(
        2 / 3
    )  # 0.5 and 1.5 lie inside, 30 does not
    assert out["recall"] == 1.0  # 10 is within 28.5 of 30
    # 0.5: inside 0, 1; 1.5: inside 1, 2 (and 10's radius 8 does not reach 1.5)
    assert out["density"] == pytest.approx((2 + 2 + 0) / 3)
    assert out["coverage"] == pytest.approx(3 / 4)


def test_small_sets_use_the_neighbours_they_have() -> None:
    out = measures.coverage(normal(3, seed=1), normal(3, seed=2), k=50)
    assert all(v >= 0.0 for v in out.values())


def test_permutation_p_is_never_zero() -> None:
    far = measures.mmd(
        normal(20, seed=1), normal(20, 9.0, seed=2), np.random.default_rng(0), 99
    )
    assert far["mmd_p"] == pytest.approx(0.01)


def test_classifier_test_is_symmetric_in_what_it_asks() -> None:
    a, b = normal(40, seed=1), normal(40, 1.0, seed=2)
    one = measures.classifier_test(a, b, np.random.default_rng(0))
    two = measures.classifier_test(b, a, np.random.default_rng(0))
    assert one == pytest.approx(two, abs=0.1)

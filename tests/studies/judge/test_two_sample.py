import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from fcforge.studies.judge import two_sample


def normal(n: int, shift: float = 0.0, scale: float = 1.0, seed: int = 0) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    return shift + scale * torch.randn(n, 5, generator=rng, dtype=torch.float64)


def test_equal_sets_cannot_be_told_apart() -> None:
    a, b = normal(80, seed=1), normal(80, seed=2)
    out = two_sample.mmd(a, b, np.random.default_rng(0))
    assert out["mmd_p"] > 0.05
    assert 0.3 < two_sample.classifier_test(a, b, np.random.default_rng(0)) < 0.7


@pytest.mark.parametrize(("shift", "scale"), [(1.5, 1.0), (0.0, 3.0)])
def test_other_mean_or_spread_is_seen(shift, scale) -> None:
    a, b = normal(80, seed=1), normal(80, shift, scale, seed=2)
    out = two_sample.mmd(a, b, np.random.default_rng(0))
    assert out["mmd_p"] < 0.01
    assert two_sample.classifier_test(a, b, np.random.default_rng(0)) > 0.85


def test_mmd_by_hand() -> None:
    a = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    b = torch.tensor([[2.0], [3.0]], dtype=torch.float64)
    # Squared distances: 1 (x3), 4 (x2), 9 (x1); doubled in the matrix, lower median 1.
    k = lambda d2: np.exp(-d2 / 1.0)  # noqa: E731
    expected = k(1) + k(1) - 2 * (k(4) + k(9) + k(1) + k(4)) / 4
    out = two_sample.mmd(a, b, np.random.default_rng(0), permutations=5)
    assert out["mmd2"] == pytest.approx(expected)


def test_coverage_of_a_collapsed_and_of_an_equal_set() -> None:
    real = normal(60, seed=1)
    same = two_sample.coverage(real, normal(60, seed=2))
    point = two_sample.coverage(real, 1e-3 * normal(60, seed=3))
    assert same["recall"] > 0.7
    assert point["precision"] == 1.0
    assert point["recall"] == 0.0
    far = two_sample.coverage(real, normal(60, 50.0, seed=4))
    assert far["precision"] == far["coverage"] == 0.0


def test_ridge_is_sklearns() -> None:
    x, query = normal(20, seed=1), normal(7, seed=2)
    y = torch.tensor([0, 1] * 10)
    got = two_sample.ridge_scores(x, y, query, 0.5)
    sd, mean = x.std(0), x.mean(0)
    model = Ridge(alpha=10.0).fit(((x - mean) / sd).numpy(), (2 * y - 1).numpy())
    assert np.allclose(got.numpy(), model.predict(((query - mean) / sd).numpy()))


def test_embedding_keeps_distances(real) -> None:
    train, test = real
    a, b = two_sample.embed(train.fc[:20], test.fc[:20], dimensions=50)
    from fcforge.graphs import edges, fisher_z

    raw = torch.cdist(fisher_z(edges(train.fc[:20])), fisher_z(edges(test.fc[:20]))).double()
    assert a.shape[1] == 39
    assert torch.allclose(torch.cdist(a, b), raw, rtol=1e-3)


def test_coverage_of_points_on_a_line_by_hand() -> None:
    real = torch.tensor([[0.0], [1.0], [2.0], [10.0]], dtype=torch.float64)
    fake = torch.tensor([[0.5], [1.5], [30.0]], dtype=torch.float64)
    out = two_sample.coverage(real, fake, k=1)
    # radii of the real ones 1, 1, 1, 8; of the generated ones 1, 1, 28.5
    assert out["precision"] == pytest.approx(2 / 3)  # 0.5 and 1.5 lie inside, 30 does not
    assert out["recall"] == 1.0  # 10 is within 28.5 of 30
    # 0.5: inside 0, 1; 1.5: inside 1, 2 (and 10's radius 8 does not reach 1.5)
    assert out["density"] == pytest.approx((2 + 2 + 0) / 3)
    assert out["coverage"] == pytest.approx(3 / 4)


def test_small_sets_use_the_neighbours_they_have() -> None:
    out = two_sample.coverage(normal(3, seed=1), normal(3, seed=2), k=50)
    assert all(v >= 0.0 for v in out.values())


def test_permutation_p_is_never_zero() -> None:
    far = two_sample.mmd(normal(20, seed=1), normal(20, 9.0, seed=2), np.random.default_rng(0), 99)
    assert far["mmd_p"] == pytest.approx(0.01)


def test_classifier_test_is_symmetric_in_what_it_asks() -> None:
    a, b = normal(40, seed=1), normal(40, 1.0, seed=2)
    one = two_sample.classifier_test(a, b, np.random.default_rng(0))
    two = two_sample.classifier_test(b, a, np.random.default_rng(0))
    assert one == pytest.approx(two, abs=0.1)

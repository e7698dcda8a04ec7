"""Analytic ridge: equal to scikit-learn on the pooled data, whatever the order of sites."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge as SklearnRidge
from sklearn.linear_model import RidgeCV

from fcforge.errors import ConfigError
from fcforge.graphs import centre_edges, edges, log_edges
from fcforge.methods import make_method
from fcforge.methods.analytic import Analytic
from fcforge.methods.shared.ridge import add_to_root, ridge_from_root
from fcforge.models import make_model
from fcforge.runner.learners import build_learner
from fcforge.types import Component, LearnerSpec


def _sites(n_sites=3, n=15, p=40, seed=0):
    rng = np.random.default_rng(seed)
    w = rng.normal(size=p)
    found = []
    for k in range(n_sites):
        x = rng.normal(size=(n + k, p)) * rng.uniform(0.5, 2, p) + k
        t = np.where((x - x.mean(0)) @ w + rng.normal(size=n + k) > 0, 1.0, -1.0)
        found.append((x, t))
    return found


def _root(sites):
    root = torch.zeros(0, sites[0][0].shape[1] + 2, dtype=torch.float64)
    for x, t in sites:
        rows = np.column_stack([np.ones(len(t)), x, t])
        root = add_to_root(root, torch.from_numpy(rows))
    return root


@pytest.mark.parametrize("p", [40, 6])  # fewer subjects than features, and more
def test_equals_ridge_on_the_pooled_standardised_data(p):
    sites = _sites(p=p)
    x, t = np.concatenate([s[0] for s in sites]), np.concatenate([s[1] for s in sites])
    found = ridge_from_root(_root(sites), [3.0])
    oracle = SklearnRidge(alpha=3.0).fit((x - x.mean(0)) / x.std(0), t)
    expected = oracle.predict((x - x.mean(0)) / x.std(0))
    scores = torch.from_numpy(x) @ found.weight + found.bias
    np.testing.assert_allclose(scores.numpy(), expected, atol=1e-9)


def test_the_order_of_sites_does_not_matter():
    sites = _sites()
    one = ridge_from_root(_root(sites), [1.0, 10.0])
    other = ridge_from_root(_root(sites[::-1]), [1.0, 10.0])
    torch.testing.assert_close(one.weight, other.weight, rtol=1e-9, atol=1e-12)
    assert one.penalty == other.penalty


def test_statistics_never_outgrow_the_features():
    root = _root(_sites(n_sites=6, n=20, p=5))
    assert root.shape == (7, 7)


def test_penalty_is_the_best_by_generalised_cross_validation():
    sites = _sites(p=8, n=30)
    x, t = np.concatenate([s[0] for s in sites]), np.concatenate([s[1] for s in sites])
    z, n = (x - x.mean(0)) / x.std(0), len(t)
    grid = [0.1, 1.0, 10.0, 100.0]

    def gcv(alpha):
        hat = z @ np.linalg.solve(z.T @ z + alpha * np.eye(8), z.T) + 1 / n
        residual = t - hat @ t
        return (residual @ residual) / n / (1 - np.trace(hat) / n) ** 2

    found = ridge_from_root(_root(sites), grid)
    assert found.penalty == min(grid, key=gcv)
    assert float(found.noise) == pytest.approx(gcv(found.penalty), rel=1e-9)
    # leave-one-out is what it approximates: they agree on an easy case
    assert RidgeCV(grid).fit(z, t).alpha_ in grid


def test_a_flat_edge_gets_no_weight():
    sites = [(np.column_stack([x, np.zeros(len(t))]), t) for x, t in _sites(p=10)]
    found = ridge_from_root(_root(sites), [1.0])
    assert found.weight[-1] == 0
    assert torch.isfinite(found.weight).all()


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


@pytest.mark.parametrize("settings", [{"centre": False}, {"centre": True}, {"projection": 12}])
def test_weights_of_edges_score_like_weights_of_features(settings):
    method = make_method(Component("analytic", settings))
    assert isinstance(method, Analytic)
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(6, 45, generator=rng, dtype=torch.float64)
    model = make_model(Component("linear"), 10)
    rows = method.statistics_rows(model, {"edges": x}, torch.tensor([0, 1, 0, 1, 1, 0]))
    assert rows[:, 0].tolist() == [1] * 6
    assert rows[:, -1].tolist() == [-1, 1, -1, 1, 1, -1]
    features = rows[:, 1:-1]
    w = torch.randn(features.shape[1], generator=rng, dtype=torch.float64)
    torch.testing.assert_close(x @ method._to_edges(w, x), features @ w)


@pytest.mark.parametrize("method", ["analytic", "dp_analytic"])
@pytest.mark.parametrize("features", ["log+diagonal", "centred+log"])
def test_strength_of_what_is_no_edge_is_an_error(method, features):
    """116 ROIs with their diagonal have as many numbers as 117 ROIs have edges."""
    spec = LearnerSpec(Component(method), Component("linear", {"features": features}))
    with pytest.raises(ConfigError, match="ROI strength"):
        build_learner(spec, 116)


def test_without_centring_any_features_do():
    model = Component("linear", {"features": "log+diagonal"})
    build_learner(LearnerSpec(Component("analytic", {"centre": False}), model), 116)

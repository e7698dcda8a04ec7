"""Ridge in closed form: by hand, and equal to scikit-learn's on the data of all sites."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge as SklearnRidge
from sklearn.linear_model import RidgeCV

from fcforge.methods.shared.ridge import (
    add_to_root,
    balance_classes,
    dual_ridge,
    ridge_from_root,
)


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
    np.testing.assert_allclose(scores[:, 0].numpy(), expected, atol=1e-9)


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


# -- the solver ----------------------------------------------------------------------------
def test_two_subjects_by_hand():
    """x = -1, 1 and t = -1, 1 with mass 2 and 2: w = 4 / (4 + alpha), b = 0."""
    x = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    mass = torch.full((2,), 2.0, dtype=torch.float64)
    dual = dual_ridge(x @ x.T, x, mass, penalty=4.0)
    assert float(dual.coefficient.T @ x) == pytest.approx(0.5)
    assert float(dual.bias) == pytest.approx(0.0, abs=1e-12)


def test_mass_is_how_often_a_subject_is_there():
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(5, 3, generator=rng, dtype=torch.float64)
    t = torch.randn(5, 2, generator=rng, dtype=torch.float64)
    mass = torch.tensor([1.0, 2.0, 0.0, 3.0, 1.0], dtype=torch.float64)
    copies = torch.repeat_interleave(torch.arange(5), mass.long())
    weighted = dual_ridge(x @ x.T, t, mass, 0.7)
    copied = dual_ridge(x[copies] @ x[copies].T, t[copies], torch.ones(7).double(), 0.7)
    torch.testing.assert_close(
        x.T @ weighted.coefficient, x[copies].T @ copied.coefficient
    )
    torch.testing.assert_close(weighted.bias, copied.bias)
    assert float(weighted.coefficient.sum()) == pytest.approx(0.0, abs=1e-12)


def test_agrees_with_the_primal_and_with_analytic_ridge():
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(12, 4, generator=rng, dtype=torch.float64) + 3.0
    x = (x - x.mean(0)) / x.std(
        0, correction=0
    ) + 3.0  # analytic ridge standardises: unit already
    t, mass = (
        torch.randn(12, 2, generator=rng).double(),
        torch.rand(12, generator=rng).double(),
    )
    dual = dual_ridge(x @ x.T, t, mass, 0.3)
    full = torch.cat([x, torch.ones(12, 1).double()], 1)
    normal = (
        full.T @ (mass[:, None] * full)
        + 0.3 * torch.diag(torch.tensor([1.0] * 4 + [0])).double()
    )
    primal = torch.linalg.solve(normal, full.T @ (mass[:, None] * t))
    torch.testing.assert_close(x.T @ dual.coefficient, primal[:-1])
    torch.testing.assert_close(dual.bias, primal[-1])
    ones = torch.ones(12, 1).double()
    root = ridge_from_root(torch.cat([ones, x, t], 1), [0.3], columns=2)
    dual = dual_ridge(x @ x.T, t, ones[:, 0], 0.3)
    torch.testing.assert_close(x.T @ dual.coefficient, root.weight)
    torch.testing.assert_close(dual.bias, root.bias)


def test_balance_by_hand():
    """Three controls and one patient, then one of each with twice the mass: sites stay 4 and 4."""
    mass = torch.tensor([1.0, 1.0, 1.0, 1.0, 2.0, 2.0], dtype=torch.float64)
    y, site = torch.tensor([0, 0, 0, 1, 0, 1]), torch.tensor([0, 0, 0, 0, 1, 1])
    assert balance_classes(mass, y, site, 0.0) is mass
    whole = balance_classes(mass, y, site, 1.0)
    assert whole.tolist() == pytest.approx([2 / 3, 2 / 3, 2 / 3, 2, 2, 2])
    half = balance_classes(
        mass, y, site, 0.5
    )  # a patient counts sqrt 3 times a control
    one = 4 / (3 + 3**0.5)
    assert half.tolist() == pytest.approx([one, one, one, one * 3**0.5, 2, 2])
    alone = balance_classes(mass[:3], y[:3], site[:3], 0.5)  # a site of one class
    assert alone.tolist() == pytest.approx([1, 1, 1])

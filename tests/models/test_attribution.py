"""Attribution: by hand where it can be, complete everywhere, and true to simulated diseases."""

import numpy as np
import pytest
import torch

from fcforge.core.component import Component
from fcforge.core.randomness import torch_rng
from fcforge.data.edges import fc_from_upper
from fcforge.data.simulated import simulate
from fcforge.evaluation.attribution import attribute, slope_at
from fcforge.graphs import edges, from_edges, log_features, log_matrix
from fcforge.models import MODELS
from fcforge.models.attribution import Scorer
from fcforge.models.edge import Linear
from small_world import QUICK_MODELS, make_model

R = 8
TURNING = "graph_transformer"  # its eigenvectors turn round on the way: the gap says so


def scans(n=4, n_rois=R, seed=0):
    found = simulate(n_rois=n_rois, n_sites=2, scale=0.3, seed=seed).fc
    return found[:n].astype(float), found.mean(0).astype(float)


def scorer_of(name, seed=0, **more):
    model = make_model(Component(name, {**QUICK_MODELS.get(name, {}), **more}), R)
    params = {k: v.double() for k, v in model.init(torch_rng(seed)).items()}
    stats = {k: v.double() for k, v in model.init_stats().items()}

    def score(fc):
        u = model.apply(params, stats, model.prepare(fc)).logits
        return u[:, 1] - u[:, 0]

    return Scorer.of(model, score)


def test_a_linear_score_by_hand():
    """w = 1 for edge (0, 1), -2 for edge (2, 3) of four ROIs."""
    weight = torch.tensor([1.0, 0, 0, 0, 0, -2.0], dtype=torch.float64)
    scorer = Scorer.of(Linear(4), lambda fc: torch.atanh(edges(fc)) @ weight + 0.5)
    assert scorer.steps == 1
    fc = fc_from_upper(np.array([[0.5, 0.3, 0, 0, 0, 0.2]]))
    reference = fc_from_upper(np.array([[0.1, 0, 0, 0, 0, 0.4]]))[0]
    found = attribute(scorer, fc, reference)
    by_hand = [
        np.arctanh(0.5) - np.arctanh(0.1),
        0,
        0,
        0,
        0,
        -2 * (np.arctanh(0.2) - np.arctanh(0.4)),
    ]
    np.testing.assert_allclose(found.contribution[0], by_hand, atol=1e-12)
    assert found.base == pytest.approx(0.5 + np.arctanh(0.1) - 2 * np.arctanh(0.4))
    assert found.score[0] == pytest.approx(found.base + sum(by_hand))
    np.testing.assert_allclose(slope_at(scorer, fc[0]), weight, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "more", "within"),
    [
        ("mlp", {}, 1e-2),
        ("mlp", {"features": "log"}, 1e-2),
        *((n, {}, 2e-2) for n in sorted(MODELS) if n not in ("linear", "mlp", TURNING)),
    ],
)
def test_networks_are_complete(name, more, within):
    """The stated tolerance, as a share of the edges' summed sizes."""
    fc, reference = scans()
    found = attribute(scorer_of(name, **more), fc, reference)
    gap = np.abs(found.score - found.base - found.contribution.sum(1))
    assert (gap <= within * np.abs(found.contribution).sum(1)).all()
    assert found.contribution.any()


def test_what_eigenvectors_leave_unexplained_is_finite():
    fc, reference = scans()
    found = attribute(scorer_of(TURNING), fc, reference)
    assert np.isfinite(found.contribution).all()
    assert found.contribution.any()


def test_matrix_log_features_are_complete_to_rounding():
    fc, reference = scans()
    weight = torch.randn(R * (R + 1) // 2, generator=torch_rng(1), dtype=torch.float64)
    found = attribute(Scorer(lambda x: log_features(x) @ weight), fc, reference)
    np.testing.assert_allclose(
        found.contribution.sum(1), found.score - found.base, rtol=1e-9
    )


def test_the_log_has_a_gradient_where_eigenvalues_repeat():
    """At the identity d tr(W log((1 - a) C + a I)) = (1 - a) W; finite differences elsewhere."""
    w = torch.randn(5, 5, generator=torch_rng(2), dtype=torch.float64)
    w = w + w.T
    eye = torch.eye(5, dtype=torch.float64)[None].requires_grad_()
    (at_eye,) = torch.autograd.grad((log_matrix(eye) * w).sum(), eye)
    np.testing.assert_allclose(at_eye[0], 0.6 * w, atol=1e-12)
    fc = from_edges(
        0.3 * torch.rand(1, 10, generator=torch_rng(3), dtype=torch.float64)
    )

    def score(upper):
        return (log_matrix(from_edges(upper)) * w).sum()

    assert torch.autograd.gradcheck(score, (edges(fc).requires_grad_(),))


def test_a_jump_belongs_to_the_edge_that_crosses_the_threshold():
    """A score of 1 while edge (0, 1) is above 0.4: all of the change is that edge's."""
    scorer = Scorer(
        lambda fc: (edges(fc)[:, 0] >= 0.4).double(), steps=64, kept=lambda r: r >= 0.4
    )
    fc = fc_from_upper(np.array([[0.6, 0.2, 0.1], [0.1, 0.1, 0.1]]))
    found = attribute(scorer, fc[:1], fc[1])
    assert found.contribution[0].tolist() == [1.0, 0.0, 0.0]


def test_an_answer_that_does_not_depend_on_the_scan():
    fc, reference = scans()
    found = attribute(Scorer(lambda fc: torch.zeros(len(fc)).double()), fc, reference)
    assert not found.contribution.any()

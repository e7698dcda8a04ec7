"""Synthetic subjects from a start and a head: moments, diagnoses, and agreement with the head."""

import pytest
import torch

from fcforge.graphs import log_features
from fcforge.releases import vector
from fcforge.releases.start import StartSettings, make_start
from fcforge.sites.simulated import simulate


@pytest.fixture(scope="module")
def world():
    cohort = simulate(n_rois=8, scale=0.5)
    features = log_features(torch.from_numpy(cohort.fc).double())
    y = torch.from_numpy(cohort.y)
    return make_start(features, y, cohort.site.tolist(), StartSettings(axes=4)), features


def test_drawn_features_have_the_public_moments_on_the_axes(world):
    start, _ = world
    x = vector.draw_features(start, 40_000, torch.Generator().manual_seed(0))
    z = x @ start.axes
    torch.testing.assert_close(z.T @ z / len(z), start.second[:4, :4], atol=0.02, rtol=0.05)


def test_every_subject_is_a_correlation_matrix(world):
    start, _ = world
    x = vector.draw_features(start, 50, torch.Generator().manual_seed(1))
    fc = vector.to_fc(start, x)
    assert fc.dtype == torch.float32
    assert fc.shape == (50, 8, 8)
    assert torch.equal(fc.diagonal(dim1=1, dim2=2), torch.ones(50, 8))
    assert float(fc.abs().max()) <= 1.0
    assert float(torch.linalg.eigvalsh(fc.double()).min()) > -1e-5


def test_subjects_have_the_diagnoses_asked_for(world):
    start, _ = world
    head = vector.Head(start.weight * 3, start.bias)
    y = torch.arange(400) % 2
    x = vector.draw_subjects(start, head, y, torch.Generator().manual_seed(2))
    score = x @ head.weight + head.bias
    assert float(score[y == 1].mean()) > float(score[y == 0].mean()) + 0.1
    again = vector.draw_subjects(start, head, y, torch.Generator().manual_seed(2))
    assert torch.equal(x, again)


def test_the_head_of_many_synthetic_subjects_is_the_head(world):
    """Closed form and replay agree: least squares on replayed subjects gives the head back."""
    start, _ = world
    beta = torch.tensor([0.3, -0.2, 0.1, 0.2, 0.1]).double()
    head = vector.Head(*vector.head(start, beta))
    small = vector.Head(head.weight * 0.5, head.bias * 0.5)  # no score leaves [-1, 1]
    rng = torch.Generator().manual_seed(3)
    x = vector.draw_features(start, 60_000, rng)
    patient = torch.rand(len(x), generator=rng).double() < vector.patient_probability(small, x)
    t = 2.0 * patient.double() - 1.0
    value, vectors = torch.linalg.eigh(x.T @ x / len(x))
    kept = vectors[:, value > 1e-6 * value.max()]
    design = torch.cat([x @ kept, torch.ones(len(x), 1).double()], 1)
    found = torch.linalg.lstsq(design, t[:, None]).solution[:, 0]
    score = design @ found
    wanted = x @ small.weight + small.bias
    assert float(torch.corrcoef(torch.stack([score, wanted]))[0, 1]) > 0.97
    assert float((score - wanted).square().mean().sqrt()) < 0.25 * float(wanted.std())

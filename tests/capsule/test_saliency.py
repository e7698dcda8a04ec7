"""What a model uses, against gradients worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fcforge.capsule import Capsule, settings_for
from fcforge.capsule.contents import Subjects
from fcforge.capsule.saliency import (
    atlas_of_capsule,
    between_systems,
    saliency_of,
    strongest,
)
from fcforge.imaging.atlas import Atlas
from fcforge.methods import Lane
from fcforge.models import MODELS, make_model
from fcforge.randomness import torch_rng
from fcforge.sites.simulated import simulate
from fcforge.types import Component, FCBatch, LearnerSpec
from small_world import QUICK_MODELS

R = 4


def capsule(learner: LearnerSpec, lane: Lane, n_rois: int = R, n: int = 3) -> Capsule:
    fc = torch.eye(n_rois).repeat(n, 1, 1)
    fc[:, 0, 1] = fc[:, 1, 0] = 0.5
    held_out = Subjects.of(
        FCBatch(fc, torch.zeros(n, dtype=torch.int64)),
        torch.zeros(n, dtype=torch.int64),
        torch.zeros(n, dtype=torch.uint8),
    )
    nobody = Subjects.none(n_rois)
    made = settings_for(learner, n_rois)
    return Capsule(made, ("A",), lane, nobody, held_out if n else nobody, ())


def linear_capsule(n: int = 3) -> Capsule:
    """Margin = 0.2 * (w . atanh(fc) / 0.2) with w = 1 for edge (0, 1) and -2 for edge (2, 3)."""
    weight = torch.zeros(2, R * (R - 1) // 2)
    weight[1, 0], weight[1, -1] = 1.0, -2.0
    lane = Lane({"head.0.weight": weight, "head.0.bias": torch.zeros(2)}, {}, {})
    return capsule(LearnerSpec(Component("finetune"), Component("linear")), lane, n=n)


def test_gradient_times_input_of_a_linear_model():
    found = saliency_of(linear_capsule())
    # d/dc atanh(c) / 0.2 = 1 / (0.2 (1 - c^2)) = 6.667 at c = 0.5; times the input 0.5
    assert found.strength[0, 1] == pytest.approx(0.5 / (0.2 * 0.75), rel=1e-5)
    assert found.strength[1, 0] == found.strength[0, 1]
    assert found.strength[2, 3] == 0  # its input is 0
    assert found.direction[0, 1] == 1
    assert found.direction[2, 3] == -1
    assert np.count_nonzero(found.strength) == 2
    assert found.n_subjects == 3


def test_weights_where_no_subject_travels():
    found = saliency_of(linear_capsule(n=0))
    assert found.n_subjects == 0
    assert found.strength[0, 1] == pytest.approx(5.0)
    assert found.strength[2, 3] == pytest.approx(10.0)
    assert strongest(found, 5) == [
        (2, 3, pytest.approx(4.0), -1),  # the mean of six edges is 2.5
        (0, 1, pytest.approx(2.0), 1),
    ]


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_can_be_looked_into(name):
    n_rois = 8
    component = Component(name, QUICK_MODELS.get(name, {}))
    model = make_model(component, n_rois)
    params = model.init(torch_rng(0))
    if name == "linear":  # starts at zero, where nothing is used
        params["head.0.weight"][1] = 1.0
    made = capsule(
        LearnerSpec(Component("finetune"), component), Lane(params, model.init_stats(), {}), n_rois
    )
    fc = torch.from_numpy(simulate(n_rois=n_rois, n_sites=2, scale=0.3).fc[:4]).float()
    zero = torch.zeros(4, dtype=torch.int64)
    made = replace(made, held_out=Subjects.of(FCBatch(fc, zero), zero, zero.to(torch.uint8)))
    found = saliency_of(made)
    assert not found.constant
    assert np.isfinite(found.strength).all()
    assert np.array_equal(found.strength, found.strength.T)
    assert not found.strength.diagonal().any()


def test_between_systems():
    atlas = Atlas("three", ("a", "b", "c"), ("x", "x", "y"))
    strength = np.array([[0, 4, 1], [4, 0, 1], [1, 1, 0.0]])  # mean edge: 2
    found = between_systems(strength, atlas)
    assert found[0, 0] == 2.0
    assert found[0, 1] == found[1, 0] == 0.5
    assert np.isnan(found[1, 1])  # one ROI has no edge with itself


def test_atlas_only_where_it_is_known():
    own = simulate(n_rois=116, n_sites=2, scale=0.3).roi_names
    assert atlas_of_capsule(116, own) is not None
    assert atlas_of_capsule(116, ()) is None  # unnamed: any atlas of 116 ROIs
    assert atlas_of_capsule(116, own[::-1]) is None
    assert atlas_of_capsule(90, ()) is None

"""Content of an explanation: sums, tables, networks, nilearn's matrices, stable edges."""

import numpy as np
import pandas as pd
import pytest
import torch

from fcforge import graphs
from fcforge.core.component import Component
from fcforge.core.errors import DataError
from fcforge.core.spec import LearnerSpec
from fcforge.core.subjects import FCBatch
from fcforge.core.target import Target
from fcforge.data.simulated import simulate
from fcforge.evaluation.attribution import LogHead, attribute, slope_at
from fcforge.evaluation.edge_stability import EdgeStability
from fcforge.evaluation.explanation import DeletionTest, atlas_for, explain_model
from fcforge.imaging.atlas import Atlas, aal116
from fcforge.methods import Lane
from fcforge.models.attribution import Scorer
from fcforge_consortium.chains.chain import Chain, empty_chain
from fcforge_consortium.chains.settings import settings_for
from fcforge_consortium.chains.state import State, Subjects

R = 4
ATLAS = Atlas(
    "four",
    ("a", "b", "c", "d"),
    ("x", "x", "y", "y"),
    xyz=np.arange(12.0).reshape(4, 3),
)


def chain(n: int = 3) -> Chain:
    """Margin = atanh(fc01) - 2 atanh(fc23), each over 0.2; held-out scans have fc01 = 0.5."""
    weight = torch.zeros(2, R * (R - 1) // 2)
    weight[1, 0], weight[1, -1] = 1.0, -2.0
    bias = torch.tensor([0.0, 0.3])
    lane = Lane({"head.0.weight": weight, "head.0.bias": bias}, {})
    fc = torch.eye(R).repeat(n, 1, 1)
    fc[:, 0, 1] = 0.5
    fc[:, 1, 0] = 0.5
    none = torch.zeros(n, dtype=torch.int64)
    nobody = Subjects.none(R)
    held_out = Subjects.of(FCBatch(fc, none), none)
    learner = LearnerSpec(Component("finetune"), Component("linear"))
    begun = empty_chain(settings_for(learner, R), Target(classes=("TC", "ASD")), "A")
    return Chain(begun, State(lane, nobody, held_out if n else nobody))


def scan(first=0.7, last=0.4):
    fc = np.eye(R, dtype=np.float32)
    fc[0, 1] = fc[1, 0] = first
    fc[2, 3] = fc[3, 2] = last
    return fc[None]


@pytest.fixture(scope="module")
def found():
    model = chain()
    positive = model.exchange.root.policy.patient
    return explain_model(model, scan(), {}, ["=sub-1"], ATLAS, positive=positive)


def test_by_hand(found):
    first = (np.arctanh(0.7) - np.arctanh(0.5)) / 0.2
    last = -2 * np.arctanh(0.4) / 0.2
    np.testing.assert_allclose(
        found.contribution[0], [first, 0, 0, 0, 0, last], rtol=1e-6
    )
    assert found.base[0] == pytest.approx(0.3 + np.arctanh(0.5) / 0.2, rel=1e-6)
    assert found.exact
    assert found.positive == "ASD"
    assert abs(found.gap[0]) < 1e-9
    np.testing.assert_allclose(
        found.rois(), [first / 2, first / 2, last / 2, last / 2], rtol=1e-6
    )
    networks = found.networks()
    assert networks.loc["x", "x"] == pytest.approx(first)
    assert networks.loc["y", "y"] == pytest.approx(last)
    assert networks.loc["x", "y"] == 0


def test_tables_and_nilearn(found, tmp_path):
    found.to_csv(tmp_path / "edges.csv", 2)
    table = pd.read_csv(tmp_path / "edges.csv")
    assert list(table.columns) == [
        "subject",
        "roi_a",
        "roi_b",
        "fc",
        "reference_fc",
        "contribution",
    ]
    assert table.roi_a.tolist() == ["c", "a"]  # the stronger first
    assert table.subject[0] == "'=sub-1"  # no formula for a spreadsheet
    adjacency = found.matrix()
    assert np.array_equal(adjacency, adjacency.T)
    assert found.atlas.places.shape == (R, 3)


def test_without_held_out_subjects_the_reference_is_no_connectivity():
    bare = explain_model(chain(0), scan(), {})
    assert "without any connectivity" in bare.reference
    assert bare.base[0] == pytest.approx(0.3)
    with pytest.raises(DataError, match="networks of these ROIs"):
        bare.networks()
    weights = explain_model(chain(0), np.eye(R)[None], {})
    np.testing.assert_allclose(weights.strength, [5, 0, 0, 0, 0, 10], rtol=1e-6)


def test_an_atlas_must_have_the_models_rois():
    own = aal116()
    assert atlas_for(116, own.roi_names) is own
    assert atlas_for(116, own.abbreviations) is own
    assert not len(atlas_for(116, ()).places)  # unnamed: any atlas of 116 ROIs
    assert not len(atlas_for(116, own.roi_names[::-1]).places)
    assert atlas_for(R, ATLAS.roi_names, ATLAS) is ATLAS
    with pytest.raises(DataError, match="116 ROIs, the model 4"):
        atlas_for(R, (), own)
    with pytest.raises(DataError, match="atlas 'four': ROI 2 is 'b'"):
        atlas_for(R, ("a", "B", "c", "d"), ATLAS)


def test_stability_by_hand():
    """40 edges: q = sqrt(0.4 * 40) = 4 strongest. Edge 0 always is; 1 is but turns; 2 never is."""
    weights = np.tile(np.linspace(0.01, 0.02, 40), (10, 1))
    weights[:, 0], weights[:, 1], weights[::2, 1] = 1.0, 1.0, -1.0
    weights[:, 2] = 0.001
    found = EdgeStability.of(weights)
    assert found.in_top[:3].tolist() == [1.0, 1.0, 0.0]
    assert found.same_sign[:3].tolist() == [1.0, 0.5, 1.0]
    assert found.stable[:3].tolist() == [True, False, False]
    with pytest.raises(DataError, match="at least two"):
        EdgeStability.of(weights[:1])


def heads(seed=1, shrink=0.4):
    """Eight ROIs: four scans, their mean, and a head of their matrix logarithm."""
    fc = simulate(n_rois=8, n_sites=2, scale=0.3).fc.astype(np.float64)
    weight = np.random.default_rng(seed).standard_normal(36)
    return fc[:4], fc.mean(0), LogHead(weight, 0.7, shrink)


def test_the_gradient_of_the_logarithm_is_that_of_torch():
    fc, reference, head = heads()
    weight = torch.from_numpy(head.weight)
    scorer = Scorer(lambda x: graphs.log_features(x, 0.4) @ weight + 0.7)
    expected = attribute(scorer, fc, reference)
    found = attribute(head, fc, reference)
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-9)
    both = (slope_at(one, fc[0]) for one in (head, scorer))
    np.testing.assert_allclose(*both, atol=1e-9)
    gap = found.score - found.base - found.contribution.sum(1)
    np.testing.assert_allclose(gap, 0.0, atol=1e-8)


def test_the_gradient_holds_where_eigenvalues_repeat():
    """At the identity the derivative of log((1 - a) C + a I) by C is (1 - a) W."""
    _, _, head = heads()
    n_edges = 28
    # an edge's weight counts once: half of it in each triangle
    expected = 0.6 * head.weight[:n_edges] / 0.05
    np.testing.assert_allclose(slope_at(head, np.eye(8)), expected, atol=1e-9)


def test_deletion_moves_the_score_by_what_the_edges_added():
    fc, reference, head = heads()
    found = attribute(head, fc, reference)
    tested = DeletionTest.of(head, fc, reference, found)
    assert tested.k == 1
    for scan in range(len(fc)):
        way = np.sign(found.score[scan] - found.base)
        edge = np.argmax(way * found.contribution[scan])
        i, j = np.triu_indices(8, 1)
        changed = fc[scan].copy()
        changed[i[edge], j[edge]] = reference[i[edge], j[edge]]
        changed[j[edge], i[edge]] = reference[i[edge], j[edge]]
        moved = way * (found.score[scan] - head.score(changed[None])[0])
        assert tested.explained[scan] == pytest.approx(moved, abs=1e-9)
    assert (tested.explained > tested.random.mean(1)).all()

"""A public template: principal axes of people outside the study."""

import math

import numpy as np
import pytest
import torch

from fcforge.errors import DataError
from fcforge.graphs import centre_edges, edges, log_matrix
from fcforge.models.edge import edge_features
from fcforge.privacy.mechanisms import read_template
from fcforge.privacy.template import principal_frame, public_template, write_template
from fcforge.sites.simulated import simulate
from fcforge.types import FCBatch

R = 12


@pytest.fixture(scope="module")
def site() -> FCBatch:
    cohort = simulate("easy", n_rois=R, n_sites=1, scale=1.0, seed=3)
    return FCBatch.from_numpy(cohort.fc[:100], cohort.y[:100])


def test_template_frame_is_pca(site) -> None:
    x = centre_edges(edge_features(site.fc))
    mean, axes, spread, outside = principal_frame(x, 5)
    torch.testing.assert_close(axes @ axes.T, torch.eye(5), atol=1e-4, rtol=0)
    _, single, _ = np.linalg.svd((x - x.mean(0)).double().numpy(), full_matrices=False)
    np.testing.assert_allclose(spread, single[:5] / math.sqrt(99), rtol=1e-4)
    scores = (x - mean) @ axes.T
    torch.testing.assert_close(scores.std(0), spread, rtol=1e-3, atol=1e-4)
    assert outside.shape == (R * (R - 1) // 2,)


def test_frame_of_three_points_by_hand() -> None:
    # on a line through (1, 1): mean 1, one axis, spread sqrt(sum of squares / 2), nothing outside
    x = torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])
    mean, axes, spread, outside = principal_frame(x, 4)
    assert mean.tolist() == [1.0, 1.0]
    torch.testing.assert_close(axes[0].abs(), torch.full((2,), math.sqrt(0.5)))
    assert float(spread[0]) == pytest.approx(math.sqrt(4 / 2))
    torch.testing.assert_close(outside, torch.zeros(2), atol=1e-6, rtol=0)


def test_template_holds_the_means_learners_read(site) -> None:
    arrays = public_template(site.fc, rank=7)
    z = centre_edges(edge_features(site.fc))
    np.testing.assert_allclose(arrays["edge_mean"], z.mean(0), atol=1e-5)
    logs = log_matrix(site.fc, 0.02)
    np.testing.assert_allclose(arrays["log_mean"], edges(logs).mean(0), atol=1e-5)
    np.testing.assert_allclose(
        arrays["log_start"], logs.diagonal(dim1=-2, dim2=-1).mean(0), atol=1e-5
    )
    assert (
        arrays["edge_axes"].shape == arrays["log_axes"].shape == (7, R * (R - 1) // 2)
    )
    assert all(a.dtype == np.float32 for a in arrays.values())


def test_write_and_read_agree_and_another_atlas_is_refused(site, tmp_path) -> None:
    write_template(tmp_path / "t.npz", site.fc, rank=5)
    found = read_template(
        str(tmp_path / "t.npz"), ("edge_mean", "edge_axes"), R * (R - 1) // 2
    )
    np.testing.assert_array_equal(
        found["edge_axes"], public_template(site.fc, 5)["edge_axes"]
    )
    with pytest.raises(DataError, match="another atlas"):
        read_template(str(tmp_path / "t.npz"), ("edge_axes",), 10)


def test_a_handful_of_people_is_not_a_template(site) -> None:
    with pytest.raises(DataError, match="7 public subjects are too few"):
        public_template(site.fc[:7])

"""Made-up ROIs: mirrored, inside a head, in compact systems of both hemispheres."""

import numpy as np
import pytest

from fcforge.imaging.atlas import aal116
from fcforge.sites.made_up import atlas_of, made_up_atlas, twins


@pytest.mark.parametrize("n", [4, 7, 20, 61, 200])
def test_the_right_half_mirrors_the_left(n):
    atlas = made_up_atlas(n)
    other = twins(atlas.roi_names)
    np.testing.assert_array_equal(other[other], np.arange(n))  # there and back
    np.testing.assert_allclose(atlas.xyz[other], atlas.xyz * [-1, 1, 1], atol=1e-12)
    assert (other == np.arange(n)).sum() == n % 2  # an odd count leaves one on the midline
    assert len(set(atlas.roi_names)) == n
    assert [atlas.systems[k] for k in other] == list(atlas.systems)


@pytest.mark.parametrize("n", [20, 61, 200])
def test_rois_fill_a_head_and_lie_apart(n):
    xyz = made_up_atlas(n).xyz
    assert ((xyz / [65, 85, 60]) ** 2).sum(1).max() <= 1 + 1e-9
    assert np.abs(xyz).max(0)[1] > 40
    distance = np.linalg.norm(xyz[:, None] - xyz[None], axis=-1) + np.eye(n) * 1e3
    assert distance.min() > 0.1  # no two in one place


def test_systems_are_as_many_as_the_rois_allow():
    counts = [len(set(made_up_atlas(n).systems)) for n in (4, 12, 30, 200)]
    assert counts == [1, 2, 5, 9]


def test_116_rois_of_the_simulator_are_aals():
    assert atlas_of(116) is aal116()
    assert atlas_of(115).name == "MadeUp115"
    names = aal116().roi_names
    other = twins(names)
    assert names[other[0]] == "Precentral_R"
    assert [names[k] for k in np.flatnonzero(other == np.arange(116))] == [
        name for name in names if name.startswith("Vermis")
    ]

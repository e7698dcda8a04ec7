"""Strengths, sizes and ROIs of the simulator: what a preset and a layout say, who may change it."""

import numpy as np
import pytest

from fcforge.imaging.atlas import aal116
from fcforge.messages import ConfigError
from fcforge.sites.datasets import MIN_PER_CLASS
from fcforge.sites.recipes import (
    PRESETS,
    atlas_of,
    layouts,
    made_up_atlas,
    places_of,
    recipe_of,
    twins,
)


def test_layouts_have_the_papers_counts():
    counts = {
        name: [(p.patients, p.controls) for p in places]
        for name, places in layouts().items()
    }
    assert counts["abide"] == [(79, 105), (54, 45), (68, 77), (58, 43)]
    assert sum(a for a, _ in counts["mdd"]) == 506
    assert sum(a + b for a, b in counts["bsnip"]) == 1005
    assert [p.name for p in layouts()["mdd"]] == [
        "Sim-S1",
        "Sim-S9",
        "Sim-S14",
        "Sim-S20",
        "Sim-S21",
    ]
    assert layouts()["abide"][1].fd_patients == 0.236


def test_sites_are_cut_continued_and_scaled():
    assert [p.name for p in places_of("abide", 2, 1.0)] == ["Sim-NYU", "Sim-UCLA"]
    more = places_of("abide", 6, 1.0)
    assert [p.name for p in more[4:]] == ["Sim-Extra01", "Sim-Extra02"]
    assert more[4].patients == more[0].patients
    small = places_of("abide", None, 0.001)
    assert {(p.patients, p.controls) for p in small} == {(MIN_PER_CLASS, MIN_PER_CLASS)}
    assert places_of("abide", 1, 0.5)[0].patients == 40  # 39.5, to the even


def test_numbers_stand_in_place_of_the_presets_own():
    assert recipe_of("hard", None, None) == PRESETS["hard"]
    changed = recipe_of("hard", 0.0, 1.0)
    assert (changed.d_scale, changed.rho) == (0.0, 1.0)
    assert changed.site_block == PRESETS["hard"].site_block


def test_unknown_names_are_told_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'abide'"):
        places_of("abide1", None, 1.0)
    with pytest.raises(ConfigError, match="Did you mean 'realistic'"):
        recipe_of("realstic", None, None)


@pytest.mark.parametrize("n", [4, 7, 20, 61, 200])
def test_the_right_half_mirrors_the_left(n):
    atlas = made_up_atlas(n)
    other = twins(atlas.roi_names)
    np.testing.assert_array_equal(other[other], np.arange(n))  # there and back
    np.testing.assert_allclose(atlas.xyz[other], atlas.xyz * [-1, 1, 1], atol=1e-12)
    assert (
        other == np.arange(n)
    ).sum() == n % 2  # an odd count leaves one on the midline
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

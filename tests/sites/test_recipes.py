"""Strengths and sizes of the simulator: what a preset and a layout say, and who may change it."""

import pytest

from fcforge.errors import ConfigError
from fcforge.sites.check import MIN_PER_CLASS
from fcforge.sites.recipes import PRESETS, layouts, places_of, recipe_of


def test_layouts_have_the_papers_counts():
    counts = {
        name: [(p.patients, p.controls) for p in places] for name, places in layouts().items()
    }
    assert counts["abide"] == [(79, 105), (54, 45), (68, 77), (58, 43)]
    assert sum(a for a, _ in counts["mdd"]) == 506
    assert sum(a + b for a, b in counts["bsnip"]) == 1005
    assert [p.name for p in layouts()["mdd"]] == ["Sim-S1", "Sim-S9", "Sim-S14", "Sim-S20",
                                                  "Sim-S21"]  # fmt: skip
    assert layouts()["abide"][1].fd_patients == 0.236


def test_sites_are_cut_continued_and_scaled():
    assert [p.name for p in places_of("abide", 2, 1.0)] == ["Sim-NYU", "Sim-UCLA"]
    more = places_of("abide", 6, 1.0)
    assert [p.name for p in more[4:]] == ["Sim-Extra01", "Sim-Extra02"]
    assert more[4].patients == more[0].patients
    small = places_of("abide", None, 0.001)
    assert {(p.patients, p.controls) for p in small} == {(MIN_PER_CLASS, MIN_PER_CLASS)}
    assert places_of("abide", 1, 0.5)[0].patients == 40  # 39.5, to the even


@pytest.mark.parametrize(("n_sites", "scale"), [(0, 1.0), (-1, 1.0), (2, 0.0), (2, float("nan"))])
def test_sizes_that_mean_nothing_are_refused(n_sites, scale):
    with pytest.raises(ConfigError, match="n_sites is 1 or more, scale is above 0"):
        places_of("abide", n_sites, scale)


def test_numbers_stand_in_place_of_the_presets_own():
    assert recipe_of("hard", None, None) is PRESETS["hard"]
    changed = recipe_of("hard", 0.0, 1.0)
    assert (changed.d_scale, changed.rho, changed.gain) == (0.0, 1.0, PRESETS["hard"].gain)


@pytest.mark.parametrize(("d_scale", "rho"), [(-0.1, None), (None, 1.1), (None, float("nan"))])
def test_strengths_out_of_bounds_are_refused(d_scale, rho):
    with pytest.raises(ConfigError, match="rho lies between -1 and 1"):
        recipe_of("easy", d_scale, rho)


def test_unknown_names_are_told_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'abide'"):
        places_of("abide1", None, 1.0)
    with pytest.raises(ConfigError, match="Did you mean 'realistic'"):
        recipe_of("realstic", None, None)

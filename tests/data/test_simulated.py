"""The dataset ``simulated``: the preset chooses the world and the settings that it has."""

import numpy as np
import pytest

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.data.datasets import load_dataset
from fcforge.data.simulated import simulate
from fcforge.data.simulated_calibrated import simulate_calibrated
from fcforge.data.simulated_systems import simulate_systems


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"preset": "hard", "n_rois": 9, "scale": 0.1, "seed": 2, "rho": 0.0},
            simulate_calibrated("hard", n_rois=9, scale=0.1, seed=2, rho=0.0),
        ),
        (
            {"preset": "systems", "subjects_per_site": 8, "seed": 2, "n_sites": 2},
            simulate_systems(subjects_per_site=8, seed=2, n_sites=2),
        ),
    ],
)
def test_the_preset_chooses_the_world(settings, expected):
    for cohort in (
        simulate(**settings),
        load_dataset(Component("simulated", settings)),
    ):
        np.testing.assert_array_equal(cohort.fc, expected.fc)
        np.testing.assert_array_equal(cohort.y, expected.y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"preset": "systems", "layout": "mdd"}, "preset 'systems': unknown setting"),
        ({"preset": "hard", "site_effect": 0.1}, "preset 'hard': unknown setting"),
        ({"site_effect": 0.1}, "preset 'realistic': unknown setting 'site_effect'"),
        ({"preset": "systms"}, "Did you mean 'systems'?"),
        (
            {"preset": "systems", "n_rois": 9},
            "n_rois = 9 is too few for 5 groups of two or more ROIs. Use 10 or more",
        ),
    ],
)
def test_settings_that_the_preset_does_not_have_are_refused(settings, message):
    with pytest.raises(ConfigError) as error:
        simulate(**settings)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"preset": "realstic"},
        {"layout": "abid"},
        {"n_rois": 3},
        {"n_sites": 0},
        {"scale": 0.0},
        {"rho": 2.0},
        {"rho": float("nan")},
        {"d_scale": -1.0},
        {"sites": ["NYU"]},
        {"preset": "systems", "subjects_per_site": 7},
        {"preset": "systems", "volumes": 1},
        {"preset": "systems", "site_effect": -0.1},
        {"preset": "systems", "sites": ["Sim-5"]},
    ],
)
def test_impossible_settings(wrong):
    with pytest.raises(ConfigError):
        load_dataset(Component("simulated", wrong))

"""Plans: noise per person by hand, and the settings of the nearest level."""

import json
from pathlib import Path

import pytest

from fcforge.privacy.accounting import sigma_for
from fcforge.releases.plan import CHOSEN, noise_per_person, planned_settings

RESULTS = Path(__file__).parents[2] / "results" / "choose_sums_2.json"


def test_noise_per_person_by_hand():
    assert noise_per_person(100, None) == 0.0
    assert noise_per_person(100, 1.0, 2) == pytest.approx(sigma_for(1.0) * 2**0.5 / 100)
    # every hospital's own noise: seventeen doses instead of two
    local = noise_per_person(600, 1.0, 17)
    assert local == pytest.approx(noise_per_person(600, 1.0) * (17 / 2) ** 0.5)


def test_the_nearest_level_is_taken():
    for level, settings in CHOSEN.items():
        assert planned_settings(level) == settings
    assert planned_settings(1e-9) == CHOSEN[0.0]
    assert planned_settings(10.0) == CHOSEN[0.03]
    assert planned_settings(0.0021) == CHOSEN[0.0015]  # nearer by its logarithm
    assert planned_settings(0.0022) == CHOSEN[0.003]


def test_fewer_features_are_held_more_strongly_and_more_as_before():
    base = CHOSEN[0.01]
    assert planned_settings(0.01, 6786 // 4).pull == pytest.approx(
        2 * base.pull, rel=1e-3
    )
    assert planned_settings(0.01, 80_200) == base


def test_louder_noise_speaks_of_fewer_directions():
    assert CHOSEN[0.03].gamma < CHOSEN[0.01].gamma < CHOSEN[0.003].gamma


def test_the_table_is_what_the_run_chose():
    found = json.loads(RESULTS.read_text())
    for row in found["levels"]:
        settings = CHOSEN[row["nu"]]
        chosen = {
            name: getattr(settings, name)
            for name in ("axes", "gamma", "pull", "even", "clip")
        }
        assert chosen == {name: row[name] for name in chosen}

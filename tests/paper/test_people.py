"""Measurements of people: means over sites, and ages and sexes found by row number."""

import numpy as np
import people
import pytest

from fcforge.core.estimate import Estimate
from fcforge.experiments.config import load_experiment


def test_mean_over_sites_by_hand():
    """Half-widths 0.03 and 0.04 of two independent sites: sqrt(9 + 16) / 2 hundredths."""
    found = people._mean([Estimate(0.6, 0.57, 0.63), Estimate(0.8, 0.76, 0.84)])
    assert found.value == pytest.approx(0.7)
    assert found.low == pytest.approx(0.675)
    assert found.high == pytest.approx(0.725)


def test_people_are_found_by_their_place_in_the_sorted_list(shared_data):
    experiment = load_experiment(people.EXPERIMENTS / "contributions_444.toml")
    facts = people.facts_of(experiment)
    with np.load(shared_data / "abide1_aal116.npz") as file:
        ids = file["subject_id"].astype(str)
        ages = dict(zip(ids.tolist(), file["age"].tolist(), strict=True))
    in_order = sorted(ages)
    assert sum(len(about["subject_ids"]) for about in facts.values()) == 444
    for about in facts.values():
        for place, age in zip(
            about["subject_ids"], about["covariates"]["age"], strict=True
        ):
            assert ages[in_order[int(place)]] == pytest.approx(age)

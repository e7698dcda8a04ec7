"""Subgroups, calibration and decision curves: counts of people, whatever their site."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fake_runs import fake_learner, run
from fcforge.core.estimate import Estimate
from fcforge.evaluation.decision_curves import (
    calibration_curve,
    decision_curve,
    net_benefit,
    observed_share,
    treat_everybody,
)
from fcforge.evaluation.pooled import pooled_estimate, select_subjects
from fcforge.evaluation.random_effects import further_site, random_effects

Y = {"A": [0, 1, 1, 0], "B": [1, 0]}
LAST = {"A": [0.1, 0.9, 0.3, 0.7], "B": [0.75, 0.15]}
ONE = run({s: [[0.5] * len(p), p] for s, p in LAST.items()}, Y)


def test_people_of_all_sites_are_counted_together_after_the_last_stage():
    """By hand: A's third and fourth are wrong, everybody else is right: 4 of 6, 2 of 3."""
    assert pooled_estimate([ONE], "accuracy").value == pytest.approx(4 / 6)
    assert pooled_estimate([ONE], "sensitivity").value == pytest.approx(2 / 3)
    brier = np.mean([0.01, 0.01, 0.49, 0.49, 0.0625, 0.0225])
    assert pooled_estimate([ONE], "brier").value == pytest.approx(brier, abs=1e-6)


def test_a_group_is_tested_alone_and_a_site_may_have_nobody_of_it():
    some = select_subjects([ONE], lambda site, who: who in ("A-1", "A-2"))
    assert some[0].subject_ids == {"A": ("A-1", "A-2"), "B": ()}
    assert some[0].scores["A"].shape == (2, 2)
    assert pooled_estimate(some, "accuracy").value == 0.5
    nobody = pooled_estimate(select_subjects([ONE], lambda *who: False), "accuracy")
    assert np.isnan([nobody.value, nobody.low, nobody.high]).all()


def test_the_interval_is_that_of_the_people():
    """Accuracy of many people of one site: about two standard errors of a share."""
    rng = np.random.default_rng(0)
    y = np.tile([0, 1], 200)
    p = np.where(rng.random(400) < 0.7, y * 0.8 + 0.1, 0.9 - y * 0.8)
    found = pooled_estimate([run({"A": [p]}, {"A": y})], "accuracy")
    wide = 2 * 1.96 * np.sqrt(found.value * (1 - found.value) / 400)
    assert found.high - found.low == pytest.approx(wide, rel=0.15)


def test_seeds_with_other_people_are_one_estimate():
    runs = fake_learner("a", skill=2.0, seeds=(0, 1, 2))
    found = pooled_estimate(runs, "accuracy")
    right = []
    for r in runs:
        both = [(r.scores[s][-1] > 0.5) == r.y[s] for s in r.sites]
        right.append(np.concatenate(both).mean())
    assert found.value == pytest.approx(np.mean(right))
    assert found.low < found.value < found.high


def test_bins_of_the_calibration_curve_by_hand():
    """In the bins are 0.1 and 0.15, then 0.3, then nobody, 0.7 and 0.75, and 0.9."""
    found = calibration_curve([ONE])
    assert found["0 to 0.2"].value == 0.0
    assert found["0.2 to 0.4"].value == 1.0
    assert np.isnan(found["0.4 to 0.6"].value)
    assert found["0.6 to 0.8"].value == 0.5
    assert found["0.8 to 1"].value == 1.0
    zero = replace(ONE, scores={s: np.zeros_like(p) for s, p in ONE.scores.items()})
    assert pooled_estimate([zero], observed_share(0.0, 0.2)).value == 0.5


def test_net_benefit_by_hand():
    """Above 0.25 are two patients and a control of A, a patient of B: 3/6 - 1/6 * 1/3."""
    found = pooled_estimate([ONE], net_benefit(0.25)).value
    assert found == pytest.approx(3 / 6 - 1 / 6 / 3)
    curve = decision_curve(treat_everybody([ONE]))
    assert curve["at 0.5"].value == pytest.approx(0.0)  # half of them are patients
    assert curve["at 0.2"].value == pytest.approx(0.5 - 0.5 / 4)


# -- random effects over sites, against values computed by hand -----------------------------------
def test_two_sites_that_differ_as_much_as_their_errors():
    """By hand: Q = 2, C = 100, tau2 = 0.01, standard error 0.1, t(0.975, 1) = 12.706."""
    found = random_effects([0.5, 0.7], [0.01, 0.01])
    assert found.value == pytest.approx(0.6)
    assert (found.low, found.high) == (0.0, 1.0)  # 0.6 -+ 1.27, within what is possible
    many = random_effects([0.5, 0.7] * 8, [0.01] * 16)
    assert many.high - 0.6 == pytest.approx(2.13145 * math.sqrt(0.01 / 15), rel=1e-4)


def test_a_precise_site_weighs_more_unless_sites_differ():
    same = random_effects([0.60, 0.61, 0.60], [0.0001, 0.01, 0.01])
    assert same.value == pytest.approx(0.6001, abs=1e-3)
    apart = random_effects([0.5, 0.7, 0.9], [0.0001, 0.0004, 0.0004])
    assert apart.value == pytest.approx(0.7, abs=0.01)
    assert apart.low < 0.5
    assert apart.high > 0.9


def test_a_site_without_variance_does_not_speak_for_all():
    """A constant answer has an interval of no width; a mean of 0.538 was then called certain."""
    found = random_effects([0.5, 0.538], [0.002, 0.0])
    wanted = random_effects([0.5, 0.538], [0.002, 0.002])
    assert found == wanted
    assert found.low < 0.5 < 0.538 < found.high
    assert random_effects([0.5, 0.5], [0.0, 0.0]).value == 0.5


def test_intervals_of_sites_tell_their_variances():
    sites = {
        s: Estimate(v, v - 0.196, v + 0.196)
        for s, v in zip("ABC", (0.5, 0.6, 0.7), strict=True)
    }
    wanted = random_effects([0.5, 0.6, 0.7], [0.01] * 3)
    assert further_site(sites).low == pytest.approx(wanted.low, abs=1e-6)
    alone = further_site({"A": sites["A"], "B": Estimate(math.nan, math.nan, math.nan)})
    assert alone.value == 0.5
    assert np.isnan(alone.low)
    assert np.isnan(further_site({}).value)


def test_further_site_ends_where_the_metric_does():
    errors = {s: Estimate(v, v - 1, v + 1) for s, v in (("A", 2.0), ("B", 6.0))}
    assert further_site(errors, (0.0, math.inf)).high > 6  # years, not a share
    assert further_site(errors, (0.0, math.inf)).low == 0
    assert Estimate(0.9, -0.1, 1.2).within(0, 1) == Estimate(0.9, 0, 1)

"""Random effects over sites, against values computed by hand."""

import math

import numpy as np
import pytest

from fcforge.stats.across_sites import new_site, random_effects
from fcforge.types import Estimate


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


def test_intervals_of_sites_tell_their_variances():
    sites = {
        s: Estimate(v, v - 0.196, v + 0.196)
        for s, v in zip("ABC", (0.5, 0.6, 0.7), strict=True)
    }
    wanted = random_effects([0.5, 0.6, 0.7], [0.01] * 3)
    assert new_site(sites).low == pytest.approx(wanted.low, abs=1e-6)
    alone = new_site({"A": sites["A"], "B": Estimate(math.nan, math.nan, math.nan)})
    assert alone.value == 0.5
    assert np.isnan(alone.low)
    assert np.isnan(new_site({}).value)

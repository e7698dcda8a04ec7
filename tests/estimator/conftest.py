"""Subjects the estimator learns from."""

import pytest

from fcforge.data.simulated import simulate


@pytest.fixture(scope="module")
def subjects():
    cohort = simulate(n_rois=10, scale=0.4, n_sites=2, preset="easy")
    return cohort.fc, cohort.y, cohort.site

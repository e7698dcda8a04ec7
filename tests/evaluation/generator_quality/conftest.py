"""Simulated subjects: the generators' simulator, at two seeds."""

import pytest
from simulated_site import simulate

from fcforge.core.subjects import FCBatch


@pytest.fixture(scope="session")
def real() -> tuple[FCBatch, FCBatch]:
    """Training and held-out subjects."""
    return simulate(60, seed=1, effect=1.5), simulate(40, seed=2, effect=1.5)

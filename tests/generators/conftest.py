"""A small simulated site with a class effect."""

import pytest
from simulated_site import simulate

from fcforge.core.subjects import FCBatch


@pytest.fixture(scope="session")
def small_site() -> FCBatch:
    return simulate(40)

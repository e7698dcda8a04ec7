"""Simulated subjects: the generators' simulator, at two seeds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fcforge.types import FCBatch

sys.path.insert(0, str(Path(__file__).parents[1] / "generators"))


@pytest.fixture(scope="session")
def real() -> tuple[FCBatch, FCBatch]:
    """Training and held-out subjects."""
    from simulated_site import simulate

    return simulate(60, seed=1, effect=1.5), simulate(40, seed=2, effect=1.5)

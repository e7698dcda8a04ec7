"""Shared fixtures: small simulated sites, the real data where it is, a quiet torch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder with the real ABIDE files, or skip with the reason."""
    root = Path(os.environ.get("FCFORGE_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (root / "abide1_aal116.npz").exists():
        pytest.skip(f"real ABIDE data not found at {root} (set FCFORGE_DATA)")
    return root

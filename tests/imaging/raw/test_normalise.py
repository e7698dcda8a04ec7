"""Registration: the frame of antspyx is ours."""

from pathlib import Path

import numpy as np
import pytest

from fcforge.imaging.raw.motion import rigid
from fcforge.imaging.raw.normalise import affine_of_transform, to_ants


def test_ants_frame_is_our_world_frame(tmp_path: Path):
    ants = pytest.importorskip("ants", reason="extra `imaging`")
    affine = rigid(np.array([5.0, -3, 2, 0.1, 0.2, -0.1]), np.zeros(3)) @ np.diag([2.0, 3, 4, 1])
    image = to_ants(np.zeros((4, 5, 6)), affine)
    index = np.array([1, 2, 3])
    point = ants.transform_index_to_physical_point(image, index)
    np.testing.assert_allclose(point, affine[:3, :3] @ index + affine[:3, 3], atol=1e-5)
    turn = rigid(np.array([1.0, 2, 3, 0.05, -0.1, 0.2]), np.zeros(3))
    transform = ants.create_ants_transform(
        transform_type="AffineTransform", matrix=turn[:3, :3], translation=turn[:3, 3]
    )
    ants.write_transform(transform, str(tmp_path / "t.mat"))
    np.testing.assert_allclose(affine_of_transform(str(tmp_path / "t.mat")), turn, atol=1e-5)

"""To MNI: the frame antspyx counts in; confounds of our own scans: columns, tissues, cosines."""

from pathlib import Path

import numpy as np
import pytest

from fcforge.imaging.raw.mni import (
    Tissues,
    affine_of_transform,
    confounds_table,
    cosines,
    mni_tissues,
    to_ants,
)
from fcforge.imaging.raw.motion import rigid


def test_ants_frame_is_our_world_frame(tmp_path: Path):
    ants = pytest.importorskip("ants", reason="extra `imaging`")
    affine = rigid(np.array([5.0, -3, 2, 0.1, 0.2, -0.1]), np.zeros(3)) @ np.diag(
        [2.0, 3, 4, 1]
    )
    image = to_ants(np.zeros((4, 5, 6)), affine)
    index = np.array([1, 2, 3])
    point = ants.transform_index_to_physical_point(image, index)
    np.testing.assert_allclose(point, affine[:3, :3] @ index + affine[:3, 3], atol=1e-5)
    turn = rigid(np.array([1.0, 2, 3, 0.05, -0.1, 0.2]), np.zeros(3))
    transform = ants.create_ants_transform(
        transform_type="AffineTransform", matrix=turn[:3, :3], translation=turn[:3, 3]
    )
    ants.write_transform(transform, str(tmp_path / "t.mat"))
    np.testing.assert_allclose(
        affine_of_transform(str(tmp_path / "t.mat")), turn, atol=1e-5
    )


def test_tissues_and_confounds_have_fmripreps_columns():
    tissues = mni_tissues()
    brain, white, csf = (int(mask.sum()) for mask in tissues)
    assert brain > 5 * white > 50 * csf > 500
    assert not (tissues.csf & ~tissues.brain).any()
    first = np.arange(8.0).reshape(2, 2, 2)
    scan = np.stack([first + (t % 2) for t in range(40)], axis=-1)
    small = Tissues(first >= 0, first < 2, first == 7)
    table = confounds_table(np.zeros((40, 6)), scan, small, 2.0)
    assert table["csf"].tolist()[:2] == [7.0, 8.0]
    assert table["white_matter"].tolist()[:2] == [0.5, 1.5]
    assert table["dvars"].tolist()[1:3] == [1.0, 1.0]
    assert {"cosine00", "std_dvars", "framewise_displacement"} <= set(table)
    assert "rot_z_derivative1_power2" in table


def test_cosines_are_orthonormal_and_slow():
    basis = cosines(100, 2.0)
    assert len(basis) == 3  # 2 * 200 s / 128 s
    np.testing.assert_allclose(basis @ basis.T, np.eye(3), atol=1e-12)

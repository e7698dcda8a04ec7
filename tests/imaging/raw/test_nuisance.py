"""Confounds of our own scans: columns, tissues, cosines."""

import numpy as np

from fcforge.imaging.raw.normalise import mni_grid
from fcforge.imaging.raw.nuisance import (
    Tissues,
    TissueSignals,
    confounds_table,
    cosines,
    mni_tissues,
)


def test_tissues_and_confounds_have_fmripreps_columns():
    shape, affine = mni_grid(4.0)
    tissues = mni_tissues(shape, affine)
    assert len(tissues.brain) > 5 * len(tissues.white_matter) > 50 * len(tissues.csf) > 500
    assert set(tissues.csf) <= set(tissues.brain)
    small = Tissues(np.arange(8), np.array([0, 1]), np.array([7]))
    signals = TissueSignals(small)
    for t in range(40):
        signals.add(np.arange(8.0).reshape(2, 2, 2, order="F") + (t % 2))
    table = confounds_table(np.zeros((40, 6)), signals, 2.0)
    assert table["csf"].tolist()[:2] == [7.0, 8.0]
    assert table["white_matter"].tolist()[:2] == [0.5, 1.5]
    assert table["dvars"].tolist()[1:3] == [1.0, 1.0]
    assert {"cosine00", "std_dvars", "framewise_displacement"} <= set(table)
    assert "rot_z_derivative1_power2" in table


def test_cosines_are_orthonormal_and_slow():
    basis = cosines(100, 2.0)
    assert len(basis) == 3  # 2 * 200 s / 128 s
    np.testing.assert_allclose(basis @ basis.T, np.eye(3), atol=1e-12)

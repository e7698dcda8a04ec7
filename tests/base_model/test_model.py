"""Base model: rounding, leave-one-out scores and too few subjects."""

import numpy as np
import pytest
from public_people import people

from fcforge.base_model import model as module
from fcforge.base_model.model import fit_base_model
from fcforge.core.errors import DataError


def test_rounding_keeps_twelve_bits():
    values = np.array([0.0, 1.0, -1.0 / 3.0, 1e-9, 12345.678, np.inf])
    kept = module.rounded(values)
    assert kept[0] == 0
    assert kept[1] == 1
    assert np.isinf(kept[5])
    wrong = np.abs((kept[1:5] - values[1:5]) / values[1:5])
    assert float(wrong.max()) <= 2.0**-12
    assert np.array_equal(module.rounded(kept), kept)
    # what two machines differ by does not show
    assert np.array_equal(module.rounded(values * (1 + 1e-13)), kept)


def test_leave_one_out_is_leaving_one_out():
    x, y, _ = people(12, 4)
    x = x - x.mean(0)
    t = 2.0 * y - 1
    coefficient, left_out = module.leave_one_out(x @ x.T, t, 0.7)
    w = np.linalg.solve(x.T @ x + 0.7 * np.eye(4), x.T @ (t - t.mean()))
    np.testing.assert_allclose(x.T @ coefficient, w)
    for i in range(12):
        rest = [k for k in range(12) if k != i]
        design = np.concatenate([np.ones((11, 1)), x[rest]], 1)
        penalty = 0.7 * np.eye(5)
        penalty[0, 0] = 0
        beta = np.linalg.solve(design.T @ design + penalty, design.T @ t[rest])
        assert float(left_out[i]) == pytest.approx(
            float(beta[0] + x[i] @ beta[1:]), abs=1e-9
        )


@pytest.mark.parametrize(("n", "ones"), [(10, 5), (30, 2)])
def test_too_few_subjects_are_refused(n, ones):
    x, _, _ = people(n)
    y = np.zeros(n, dtype=int)
    y[:ones] = 1
    with pytest.raises(DataError, match=r"public subjects .* are too few"):
        fit_base_model(x, y)


def test_digest_changes_with_the_subjects_and_not_with_rounding_noise():
    x, y, _ = people()
    digest = fit_base_model(x, y).digest
    assert fit_base_model(x * (1 + 1e-13), y).digest == digest
    x[0, 0] += 0.5
    assert fit_base_model(x, y).digest != digest

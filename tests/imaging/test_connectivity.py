"""Pearson FC: against numpy, ROIs without signal, gaps."""

import numpy as np
import pytest

from fcforge.errors import DataError
from fcforge.imaging.connectivity import pearson_fc
from fcforge.sites.reading import to_fc


def test_pearson_against_numpy():
    x = np.random.default_rng(0).standard_normal((50, 7)) * 1e3 + 1e4
    np.testing.assert_allclose(pearson_fc(x), np.corrcoef(x.T), atol=1e-12)
    for scale in (1e-200, 1e200):  # squares of these are out of range
        np.testing.assert_allclose(pearson_fc(x * scale), pearson_fc(x), atol=1e-12)


@pytest.mark.parametrize("nothing", [7.3, 0.0, np.nan, np.inf])
def test_an_roi_without_signal_has_fc_zero(nothing):
    x = np.random.default_rng(0).standard_normal((50, 4))
    whole = pearson_fc(x)
    x[:, 1] = nothing
    for fc in (pearson_fc(x), to_fc(x)):
        np.testing.assert_array_equal(fc[1], [0, 1, 0, 0])
        np.testing.assert_allclose(fc[2:, 2:], whole[2:, 2:], atol=1e-6)


@pytest.mark.parametrize("gap", [np.nan, np.inf, -np.inf])
def test_an_roi_with_gaps_is_an_error_that_names_it(gap):
    x = np.random.default_rng(0).standard_normal((50, 6))
    x[3, 2] = gap
    said = r"s1.csv: ROI 3: NaN or infinite in 1 of 50 volumes. Leave out censored"
    with pytest.raises(DataError, match=said):
        to_fc(x, where="s1.csv")
    x[4, [0, 1, 5]] = gap
    with pytest.raises(DataError, match=r"^a, b, c and 1 more: NaN or infinite in 2 of 50"):
        pearson_fc(x, names=tuple("abcdef"))


def test_a_series_without_any_signal_is_an_error():
    x = np.full((50, 4), np.nan)
    x[:, 1] = np.arange(50)
    with pytest.raises(DataError, match="s1: 1 of 4 ROIs have a signal"):
        pearson_fc(x, where="s1")

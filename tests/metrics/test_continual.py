"""Continual-learning summaries by hand, on the golden matrix of methods.md."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcforge.metrics import continual as m

GOLDEN = np.array([[0.70, 0.55, 0.50], [0.80, 0.75, 0.60], [0.58, 0.70, 0.78]])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("aaa", (0.70 + 0.775 + 0.686666666666) / 3),
        ("acc", 0.686666666666),
        ("bwt", -0.085),
        ("fm", 0.135),
        ("for_literal", 0.030),
        ("for_triangular", 0.090),
    ],
)
def test_golden_matrix(name, value):
    assert getattr(m, name)(GOLDEN) == pytest.approx(value, abs=1e-9)


def test_golden_transfer_and_intransigence():
    assert m.aaa(GOLDEN) == pytest.approx(0.72056, abs=5e-6)
    assert m.fwt(GOLDEN, np.full(3, 0.5)) == pytest.approx(0.075)
    assert m.intransigence(GOLDEN, np.array([0.72, 0.78, 0.80])) == pytest.approx(
        0.0233333333
    )


def test_golden_curves():
    assert m.accuracy_curve(GOLDEN) == pytest.approx([0.70, 0.775, 0.686666666666])
    curve = m.forgetting_curve(GOLDEN)
    assert np.isnan(curve[0])
    # After two sites: .70 -> .80 is a gain, so forgetting is negative.
    assert curve[1:] == pytest.approx([-0.10, 0.135])


def test_summaries_broadcast_over_leading_axes():
    stacked = np.stack([GOLDEN, GOLDEN + 0.1, GOLDEN * 0])
    for name in ("aaa", "acc", "bwt", "fm", "for_literal", "for_triangular"):
        f = getattr(m, name)
        assert f(stacked) == pytest.approx([float(f(x)) for x in stacked])


def test_undefined_column_is_left_out_and_other_nan_is_not():
    wide = np.insert(np.insert(GOLDEN, 1, GOLDEN[0], axis=0), 1, np.nan, axis=1)
    # A site without patients changes no mean over the other sites at the end.
    assert m.acc(wide) == pytest.approx(0.686666666666)
    assert m.fm(wide) == pytest.approx(0.135)
    broken = GOLDEN.copy()
    broken[2, 0] = np.nan
    assert np.isnan(m.acc(broken))
    assert np.isnan(m.fm(broken))
    assert np.isnan(m.aaa(np.full((3, 3), np.nan)))


def test_one_site_has_no_forgetting():
    a = np.array([[0.8]])
    assert m.aaa(a) == m.acc(a) == pytest.approx(0.8)
    for f in (m.fm, m.for_literal, m.for_triangular, m.bwt):
        assert np.isnan(f(a))


@given(st.integers(2, 6), st.integers(0, 10_000))
def test_forgetting_is_at_least_minus_backward_transfer(n, seed):
    a = np.random.default_rng(seed).random((n, n))
    assert m.fm(a) >= -m.bwt(a) - 1e-12
    assert m.for_triangular(a) == pytest.approx((n - 1) / n * m.fm(a))
    assert m.forgetting_curve(a)[-1] == pytest.approx(m.fm(a))
    assert m.accuracy_curve(a).mean() == pytest.approx(m.aaa(a))


def test_split_forgetting_by_hand():
    """The best stage of site 1 is the second on `a`: measured on `b` it lost .6 - .5."""
    a = GOLDEN
    b = np.array([[0.9, 0.5, 0.5], [0.6, 0.7, 0.6], [0.5, 0.9, 0.8]])
    assert m.fm_split(a, b) == pytest.approx(((0.6 - 0.5) + (0.7 - 0.9)) / 2)
    assert m.fm_split(a, a) == pytest.approx(m.fm(a))
    assert m.fm_split(np.stack([a, a]), np.stack([b, a])).shape == (2,)
    assert np.isnan(m.fm_split(np.ones((1, 1)), np.ones((1, 1))))

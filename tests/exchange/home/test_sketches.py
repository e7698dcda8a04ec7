"""A hospital knows a scan again, and takes no stranger for somebody it knows."""

import numpy as np
import pytest

from fcforge.exchange.home.sketches import SIZE, same_scans, sketches_of


def scans(n, rois, seed=0, shared=0.5):
    """Correlation matrices (n, R, R) of people who have something in common."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(rois, 3 * rois))
    found = []
    for _ in range(n):
        series = shared * common + rng.normal(size=common.shape)
        found.append(np.corrcoef(series))
    return np.array(found)


def test_a_sketch_is_small_and_always_the_same():
    fc = scans(2, 12)
    one, other = sketches_of(fc)
    assert len(one) == 1 + SIZE * 4 // 3
    assert one != other
    assert sketches_of(fc[:1]) == [one]
    # pinned: what is in a register must be found again by later versions
    assert sketches_of(np.eye(3)[None])[0][1:] == "A" * (SIZE * 4 // 3)
    ramp = np.arange(9.0).reshape(1, 3, 3)
    assert sketches_of(ramp)[0].startswith("03NzyAM0kJDMA")


@pytest.mark.parametrize(("rois", "shared"), [(12, 0.5), (60, 1.0)])
def test_the_same_scan_in_disguise_and_no_stranger(rois, shared):
    fc = scans(40, rois, shared=shared)
    disguised = fc.copy()
    disguised[:, 0, 1] += 0.001
    disguised[:, 1, 0] += 0.001
    rounded = fc.astype(np.float32).round(3)
    for other in (disguised, rounded):
        found = same_scans(sketches_of(fc), sketches_of(other))
        np.testing.assert_array_equal(found, np.eye(40, dtype=bool))


def test_scans_of_another_atlas_are_of_nobody_known():
    assert not same_scans(sketches_of(scans(5, 20)), sketches_of(scans(5, 24))).any()


def test_nobody_is_nobody():
    assert same_scans(sketches_of(scans(2, 12)), []).shape == (2, 0)

"""Temperature, strangeness and quality by hand; hemispheres told apart by their asymmetry."""

import numpy as np
import pytest

from fcforge.core.errors import DataError
from fcforge.core.target import Target
from fcforge.data.edges import upper_from_fc
from fcforge.data.scan_checks import (
    DISTANCES,
    Known,
    Reference,
    asymmetry,
    limits,
    partners,
    side_distance,
    strangeness,
    wrong_rois,
)
from fcforge.data.sketches import SIZE, same_scans, sketches_of
from fcforge.evaluation.temperature import temperature_of_odds
from fcforge_consortium.base_model.quality import quality, require_labels

R, N = 24, 40
ALTERNATING = np.arange(R) ^ 1
HALVES = (np.arange(R) + R // 2) % R


def brains(places: np.ndarray, n: int, seed: int) -> np.ndarray:
    """FC of people whose partners are strongly connected and whose halves differ."""
    rng = np.random.default_rng(seed)
    both, one = np.random.default_rng(0).standard_normal((2, R, 12))
    loading = both + both[places] + 0.7 * one
    noise = 3 * rng.standard_normal((n, 40, R))
    series = rng.standard_normal((n, 40, 12)) @ loading.T + noise
    return np.stack([np.corrcoef(s.T) for s in series]).astype(np.float32)


def swapped(fc: np.ndarray) -> np.ndarray:
    return fc[:, ALTERNATING][:, :, ALTERNATING]


@pytest.mark.parametrize("places", [ALTERNATING, HALVES])
def test_pairs_are_told_from_the_mean(places):
    mean = upper_from_fc(brains(places, 40, 1)).mean(0)
    np.testing.assert_array_equal(partners(mean), places)


def test_without_pairs_nothing_is_said():
    mean = np.random.default_rng(0).standard_normal(R * (R - 1) // 2)
    assert partners(mean) is None
    assert side_distance(mean, mean[None]).tolist() == [0.0]
    assert partners(np.ones(45)) is None  # ten ROIs


def test_asymmetry_by_hand():
    upper = np.array([[0.9, 0.1, 0.2, 0.3, 0.4, 0.8]])  # 12 13 14 23 24 34
    found = asymmetry(upper, np.array([1, 0, 3, 2]))  # partners 12 and 34
    np.testing.assert_allclose(found, [[0.0, -0.3, -0.1, 0.1, 0.3, 0.0]], atol=1e-12)


def test_the_sign_turns_with_the_hemispheres():
    fc = brains(ALTERNATING, 2 * N, 1)
    mean = upper_from_fc(fc[:N]).mean(0)
    right = side_distance(mean, upper_from_fc(fc[N:]))
    wrong = side_distance(mean, upper_from_fc(swapped(fc[N:])))
    assert right.max() < (1 - 0.2) / 1.1  # of asymmetries that correlate 0.2
    np.testing.assert_allclose(wrong + right, 2 / 1.1, atol=1e-5)


def test_a_swapped_scan_is_strange_at_the_site_it_resembles_most():
    fc = brains(ALTERNATING, 3 * N, 1)
    shuffled = fc[:, ::-1][:, :, ::-1]
    known = []
    for name, mine in (("A", fc[: 2 * N]), ("B", shuffled[: 2 * N])):
        reference = Reference.of(mine)
        known.append(Known(name, reference, limits(reference, mine)))
    odd, why = strangeness(known, np.concatenate([fc[-4:], swapped(fc[-4:])]))
    assert (odd[:4] <= 1).all()
    assert (odd[4:] > 1).all()
    assert why[:4] == [""] * 4
    assert why[4].startswith("nearest site A")
    generous = Known("A", known[0].reference, dict.fromkeys(DISTANCES, 1e9))
    odd, why = strangeness([generous], swapped(fc[-4:]))
    assert (odd > 1).all()
    assert why[0] == "nearest site A, left and right look swapped"


def test_temperature_by_hand():
    # every subject has log odds -2; 3 of 4 are controls: sigma(2/T) = 3/4 => T = 2 / log 3
    y = np.arange(4000) % 4 == 0
    assert temperature_of_odds(np.full(4000, -2.0), y) == pytest.approx(
        2 / np.log(3), rel=0.01
    )
    # one subject decides little: the prior keeps T near 1
    assert 0.6 < temperature_of_odds(np.array([-9.0]), np.array([0])) <= 1.01


def test_distance_by_hand():
    """Two ROIs, one edge: the Mahalanobis distance is |z - mean| / sd."""
    r = np.array([0.0, 0.1, 0.2, 0.3, 0.4])
    fc = np.tile(np.eye(2), (5, 1, 1))
    fc[:, 0, 1] = r
    fc[:, 1, 0] = r
    reference = Reference.of(fc)
    found = reference.distances(fc)
    z = np.arctanh(r)
    expected = np.abs(z - z.mean()) / z.std(ddof=1)
    np.testing.assert_allclose(found["inside"], expected, atol=1e-9)
    np.testing.assert_allclose(found["outside"], 0, atol=1e-9)
    # mean + 2.576 sd of what the five have, times sqrt((n + 1) / (n - k - 2)) for the sixth
    bound = (expected.mean() + 2.576 * expected.std(ddof=1)) * np.sqrt(6 / (5 - 1 - 2))
    assert limits(reference, fc)["inside"] == pytest.approx(bound, rel=1e-3)


def test_pattern_by_hand():
    """Three ROIs: the correlation of a scan's three edges with the mean's three."""
    rng = np.random.default_rng(0)
    fc = np.stack([np.corrcoef(rng.standard_normal((3, 9))) for _ in range(6)])
    scan = np.corrcoef(rng.standard_normal((3, 9)))[None]
    mean = np.arctanh(upper_from_fc(fc)).mean(0)
    expected = 1 - np.corrcoef(np.arctanh(upper_from_fc(scan))[0], mean)[0, 1]
    found = Reference.of(fc).distances(scan)
    assert float(found["pattern"][0]) == pytest.approx(expected, abs=1e-4)


def test_quality_by_hand():
    found = quality(np.array([2.0, -1.0, 1.0, -3.0]), np.array([1, 1, 0, 0]))
    assert found["accuracy"] == 0.5
    assert found["auroc"] == 0.75
    assert found["majority"] == 0.5


def test_diagnoses_that_are_turned_round_are_refused_unless_accepted():
    odds = np.linspace(-2.0, 2.0, 20)
    y = (odds < 0).astype(int)
    with pytest.raises(DataError) as refused:
        require_labels(odds, y, accept=False)
    assert "0.00" in refused.value.what
    assert require_labels(odds, y, accept=True)
    assert not require_labels(odds, 1 - y, accept=False)
    assert not require_labels(odds, np.ones(20), accept=False)  # nobody to compare with
    assert not require_labels(np.zeros(20), y, accept=False)  # all are level


def test_classes_that_changed_places_are_refused_unless_accepted():
    three = Target(classes=("HC", "SZ", "BP"))
    rng = np.random.default_rng(0)
    truth = np.arange(60) % 3
    score = rng.normal(size=(60, 3)) + 3 * np.eye(3)[truth]
    assert not require_labels(score, truth, False, three)
    for order in ([0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1]):
        changed = np.array(order)[truth]
        with pytest.raises(DataError, match=r"'\w\w' below '\w\w'"):
            require_labels(score, changed, False, three)
        assert require_labels(score, changed, True, three)
    here = truth < 2  # a hospital without the third
    assert not require_labels(score[here], truth[here], False, three)


def test_a_number_with_its_sign_turned_is_refused_unless_accepted():
    age = Target("age", (), (5.0, 65.0))
    y = np.linspace(-0.9, 0.9, 30)
    score = y + np.random.default_rng(0).normal(size=30)
    assert not require_labels(score, y, False, age)
    with pytest.raises(DataError, match="higher age"):
        require_labels(score, -y, False, age)
    assert require_labels(score, -y, True, age)


def test_roi_names_by_hand():
    assert (
        wrong_rois((), ("a",))
        == wrong_rois(("a",), ())
        == wrong_rois(("a",), ("a",))
        == ""
    )
    assert "2 ROI names" in wrong_rois(("a", "b"), ("a",))
    assert "ROI 2 is 'c'" in wrong_rois(("a", "c"), ("a", "b"))


# -- sketches: a scan is known again, and no stranger is taken for it ------------------------------
def alike(n, rois, seed=0, shared=0.5):
    """Correlation matrices (n, R, R) of people who have something in common."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(rois, 3 * rois))
    found = []
    for _ in range(n):
        series = shared * common + rng.normal(size=common.shape)
        found.append(np.corrcoef(series))
    return np.array(found)


def test_a_sketch_is_small_and_always_the_same():
    fc = alike(2, 12)
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
    fc = alike(40, rois, shared=shared)
    disguised = fc.copy()
    disguised[:, 0, 1] += 0.001
    disguised[:, 1, 0] += 0.001
    rounded = fc.astype(np.float32).round(3)
    for other in (disguised, rounded):
        found = same_scans(sketches_of(fc), sketches_of(other))
        np.testing.assert_array_equal(found, np.eye(40, dtype=bool))


def test_scans_of_another_atlas_are_of_nobody_known():
    assert not same_scans(sketches_of(alike(5, 20)), sketches_of(alike(5, 24))).any()


def test_nobody_is_nobody():
    assert same_scans(sketches_of(alike(2, 12)), []).shape == (2, 0)

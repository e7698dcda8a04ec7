"""Temperature, strangeness and quality by hand; hemispheres told apart by their asymmetry."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from fcforge.capsule import learn, open_capsule, prediction, settings_for
from fcforge.capsule.judging import (
    Reference,
    asymmetry,
    fit_temperature,
    limits,
    partners,
    quality,
    side_distance,
    side_fit,
)
from fcforge.consortium import Consortium, Home, make_public
from fcforge.consortium.few_start import StartSettings
from fcforge.consortium.learning import Budget
from fcforge.consortium.learning import learn as release
from fcforge.consortium.predicting import judge
from fcforge.errors import DataError
from fcforge.graphs import edges
from fcforge.sites.cohort import Cohort
from fcforge.types import Component, LearnerSpec

R, N, SITES = 24, 40, ("A", "B", "C")
ALTERNATING = np.arange(R) ^ 1
HALVES = (np.arange(R) + R // 2) % R


def brains(places: np.ndarray, n: int, seed: int) -> np.ndarray:
    """FC of people whose partners are strongly connected and whose halves differ."""
    rng, shape = np.random.default_rng(seed), np.random.default_rng(0)
    both, one = shape.standard_normal((2, R, 12))
    loading = both + both[places] + 0.7 * one
    series = rng.standard_normal((n, 40, 12)) @ loading.T + 3 * rng.standard_normal(
        (n, 40, R)
    )
    return np.stack([np.corrcoef(s.T) for s in series]).astype(np.float32)


@cache
def cohort() -> Cohort:
    fc = brains(ALTERNATING, N * len(SITES), 1)
    y = np.tile([0, 1], len(fc) // 2).astype(np.int64)
    ids = np.array([f"s{i}" for i in range(len(fc))])
    return Cohort("made up", fc, y, np.repeat(SITES, N), ids)


def swapped(fc: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(fc[:, ALTERNATING][:, :, ALTERNATING])


@pytest.mark.parametrize("places", [ALTERNATING, HALVES])
def test_pairs_are_told_from_the_mean(places):
    mean = edges(torch.from_numpy(brains(places, 40, 1))).double().mean(0)
    np.testing.assert_array_equal(partners(mean), places)


def test_without_pairs_nothing_is_said():
    rng = np.random.default_rng(0)
    mean = torch.from_numpy(rng.standard_normal(R * (R - 1) // 2))
    assert partners(mean) is None
    assert side_fit(mean, mean[None]) is None
    assert side_distance(mean, mean[None]).tolist() == [0.0]
    assert partners(torch.ones(45)) is None  # ten ROIs


def test_asymmetry_by_hand():
    upper = torch.tensor(
        [[0.9, 0.1, 0.2, 0.3, 0.4, 0.8]]
    )  # 12 13 14 23 24 34, partners 12 and 34
    found = asymmetry(upper, torch.tensor([1, 0, 3, 2]))
    torch.testing.assert_close(found, torch.tensor([[0.0, -0.3, -0.1, 0.1, 0.3, 0.0]]))


def test_the_sign_turns_with_the_hemispheres():
    fc = cohort().fc
    mean, own = (edges(torch.from_numpy(x)).double() for x in (fc[:N], fc[N:]))
    turned = edges(torch.from_numpy(swapped(fc[N:]))).double()
    right, wrong = side_fit(mean.mean(0), own), side_fit(mean.mean(0), turned)
    assert float(right.min()) > 0.2
    torch.testing.assert_close(wrong, -right)


def test_a_swapped_site_is_refused_and_a_swapped_scan_abstained_from_in_a_chain(
    tmp_path,
):
    learner = LearnerSpec(Component("analytic"), Component("linear"))
    learn(
        None, "A", cohort(), tmp_path / "a.capsule", settings=settings_for(learner, R)
    )
    turned = replace(cohort(), fc=swapped(cohort().fc))
    with pytest.raises(
        DataError, match=r"left and right hemispheres look swapped.*--accept-scans"
    ):
        learn(tmp_path / "a.capsule", "B", turned, tmp_path / "b.capsule")
    capsule = open_capsule(tmp_path / "a.capsule")
    found = prediction.judge(capsule, turned.fc[N : N + 5])
    assert np.isnan(found.odds).all()
    assert {text.split(", ")[1] for text in found.why} == {
        "left and right look swapped"
    }
    assert (prediction.judge(capsule, cohort().fc[N : N + 5]).strangeness <= 1).all()


def test_a_swapped_site_is_refused_and_a_swapped_scan_abstained_from_around_a_start():
    group = Consortium(
        make_public(cohort(), ["A", "B"], settings=StartSettings(axes=4))
    )
    turned = replace(cohort(), fc=swapped(cohort().fc))
    with pytest.raises(DataError, match="left and right hemispheres look swapped"):
        release(group, turned, "C", Home(), Budget())
    found = judge(group, turned.fc[-5:], {})
    assert np.isnan(found.odds).all()
    assert set(found.why) == {"its left and right look swapped"}
    assert np.isfinite(judge(group, cohort().fc[-5:], {}).odds).all()


def test_temperature_by_hand() -> None:
    # every subject has logits (2, 0); 3 of 4 are controls: softmax(2/T) = 3/4 => T = 2 / log 3
    u = torch.tensor([[2.0, 0.0]] * 4000)
    y = (torch.arange(4000) % 4 == 0).long()
    assert fit_temperature(u, y) == pytest.approx(2 / np.log(3), rel=0.01)
    # one subject decides little: the prior keeps T near 1
    assert 0.6 < fit_temperature(torch.tensor([[9.0, 0.0]]), torch.tensor([0])) <= 1.01


def test_distance_by_hand() -> None:
    """Two ROIs, one edge: the Mahalanobis distance is |z - mean| / sd."""
    r = torch.tensor([0.0, 0.1, 0.2, 0.3, 0.4])
    fc = torch.eye(2).repeat(5, 1, 1)
    fc[:, 0, 1] = fc[:, 1, 0] = r
    reference = Reference.of(fc)
    found = reference.distances(fc)
    inside, outside = found["inside"], found["outside"]
    z = np.arctanh(r.numpy().astype(np.float64))
    assert np.allclose(inside.numpy(), np.abs(z - z.mean()) / z.std(ddof=1), atol=1e-6)
    assert np.allclose(outside.numpy(), 0, atol=1e-9)
    # mean + 2.576 sd of what the five have, times sqrt((n + 1) / (n - k - 2)) for the sixth
    bounds = limits(reference, fc)
    d = inside.numpy()
    expected = (d.mean() + 2.576 * d.std(ddof=1)) * np.sqrt(6 / (5 - 1 - 2))
    assert bounds["inside"] == pytest.approx(expected, rel=1e-3)


def test_pattern_by_hand() -> None:
    """Three ROIs: the correlation of a scan's three edges with the mean's three."""
    rng = np.random.default_rng(0)
    fc = np.stack([np.corrcoef(rng.standard_normal((3, 9))) for _ in range(6)])
    scan = np.corrcoef(rng.standard_normal((3, 9)))[None]
    rows, cols = np.triu_indices(3, 1)
    mean = np.arctanh(fc[:, rows, cols]).mean(0)
    expected = 1 - np.corrcoef(np.arctanh(scan[0, rows, cols]), mean)[0, 1]
    found = Reference.of(torch.from_numpy(fc)).distances(torch.from_numpy(scan))
    assert float(found["pattern"][0]) == pytest.approx(expected, abs=1e-4)


def test_quality_by_hand():
    found = quality(np.array([2.0, -1.0, 1.0, -3.0]), np.array([1, 1, 0, 0]))
    assert found["accuracy"] == 0.5
    assert found["auroc"] == 0.75
    assert found["majority"] == 0.5

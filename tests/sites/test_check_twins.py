"""One scan under two ids: found, warned of, and refused across training and test."""

from dataclasses import replace

import numpy as np
import pytest

from fcforge.errors import ConfigError, DataError
from fcforge.sites import Cohort, check_cohort, load_dataset, make_sites, split_site
from fcforge.sites.check import near_duplicates, twins_across, twins_within
from fcforge.sites.folder import load_folder
from fcforge.sites.simulated import simulate
from fcforge.types import Component


def with_twin(n_rois: int = 30, mix: float = 0.1) -> Cohort:
    """Two sites; the second subject's FC is nearly the first one's."""
    cohort = simulate(n_rois=n_rois, n_sites=2, scale=0.3)
    fc = cohort.fc.copy()
    fc[1] = (1 - mix) * fc[0] + mix * fc[1]
    return replace(cohort, fc=fc)


def splits(cohort: Cohort, allow: bool = False) -> list[bool]:
    """Over ten seeds: whether the first site can be split."""
    done = []
    for seed in range(10):
        try:
            split_site(replace(cohort, allow_duplicates=allow), cohort.site_names[0], seed)
            done.append(True)
        except DataError:
            done.append(False)
    return done


def test_a_pair_is_found_and_told():
    cohort = with_twin()
    ((one, other, r),) = near_duplicates(cohort)
    assert (one, other) == tuple(cohort.subject_id[:2])
    assert 0.95 < r < 1
    (said,) = [f for f in check_cohort(cohort) if "looks like the scan" in f.what]
    assert (said.severity, said.subject) == ("warning", other)
    assert f"leave_out = ['{other}']" in said.do


def test_exact_copies_are_left_to_the_check():
    cohort = with_twin(mix=0.0)
    (said,) = [f for f in check_cohort(cohort) if f.subject == cohort.subject_id[1]]
    assert (said.severity, "exactly the FC" in said.what) == ("error", True)


def test_refused_when_one_is_tested_and_the_other_trained_on():
    cohort = with_twin()
    done = splits(cohort)
    assert True in done  # both on one side
    with pytest.raises(DataError, match=r"look like one scan .*leave_out = \['Sim-NYU-0002'\]"):
        split_site(cohort, cohort.site_names[0], done.index(False))
    assert all(splits(cohort, allow=True))


def test_refused_across_sites():
    cohort = with_twin()
    site = cohort.site.copy()
    site[1] = cohort.site_names[1]
    moved = replace(cohort, site=site)
    tested = {
        seed: [
            s.subject_ids["test"].count(i)
            for s in make_sites(replace(moved, allow_duplicates=True), seed).values()
            for i in moved.subject_id[:2]
        ]
        for seed in range(10)
    }
    apart = [seed for seed, counts in tested.items() if sum(counts) == 1]
    together = [seed for seed, counts in tested.items() if sum(counts) != 1]
    assert apart
    assert together
    with pytest.raises(DataError, match="one in training and one in test"):
        make_sites(moved, apart[0])
    assert make_sites(moved, together[0])
    assert make_sites(moved, apart[0], names=[cohort.site_names[0]])


def test_settings_of_every_dataset():
    plain = {"n_rois": 6, "n_sites": 2, "scale": 0.2}
    whole = load_dataset(Component("simulated", plain))
    gone = whole.subject_id[:2].tolist()
    less = load_dataset(Component("simulated", {**plain, "leave_out": gone}))
    assert len(less) == len(whole) - 2
    assert not set(gone) & set(less.subject_id.tolist())
    assert less.provenance["content_sha256"] != whole.provenance["content_sha256"]
    allowed = load_dataset(Component("simulated", {**plain, "allow_duplicates": True}))
    assert allowed.allow_duplicates
    assert allowed.provenance["content_sha256"] == whole.provenance["content_sha256"]
    with pytest.raises(ConfigError, match="unknown subject to leave out 'nobody'"):
        load_dataset(Component("simulated", {**plain, "leave_out": ["nobody"]}))
    with pytest.raises(ConfigError, match="Did you mean 'allow_duplicates'"):
        load_dataset(Component("simulated", {**plain, "allow_duplicate": True}))
    with pytest.raises(ConfigError, match="is not true or false"):
        load_dataset(Component("simulated", {**plain, "allow_duplicates": "yes"}))


@pytest.mark.data
def test_the_three_pairs_of_abide(shared_data):
    cohort = load_folder(shared_data / "abide1_aal116_dparsf.npz")
    pairs = {frozenset(pair[:2]) for pair in near_duplicates(cohort)}
    known = {("50279", "50286"), ("50578", "50602"), ("50805", "50808")}
    assert pairs == {frozenset(pair) for pair in known}
    checked = load_folder(shared_data / "abide1_aal116.npz")
    assert {frozenset(p[:2]) for p in near_duplicates(checked)} == {frozenset(("50578", "50602"))}
    np.testing.assert_allclose([p[2] for p in near_duplicates(checked)], [0.939], atol=2e-3)


def test_a_copy_with_noise_is_found_and_strangers_are_not():
    made = simulate("realistic", n_rois=20, n_sites=2, scale=0.2)
    assert twins_within(made.fc, made.subject_id) == []
    fc = made.fc.copy()
    fc[7] = np.clip(fc[2] + np.random.default_rng(0).normal(0, 0.005, fc[2].shape), -1, 1)
    (pair,) = twins_within(fc, made.subject_id)
    assert (pair.first, pair.second) == (made.subject_id[2], made.subject_id[7])
    assert 0.98 < pair.correlation < 1


def test_across_by_scan_or_by_id():
    made = simulate("realistic", n_rois=20, n_sites=2, scale=0.2)
    a, b = made.select(np.arange(10)), made.select(np.arange(10, 20))
    assert twins_across(a.fc, a.subject_id, b.fc, b.subject_id) == []
    assert (
        len(twins_across(a.fc, a.subject_id, b.fc, np.array([a.subject_id[0], *b.subject_id[1:]])))
        == 1
    )
    again = np.concatenate([a.fc[:1], b.fc[1:]])
    assert twins_across(a.fc, a.subject_id, again, b.subject_id)[0].first == a.subject_id[0]


def test_a_constant_scan_is_nobodys_twin():
    flat = np.stack([np.eye(5), np.eye(5)]).astype(np.float32)
    assert twins_within(flat, np.array(["a", "b"])) == []

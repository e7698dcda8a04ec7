"""Harmonisation: by hand, and that no test subject or later site leaks in."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import small_world
from fcforge.errors import ConfigError
from fcforge.sites import make_sites
from fcforge.sites.harmonise import Level, harmonise_sites, to_fc, to_z
from fcforge.types import FCBatch


def test_demean_by_hand():
    first = Level.of(np.array([[4.0, 4.0], [4.0, 6.0]]))
    move = first.move("site_demean", np.array([[0.0, 1.0], [2.0, 1.0]]))
    np.testing.assert_array_equal(move.scale, [1, 1])
    np.testing.assert_array_equal(move.shift, [3, 4])


def test_class_share_does_not_move_a_site():
    """Two sites that differ in nothing but their share of patients stay as they are."""
    control, patient = (
        np.array([[0.0, 1.0, 2.0], [0.2, 1.1, 2.3]]),
        np.array([1.0, 1.0, 0.5]),
    )
    few = np.concatenate([control, control, control + patient])
    many = np.concatenate([control, control + patient, control + patient])
    y_few, y_many = np.array([0, 0, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 1, 1])
    blind = Level.of(few).move("combat", many)
    aware = Level.of(few, y_few).move("combat", many, y_many)
    assert np.abs((aware.scale * many + aware.shift) - many).mean() < 0.15
    assert np.abs((blind.scale * many + blind.shift) - many).mean() > 0.15


def test_flat_edges_survive():
    z = np.zeros((5, 3))
    z[:, 0] = np.arange(5.0)
    move = Level.of(z).move("combat", z + 1)
    assert np.isfinite(move.scale).all()
    assert np.isfinite(move.shift).all()


def test_back_to_a_correlation_matrix():
    impossible = np.arctanh(np.array([[0.9, 0.9, -0.9]]))  # a=b=c, but a=-c
    fc = to_fc(impossible)
    assert np.linalg.eigvalsh(fc[0]).min() > -1e-6
    np.testing.assert_allclose(np.diagonal(fc, axis1=1, axis2=2), 1)
    assert np.abs(fc[0, 0, 1]) < 0.9
    possible = np.arctanh(np.array([[0.5, 0.2, -0.1]]))
    np.testing.assert_allclose(to_z(to_fc(possible)), possible, atol=1e-6)
    assert to_fc(np.zeros((0, 3))).shape == (0, 3, 3)


@pytest.mark.parametrize("how", ["site_demean", "combat"])
def test_sites_meet_at_the_first(how):
    sites = make_sites(small_world.cohort(), 0)
    first, *others = sites
    moved = harmonise_sites(sites, how, first)
    assert moved[first] is sites[first]
    target = to_z(sites[first].learning(with_val=True).fc.numpy()).mean(0)
    for name in others:
        before = to_z(sites[name].learning(with_val=True).fc.numpy()).mean(0)
        after = to_z(moved[name].learning(with_val=True).fc.numpy()).mean(0)
        assert np.abs(after - target).mean() < 0.5 * np.abs(before - target).mean()
        assert moved[name].provenance["harmonised"] == f"{how} to {first}"
        assert torch.equal(moved[name].test.y, sites[name].test.y)
        for split in ("train", "val", "test"):
            fc = getattr(moved[name], split).fc
            assert torch.allclose(fc, fc.mT)
            assert fc.abs().max() <= 1
    assert harmonise_sites(sites, "none", first) == sites
    assert harmonise_sites(sites, how, "") == sites


@pytest.mark.parametrize("how", ["site_demean", "combat"])
def test_neither_test_subjects_nor_other_sites_nor_test_labels_matter(how):
    sites = make_sites(small_world.cohort(), 0)
    first, second, third = sites
    honest = harmonise_sites(sites, how, first)[second]
    poisoned = dict(sites)
    for name in (first, second):
        batch = sites[name].test
        broken = FCBatch(torch.roll(batch.fc, 1, 0) * 0.1, 1 - batch.y)
        poisoned[name] = replace(sites[name], test=broken)
    poisoned[third] = replace(sites[third], train=sites[first].train)
    again = harmonise_sites(poisoned, how, first)[second]
    assert torch.equal(again.train.fc, honest.train.fc)
    assert torch.equal(again.val.fc, honest.val.fc)
    flipped = replace(
        sites[second], test=FCBatch(sites[second].test.fc, 1 - sites[second].test.y)
    )
    relabelled = harmonise_sites({**sites, second: flipped}, how, first)[second]
    assert torch.equal(relabelled.test.fc, honest.test.fc)


def test_unknown_harmonisation():
    with pytest.raises(ConfigError, match="Did you mean 'combat'"):
        harmonise_sites({}, "combatt", "A")  # type: ignore[arg-type]

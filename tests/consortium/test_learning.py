"""A hospital's turn: what is refused, what stays at home, what is learned."""

from dataclasses import replace

import numpy as np
import pytest
from small_consortium import empty, people, sites

from fcforge.capsule import ledger
from fcforge.capsule.judging import quality, require_labels
from fcforge.consortium import Home, read_home, write_own
from fcforge.consortium.learning import (
    Budget,
    fit_threshold,
    learn,
    leave_one_out_scores,
)
from fcforge.errors import CapsuleError, ConfigError, DataError

SITE = sites()[2]


def mine():
    return people().select_sites([SITE])


def test_a_turn_adds_one_release_and_keeps_the_rest_at_home(tmp_path):
    done = learn(empty(), people(), SITE, Home(), Budget())
    assert done.group.sites == (SITE,)
    receipt = done.home.receipts[0]
    assert [p[0] for p in receipt.people] == mine().subject_id.tolist()
    said = [receipt.salt, [list(person) for person in receipt.people]]
    assert done.release.commitment == ledger.sha256(ledger.canonical(said))
    assert done.home.receipt_for(done.release.commitment, "it") == receipt
    text = str(done.release.to_json())
    assert receipt.salt not in text
    assert not any(p[1] in text for p in receipt.people)
    path = write_own(done.home, tmp_path / "home.json")
    assert read_home(path) == done.home
    assert oct(path.stat().st_mode & 0o777) == "0o600"


def test_exact_releases_are_the_sums():
    from fcforge.consortium import few_vector as vector

    done = learn(empty(), people(), SITE, Home(), Budget("none"))
    x = empty().start.features(mine().fc, {})
    wanted = vector.contributions(empty().start.arrays, x, mine().y).sum(0)
    assert done.release.numbers == pytest.approx(wanted.tolist())
    assert (done.release.epsilon, done.release.noise_sd) == (0.0, 0.0)


def test_two_releases_have_different_noise():
    one, two = (
        learn(empty(), people(), SITE, Home(), Budget()).release for _ in range(2)
    )
    assert one.numbers != two.numbers


def test_new_people_are_a_further_wave_and_the_same_people_are_told():
    half = np.arange(len(mine())) % 2 == 0
    first = learn(empty(), mine().select(half), SITE, Home(), Budget())
    second = learn(first.group, mine().select(~half), SITE, first.home, Budget())
    assert second.release.wave == 2
    assert second.release.spent == 1.0
    with pytest.raises(ConfigError, match=r"people are in an earlier release.*--again"):
        learn(second.group, mine(), SITE, second.home, Budget())
    third = learn(second.group, mine(), SITE, second.home, Budget(again=True))
    assert third.release.wave == 3
    assert third.release.spent == 2.0
    # another id on the same scan is the same person
    renamed = replace(
        mine(), subject_id=np.array([f"x{i}" for i in range(len(mine()))])
    )
    with pytest.raises(ConfigError, match="earlier release"):
        learn(second.group, renamed, SITE, second.home, Budget())


def test_noise_after_exact_sums_promises_nothing():
    exact = learn(empty(), people(), SITE, Home(), Budget("none"))
    with pytest.raises(ConfigError, match=r"exact sums.*--mechanism none"):
        learn(exact.group, people(), SITE, exact.home, Budget(again=True))
    twice = learn(exact.group, people(), SITE, exact.home, Budget("none", again=True))
    x = empty().start.features(mine().fc, {})
    left = leave_one_out_scores(twice.group, x, mine().y, np.full(len(mine()), 2.0))
    assert twice.home.threshold == fit_threshold(
        left, mine().y, twice.group.digest, SITE
    )


def test_turned_labels_are_refused():
    done = learn(empty(), people(), SITE, Home(), Budget())
    assert done.before["auroc"] > 0.7
    turned = replace(mine(), y=1 - mine().y)
    with pytest.raises(
        DataError, match=r"wrong way round.*means patient.*--accept-labels"
    ):
        learn(empty(), turned, SITE, Home(), Budget())
    learn(empty(), turned, SITE, Home(), Budget(), accept_labels=True)


def test_few_people_below_chance_are_refused_where_luck_is_unlikely():
    """All patients below all controls: one of 35 orders of 3 and 4 people, one of 20 of 3 and 3."""
    odds, y = np.arange(7.0), np.array([1, 1, 1, 0, 0, 0, 0])
    with pytest.raises(
        DataError, match=r"AUROC 0\.00 of 7 people.*p = 0\.029.*--accept-labels"
    ):
        require_labels(odds, y, accept=False)
    assert require_labels(odds, y, accept=True)
    assert not require_labels(odds[:6], y[:6], accept=False)
    assert not require_labels(odds, 1 - y, accept=False)
    assert not require_labels(odds[:3], y[:3], accept=False)  # no control
    # 64 people: an AUROC of 0.37 is refused, 0.42 may be luck
    y = np.repeat([0, 1], 32)
    for shift, auroc, refused in ((5.1, 0.37, True), (3.1, 0.42, False)):
        odds = np.concatenate([np.arange(32) + shift, np.arange(32) + 0.5])
        assert quality(odds, y)["auroc"] == pytest.approx(auroc, abs=0.005)
        assert require_labels(odds, y, accept=True) == refused


def test_other_words_for_patients_are_refused():
    named = empty().start
    named = replace(named, papers={**named.papers, "classes": ["TC", "ASD"]})
    turned = replace(people(), classes=("ASD", "TC"))
    with pytest.raises(CapsuleError, match=r"patients are 'ASD'.*The other way round"):
        learn(replace(empty(), start=named), turned, SITE, Home(), Budget())


def test_public_people_are_refused_by_id():
    ids = mine().subject_id.copy()
    ids[2] = people().select_sites(sites()[:1]).subject_id[0]
    with pytest.raises(
        DataError, match=rf"1 of its people are among the public ones.*{ids[2]}"
    ):
        learn(empty(), replace(mine(), subject_id=ids), SITE, Home(), Budget())


def test_shuffled_rois_are_refused():
    order = np.random.default_rng(0).permutation(10)
    shuffled = replace(mine(), fc=mine().fc[:, order][:, :, order], roi_names=())
    with pytest.raises(
        DataError, match=r"unlike the public people's.*order of the ROIs"
    ):
        learn(empty(), shuffled, SITE, Home(), Budget())


def test_other_roi_names_are_refused():
    names = (*mine().roi_names[1::-1], *mine().roi_names[2:])
    with pytest.raises(
        CapsuleError, match=r"ROI 1 is 'ROI 1', the capsule has 'ROI 0' there"
    ):
        learn(empty(), replace(mine(), roi_names=names), SITE, Home(), Budget())


def test_people_without_a_covariate_that_is_removed_are_named():
    group = empty(("age", "mean_fd"))
    learn(group, people(), SITE, Home(), Budget())
    age = mine().covariates["age"].copy()
    age[3] = np.nan
    lost = replace(mine(), covariates={**mine().covariates, "age": age})
    with pytest.raises(
        DataError, match=rf"of 1 people.*first: {mine().subject_id[3]} has no age,"
    ):
        learn(group, lost, SITE, Home(), Budget())
    with pytest.raises(DataError, match="has no age or mean_fd"):
        learn(group, replace(mine(), covariates={}), SITE, Home(), Budget())


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan")])
def test_a_budget_that_means_nothing_is_refused(epsilon):
    with pytest.raises(ConfigError, match="budget"):
        learn(empty(), people(), SITE, Home(), Budget(epsilon=epsilon))


def test_threshold_moves_with_the_class_balance():
    rng = np.random.default_rng(0)
    score = rng.normal(size=400)
    y = (rng.random(400) < 1 / (1 + np.exp(-(2 * score + 1)))).astype(int)
    found = fit_threshold(score, y, "")
    assert found.intercept == pytest.approx(1.0, abs=0.4)
    assert found.slope == pytest.approx(2.0, abs=0.5)
    few = fit_threshold(score[:3], y[:3], "")
    assert abs(few.slope - 1) < 0.5

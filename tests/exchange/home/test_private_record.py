"""What stays at home: receipts prove the people, budgets add up, and nothing is half done."""

import stat

import numpy as np
import pytest
from people_at_home import FC, IDS, PEOPLE, N, Y, receipt, scans

from fcforge.errors import ConfigError, DataError
from fcforge.exchange.home.private_record import (
    SIZE,
    PrivateRecord,
    Spent,
    Threshold,
    default_place,
    people_of,
    same_people,
    same_scans,
    sketches_of,
)
from fcforge.exchange.policy import Policy

POLICY = Policy(max_epsilon=3.0, max_delta=1e-5, exact_allowed=True)


@pytest.fixture
def place(tmp_path):
    return tmp_path / "fcforge.private"


# -- the budget register -------------------------------------------------------------------------
def test_epsilon_and_delta_add_up_whatever_the_site_is_called(place):
    with PrivateRecord.open(place) as private:
        assert private.require_room(PEOPLE, 1.0, 1e-6, POLICY) == Spent(1.0, 1e-6)
        private.publish(receipt(), {})
        private.publish(receipt(PEOPLE[:2], 0.5, 2e-6, "NYU_B"), {})
        assert private.spent(PEOPLE)[1:3] == [Spent(1.5, 3e-6), Spent(1.0, 1e-6)]
        with pytest.raises(ConfigError, match="6 of these 6 people") as told:
            private.require_room(PEOPLE, 1.0, 1e-6, POLICY)
        assert told.value.where == str(place)
        total = private.require_room(PEOPLE, 1.0, 1e-6, POLICY, again=True)
        assert total == Spent(2.5, 4e-6)
        alone = private.require_room(PEOPLE[2:], 1.0, 1e-6, POLICY, again=True)
        assert alone == Spent(2.0, 2e-6)
    assert [r.site for r in PrivateRecord.read(place).receipts] == ["NYU", "NYU_B"]


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        (2.1, 1e-6),
        (1.0, 9.5e-6),
        (1.0, 0.99),
        (np.nan, 1e-6),
        (1.0, np.nan),
        (0.0, 1e-6),
    ],
)
def test_the_policy_is_a_hard_cap(place, epsilon, delta):
    with PrivateRecord.open(place) as private:
        private.publish(receipt(), {})
        with pytest.raises(ConfigError, match="policy's 3 and 1e-05"):
            private.require_room(PEOPLE, epsilon, delta, POLICY, again=True)


def test_nothing_is_promised_to_people_given_without_noise(place):
    with PrivateRecord.open(place) as private:
        assert private.require_room(PEOPLE, None, 0.0, POLICY) == Spent()
        private.publish(receipt(epsilon=None, delta=0.0), {})
        with pytest.raises(ConfigError, match="6 of these people"):
            private.require_room(PEOPLE, 1.0, 1e-6, POLICY, again=True)
        assert private.require_room(PEOPLE, None, 0.0, POLICY, again=True) == Spent()
        with pytest.raises(ConfigError, match="without noise"):
            private.require_room(PEOPLE, None, 0.0, Policy(), again=True)


def test_what_never_became_part_of_a_sum_costs_nothing(place):
    late = receipt(round="spring")
    with PrivateRecord.open(place) as private:
        private.publish(late, {})
        never = {late.commitment: 0}
        room = private.require_room(PEOPLE, 1.0, 1e-6, POLICY, times=never)
        assert room.epsilon == 1
        assert private.spent(PEOPLE, {late.commitment: 2})[0] == Spent(2.0, 2e-6)
        with pytest.raises(ConfigError, match="given before"):
            private.require_room(PEOPLE, 1.0, 1e-6, POLICY)


def test_the_receipt_of_a_record(place):
    with PrivateRecord.open(place) as private:
        kept = receipt()
        private.publish(kept, {})
        assert private.receipt_for(kept.commitment, "it") == kept
        with pytest.raises(DataError, match="no receipt for it") as told:
            private.receipt_for("a" * 64, "it")
        assert told.value.where == str(place)


# -- thresholds ----------------------------------------------------------------------------------
def test_the_last_threshold_counts(place):
    said = {"slope": 1.0, "people": 9, "exchange": "a" * 64, "site": "NYU"}
    with PrivateRecord.open(place) as private:
        assert private.threshold is None
        private.append(Threshold(intercept=0.5, **said))
        private.append(Threshold(intercept=-1.0, **said))
    assert PrivateRecord.read(place).threshold.intercept == -1.0


def test_it_is_private_and_one_for_all_data_of_a_folder(place, tmp_path):
    assert default_place(tmp_path / "nyu.npz") == default_place(tmp_path) == place
    with PrivateRecord.open(place):
        pass
    assert stat.S_IMODE(place.stat().st_mode) == 0o600


def test_a_commitment_says_nothing_without_the_salt():
    one = receipt()
    assert one.commitment == one.changed(seen=("a" * 64,)).commitment
    assert receipt().commitment != one.commitment
    assert receipt(salt=one.salt).commitment == one.commitment
    turned = people_of(FC, IDS, 1 - Y)
    assert receipt(turned, salt=one.salt).commitment != one.commitment


def test_only_the_same_people_are_found_again():
    kept = receipt()
    order = [3, 1, 0, 5, 4, 2]
    shuffled = people_of(FC[order], [IDS[k] for k in order], Y[order])
    assert kept.places(shuffled).tolist() == [2, 1, 5, 0, 4, 3]
    wrong = {
        "2 are not in the data (first: p4)": PEOPLE[:4],
        "6 have another scan (first: p0)": people_of(FC[::-1], IDS, Y),
        "6 have another diagnosis (first: p0)": people_of(FC, IDS, 1 - Y),
    }
    for what, people in wrong.items():
        with pytest.raises(DataError, match="not the 6 people") as told:
            kept.places(people)
        assert what in told.value.what
        assert told.value.where == "site 'NYU'"


def test_without_ids_people_are_known_by_their_scans():
    kept = receipt(people_of(FC, [""] * N, Y))
    assert kept.places(people_of(FC[::-1], IDS, Y[::-1])).tolist() == [5, 4, 3, 2, 1, 0]


def test_people_are_known_by_id_or_by_scan():
    touched = FC.copy()
    touched[:, 2, 5] += 0.001
    touched[:, 5, 2] += 0.001
    renamed = people_of(touched, [f"new{k}" for k in range(N)], Y)
    assert same_people(renamed, PEOPLE).all()
    assert same_people(people_of(scans(seed=1), IDS, Y), PEOPLE).all()
    strangers = people_of(scans(seed=1), [f"new{k}" for k in range(N)], Y)
    assert not same_people(strangers, PEOPLE).any()
    nameless = people_of(scans(seed=1), [""] * N, Y)
    assert not same_people(nameless, people_of(FC, [""] * N, Y)).any()


@pytest.mark.parametrize("odd", ["a\x1b[2J", "a" * 201])
def test_an_id_that_cannot_be_kept_is_told(odd):
    with pytest.raises(DataError) as told:
        people_of(FC[:2], ["fine", odd], Y[:2])
    assert odd[:40] in told.value.what or repr(odd)[1:-1] in told.value.what


def test_a_threshold_is_of_a_site_and_of_a_state():
    own = Threshold(intercept=-1.0, slope=1.0, people=9, exchange="a" * 64, site="NYU")
    np.testing.assert_allclose(own.odds(np.array([0.0, 2.0])), [-1.0, 1.0])
    own.require_site(["", "NYU"])
    with pytest.raises(DataError, match="these people are of UM"):
        own.require_site(["NYU", "UM"])
    assert own.stale("a" * 64) == []
    assert "fits it again" in own.stale("b" * 64)[0]


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

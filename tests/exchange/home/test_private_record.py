"""What stays at home: receipts prove the people, budgets add up, and nothing is half done."""

import stat

import numpy as np
import pytest
from people_at_home import PEOPLE, receipt

from fcforge.errors import ConfigError, DataError
from fcforge.exchange.home.private_record import PrivateRecord, Spent, default_place
from fcforge.exchange.home.receipts import Threshold
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
        assert private.require_room(PEOPLE, None, 0.0, POLICY).exact
        private.publish(receipt(epsilon=None, delta=0.0), {})
        with pytest.raises(ConfigError, match="6 of these people"):
            private.require_room(PEOPLE, 1.0, 1e-6, POLICY, again=True)
        assert private.require_room(PEOPLE, None, 0.0, POLICY, again=True).exact
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

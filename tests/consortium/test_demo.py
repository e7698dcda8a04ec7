"""The demo's round: played in files, by the steps of the commands."""

import pytest

from fcforge_consortium.demo import HOSPITALS, KEEPERS, play_round
from fcforge_consortium.records.exchange import open_exchange
from fcforge_consortium.records.kinds import Half


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    place = tmp_path_factory.mktemp("demo") / "round"
    return place, play_round(place, n_rois=8)


def test_two_keepers_publish_what_six_hospitals_gave(played):
    place, done = played
    halves = done.exchange.of(Half)
    assert sorted(half.site for half in halves) == sorted(KEEPERS)
    for half in halves:
        assert len(half.hospitals) == HOSPITALS
    assert open_exchange(place / "all.fcx").id == done.exchange.id
    assert done.exchange.root.plan.people == done.people


def test_two_shares_and_a_notice_leave_a_hospital(played):
    place, done = played
    for name in done.exchange.model.sites:
        files = [*place.glob(f"{name}/*.share"), *place.glob(f"{name}/*.record")]
        assert len(files) == 3


def test_heads_are_measured_on_people_who_gave_nothing(played):
    _, done = played
    assert done.people + done.tested == 812  # simulated people of six hospitals
    values = [found.value for found in done.auroc.values()]
    assert len(values) == 3
    assert all(0.4 < value < 1.0 for value in values)

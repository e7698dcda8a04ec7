"""The demo's round: played in files, by the steps of the commands."""

from functools import partial

import pytest

from fcforge_consortium.operations import demo
from fcforge_consortium.operations.demo import AGGREGATORS, HOSPITALS, play_round
from fcforge_consortium.records.exchange import open_exchange
from fcforge_consortium.records.kinds import AggregateShare
from real_runs import consortium


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    place = tmp_path_factory.mktemp("demo") / "round"
    return place, play_round(place, n_rois=8)


def test_two_aggregators_publish_the_sum_of_six_hospitals(played):
    place, done = played
    halves = done.exchange.of(AggregateShare)
    assert sorted(half.site for half in halves) == sorted(AGGREGATORS)
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


def test_the_demo_writes_a_page(monkeypatch, tmp_path):
    small_round = partial(demo.play_round, n_rois=8)
    monkeypatch.setattr(demo, "play_round", small_round)
    done = consortium("demo", "--out", tmp_path / "round")
    assert done.code == 0, done.err
    page = tmp_path / "round" / "page.html"
    assert f"page of the round: {page}" in done.err
    assert "after the round, epsilon 8" in done.out
    assert "after the round, epsilon 8" in page.read_text()
    assert "567 people" in page.read_text()
    again = consortium("demo", "--out", tmp_path / "round")
    assert again.code == 2
    assert "exists" in again.err

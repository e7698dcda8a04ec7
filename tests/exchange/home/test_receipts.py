"""Receipts stay at home and prove who was given; people are known by id and by scan."""

import numpy as np
import pytest
from people_at_home import FC, IDS, PEOPLE, N, Y, receipt, scans

from fcforge.errors import DataError
from fcforge.exchange.home.receipts import Threshold, people_of, same_people


def test_a_commitment_says_nothing_without_the_salt():
    one = receipt()
    assert one.commitment == one.having_seen(["a" * 64]).commitment
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


def test_a_threshold_is_of_a_site_and_of_a_state():
    own = Threshold(intercept=-1.0, slope=1.0, people=9, exchange="a" * 64, site="NYU")
    np.testing.assert_allclose(own.odds(np.array([0.0, 2.0])), [-1.0, 1.0])
    own.require_site(["", "NYU"])
    with pytest.raises(DataError, match="these people are of UM"):
        own.require_site(["NYU", "UM"])
    assert own.stale("a" * 64) == []
    assert "fits it again" in own.stale("b" * 64)[0]

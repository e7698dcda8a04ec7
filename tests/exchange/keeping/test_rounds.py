"""Halves are joined when they are of the same shares; whatever else is refused by name."""

import pytest
from exchange_records import key_of
from keeper_rounds import KEEPERS, SITES, START_EXCHANGE, half_of, shares_of
from people_at_home import receipt

from fcforge.errors import ExchangeError
from fcforge.exchange.exchange import Exchange
from fcforge.exchange.keeping.keepers import RoundList
from fcforge.exchange.keeping.rounds import rounds_of, times_published


@pytest.fixture(autouse=True)
def any_model(monkeypatch):
    monkeypatch.setattr(Exchange, "model", None)


def kept(keeper, sites, folder, **more):
    """A keeper's half of round "spring", each with a list of its own."""
    gave = [more.get("shares", {}).get(site) or SHARES[site] for site in sites]
    with RoundList.open(folder / f"{keeper} {len(list(folder.iterdir()))}") as listed:
        return half_of(keeper, gave, listed)


SHARES = {site: shares_of(site) for site in (*SITES, "OHSU")}
FOUR = tuple(SHARES)


def joined(*halves):
    found = START_EXCHANGE
    for half in halves:
        found = found.joined(half.contents.records, half.contents.payloads)
    return found


def test_a_lost_share_is_named_and_nothing_is_changed(tmp_path):
    one = kept("Ministry", FOUR, tmp_path)
    two = kept("University", SITES, tmp_path)
    both = joined(one, two)
    with pytest.raises(ExchangeError, match="different shares of 'OHSU'") as told:
        rounds_of(both)
    assert told.value.where == "round 'spring'"
    assert len(rounds_of(joined(one))) == 1
    assert [
        r.closed for r in rounds_of(joined(kept("University", FOUR, tmp_path), one))
    ]


def test_a_keeper_with_the_other_half_at_hand_does_not_publish_another(tmp_path):
    one = kept("Ministry", FOUR, tmp_path)
    with RoundList.open(tmp_path / "list") as listed:
        with pytest.raises(ExchangeError, match="'OHSU'"):
            half_of("University", [SHARES[s] for s in SITES], listed, one.exchange)
        assert listed.lines[1:] == []


def test_different_shares_of_one_hospital(tmp_path):
    other = {"NYU": shares_of("NYU", number=2, salt="cd" * 16)}
    one = kept("Ministry", SITES, tmp_path)
    two = kept("University", SITES, tmp_path, shares=other)
    with pytest.raises(ExchangeError, match="different shares of 'NYU'"):
        rounds_of(joined(one, two))


def test_a_round_twice_by_one_keeper(tmp_path):
    one = kept("Ministry", FOUR, tmp_path)
    two = kept("Ministry", SITES, tmp_path)
    again = two.half.changed(number=2, signature="").signed(key_of("Ministry"))
    both = joined(one).joined([again], two.contents.payloads)
    with pytest.raises(ExchangeError, match="keeper 'Ministry' has published it twice"):
        rounds_of(both)


def test_a_round_published_again_without_the_withdrawal_at_hand(tmp_path):
    one = kept("Ministry", FOUR, tmp_path)
    two = kept("University", SITES, tmp_path)
    again = two.half.changed(times=2, signature="").signed(key_of("University"))
    both = joined(one).joined([again], two.contents.payloads)
    with pytest.raises(ExchangeError, match="withdrawal") as told:
        rounds_of(both)
    assert told.value.where == "round 'spring'"
    assert "fcforge merge" in told.value.do


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"site": "Somebody"}, "no keeper here"),
        ({"epsilon": 2.0}, "another budget"),
        ({"round": "summer"}, "that is not there"),
        ({"hospitals": 2}, "of 2 hospitals; the policy asks for 3"),
        ({"hospitals": -1}, "not in order"),
    ],
)
def test_a_forged_half_is_refused(tmp_path, change, why):
    whole = kept("Ministry", FOUR, tmp_path)
    if "hospitals" in change:
        change = {"hospitals": whole.half.hospitals[:: change["hospitals"]]}
    forged = whole.half.changed(**change, signature="").signed(key_of("Ministry"))
    records = [r for r in whole.contents.records if r is not whole.half]
    found = START_EXCHANGE.joined([*records, forged], whole.contents.payloads)
    with pytest.raises(ExchangeError, match=why):
        rounds_of(found)


def test_a_half_by_another_key_or_of_another_share(tmp_path):
    whole = kept("Ministry", SITES, tmp_path)
    records = [r for r in whole.contents.records if r is not whole.half]
    thief = whole.half.signed(key_of("thief"))
    first, *others = whole.half.hospitals
    moved = first.model_copy(update={"share": "ab" * 32})
    shifted = whole.half.changed(hospitals=(moved, *others), signature="")
    wrong = {
        "not by the keeper's key": thief,
        "that 'NYU' did not give": shifted.signed(key_of("Ministry")),
    }
    for why, forged in wrong.items():
        found = START_EXCHANGE.joined([*records, forged], whole.contents.payloads)
        with pytest.raises(ExchangeError, match=why):
            rounds_of(found)


def test_halves_with_different_noise(tmp_path):
    one = kept("Ministry", SITES, tmp_path)
    two = kept("University", SITES, tmp_path)
    less = two.half.changed(variance="1", signature="").signed(key_of("University"))
    records = [r for r in two.contents.records if r is not two.half]
    found = joined(one).joined([*records, less], two.contents.payloads)
    with pytest.raises(ExchangeError, match="different noise"):
        rounds_of(found)


def test_what_came_too_late_costs_nothing_once_the_round_is_closed(tmp_path):
    late = receipt(round="spring", site="CALTECH").having_seen(START_EXCHANGE)
    elsewhere = receipt(round="spring", site="CALTECH")
    one = kept("Ministry", SITES, tmp_path)
    both = joined(one, kept("University", SITES, tmp_path))
    mine = SHARES["NYU"]["Ministry"].notice.commitment
    assert times_published(joined(one), [late]) == {late.commitment: 1}
    assert times_published(both, [late, elsewhere]) == {late.commitment: 0}
    assert mine not in times_published(both, [late])


def test_a_round_published_again_is_counted_again(tmp_path):
    """Whoever withdrew was in the first sum; who stayed is in both."""
    mine = {site: receipt(site=site, round="spring") for site in ("UM", "NYU")}
    mine = {site: one.having_seen(START_EXCHANGE) for site, one in mine.items()}
    gave = {**SHARES}
    for site, one in mine.items():
        gave[site] = shares_of(site, salt=one.salt, people=one.people)
    state = START_EXCHANGE
    for again in (False, True):
        for keeper in KEEPERS:
            with RoundList.open(tmp_path / keeper) as listed:
                half = half_of(keeper, [*gave.values()], listed, state, again=again)
                listed.publish(half.line, {})
            state = half.exchange
            if again and keeper == KEEPERS[0]:
                assert times_published(state, mine.values()) == {
                    mine["UM"].commitment: 1,
                    mine["NYU"].commitment: 2,
                }
        if not again:
            state = state.withdrawn("UM", key_of("UM"))
    assert [one.closed for one in rounds_of(state)] == [True]
    assert times_published(state, mine.values()) == {
        mine["UM"].commitment: 1,
        mine["NYU"].commitment: 2,
    }

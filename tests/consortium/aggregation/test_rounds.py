"""Shares add up and say nothing alone; halves of other shares are refused by name."""

import numpy as np
import pytest
from aggregator_rounds import (
    AGGREGATORS,
    SITES,
    SIZE,
    START_EXCHANGE,
    aggregate_share_of,
    numbers_of,
    shares_of,
)
from exchange_records import key_of

from fcforge.core.errors import ExchangeError
from fcforge_consortium.aggregation import rounds
from fcforge_consortium.aggregation.aggregators import RoundList, encryption_key
from fcforge_consortium.aggregation.rounds import (
    added,
    opened,
    read_share,
    rounds_of,
    seal,
    signed_numbers,
    split,
)
from fcforge_consortium.records.exchange import Exchange


@pytest.fixture(autouse=True)
def any_model(monkeypatch):
    monkeypatch.setattr(Exchange, "model", None)


def kept(aggregator, sites, folder, **more):
    """An aggregator's half of round "spring", each with a list of its own."""
    gave = [more.get("shares", {}).get(site) or SHARES[site] for site in sites]
    with RoundList.open(
        folder / f"{aggregator} {len(list(folder.iterdir()))}"
    ) as listed:
        return aggregate_share_of(aggregator, gave, listed)


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


def test_an_aggregator_with_the_other_half_at_hand_does_not_publish_another(tmp_path):
    one = kept("Ministry", FOUR, tmp_path)
    with RoundList.open(tmp_path / "list") as listed:
        with pytest.raises(ExchangeError, match="'OHSU'"):
            aggregate_share_of(
                "University", [SHARES[s] for s in SITES], listed, one.exchange
            )
        assert listed.lines[1:] == []


def test_different_shares_of_one_hospital(tmp_path):
    other = {"NYU": shares_of("NYU", number=2, salt="cd" * 16)}
    one = kept("Ministry", SITES, tmp_path)
    two = kept("University", SITES, tmp_path, shares=other)
    with pytest.raises(ExchangeError, match="different shares of 'NYU'"):
        rounds_of(joined(one, two))


def test_a_round_twice_by_one_aggregator(tmp_path):
    one = kept("Ministry", FOUR, tmp_path)
    two = kept("Ministry", SITES, tmp_path)
    again = two.aggregate_share.changed(number=2, signature="").signed(
        key_of("Ministry")
    )
    both = joined(one).joined([again], two.contents.payloads)
    with pytest.raises(
        ExchangeError, match="aggregator 'Ministry' has published it twice"
    ):
        rounds_of(both)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"site": "Somebody"}, "aggregator's key in the policy"),
        ({"epsilon": 2.0}, "another budget"),
        ({"round": "summer"}, "that is not there"),
        ({"hospitals": 2}, "of 2 hospitals; the policy asks for 3"),
        ({"hospitals": -1}, "not in order"),
    ],
)
def test_a_forged_half_is_refused(tmp_path, change, why):
    whole = kept("Ministry", FOUR, tmp_path)
    if "hospitals" in change:
        change = {"hospitals": whole.aggregate_share.hospitals[:: change["hospitals"]]}
    forged = whole.aggregate_share.changed(**change, signature="").signed(
        key_of("Ministry")
    )
    records = [r for r in whole.contents.records if r is not whole.aggregate_share]
    found = START_EXCHANGE.joined([*records, forged], whole.contents.payloads)
    with pytest.raises(ExchangeError, match=why):
        rounds_of(found)


def test_a_half_by_another_key_or_of_another_share(tmp_path):
    whole = kept("Ministry", SITES, tmp_path)
    records = [r for r in whole.contents.records if r is not whole.aggregate_share]
    thief = whole.aggregate_share.signed(key_of("thief"))
    first, *others = whole.aggregate_share.hospitals
    moved = first.model_copy(update={"share": "ab" * 32})
    shifted = whole.aggregate_share.changed(hospitals=(moved, *others), signature="")
    wrong = {
        "not by the aggregator's key": thief,
        "that 'NYU' did not give": shifted.signed(key_of("Ministry")),
    }
    for why, forged in wrong.items():
        found = START_EXCHANGE.joined([*records, forged], whole.contents.payloads)
        with pytest.raises(ExchangeError, match=why):
            rounds_of(found)


def test_halves_with_different_noise(tmp_path):
    one = kept("Ministry", SITES, tmp_path)
    two = kept("University", SITES, tmp_path)
    less = two.aggregate_share.changed(variance="1", signature="").signed(
        key_of("University")
    )
    records = [r for r in two.contents.records if r is not two.aggregate_share]
    found = joined(one).joined([*records, less], two.contents.payloads)
    with pytest.raises(ExchangeError, match="different noise"):
        rounds_of(found)


# -- shares --------------------------------------------------------------------------------------
ID = START_EXCHANGE.root.id


def test_shares_add_up_whatever_the_numbers_are():
    for numbers in ([0, 1, -1], [2**63 - 1, -(2**63), 5], [10**12, -(10**12), 0]):
        whole = np.array(numbers, dtype=np.int64)
        assert signed_numbers(added(split(whole))).tolist() == numbers


def test_each_share_by_itself_is_uniform():
    """Every bit of either share is one half of the time one, for numbers that are all zero."""
    for share in split(np.zeros(20_000, dtype=np.int64)):
        bits = np.unpackbits(share.view(np.uint8))
        ones = bits.reshape(-1, 64).mean(0)
        assert np.abs(ones - 0.5).max() < 6 * 0.5 / np.sqrt(20_000)
    first, again = (split(np.zeros(8, dtype=np.int64))[0] for _ in range(2))
    assert not (first == again).any()


def test_sums_are_modular_and_exact():
    rng = np.random.default_rng(0)
    vectors = [rng.integers(-(2**62), 2**62, 9) for _ in range(3)]
    pairs = [split(vector) for vector in vectors]
    halves = [added([pair[k] for pair in pairs]) for k in range(2)]
    exact = [sum(int(v[i]) for v in vectors) for i in range(9)]
    wrapped = [(n + 2**63) % 2**64 - 2**63 for n in exact]
    assert signed_numbers(added(halves)).tolist() == wrapped


def test_an_aggregator_opens_its_own_and_nobody_elses():
    gave = shares_of("NYU")
    words = [
        opened(gave[name], ID, encryption_key(key_of(name)), SIZE)
        for name in AGGREGATORS
    ]
    np.testing.assert_array_equal(signed_numbers(added(words)), numbers_of("NYU"))
    ministry, university = (encryption_key(key_of(name)) for name in AGGREGATORS)
    with pytest.raises(ExchangeError, match="another key"):
        opened(gave["Ministry"], ID, university, SIZE)
    with pytest.raises(ExchangeError, match="12 numbers instead of 13"):
        opened(gave["Ministry"], ID, ministry, 13)


@pytest.mark.parametrize("place", ["base_model", "round", "site", "aggregator"])
def test_a_ciphertext_is_good_for_one_place(place):
    aggregators = START_EXCHANGE.root.policy.aggregators
    sealed = seal(numbers_of("NYU"), aggregators, ID, ("spring", "NYU"))["Ministry"]
    context = {
        "base_model": ID,
        "round": "spring",
        "site": "NYU",
        "aggregator": "Ministry",
    }
    context[place] = "other"
    bound = rounds._bound(
        context["base_model"],
        (context["round"], context["site"]),
        context["aggregator"],
    )
    key = encryption_key(key_of("Ministry"))
    with pytest.raises(rounds.InvalidTag):
        rounds.SUITE.decrypt(sealed, key, bound)


def test_nothing_is_encrypted_to_a_weak_key():
    first, second = START_EXCHANGE.root.policy.aggregators
    weak = first.model_copy(update={"encryption_key": "00" * 32})
    with pytest.raises(ExchangeError, match="aggregator 'Ministry' is weak"):
        seal(numbers_of("NYU"), [weak, second], ID, ("spring", "NYU"))


def test_a_file_is_read_as_it_was_written_and_says_what_it_is(tmp_path):
    share = shares_of("NYU")["University"]
    path = tmp_path / "nyu.share"
    path.write_bytes(share.data)
    assert read_share(path) == share
    assert (share.notice.site, share.aggregator) == ("NYU", "University")


def test_every_changed_byte_is_refused(tmp_path):
    data = shares_of("NYU")["Ministry"].data
    path = tmp_path / "x.share"
    places = {*range(0, len(data), 7), *range(17), len(data) - 1}
    for place in sorted(places):
        changed = bytearray(data)
        changed[place] ^= 4
        path.write_bytes(changed)
        with pytest.raises(ExchangeError) as told:
            read_share(path)
        assert str(path) in told.value.where
    for other in (
        data[:-1],
        data + b"0",
        data[:100],
        b"",
        data.replace(b'":', b'": ', 1),
    ):
        path.write_bytes(other)
        with pytest.raises(ExchangeError):
            read_share(path)


def test_an_unsigned_notice_is_no_share(tmp_path):
    share = shares_of("NYU")["Ministry"]
    bare = share.notice.changed(key="", signature="")
    path = tmp_path / "x.share"
    path.write_bytes(rounds.Share(bare, share.sealed).data)
    with pytest.raises(ExchangeError, match="no signed notice"):
        read_share(path)

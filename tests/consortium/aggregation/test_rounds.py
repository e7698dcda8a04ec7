"""Shares add up and say nothing alone; halves of other shares are refused by name."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from aggregator_rounds import (
    AGGREGATORS,
    SITES,
    SIZE,
    START_EXCHANGE,
    aggregate_share_of,
    closed_by_both,
    lists_in,
    numbers_of,
    shares_of,
)
from exchange_records import key_of

from fcforge.core.errors import ExchangeError
from fcforge_consortium.aggregation import rounds
from fcforge_consortium.aggregation.aggregators import encryption_key
from fcforge_consortium.aggregation.rounds import (
    added,
    opened,
    read_share,
    rounds_of,
    seal,
    signed_numbers,
    split,
)
from fcforge_consortium.records.archive import save_arrays
from fcforge_consortium.records.canonical import sha256
from fcforge_consortium.records.exchange import Exchange
from fcforge_consortium.records.kinds import Closing


@pytest.fixture(autouse=True)
def any_model(monkeypatch):
    monkeypatch.setattr(Exchange, "model", None)


def kept(aggregator, folder):
    """An aggregator's half of round "spring", closed by both in lists of their own."""
    with lists_in(Path(tempfile.mkdtemp(dir=folder))) as lists:
        closed = closed_by_both([*SHARES.values()], lists)
        return aggregate_share_of(aggregator, [*SHARES.values()], lists, closed)


SHARES = {site: shares_of(site) for site in (*SITES, "OHSU")}


def resigned(record, **changes):
    """A record with some fields changed, signed by its aggregator."""
    return record.changed(**changes, signature="").signed(key_of(record.site))


def found_in(records, whole):
    """The rounds of some records with the arrays of an aggregate share."""
    return rounds_of(START_EXCHANGE.joined(records, whole.contents.payloads))


def with_instead(whole, *forged):
    """The exchange of an aggregate share, records of the same kind and author replaced."""
    replaced = {(record.kind, record.site) for record in forged}
    records = [r for r in whole.contents.records if (r.kind, r.site) not in replaced]
    return START_EXCHANGE.joined([*records, *forged], whole.contents.payloads)


def test_aggregators_who_closed_different_sets_are_named(tmp_path):
    whole = kept("Ministry", tmp_path)
    _, two = whole.exchange.of(Closing)
    fewer = resigned(two, hospitals=two.hospitals[:1] + two.hospitals[2:])
    records = [r for r in whole.contents.records if r.kind == "notice"]
    found = START_EXCHANGE.joined([*records, whole.exchange.of(Closing)[0], fewer])
    with pytest.raises(ExchangeError, match="over different notices of 'OHSU'") as told:
        rounds_of(found)
    assert told.value.where == "round 'spring'"


def test_a_half_of_another_set_than_the_closed_one(tmp_path):
    whole = kept("Ministry", tmp_path)
    half = whole.aggregate_share
    forged = resigned(half, hospitals=half.hospitals[1:])
    with pytest.raises(ExchangeError, match="differs in 'NYU' from the set"):
        rounds_of(with_instead(whole, forged))


def test_a_half_of_a_round_that_is_not_closed_by_both(tmp_path):
    """Neither closing record can be left out, nor replaced by another of its author."""
    whole = kept("Ministry", tmp_path)
    _, two = whole.exchange.of(Closing)
    records = [r for r in whole.contents.records if r.id != two.id]
    with pytest.raises(ExchangeError, match="is missing or was withdrawn"):
        START_EXCHANGE.joined(records, whole.contents.payloads).check()
    again = resigned(two, number=7)
    found = START_EXCHANGE.joined(
        [*whole.contents.records, again], whole.contents.payloads
    )
    with pytest.raises(ExchangeError, match="'University' has closed it twice"):
        rounds_of(found)


def test_a_round_twice_by_one_aggregator(tmp_path):
    one = kept("Ministry", tmp_path)
    again = resigned(one.aggregate_share, number=2)
    data = save_arrays({"numbers": np.arange(SIZE, dtype="<u8")})
    again = resigned(again, payload=sha256(data))
    both = one.exchange.joined([again], {again.payload: data})
    with pytest.raises(
        ExchangeError, match="aggregator 'Ministry' has published it twice"
    ):
        rounds_of(both)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"site": "Somebody"}, "one key .* signs for the sites"),
        ({"epsilon": 2.0}, "another budget"),
        ({"round": "summer"}, "that both aggregators have not closed"),
        ({"hospitals": 2}, "differs in 'OHSU' from the set"),
        ({"hospitals": -1}, "differs in a hospital from the set"),
    ],
)
def test_a_forged_half_is_refused(tmp_path, change, why):
    whole = kept("Ministry", tmp_path)
    half = whole.aggregate_share
    if "hospitals" in change:
        change = {"hospitals": half.hospitals[:: change["hospitals"]]}
    forged = half.changed(**change, signature="").signed(key_of("Ministry"))
    records = [r for r in whole.contents.records if r is not half]
    with pytest.raises(ExchangeError, match=why):
        found_in([*records, forged], whole)


def test_a_half_by_another_key_or_of_another_share(tmp_path):
    whole = kept("Ministry", tmp_path)
    half = whole.aggregate_share
    first, *others = half.hospitals
    moved = first.model_copy(update={"share": "ab" * 32})
    wrong = {
        "signed with different keys": half.signed(key_of("thief")),
        "that 'NYU' did not give": resigned(half, hospitals=(moved, *others)),
    }
    records = [r for r in whole.contents.records if r is not half]
    for why, forged in wrong.items():
        with pytest.raises(ExchangeError, match=why):
            found_in([*records, forged], whole)


def test_halves_with_different_noise(tmp_path):
    with lists_in(tmp_path) as lists:
        shares = [*SHARES.values()]
        state = closed_by_both(shares, lists)
        one = aggregate_share_of("Ministry", shares, lists, state)
        two = aggregate_share_of("University", shares, lists, one.exchange)
    less = resigned(two.aggregate_share, variance="1")
    found = one.exchange.joined([less], two.contents.payloads)
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


def test_a_share_of_an_older_version_is_refused_by_name(tmp_path):
    data = shares_of("NYU")["Ministry"].data
    path = tmp_path / "x.share"
    path.write_bytes(data.replace(b"fcforge-share 2\n", b"fcforge-share 1\n"))
    with pytest.raises(ExchangeError, match=r"version 1, which fcforge 0\.2 reads"):
        read_share(path)


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

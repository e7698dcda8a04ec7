"""A round of two aggregators: what is added, what is refused, and that nothing is lost."""

import numpy as np
import pytest
from aggregator_rounds import (
    AGGREGATORS,
    NOISE,
    POLICY,
    SITES,
    SIZE,
    START_EXCHANGE,
    aggregate_share_of,
    numbers_of,
    shares_of,
    start_of,
)
from exchange_records import key_of

from fcforge.core.errors import ConfigError, ExchangeError
from fcforge_consortium.aggregation import aggregators
from fcforge_consortium.aggregation.aggregators import Noise, RoundList, read_card
from fcforge_consortium.aggregation.rounds import added, give, rounds_of, signed_numbers
from fcforge_consortium.ledger.entries import LedgerEntry, Spent
from fcforge_consortium.privacy.noise import discrete_gaussian
from fcforge_consortium.records.exchange import Exchange
from fcforge_consortium.records.kinds import Notice


@pytest.fixture(autouse=True)
def any_model(monkeypatch):
    monkeypatch.setattr(Exchange, "model", None)


@pytest.fixture
def listed(tmp_path):
    with RoundList.open(tmp_path / "key.rounds") as found:
        yield found


@pytest.fixture
def other_list(tmp_path):
    with RoundList.open(tmp_path / "other.rounds") as found:
        yield found


@pytest.fixture(scope="module")
def shares():
    return [shares_of(site) for site in SITES]


# -- keys ----------------------------------------------------------------------------------------
def test_an_aggregator_has_one_private_file_and_a_card_to_give_away(tmp_path):
    card = aggregators.write_aggregator(tmp_path / "u", "University ", "horse")
    assert read_card(tmp_path / "u.card") == card
    assert card.name == "University"
    key = aggregators.keys.read_private(tmp_path / "u", "horse")
    assert aggregators.card_of("University", key) == card
    assert card.encryption_key != card.key
    (tmp_path / "u.card").write_text('{"name": "University"}')
    with pytest.raises(ExchangeError, match=r"ends in \.card"):
        read_card(tmp_path / "u.card")


# -- giving --------------------------------------------------------------------------------------
def test_only_to_aggregators_and_only_signed():
    receipt = LedgerEntry(
        site="NYU", number=1, people=(), epsilon=1.0, delta=1e-6, round="r"
    )
    gift = (receipt, numbers_of("NYU"), Spent())
    alone = start_of(POLICY.model_copy(update={"aggregators": ()}))
    with pytest.raises(ConfigError, match="names no aggregators"):
        give(alone, *gift, key_of("NYU"))
    with pytest.raises(ConfigError, match="must be signed"):
        give(START_EXCHANGE, *gift, None)


def test_a_round_takes_a_hospital_once_and_none_when_it_is_published(shares, listed):
    given = START_EXCHANGE.joined([shares[0]["Ministry"].notice])
    with pytest.raises(ConfigError, match="'spring' has the notice 1 of 'NYU'"):
        shares_of("NYU", exchange=given, number=2)
    published = aggregate_share_of("Ministry", shares, listed).exchange
    with pytest.raises(
        ConfigError, match="'spring' has the aggregate share 1 of 'Ministry'"
    ):
        shares_of("OHSU", exchange=published)
    assert shares_of("OHSU", "summer", exchange=published)


def test_a_notice_says_no_count_and_no_number(shares):
    notice = shares[0]["Ministry"].notice
    assert notice == shares[0]["University"].notice
    assert set(dict(notice)) >= {"round", "shares", "commitment", "epsilon", "delta"}
    for number in numbers_of("NYU"):
        assert str(abs(number)) not in notice.line.decode()


# -- keeping -------------------------------------------------------------------------------------
def test_two_halves_are_the_sum_and_two_doses_of_noise(shares, listed, other_list):
    exact = sum(numbers_of(site) for site in SITES)
    for sigma, most in ((0, 0), (5, 80)):
        epsilon = 1.0 if sigma else None
        gave = [shares_of(site, f"r{sigma}", epsilon=epsilon) for site in SITES]
        noise = Noise(sigma, NOISE.grid, SIZE)
        one = aggregate_share_of("Ministry", gave, listed, noise=noise)
        two = aggregate_share_of("University", gave, other_list, START_EXCHANGE, noise)
        both = one.exchange.joined(two.contents.records, two.contents.payloads)
        (closed,) = rounds_of(both)
        assert closed.closed
        assert closed.hospitals == SITES
        assert {half.variance for half in closed.aggregate_shares} == {str(sigma**2)}
        words = [both.arrays(half)["numbers"] for half in closed.aggregate_shares]
        gap = np.abs(signed_numbers(added(words)) - exact)
        assert gap.max() <= most
        assert sigma == 0 or gap.max() > 0


def test_noise_is_secret_and_of_its_own_every_time(shares, tmp_path):
    found = []
    for k in range(2):
        with RoundList.open(tmp_path / str(k)) as listed:
            kept = aggregate_share_of("Ministry", shares, listed)
        found.append(kept.exchange.arrays(kept.aggregate_share)["numbers"])
    assert (found[0] != found[1]).any()
    assert aggregators.discrete_gaussian is discrete_gaussian


def test_a_half_alone_is_uniform_and_counts_for_nothing(shares, listed):
    kept = aggregate_share_of("Ministry", shares, listed)
    (waiting,) = rounds_of(kept.exchange)
    assert not waiting.closed
    words = kept.exchange.arrays(kept.aggregate_share)["numbers"]
    assert words.max() > 2**60


def test_it_is_published_once_even_if_it_is_killed(shares, listed, tmp_path):
    kept = aggregate_share_of("Ministry", shares, listed)
    listed.publish(kept.line, {tmp_path / "half.record": b"half"})
    with pytest.raises(ExchangeError, match="was published before") as told:
        aggregate_share_of("Ministry", shares, listed)
    assert told.value.where == "round 'spring'"
    late = [*shares, shares_of("OHSU")]
    with pytest.raises(ExchangeError, match="the share of 'OHSU' came too late"):
        aggregate_share_of("Ministry", late, listed)
    summer = aggregate_share_of(
        "Ministry", [shares_of(s, "summer") for s in SITES], listed
    )
    assert (summer.aggregate_share.number, summer.aggregate_share.round) == (
        2,
        "summer",
    )


def test_fewer_hospitals_than_the_policy_says(shares, listed):
    with pytest.raises(ExchangeError, match="of 2 hospitals; the policy asks for 3"):
        aggregate_share_of("Ministry", shares[:2], listed)
    with pytest.raises(ExchangeError, match="no share"):
        aggregate_share_of("Ministry", [], listed)
    assert listed.lines[1:] == []


def test_doubled_foreign_and_mixed_shares_are_refused_by_name(shares, listed):
    other_start = start_of(POLICY.model_copy(update={"disorder": "MDD"}))
    wrong = {
        "is there 2 times": shares[0],
        "made for another start": shares_of("OHSU", exchange=other_start),
        "is of round 'summer'": shares_of("OHSU", "summer"),
        "budget (2.0": shares_of("OHSU", epsilon=2.0),
        "1e-05)": shares_of("OHSU", delta=1e-5),
    }
    for why, share in wrong.items():
        with pytest.raises(ExchangeError) as told:
            aggregate_share_of("Ministry", [*shares, share], listed)
        assert why in told.value.what
        assert share["Ministry"].notice.site in told.value.where
    swapped = {"Ministry": shares[0]["University"]}
    with pytest.raises(ExchangeError, match="is for aggregator 'University'"):
        aggregate_share_of("Ministry", [swapped, *shares[1:]], listed)
    for name in ("nyu", "NYU."):
        with pytest.raises(ExchangeError, match="look alike"):
            aggregate_share_of("Ministry", [*shares, shares_of(name)], listed)


def test_a_hospital_is_who_it_was_before(shares, listed):
    before = START_EXCHANGE.joined([shares_of("NYU", "winter")["Ministry"].notice])
    thief = shares_of("NYU", number=2, signer="thief")
    with pytest.raises(ExchangeError, match="signed with different keys"):
        aggregate_share_of("Ministry", [thief, *shares[1:]], listed, before)


def test_only_an_aggregator_of_the_start_keeps(shares, listed):
    with pytest.raises(ExchangeError, match="is of no aggregator of this start"):
        aggregators.aggregate(
            START_EXCHANGE,
            [share["Ministry"] for share in shares],
            key_of("somebody"),
            NOISE,
            listed,
        )


def test_exact_sums_only_where_the_policy_allows_them(listed):
    strict = start_of(POLICY.model_copy(update={"exact_allowed": False}))
    gave = [shares_of(site, exchange=strict, epsilon=None) for site in SITES]
    with pytest.raises(ExchangeError, match="without noise"):
        aggregate_share_of("Ministry", gave, listed, strict)


# -- withdrawing ---------------------------------------------------------------------------------
def test_withdrawn_before_the_round_closes_is_not_added(listed):
    four = [shares_of(site) for site in (*SITES, "OHSU")]
    notices = [share["Ministry"].notice for share in four]
    state = START_EXCHANGE.joined(notices).withdrawn("UM", key_of("UM"))
    kept = aggregate_share_of("Ministry", four, listed, state)
    assert [one.site for one in kept.aggregate_share.hospitals] == [
        "NYU",
        "OHSU",
        "USM",
    ]


def test_a_round_is_published_once_whoever_withdraws(listed, other_list):
    """Issue 39: after a withdrawal the round leaves the model; the others run a new one."""
    four = [shares_of(site) for site in (*SITES, "OHSU")]
    lists = dict(zip(AGGREGATORS, (listed, other_list), strict=True))
    state = START_EXCHANGE
    for aggregator in AGGREGATORS:
        kept = aggregate_share_of(aggregator, four, lists[aggregator], state)
        lists[aggregator].publish(kept.line, {})
        state = kept.exchange
    assert [one.closed for one in rounds_of(state)] == [True]
    state = state.withdrawn("UM", key_of("UM"))
    assert rounds_of(state) == ()
    assert [notice.site for notice in state.of(Notice)] == ["NYU", "OHSU", "USM"]
    for again in (four, [four[0], *four[2:]]):
        with pytest.raises(ExchangeError, match="published before"):
            aggregate_share_of("Ministry", again, listed, state)
    three = ("NYU", "OHSU", "USM")
    summer = [shares_of(site, "summer", state, number=2) for site in three]
    for aggregator in AGGREGATORS:
        state = aggregate_share_of(
            aggregator, summer, lists[aggregator], state
        ).exchange
    (new,) = rounds_of(state)
    assert (new.closed, new.hospitals) == (True, three)


def test_an_unsigned_start_gets_no_share():
    root = START_EXCHANGE.root.changed(key="", signature="")
    unsigned = Exchange(root, (), START_EXCHANGE.payloads)
    with pytest.raises(ExchangeError, match="the start is not signed"):
        shares_of("NYU", exchange=unsigned)

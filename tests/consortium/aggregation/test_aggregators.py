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
    closed_by,
    closed_by_both,
    lists_in,
    numbers_of,
    shares_of,
    start_of,
)
from exchange_records import key_of, record

from fcforge.core.errors import ConfigError, DataError, ExchangeError
from fcforge_consortium.aggregation import aggregators
from fcforge_consortium.aggregation.aggregators import Noise, RoundList, read_card
from fcforge_consortium.aggregation.rounds import added, give, rounds_of, signed_numbers
from fcforge_consortium.ledger.entries import LedgerEntry, Spent
from fcforge_consortium.privacy.noise import discrete_gaussian
from fcforge_consortium.records.exchange import Exchange
from fcforge_consortium.records.kinds import Notice, Withdrawal, Withdrawn


@pytest.fixture(autouse=True)
def any_model(monkeypatch):
    monkeypatch.setattr(Exchange, "model", None)


@pytest.fixture
def lists(tmp_path):
    with lists_in(tmp_path) as found:
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
    entry = LedgerEntry(
        site="NYU", number=1, people=(), epsilon=1.0, delta=1e-6, round="r"
    )
    gift = (entry, numbers_of("NYU"), Spent())
    alone = start_of(POLICY.model_copy(update={"aggregators": ()}))
    with pytest.raises(ConfigError, match="names no aggregators"):
        give(alone, *gift, key_of("NYU"))
    with pytest.raises(ConfigError, match="must be signed"):
        give(START_EXCHANGE, *gift, None)


def test_a_round_takes_a_hospital_once_and_none_when_it_is_closed(shares, lists):
    given = START_EXCHANGE.joined([shares[0]["Ministry"].notice])
    with pytest.raises(ConfigError, match="'spring' has the notice 1 of 'NYU'"):
        shares_of("NYU", exchange=given, number=2)
    closed = closed_by("Ministry", shares, lists).exchange
    with pytest.raises(ConfigError, match="'spring' has the closing 1 of 'Ministry'"):
        shares_of("OHSU", exchange=closed)
    assert shares_of("OHSU", "summer", exchange=closed)


def test_a_notice_says_no_count_and_no_number(shares):
    notice = shares[0]["Ministry"].notice
    assert notice == shares[0]["University"].notice
    assert set(dict(notice)) >= {"round", "shares", "commitment", "epsilon", "delta"}
    for number in numbers_of("NYU"):
        assert str(abs(number)) not in notice.line.decode()


# -- closing -------------------------------------------------------------------------------------
def test_a_round_is_closed_by_the_first_and_confirmed_by_the_second(shares, lists):
    with pytest.raises(ExchangeError, match="'Ministry' closes it first"):
        closed_by("University", shares, lists)
    one = closed_by("Ministry", shares, lists).exchange
    (waiting,) = rounds_of(one)
    assert (waiting.closed, waiting.state) == (False, "closed by Ministry alone")
    with pytest.raises(ExchangeError, match="is not closed by both aggregators"):
        aggregate_share_of("Ministry", shares, lists, one)
    both = closed_by("University", shares, lists, one).exchange
    (closed,) = rounds_of(both)
    assert (closed.closed, closed.published, closed.hospitals) == (True, False, SITES)
    assert closed.notices == {share["Ministry"].notice.id for share in shares}


def test_the_second_confirms_exactly_the_set_of_the_first(lists):
    four = [shares_of(site) for site in (*SITES, "OHSU")]
    one = closed_by("Ministry", four[:3], lists).exchange
    with pytest.raises(ExchangeError, match=r"share of 'OHSU', which came too late"):
        closed_by("University", four, lists, one)
    with pytest.raises(ExchangeError, match="with 'USM', whose share is not among"):
        closed_by("University", [four[0], four[1], four[3]], lists, one)
    assert lists["University"].closed == []
    assert closed_by("University", four[:3], lists, one)


def test_a_round_is_closed_once_and_over_enough_hospitals(shares, lists):
    with pytest.raises(ExchangeError, match="of 2 hospitals; the policy asks for 3"):
        closed_by("Ministry", shares[:2], lists)
    with pytest.raises(ExchangeError, match="no share"):
        closed_by("Ministry", [], lists)
    assert lists["Ministry"].closed == []
    closed_by("Ministry", shares, lists)
    for again in (shares, [*shares, shares_of("OHSU")]):
        with pytest.raises(ExchangeError, match="was closed before") as told:
            closed_by("Ministry", again, lists)
        assert told.value.where == "round 'spring'"


def test_a_share_that_cannot_be_opened_is_found_before_the_round_closes(shares, lists):
    """Its hospital would spoil the round of all others after they were charged."""
    short = shares_of("OHSU", numbers=numbers_of("OHSU")[:-1])
    with pytest.raises(ExchangeError, match="'OHSU' holds 11 numbers instead of 12"):
        closed_by("Ministry", [*shares, short], lists)
    assert lists["Ministry"].closed == []


def test_a_list_that_does_not_know_the_closing_publishes_nothing(
    shares, lists, tmp_path
):
    """An older list could have published the round before."""
    closed = closed_by_both(shares, lists)
    (tmp_path / "older").mkdir()
    with (
        lists_in(tmp_path / "older") as older,
        pytest.raises(ExchangeError, match="bring back the newest copy"),
    ):
        aggregate_share_of("Ministry", shares, older, closed)
    with (
        pytest.raises(DataError, match="Bring back"),
        RoundList.open(tmp_path / "none", key_of("Ministry")),
    ):
        pass


def forged(closing, **changes):
    """A closing record with some fields changed, signed by its aggregator."""
    return closing.changed(**changes, signature="").signed(key_of(closing.site))


def test_forged_closing_records_are_refused(shares, lists):
    closing = closed_by("Ministry", shares, lists).closing
    notices = [share["Ministry"].notice for share in shares]
    first, *others = closing.hospitals
    wrong = {
        "not signed with the aggregator's key": closing.signed(key_of("thief")),
        "for the sites 'Ministry' and 'Somebody'": forged(closing, site="Somebody"),
        "not by the aggregator's key in": closing.changed(site="Somebody").signed(
            key_of("thief")
        ),
        "not in order": forged(closing, hospitals=closing.hospitals[::-1]),
        "of 2 hospitals": forged(closing, hospitals=closing.hospitals[:2]),
        "that is another one": forged(closing, round="summer"),
        "'NYU' that is another": forged(
            closing, hospitals=(first.changed(number=2), *others)
        ),
        "'NYU' that is not there": forged(
            closing, hospitals=(first.changed(notice="ab" * 32), *others)
        ),
    }
    for why, made in wrong.items():
        with pytest.raises(ExchangeError, match=why):
            rounds_of(START_EXCHANGE.joined([*notices, made]))
    twice = START_EXCHANGE.joined([*notices, closing, forged(closing, number=2)])
    with pytest.raises(ExchangeError, match="'Ministry' has closed it twice"):
        rounds_of(twice)


# -- adding --------------------------------------------------------------------------------------
def test_two_halves_are_the_sum_and_two_doses_of_noise(shares, lists):
    exact = sum(numbers_of(site) for site in SITES)
    for sigma, most in ((0, 0), (5, 80)):
        epsilon = 1.0 if sigma else None
        gave = [shares_of(site, f"r{sigma}", epsilon=epsilon) for site in SITES]
        noise = Noise(sigma, NOISE.grid, SIZE)
        both = closed_by_both(gave, lists)
        for name in AGGREGATORS:
            made = aggregate_share_of(name, gave, lists, both, noise)
            both = both.joined(made.contents.records, made.contents.payloads)
        (closed,) = rounds_of(both)
        assert closed.published
        assert closed.hospitals == SITES
        assert {half.variance for half in closed.aggregate_shares} == {str(sigma**2)}
        words = [both.arrays(half)["numbers"] for half in closed.aggregate_shares]
        gap = np.abs(signed_numbers(added(words)) - exact)
        assert gap.max() <= most
        assert sigma == 0 or gap.max() > 0


def test_noise_is_secret_and_of_its_own_every_time(shares, lists):
    closed = closed_by_both(shares, lists)
    found = []
    for _ in range(2):
        kept = aggregate_share_of("Ministry", shares, lists, closed)
        found.append(kept.exchange.arrays(kept.aggregate_share)["numbers"])
    assert (found[0] != found[1]).any()
    assert aggregators.discrete_gaussian is discrete_gaussian


def test_a_half_alone_is_uniform_and_counts_for_nothing(shares, lists):
    closed = closed_by_both(shares, lists)
    kept = aggregate_share_of("Ministry", shares, lists, closed)
    (waiting,) = rounds_of(kept.exchange)
    assert not waiting.published
    assert waiting.state == "closed; published by Ministry alone"
    words = kept.exchange.arrays(kept.aggregate_share)["numbers"]
    assert words.max() > 2**60


def test_it_is_published_once_even_if_it_is_killed(shares, lists, tmp_path):
    closed = closed_by_both(shares, lists)
    kept = aggregate_share_of("Ministry", shares, lists, closed)
    lists["Ministry"].publish(kept.line, {tmp_path / "half.record": b"half"})
    with pytest.raises(ExchangeError, match="was published before") as told:
        aggregate_share_of("Ministry", shares, lists, closed)
    assert told.value.where == "round 'spring'"
    gave = [shares_of(s, "summer") for s in SITES]
    summer = closed_by_both(gave, lists)
    share = aggregate_share_of("Ministry", gave, lists, summer).aggregate_share
    assert (share.number, share.round) == (2, "summer")


def test_exactly_the_closed_set_is_added(lists):
    four = [shares_of(site) for site in (*SITES, "OHSU")]
    closed = closed_by_both(four[:3], lists)
    with pytest.raises(ExchangeError, match="'OHSU', which came too late"):
        aggregate_share_of("Ministry", four, lists, closed)
    wide = [shares_of(site, "summer") for site in (*SITES, "OHSU")]
    closed = closed_by_both(wide, lists)
    with pytest.raises(ExchangeError, match="'OHSU', whose share is not among"):
        aggregate_share_of("Ministry", wide[:3], lists, closed)


def test_doubled_foreign_and_mixed_shares_are_refused_by_name(shares, lists):
    other_start = start_of(POLICY.model_copy(update={"disorder": "MDD"}))
    wrong = {
        "is there 2 times": shares[0],
        "made for another base model": shares_of("OHSU", exchange=other_start),
        "is of round 'summer'": shares_of("OHSU", "summer"),
        "budget (2.0": shares_of("OHSU", epsilon=2.0),
        "1e-05)": shares_of("OHSU", delta=1e-5),
    }
    for why, share in wrong.items():
        with pytest.raises(ExchangeError) as told:
            closed_by("Ministry", [*shares, share], lists)
        assert why in told.value.what
        assert share["Ministry"].notice.site in told.value.where
    swapped = {"Ministry": shares[0]["University"]}
    with pytest.raises(ExchangeError, match="is for aggregator 'University'"):
        closed_by("Ministry", [swapped, *shares[1:]], lists)
    for name in ("nyu", "NYU."):
        with pytest.raises(ExchangeError, match="look alike"):
            closed_by("Ministry", [*shares, shares_of(name)], lists)


def test_a_hospital_is_who_it_was_before(shares, lists):
    before = START_EXCHANGE.joined([shares_of("NYU", "winter")["Ministry"].notice])
    thief = shares_of("NYU", number=2, signer="thief")
    with pytest.raises(ExchangeError, match="signed with different keys"):
        closed_by("Ministry", [thief, *shares[1:]], lists, before)


def test_only_an_aggregator_of_the_start_closes_and_adds(shares, lists):
    mine = [share["Ministry"] for share in shares]
    given = (START_EXCHANGE, mine, key_of("somebody"))
    with pytest.raises(
        ExchangeError, match="belongs to no aggregator of this base model"
    ):
        aggregators.aggregate(*given, NOISE, lists["Ministry"])
    with pytest.raises(
        ExchangeError, match="belongs to no aggregator of this base model"
    ):
        aggregators.close(*given, SIZE, lists["Ministry"])


def test_exact_sums_only_where_the_policy_allows_them(lists):
    strict = start_of(POLICY.model_copy(update={"exact_allowed": False}))
    gave = [shares_of(site, exchange=strict, epsilon=None) for site in SITES]
    with pytest.raises(ExchangeError, match="without noise"):
        closed_by("Ministry", gave, lists, strict)


# -- withdrawing ---------------------------------------------------------------------------------
MOMENTS = ("open", "closing", "closed", "publishing", "published")


@pytest.mark.parametrize("moment", MOMENTS)
def test_whenever_a_hospital_withdraws_the_round_is_whole_or_void(moment, lists):
    """Issue 39: a withdrawal between two publications killed a round without saying so."""
    four = [shares_of(site) for site in (*SITES, "OHSU")]
    state = START_EXCHANGE.joined([share["Ministry"].notice for share in four])
    refused = {}
    steps = (
        ("closing", lambda s: closed_by("Ministry", four, lists, s)),
        ("closed", lambda s: closed_by("University", four, lists, s)),
        ("publishing", lambda s: aggregate_share_of("Ministry", four, lists, s)),
        ("published", lambda s: aggregate_share_of("University", four, lists, s)),
    )
    if moment == "open":
        state = state.withdrawn("UM", key_of("UM"))
    for name, step in steps:
        staying = four if moment != "open" else [four[0], *four[2:]]
        try:
            state = step(state).exchange
        except ExchangeError as error:
            refused[name] = error.what
        if name == moment:
            state = state.withdrawn("UM", key_of("UM"))
    (spring,) = rounds_of(state)
    others = ["NYU", "OHSU", "USM"]
    assert [notice.site for notice in state.of(Notice)] == others
    if moment == "open":
        assert len(staying) == 3
        assert (spring.published, spring.void) == (True, False)
        assert spring.hospitals == tuple(others)
        assert refused == {}
        return
    assert (spring.void, spring.published) == (True, False)
    assert spring.state == "void: UM withdrew after it was closed"
    assert list(refused) == list(MOMENTS[MOMENTS.index(moment) + 1 :])
    assert set(refused.values()) <= {f"is {spring.state}."}
    with pytest.raises(ConfigError, match="'spring' has the closing"):
        shares_of("KKI", exchange=state)
    gave = [shares_of(site, "summer", state, number=2) for site in others]
    state = closed_by_both(gave, lists, state)
    for aggregator in AGGREGATORS:
        state = aggregate_share_of(aggregator, gave, lists, state).exchange
    summer = rounds_of(state)[1]
    assert (summer.published, summer.hospitals) == (True, tuple(others))


def test_a_withdrawal_by_another_makes_no_round_void(shares, lists):
    """A notice that is missing without its own hospital's withdrawal was left out by somebody."""
    state = closed_by_both(shares, lists)
    mine = {share["Ministry"].notice.site: share["Ministry"].notice for share in shares}
    took = Withdrawn(kind="notice", number=1, commitment=mine["NYU"].commitment)
    excuse = record(
        Withdrawal, "UM", 1, (START_EXCHANGE.root.id,), "UM", takes=(took,), gone=()
    )
    kept = [r for r in state.records if r.site != "NYU"]
    with pytest.raises(ExchangeError, match="notice of 'NYU' that is not there"):
        rounds_of(START_EXCHANGE.joined([*kept, excuse]))


def test_an_unsigned_start_gets_no_share():
    root = START_EXCHANGE.root.changed(key="", signature="")
    unsigned = Exchange(root, (), START_EXCHANGE.payloads)
    with pytest.raises(ExchangeError, match="the base model is not signed"):
        shares_of("NYU", exchange=unsigned)

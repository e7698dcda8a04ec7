"""A round from the hospitals' people to the merged sum, with files."""

import time
from dataclasses import replace

import aggregator_rounds
import numpy as np
import pytest
import small_exchange as small
from exchange_records import key_of
from small_chains import settings

from fcforge.core.errors import ExchangeError
from fcforge.core.target import Target
from fcforge_consortium.aggregation.aggregators import (
    Noise,
    RoundList,
    aggregate,
    card_of,
    close,
)
from fcforge_consortium.aggregation.rounds import read_share
from fcforge_consortium.base_model.vectors import contribution_rows
from fcforge_consortium.chains.chain import empty_chain
from fcforge_consortium.contributions.prediction import evaluate
from fcforge_consortium.estimator import ConsortiumClassifier
from fcforge_consortium.ledger.ledger import Ledger
from fcforge_consortium.operations.aggregate import aggregate_files, close_files
from fcforge_consortium.operations.verification import verify
from fcforge_consortium.options import AggregateRequest, CloseRequest
from fcforge_consortium.records import archive
from fcforge_consortium.records.exchange import Exchange, save, union_of
from fcforge_consortium.records.kinds import AggregateShare
from fcforge_consortium.records.trust import Trust

AGGREGATORS = ("Ministry", "University")
SITES = small.sites()[2:5]


def pem(folder, name):
    """The private key of somebody as a file."""
    from cryptography.hazmat.primitives import serialization as how

    form = (how.Encoding.PEM, how.PrivateFormat.PKCS8, how.NoEncryption())
    path = folder / f"{name}.key"
    path.write_bytes(key_of(name).private_bytes(*form))
    return path


def list_of(place, name):
    """An aggregator's empty list of rounds."""
    new = RoundList.new(name, key_of(name))
    with RoundList.open(place, key_of(name), new=new):
        return place


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A start with aggregators, their keys, and the shares of three hospitals."""
    folder = tmp_path_factory.mktemp("round")
    cards = tuple(card_of(name, key_of(name)) for name in AGGREGATORS)
    start = small.start(aggregators=cards, exact_allowed=True)
    save(start, folder / "start.exchange")
    for name in AGGREGATORS:
        pem(folder, name)
    for mechanism, name in (("gaussian", "spring"), ("none", "exact")):
        asked = {"round": name, "mechanism": mechanism}
        for site in SITES:
            done = small.learned(start, site, signer=site, **asked)
            for aggregator, data in done.files.items():
                (folder / f"{name} {site} {aggregator}.share").write_bytes(data)
    return folder


def asked(world, shares, aggregator, out, state="", request=AggregateRequest, **more):
    """What an aggregator types."""
    place = {"state": state or world / "start.exchange"}
    place["key"] = world / f"{aggregator}.key"
    return request(shares=shares, out=out, **place, **more)


def shares_for(world, aggregator, name, sites=SITES):
    return [world / f"{name} {site} {aggregator}.share" for site in sites]


def closed(world, folder, name, sites=SITES):
    """The file with both closing records of a round."""
    state = ""
    for aggregator in AGGREGATORS:
        listed = folder / f"{aggregator}.rounds"
        if not listed.exists():
            list_of(listed, aggregator)
        out = folder / f"{name} closed by {aggregator}.exchange"
        given = (world, shares_for(world, aggregator, name, sites), aggregator, out)
        close_files(asked(*given, state, CloseRequest, rounds=listed))
        state = out
    return state


def opened_file(place):
    """The exchange of a file."""
    return union_of([place], Trust())


def halves(world, folder, name, sites=SITES):
    """Both halves of a round, as files."""
    made = []
    state = closed(world, folder, name, sites)
    for aggregator in AGGREGATORS:
        shares = shares_for(world, aggregator, name, sites)
        made.append(folder / f"{name} {aggregator}.record")
        listed = folder / f"{aggregator}.rounds"
        given = (world, shares, aggregator, made[-1], state)
        aggregate_files(asked(*given, rounds=listed))
    return made


def test_a_round_gives_the_sum_and_noise(world, tmp_path):
    files = [world / "start.exchange", *halves(world, tmp_path, "exact")]
    exact = union_of(files, Trust()).model
    (given,) = exact.given
    whole = np.zeros(exact.size, dtype=np.int64)
    for site in SITES:
        mine = small.people().select_sites([site])
        x = exact.base_model.features(mine.fc, mine.covariates)
        whole += contribution_rows(exact.base_model.space, x, mine.y).sum(0)
    np.testing.assert_array_equal(given.numbers, whole)
    assert given.sites == tuple(sorted(SITES))
    files = [world / "start.exchange", *halves(world, tmp_path, "spring")]
    (noisy,) = union_of(files, Trust()).model.given
    assert noisy.name == "round spring"
    sigma = float(noisy.variance) ** 0.5
    gap = np.abs(noisy.numbers - whole)
    assert 0 < gap.max() < 8 * sigma


def test_what_is_merged_is_verified_and_says_that_a_half_is_missing(world, tmp_path):
    one, two = halves(world, tmp_path, "spring")
    out = tmp_path / "all.exchange"
    save(union_of([world / "start.exchange", one], Trust()), out)
    assert all(check.ok for check in verify(out, Trust()))
    waiting = union_of([out], Trust()).model
    assert waiting.given == ()
    half = "Round 'spring' is not in the model: closed; published by Ministry alone."
    assert waiting.absent() == (half,)
    # whoever measures it must not take the base model alone for the consortium's model
    assert half in evaluate(waiting.exchange, small.people()).notes
    with pytest.warns(UserWarning, match="is not in the model: closed; published by"):
        ConsortiumClassifier.load(out)
    both = tmp_path / "both.exchange"
    save(union_of([out, two], Trust()), both)
    whole = union_of([both], Trust()).model
    assert len(whole.given) == 1
    assert whole.absent() == ()


def test_what_is_not_in_the_model_is_named(world, tmp_path):
    """A round that nobody has closed, and a hospital that came too late."""
    start = opened_file(world / "start.exchange")
    notices = [
        read_share(place).notice for place in shares_for(world, "Ministry", "spring")
    ]
    waiting = start.joined(notices).model
    sites = ", ".join(sorted(SITES))
    assert waiting.absent() == (
        f"Round 'spring' ({sites}) is not in the model: not closed yet.",
    )
    late = small.sites()[5]
    done = small.learned(start, late, signer=late, round="spring")
    made = union_of(
        [world / "start.exchange", *halves(world, tmp_path, "spring")], Trust()
    )
    assert made.joined(done.new).model.absent() == (
        f"Round 'spring' was closed without {late}.",
    )


@pytest.mark.parametrize("name", ["round spring", "Round-Spring", "r\u043eund spring"])
def test_nobody_hides_in_the_sum_of_a_round(world, tmp_path, name):
    """Contributions are judged by name: one named like a round would be judged together with it."""
    files = [world / "start.exchange", *halves(world, tmp_path, "spring")]
    made = union_of(files, Trust())
    site = small.sites()[5]
    honest = small.learned(opened_file(files[0]), site, signer=site)
    others = small.people().select_sites([site])
    renamed = replace(others, site=np.full(len(others), name))
    hidden = small.learned(opened_file(files[0]), name, signer="X", cohort=renamed)
    assert "round spring" in made.merged(honest.exchange).model.given_by
    with pytest.raises(ExchangeError, match="is named like the round 'spring'"):
        made.merged(hidden.exchange)


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"numbers": np.zeros(3, "<u8")},
        {"numbers": "as many"},
        {"numbers": "right", "more": np.zeros(1)},
    ],
    ids=str,
)
def test_a_half_of_other_words_is_refused(world, tmp_path, arrays, monkeypatch):
    """Fewer, signed ones, or something beside them; the hash of the arrays would fit."""
    one, _ = halves(world, tmp_path, "spring")
    found = union_of([world / "start.exchange", one], Trust()).model
    (half,) = found.exchange.of(AggregateShare)
    assert found.read_numbers(half).shape == (found.size,)
    kinds = {"as many": "<i8", "right": "<u8"}
    forged = {
        name: np.zeros(found.size, kinds[array]) if isinstance(array, str) else array
        for name, array in arrays.items()
    }
    monkeypatch.setattr(type(found.exchange), "arrays", lambda self, record: forged)
    with pytest.raises(ExchangeError, match="aggregate share 1 of 'Ministry'"):
        _ = found.read_numbers(half)
    with pytest.raises(ExchangeError, match="aggregate share 1 of 'Ministry'"):
        found.check()


def test_an_aggregator_has_it_on_its_list_or_has_not_published(
    world, tmp_path, monkeypatch
):
    shares = [world / f"spring {site} Ministry.share" for site in SITES]
    state = closed(world, tmp_path, "spring")
    listed = tmp_path / "Ministry.rounds"
    place = (world, shares, "Ministry", tmp_path / "h.record", state)
    with monkeypatch.context() as patch:
        patch.setattr(archive, "pack", lambda contents: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            aggregate_files(asked(*place, rounds=listed))
    aggregate_files(asked(*place, rounds=listed))
    assert (tmp_path / "h.record").stat().st_mode & 0o077 == 0
    again = (*place[:3], tmp_path / "again.record", state)
    with pytest.raises(ExchangeError, match="published before"):
        aggregate_files(asked(*again, rounds=listed))
    kinds = [line.kind for line in RoundList.read(listed).lines]
    assert kinds == ["header", "intent", "closed", "intent", "published"]


def test_a_chain_has_no_aggregators(world, tmp_path):
    chain = empty_chain(settings("finetune"), Target(classes=("TC", "ASD")), "NYU")
    save(chain, tmp_path / "chain.fcx")
    request = replace(
        asked(world, [], "Ministry", tmp_path / "h.record"),
        state=tmp_path / "chain.fcx",
    )
    with pytest.raises(ExchangeError, match="policy names none"):
        aggregate_files(request)


def test_a_late_hospital_joins_the_next_round_and_is_charged_for_both(world, tmp_path):
    """The ledger and the file agree: both state the sum of all that left the hospital."""
    site = small.sites()[5]
    start = union_of([world / "start.exchange"], Trust())
    new = Ledger.new(site)
    with Ledger.open(tmp_path / "private", new=new) as private:
        late = small.learned(start, site, private, signer=site, round="spring")
        private.publish(late.entry, {})
        files = [world / "start.exchange", *halves(world, tmp_path, "spring")]
        closed = union_of(files, Trust())
        summer = small.learned(closed, site, private, signer=site, round="summer")
        private.publish(summer.entry, {})
        assert summer.new[0].spent_epsilon == private.spent.epsilon == 2.0


def test_what_leaves_a_hospital_is_two_shares_and_a_notice(world):
    for aggregator in AGGREGATORS:
        assert (world / f"spring {SITES[0]} {aggregator}.share").is_file()
    start = union_of([world / "start.exchange"], Trust())
    done = small.learned(start, SITES[0], signer=SITES[0], round="autumn")
    assert set(done.files) == set(AGGREGATORS)
    assert [record.kind for record in done.new] == ["notice"]
    assert dict(done.exchange.payloads).keys() == dict(start.payloads).keys()


def test_a_round_of_a_hundred_hospitals_is_quick(tmp_path, monkeypatch):
    """100 hospitals with 6,788 numbers each, as of 116 ROIs: 5 s were asked for."""
    monkeypatch.setattr(Exchange, "model", None)
    numbers = np.arange(6_788)
    shares = []
    for k in range(100):
        gave = aggregator_rounds.shares_of(f"Hospital {k}", numbers=numbers)
        shares.append(gave)
    assert len(shares[0]["Ministry"].data) < 64_000
    begun = time.process_time()
    exchange = aggregator_rounds.START_EXCHANGE
    with aggregator_rounds.lists_in(tmp_path) as lists:
        for name in AGGREGATORS:
            mine = [one[name] for one in shares]
            done = close(exchange, mine, key_of(name), 6_788, lists[name])
            lists[name].publish(done.line, {})
            exchange = done.exchange
        mine = [one["Ministry"] for one in shares]
        given = (exchange, mine, key_of("Ministry"), Noise(10**6, 1.0, 6_788))
        aggregate(*given, lists["Ministry"])
    assert time.process_time() - begun < 5

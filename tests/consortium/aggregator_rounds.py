"""A base model, hospitals and two aggregators without scans, and the files that they exchange."""

import contextlib

import numpy as np
from exchange_records import ARRAYS, key_of, record

from fcforge_consortium.aggregation.aggregators import (
    Noise,
    RoundList,
    aggregate,
    card_of,
    close,
)
from fcforge_consortium.aggregation.rounds import FIRST_LINE, Share, give
from fcforge_consortium.ledger.entries import LedgerEntry, Spent
from fcforge_consortium.records import kinds as records
from fcforge_consortium.records.canonical import sha256
from fcforge_consortium.records.exchange import Exchange
from fcforge_consortium.records.kinds import read_record
from fcforge_consortium.records.policy import Policy

AGGREGATORS = ("Ministry", "University")
SITES = ("NYU", "UM", "USM")
SIZE = 12
NOISE = Noise(sigma=5, grid=2.0**-20, size=SIZE)
POLICY = Policy(
    fewest_hospitals=3,
    exact_allowed=True,
    aggregators=tuple(card_of(name, key_of(name)) for name in AGGREGATORS),
)


def start_of(policy=POLICY):
    """Return an exchange without contributions."""
    root = record(records.BaseModelRecord, site="maker", signer="maker", policy=policy)
    return Exchange(root, (), {root.payload: ARRAYS})


START_EXCHANGE = start_of()


def numbers_of(site):
    seed = int(sha256(site.encode())[:8], 16)
    return np.random.default_rng(seed).integers(-(10**9), 10**9, SIZE)


def shares_of(site, name="spring", exchange=START_EXCHANGE, **changes):
    """Return the shares of a hospital by aggregator."""
    said = {
        "site": site,
        "round": name,
        "number": 1,
        "people": (),
        "epsilon": 1.0,
        "delta": 1e-6,
        "salt": sha256(f"{site} {name}".encode())[:32],
    }
    signer = changes.pop("signer", site)
    numbers = changes.pop("numbers", numbers_of(site))
    spent = changes.pop("spent", Spent(1.0, 1e-6))
    entry = LedgerEntry(**{**said, **changes})
    _, files = give(exchange, entry, numbers, spent, key_of(signer))
    return {aggregator: parsed(data) for aggregator, data in files.items()}


def parsed(data):
    line, _, sealed = data.removeprefix(FIRST_LINE).partition(b"\n")
    return Share(read_record(line), sealed)


@contextlib.contextmanager
def lists_in(folder):
    """Open the lists of rounds of both aggregators; yield them by name."""
    with contextlib.ExitStack() as stack:
        lists = {}
        for name in AGGREGATORS:
            new = RoundList.new(name, key_of(name))
            place = (folder / f"{name}.rounds", key_of(name))
            lists[name] = stack.enter_context(RoundList.open(*place, new=new))
        yield lists


def closed_by(aggregator, shares, lists, exchange=START_EXCHANGE):
    """Close a round for one aggregator, and enter it in its list."""
    mine = [one[aggregator] for one in shares]
    done = close(exchange, mine, key_of(aggregator), SIZE, lists[aggregator])
    lists[aggregator].publish(done.line, {})
    return done


def closed_by_both(shares, lists, exchange=START_EXCHANGE):
    """Return the exchange after both aggregators have closed a round."""
    for aggregator in AGGREGATORS:
        exchange = closed_by(aggregator, shares, lists, exchange).exchange
    return exchange


def aggregate_share_of(aggregator, shares, lists, exchange, noise=NOISE):
    """Return an aggregator's result for the shares of a closed round."""
    mine = [one[aggregator] for one in shares]
    return aggregate(exchange, mine, key_of(aggregator), noise, lists[aggregator])

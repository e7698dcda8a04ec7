"""Books and file: whatever happens to a round, each hospital's ledger and the file agree."""

import contextlib

import numpy as np
import pytest
import small_exchange as small

from fcforge.core.errors import ConfigError, FCForgeError
from fcforge_consortium.aggregation.aggregators import write_aggregator
from fcforge_consortium.aggregation.rounds import rounds_of
from fcforge_consortium.base_model.record import make_base_model
from fcforge_consortium.ledger.ledger import Ledger
from fcforge_consortium.operations.aggregate import aggregate_files, close_files
from fcforge_consortium.operations.contribute import contribute
from fcforge_consortium.operations.records import merge_files, withdraw_file
from fcforge_consortium.options import (
    AggregateRequest,
    CloseRequest,
    MergeRequest,
    WithdrawRequest,
)
from fcforge_consortium.records.exchange import open_exchange, save
from fcforge_consortium.records.keys import read_private, write_keys
from fcforge_consortium.records.kinds import Charged
from fcforge_consortium.records.policy import Policy

AGGREGATORS = ("Ministry", "University")
SITES = small.sites()[2:6]
GONE, *STAYING = SITES


class Consortium:
    """Four hospitals and two aggregators in a folder, all through the commands' functions."""

    def __init__(self, folder):
        self.folder = folder
        self.data = small.data_file.__wrapped__(folder)
        cards = [write_aggregator(folder / name, name) for name in AGGREGATORS]
        write_keys(folder / "maker")
        public = small.people().select_sites(small.sites()[:2])
        policy = Policy(aggregators=tuple(cards))
        key = read_private(folder / "maker")
        self.state = save(
            make_base_model(public, policy=policy, key=key), folder / "base.fcx"
        )
        for site in SITES:
            write_keys(folder / f"{site}.key")
        self.count = 0

    def path(self, suffix="fcx"):
        self.count += 1
        return self.folder / f"{self.count}.{suffix}"

    def give(self, site, name, data=None, state=None):
        """A hospital contributes to a round; the common file gets its notice."""
        ledger = self.folder / f"{site}.ledger"
        out = self.folder / f"{name} {site}.record"
        asked = small.request(
            site,
            data=data or self.data,
            state=state or self.state,
            out=out,
            ledger=ledger,
            new_ledger=not ledger.exists(),
            sign=self.folder / f"{site}.key",
            round=name,
        )
        done = contribute(asked)
        self.merge(out)
        return done

    def merge(self, *files):
        out = self.path()
        merge_files(MergeRequest([self.state, *files], out))
        self.state = out

    def shares(self, name, aggregator):
        return sorted(self.folder.glob(f"{name} *.{aggregator}.share"))

    def close(self, name, aggregator):
        out = self.path("record")
        key = self.folder / aggregator
        close_files(CloseRequest(self.shares(name, aggregator), self.state, key, out))
        self.merge(out)

    def publish(self, name, aggregator):
        out = self.path("record")
        key = self.folder / aggregator
        shares = self.shares(name, aggregator)
        aggregate_files(AggregateRequest(shares, self.state, key, out))
        self.merge(out)

    def withdraw(self, site):
        out = self.path("record")
        key = self.folder / f"{site}.key"
        withdraw_file(WithdrawRequest(site, self.state, out, sign=key))
        self.merge(out)

    def steps(self, name):
        return [
            ("closing", lambda: self.close(name, "Ministry")),
            ("closed", lambda: self.close(name, "University")),
            ("publishing", lambda: self.publish(name, "Ministry")),
            ("published", lambda: self.publish(name, "University")),
        ]

    def require_agreement(self):
        """Assert that every record states what its hospital's ledger has added up."""
        exchange = open_exchange(self.state)
        for site in SITES:
            place = self.folder / f"{site}.ledger"
            entries = Ledger.read(place).entries if place.exists() else ()
            stated = {
                record.commitment: record for record in exchange.of(Charged, site)
            }
            assert stated.keys() <= {entry.commitment for entry in entries}
            total = 0.0
            for entry in entries:
                total += entry.epsilon
                if entry.commitment in stated:
                    assert stated[entry.commitment].spent_epsilon == total
        return exchange


MOMENTS = ("open", "closing", "closed", "publishing", "published")


@pytest.mark.parametrize("moment", MOMENTS)
def test_ledgers_and_file_agree_whenever_somebody_withdraws(moment, tmp_path):
    world = Consortium(tmp_path)
    for site in SITES:
        world.give(site, "spring")
    if moment == "open":
        world.withdraw(GONE)
    for name, step in world.steps("spring"):
        refused = moment != "open" and name in MOMENTS[MOMENTS.index(moment) + 1 :]
        allowed = pytest.raises(FCForgeError, match="void")
        with allowed if refused else contextlib.nullcontext():
            step()
        world.require_agreement()
        if name == moment:
            world.withdraw(GONE)
    exchange = world.require_agreement()
    (spring,) = rounds_of(exchange)
    if moment == "open":
        assert exchange.model.hospitals == tuple(sorted(STAYING))
        return
    assert spring.void
    assert exchange.model.given == ()
    for site in STAYING:
        done = world.give(site, "summer")
        assert done.new[0].spent_epsilon == 2.0
    for _, step in world.steps("summer"):
        step()
    assert world.require_agreement().model.hospitals == tuple(sorted(STAYING))


def half(folder, part):
    """Half of everybody, as a file of its own."""
    everybody = small.people()
    chosen = everybody.select(np.arange(len(everybody)) % 2 == part)
    (folder / str(part)).mkdir()
    return small.data_file.__wrapped__(folder / str(part), chosen)


def test_the_same_people_are_in_one_open_round(tmp_path):
    """Issue 39: whoever gave the same people to two open rounds was counted twice."""
    world = Consortium(tmp_path)
    base = world.state
    for site in SITES:
        world.give(site, "spring")
    for state in (base, world.state):
        with pytest.raises(ConfigError, match=r"contributed before.*'spring'"):
            world.give(GONE, "summer", state=state)
    world.withdraw(GONE)
    assert world.give(GONE, "summer").new[0].spent_epsilon == 2.0
    for _, step in world.steps("spring"):
        step()
    exchange = world.require_agreement()
    assert exchange.model.hospitals == tuple(sorted(STAYING))


def test_who_came_too_late_joins_the_next_round_and_is_charged_for_both(tmp_path):
    world = Consortium(tmp_path)
    for site in STAYING:
        world.give(site, "spring")
    base = world.state
    world.close("spring", "Ministry")
    world.close("spring", "University")
    with pytest.raises(ConfigError, match="'spring' has the closing"):
        world.give(GONE, "spring")
    closed = world.state
    late = world.give(GONE, "spring", state=base)
    assert late.new[0].spent_epsilon == 1.0
    with pytest.raises(ConfigError, match=r"contributed before.*'spring'"):
        world.give(GONE, "summer", state=base)
    done = world.give(GONE, "summer", state=closed)
    assert done.new[0].spent_epsilon == 2.0
    world.require_agreement()


def test_other_people_of_a_hospital_may_be_in_another_open_round(tmp_path):
    world = Consortium(tmp_path)
    world.give(GONE, "spring", data=half(tmp_path, 0))
    done = world.give(GONE, "summer", data=half(tmp_path, 1))
    assert done.new[0].spent_epsilon == 2.0
    world.require_agreement()

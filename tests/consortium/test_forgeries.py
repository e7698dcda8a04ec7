"""Hundreds of forged files of both kinds; `paper/benchmarks/forgeries.py` tries all of them."""

from itertools import islice

import aggregator_rounds
import numpy as np
import pytest
import small_exchange as small
from exchange_records import key_of
from forging import accepted, forgeries, knowing
from small_chains import SITES, settings
from small_chains import joined as one_more

from fcforge.core.errors import ExchangeError
from fcforge.core.target import TWO_CLASSES
from fcforge_consortium.aggregation.aggregators import (
    Noise,
    RoundList,
    aggregate,
    card_of,
    close,
)
from fcforge_consortium.base_model.vectors import noise_units
from fcforge_consortium.chains.chain import empty_chain
from fcforge_consortium.ledger.ledger import Ledger
from fcforge_consortium.records.exchange import open_exchange

AGGREGATORS = ("Ministry", "University")
TRIED = 300  # of each kind, spread over all of them


def released():
    """Releases, a round with its halves, a new key and a withdrawal."""
    cards = tuple(card_of(name, key_of(name)) for name in AGGREGATORS)
    found = small.start(aggregators=cards)
    gone, other, rotated, forger = small.sites()[2:6]
    shares = []
    for site in (gone, other, rotated, forger):
        private = Ledger("nowhere")
        mine = small.people().select_sites([site])
        for part, name in enumerate(("", "spring") if site != gone else ("",)):
            cohort = mine.select(np.arange(len(mine)) % 2 == part)
            done = small.learned(found, site, private, site, cohort, round=name)
            private.lines.append(done.entry)
            found = done.exchange
            shares += [done.files] if done.files else []
    lists = {name: RoundList("nowhere") for name in AGGREGATORS}
    noise = Noise(noise_units(1.0), found.model.grid, found.model.size)
    for name in AGGREGATORS:
        mine = [aggregator_rounds.parsed(one[name]) for one in shares]
        done = close(found, mine, key_of(name), noise.size, lists[name])
        lists[name].lines.append(done.line)
        found = done.exchange
    for name in AGGREGATORS:
        mine = [aggregator_rounds.parsed(one[name]) for one in shares]
        found = aggregate(found, mine, key_of(name), noise, lists[name]).exchange
    found = found.withdrawn(gone, key_of(gone))
    return found.rotated(rotated, key_of(rotated), key_of("new")), forger


def chained():
    """Two steps of a chain, signed."""
    found = empty_chain(settings("analytic"), TWO_CLASSES, SITES[0], key_of(SITES[0]))
    for site in SITES[:2]:
        found = one_more(found, site, key_of(site))[0]
    return found, SITES[1]


@pytest.mark.parametrize("make", [released, chained])
def test_no_forged_file_says_what_its_authors_did_not(make, tmp_path):
    exchange, forger = make()
    trust = knowing(exchange)
    total = sum(1 for _ in forgeries(exchange, forger))
    assert total > 3_000
    some = islice(forgeries(exchange, forger), 0, None, total // TRIED)
    place = tmp_path / "forged.fcx"
    wrong = [accepted(forgery, exchange, forger, trust, place) for forgery in some]
    assert [what for what in wrong if what] == []


def test_no_zip_hides_anything(tmp_path):
    exchange, forger = chained()
    trust = knowing(exchange)
    for forgery in forgeries(exchange, forger):
        if forgery.what.startswith(("zip", "line:")):
            (tmp_path / "forged.fcx").write_bytes(forgery.packed())
            with pytest.raises(ExchangeError):
                open_exchange(tmp_path / "forged.fcx", trust)

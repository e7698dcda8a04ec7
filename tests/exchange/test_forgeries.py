"""Hundreds of forged files of both kinds; `benchmarks/forgeries.py` tries all of them."""

from itertools import islice

import pytest
from exchange_records import key_of, record
from forging import accepted, forgeries, knowing
from small_chains import SITES, settings
from small_chains import joined as one_more
from small_exchange import all_given, sites

from fcforge.exchange import records
from fcforge.exchange.chain import empty_chain

TRIED = 300  # of each kind, spread over all of them


def released():
    """Releases of four hospitals, one withdrawn, one audited, one with a new key."""
    found = all_given(signed=True)
    gone, audited, rotated = sites()[2:5]
    release = found.of(records.Release, audited)[0]
    audit = record(records.Audit, audited, 1, (release.id,), audited)
    found = found.joined([audit]).withdrawn(gone, key_of(gone))
    return found.rotated(rotated, key_of(rotated), key_of("new"))


def chained():
    """Two steps of a chain, signed."""
    found = empty_chain(settings("analytic"), (0, 1), SITES[0], key_of(SITES[0]))
    for site in SITES[:2]:
        found = one_more(found, site, key_of(site))[0]
    return found


@pytest.mark.parametrize("make", [released, chained])
def test_no_forged_file_says_what_its_authors_did_not(make, tmp_path):
    exchange = make()
    trust = knowing(exchange)
    total = sum(1 for _ in forgeries(exchange))
    assert total > 1_500
    some = islice(forgeries(exchange), 0, None, total // TRIED)
    place = tmp_path / "forged.fcx"
    wrong = [accepted(forgery, exchange, trust, place) for forgery in some]
    assert [what for what in wrong if what] == []

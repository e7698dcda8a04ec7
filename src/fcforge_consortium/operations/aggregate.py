"""Add the shares of a round and write one aggregator's aggregate share."""

from typing import Any

from fcforge_consortium.aggregation.aggregators import (
    Aggregated,
    Noise,
    RoundList,
    aggregate,
    own_card,
)
from fcforge_consortium.aggregation.rounds import read_share
from fcforge_consortium.base_model.vectors import noise_units
from fcforge_consortium.options import AggregateRequest
from fcforge_consortium.records import archive, exchange
from fcforge_consortium.records.keys import read_private
from fcforge_consortium.records.trust import Trust


def aggregate_files(request: AggregateRequest) -> Aggregated:
    """Add the shares of a round; write the aggregate share and its entry in the list of rounds.

    Either both are written or neither.
    """
    archive.require_place(request.out)
    key = read_private(request.key)
    trust = Trust.asked(request)
    opened = exchange.open_exchange(request.state, trust)
    own_card(opened, key)  # a chain has no aggregators
    shares = [read_share(path, trust) for path in request.shares]
    model: Any = opened.model
    epsilon, delta = shares[0].notice.budget if shares else (None, 0.0)
    noise = Noise(noise_units(epsilon, delta, model.size), model.grid, model.size)
    with RoundList.open(request.rounds or f"{request.key}.rounds") as published:
        kept = aggregate(opened, shares, key, noise, published)
        exchange.require_trusted(kept.exchange.everything, trust)
        published.publish(kept.line, {request.out: archive.pack(kept.contents)})
    return kept

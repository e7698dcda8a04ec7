"""Close a round, then add its shares and write one aggregator's aggregate share."""

from typing import Any

from fcforge_consortium.aggregation.aggregators import (
    ROUNDS,
    Aggregated,
    ClosedResult,
    Noise,
    RoundList,
    aggregate,
    close,
    own_card,
)
from fcforge_consortium.aggregation.rounds import read_share
from fcforge_consortium.base_model.vectors import noise_units
from fcforge_consortium.options import AggregateRequest, CloseRequest
from fcforge_consortium.records import archive, exchange
from fcforge_consortium.records.keys import read_private
from fcforge_consortium.records.trust import Trust


def close_files(request: CloseRequest) -> ClosedResult:
    """Close a round for one aggregator.

    The closing record and a line in the aggregator's list of rounds are written, both or neither.

    Parameters
    ----------
    request : CloseRequest

    Returns
    -------
    ClosedResult
    """
    archive.require_place(request.out)
    key = read_private(request.key)
    trust = Trust.asked(request)
    opened = exchange.open_exchange(request.state, trust)
    own_card(opened, key)  # a chain has no aggregators
    shares = [read_share(path, trust) for path in request.shares]
    model: Any = opened.model
    with RoundList.open(_list_of(request), key) as listed:
        closed = close(opened, shares, key, model.size, listed)
        exchange.require_trusted(closed.exchange.everything, trust)
        data = archive.pack(closed.contents)
        if request.out.suffix != exchange.SINGLE:
            data = exchange.packed(closed.exchange, request.out)
        listed.publish(closed.line, {request.out: data})
    return closed


def _list_of(request: CloseRequest | AggregateRequest) -> Any:
    """Return the path of an aggregator's list of rounds: as requested, or beside its key."""
    return request.rounds or f"{request.key}{ROUNDS}"


def aggregate_files(request: AggregateRequest) -> Aggregated:
    """Publish a closed round for one aggregator: add its shares, with noise.

    The aggregate share and a line in the aggregator's list of rounds are written, both or neither.

    Parameters
    ----------
    request : AggregateRequest

    Returns
    -------
    Aggregated
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
    with RoundList.open(_list_of(request), key) as listed:
        made = aggregate(opened, shares, key, noise, listed)
        exchange.require_trusted(made.exchange.everything, trust)
        listed.publish(made.line, {request.out: archive.pack(made.contents)})
    return made

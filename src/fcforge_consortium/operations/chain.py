"""Begin a chain, or train a received chain on the next hospital (needs torch)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fcforge.core.errors import at
from fcforge.data.checks import data_warnings
from fcforge.data.cohort import Cohort
from fcforge.data.datasets import load_people
from fcforge_consortium.chains.chain import begin, chain_of
from fcforge_consortium.model import Tick
from fcforge_consortium.operations.ledger import open_ledger
from fcforge_consortium.operations.people import (
    no_report,
    no_tick,
    people_for,
    require_signed_step,
)
from fcforge_consortium.options import ChainBeginRequest, ChainContinueRequest
from fcforge_consortium.records import archive, exchange
from fcforge_consortium.records.exchange import Exchange
from fcforge_consortium.records.keys import Signer, read_signer
from fcforge_consortium.records.names import site_name
from fcforge_consortium.records.trust import Trust
from fcforge_consortium.step_result import StepResult


def begin_chain(
    request: ChainBeginRequest,
    *,
    warn: Callable[[str], Any] = no_report,
    tick: Tick = no_tick,
) -> StepResult:
    """Train the first hospital of a chain; write its ledger entry, then the file.

    Parameters
    ----------
    request : ChainBeginRequest
    warn : callable
        Called with a sentence about each person who is left out.
    tick : callable
        Called with the progress.

    Returns
    -------
    StepResult
    """
    request = replace(request, site=site_name(request.site))
    archive.require_place(request.out)
    key = read_signer(request.sign)
    with at(request.data):
        people = load_people(request.data, [request.site], **request.loading)
    before = begin(request, people, key)
    return _train(before, people, request, key, warn, tick)


def continue_chain(
    request: ChainContinueRequest,
    *,
    agree: Callable[[Exchange], Any] = no_report,
    warn: Callable[[str], Any] = no_report,
    tick: Tick = no_tick,
) -> StepResult:
    """Train a received chain on the next hospital; write its ledger entry, then the file.

    Parameters
    ----------
    request : ChainContinueRequest
    agree : callable
        Called with the chain that is about to be continued; raises to stop.
    warn : callable
        Called with a sentence about each person who is left out.
    tick : callable
        Called with the progress.

    Returns
    -------
    StepResult
    """
    request = replace(request, site=site_name(request.site))
    archive.require_place(request.out)
    require_signed_step(request)
    key = read_signer(request.sign)
    before = exchange.open_exchange(request.state, Trust.asked(request))
    with at(request.state):
        chain_of(before)
    before.require_same_signing(key is not None)
    people = people_for(before, request, request.site)
    agree(before)
    return _train(before, people, request, key, warn, tick)


def _train(
    before: Exchange,
    people: Cohort,
    request: ChainBeginRequest | ChainContinueRequest,
    key: Signer,
    warn: Callable[[str], Any],
    tick: Tick,
) -> StepResult:
    """Train one hospital's step, and write its ledger entry and the file, both or neither.

    Parameters
    ----------
    before : Exchange
        The chain so far.
    people : Cohort
        People of the hospital.
    request : ChainBeginRequest or ChainContinueRequest
    key : private key or None
        Key of the hospital.
    warn, tick : callable
        As in `continue_chain`.
    """
    for text in data_warnings(people):
        warn(text)
    with open_ledger(request, key) as ledger:
        done = chain_of(before).learn(people, request, key, tick)
        ledger.require_nobody_elsewhere(done.entry.people)
        data = exchange.packed(done.exchange, request.out, done.new)
        ledger.publish(done.entry, {request.out: data})
    return done

"""Add a hospital's contribution to a base model: published alone, or as shares of a round."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fcforge.core.errors import at
from fcforge.core.names import PUNCTUATION
from fcforge.data.checks import data_warnings
from fcforge_consortium.contributions.contribution import learn
from fcforge_consortium.contributions.model import contributions_of
from fcforge_consortium.operations.ledger import open_ledger
from fcforge_consortium.operations.people import (
    no_report,
    people_for,
    require_signed_step,
)
from fcforge_consortium.options import ContributeRequest
from fcforge_consortium.records import archive, exchange
from fcforge_consortium.records.exchange import Exchange
from fcforge_consortium.records.keys import read_signer
from fcforge_consortium.records.names import site_name
from fcforge_consortium.records.trust import Trust
from fcforge_consortium.step_result import StepResult


def contribute(
    request: ContributeRequest,
    *,
    agree: Callable[[Exchange], Any] = no_report,
    warn: Callable[[str], Any] = no_report,
) -> StepResult:
    """Compute a hospital's contribution; write its ledger entry, then the outgoing files.

    Parameters
    ----------
    request : ContributeRequest
    agree : callable
        Called with the file that is about to be added to; raises to stop.
    warn : callable
        Called with a sentence about each person who is left out.

    Returns
    -------
    StepResult
        The new record, the ledger entry, and the shares for aggregators if there are any.
    """
    request = replace(request, site=site_name(request.site))
    archive.require_place(request.out)
    require_signed_step(request)
    key = read_signer(request.sign)
    trust = Trust.asked(request)
    before = exchange.open_exchange(request.state, trust)
    with at(request.state):
        model = contributions_of(before)
    # an aggregator's key may have been revoked, or belong to somebody else, by the user's keyring
    for aggregator in before.root.policy.aggregators:
        message = f"the card of aggregator '{aggregator.name}' in the base model"
        trust.keyring.require_valid(aggregator.key, message, aggregator.name)
        trust.keyring.require_owner(aggregator.key, message, aggregator.name)
    before.require_same_signing(key is not None)
    people = people_for(before, request, request.site)
    agree(before)
    for text in data_warnings(people):
        warn(text)
    with open_ledger(request, key) as ledger:
        done = learn(model, people, ledger, request, key)
        ledger.publish(done.entry, _outgoing_files(request, done))
    return done


def _outgoing_files(request: ContributeRequest, done: StepResult) -> dict[Path, bytes]:
    """Return the files that leave the hospital, by path: the record, and shares of a round.

    Parameters
    ----------
    request : ContributeRequest
    done : StepResult
        The contribution that was computed.
    """
    out = request.out
    files = {out: exchange.packed(done.exchange, out, done.new)}
    for aggregator, share in done.files.items():
        place = share_place(out, aggregator)
        archive.require_place(place)
        files[place] = share
    return files


def share_place(out: Path, aggregator: str) -> Path:
    """Return the path of an aggregator's share: beside the other outgoing file.

    Every letter and mark of the name stays, because two aggregators may differ in one mark alone. What
    a name may hold beside them (`PUNCTUATION`) becomes an underscore, except for points and hyphens.

    Parameters
    ----------
    out : Path
        The outgoing record.
    aggregator : str
        Its name.
    """
    replaced = dict.fromkeys(map(ord, PUNCTUATION - {".", "-"}), "_")
    name = aggregator.translate(replaced)
    return out.with_name(f"{out.stem}.{name}.share")

"""A hospital's people and ledger, as several operations need them."""

from typing import Any

from fcforge.core.errors import ConfigError, at
from fcforge.data.cohort import Cohort
from fcforge.data.datasets import load_people
from fcforge_consortium.ledger.ledger import default_ledger
from fcforge_consortium.options import (
    AuditRequest,
    ContinueRequest,
    SiteRequest,
    ThresholdRequest,
)
from fcforge_consortium.records.exchange import Exchange


def no_report(text: Any) -> None:
    """Ignore a message."""


def no_tick(done: int, total: int, current: str) -> None:
    """Ignore the progress of a step."""


def ledger_of(request: SiteRequest | AuditRequest) -> Any:
    """Return the path of a hospital's ledger: as requested, or beside its data."""
    return request.ledger or default_ledger(request.data)


def require_signed_step(request: ContinueRequest) -> None:
    """Raise `ConfigError` if signatures are required but the new record would not be signed."""
    if request.require_signature and request.sign is None:
        raise ConfigError(
            "--require-signature was given, but your own part would not be signed.",
            do="Add --sign KEY (`fcforge consortium keys new KEY` makes one).",
        )


def people_for(
    exchange: Exchange,
    request: ContinueRequest | ThresholdRequest | AuditRequest,
    site: str,
) -> Cohort:
    """Load the people of a site and check that they fit a consortium file.

    Parameters
    ----------
    exchange : Exchange
    request : ContinueRequest, ThresholdRequest or AuditRequest
        How the data are read.
    site : str

    Returns
    -------
    Cohort
    """
    loading = request.loading | exchange.root.policy.loading
    with at(request.data):
        people = load_people(request.data, [site], **loading)
    exchange.require_fit(people)
    return people

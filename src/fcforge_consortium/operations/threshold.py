"""Fit a hospital's own threshold, which stays in its ledger."""

from fcforge.core.errors import ConfigError
from fcforge_consortium.contributions.contribution import own_threshold
from fcforge_consortium.contributions.model import contributions_of
from fcforge_consortium.ledger.ledger import Ledger
from fcforge_consortium.ledger.threshold import Threshold
from fcforge_consortium.operations.people import people_for
from fcforge_consortium.options import ThresholdRequest
from fcforge_consortium.records import exchange
from fcforge_consortium.records.keys import read_signer
from fcforge_consortium.records.names import site_name
from fcforge_consortium.records.trust import Trust


def fit_threshold(request: ThresholdRequest) -> Threshold:
    """Fit a hospital's own threshold for a file and write it to the hospital's ledger.

    Nothing leaves the hospital, and no budget is spent.
    """
    opened = exchange.open_exchange(request.file, Trust.asked(request))
    if opened.root.kind == "chain":
        raise ConfigError(
            "a chain has no threshold of a hospital's own.",
            do="It is calibrated as it learns; only contributions have one.",
        )
    model = contributions_of(opened)
    model.require_two_classes("a threshold is")
    name = site_name(request.site)
    people = people_for(opened, request, name)
    key = read_signer(request.sign)
    with Ledger.of_key(request.ledger, key, request.sign) as ledger:
        threshold = own_threshold(model, people, name, ledger)
        ledger.append(threshold)
    return threshold

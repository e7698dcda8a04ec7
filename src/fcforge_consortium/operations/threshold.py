"""Fit a hospital's own threshold, which stays in its ledger."""

from fcforge_consortium.ledger.ledger import PrivateRecord, Threshold
from fcforge_consortium.operations.people import people_for
from fcforge_consortium.options import ThresholdRequest
from fcforge_consortium.records import exchange
from fcforge_consortium.records.keys import Trust
from fcforge_consortium.records.schema import site_name


def fit_threshold(request: ThresholdRequest) -> Threshold:
    """Fit a hospital's own threshold for a file and write it to the hospital's ledger.

    Nothing leaves the hospital, and no budget is spent.
    """
    opened = exchange.open_exchange(request.file, Trust.asked(request))
    name = site_name(request.site)
    people = people_for(opened, request, name)
    PrivateRecord.read(request.ledger)  # a new one would know nobody
    with PrivateRecord.open(request.ledger) as ledger:
        threshold = opened.model.own_threshold(people, name, ledger)
        ledger.append(threshold)
    return threshold

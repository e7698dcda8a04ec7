"""Adapter of the estimator: learn one more site with either model, in memory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fcforge.data.cohort import Cohort
from fcforge_consortium.contributions.model import ContributionModel
from fcforge_consortium.contributions.step import learn, require_new
from fcforge_consortium.ledger.entries import LedgerEntry
from fcforge_consortium.ledger.ledger import Ledger
from fcforge_consortium.ledger.people import people_in
from fcforge_consortium.options import ContributeRequest


def add_site(
    model: Any, people: Cohort, given: Mapping[str, Any], ledger: Ledger
) -> tuple[Any, LedgerEntry]:
    """Return the model after everybody of one more site, and the receipt of its people.

    Parameters
    ----------
    model : ContributionModel or Chain
    people : Cohort
        People of one site.
    given : mapping
        Settings of a contribution; a chain has only those of its root.
    ledger : Ledger
        Earlier contributions of all sites; each site is charged for its own.
    """
    if not isinstance(model, ContributionModel):
        return model.with_everybody(people)
    (site,) = people.site_names
    nowhere = Path()
    request = ContributeRequest(site, nowhere, nowhere, state=nowhere, **given)
    require_new(model, people_in(people), ledger)
    own = [receipt for receipt in ledger.receipts if receipt.site == site]
    done = learn(model, people, Ledger(ledger.path, own), request, None)
    return ContributionModel(done.exchange), done.receipt

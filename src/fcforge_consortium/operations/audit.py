"""Attack a hospital's own contribution or chain step; the result stays at home.

An audit that took members for outsiders would detect no leak, so the ledger must prove that the
audited people are those who were learned. The rows of an audit are statistics of real people without
noise, so an audit never enters a shared file.
"""

from pathlib import Path

from fcforge.core.errors import ConfigError
from fcforge.data.cohort import Cohort
from fcforge.data.datasets import load_people
from fcforge.evaluation.privacy.audit_result import AuditPlan, AuditResult
from fcforge_consortium.audit_target import AuditTarget
from fcforge_consortium.chains.audit import audit_chain
from fcforge_consortium.chains.chain import chain_of
from fcforge_consortium.contributions.audit import audit_contribution
from fcforge_consortium.contributions.model import contributions_of
from fcforge_consortium.ledger.ledger import Ledger
from fcforge_consortium.operations.people import ledger_of, people_for
from fcforge_consortium.options import AuditRequest
from fcforge_consortium.records import exchange
from fcforge_consortium.records.names import site_name
from fcforge_consortium.records.trust import Trust


def audit_file(request: AuditRequest) -> AuditResult:
    """Attack a hospital's last contribution, or its step of a chain.

    Parameters
    ----------
    request : AuditRequest

    Returns
    -------
    AuditResult
    """
    if request.out is not None:
        request.out.mkdir(parents=True, exist_ok=True)
    opened = exchange.open_exchange(request.file, Trust.asked(request))
    if request.reference is not None and opened.root.kind != "chain":
        message = "--reference is for a chain; this file holds contributions."
        raise ConfigError(message, do="Leave it out.")
    site = site_name(request.site)
    target = AuditTarget(
        site=site,
        people=people_for(opened, request, site),
        private=Ledger.read(ledger_of(request)),
        plan=AuditPlan(seed=request.seed),
        reference=_reference(request, request.reference),
    )
    if opened.root.kind == "chain":
        return audit_chain(chain_of(opened), target)
    return audit_contribution(contributions_of(opened), target)


def _reference(request: AuditRequest, path: Path | None) -> Cohort | None:
    """Load the people outside the study, if a file of them is given.

    Parameters
    ----------
    request : AuditRequest
        How the data are read.
    path : Path or None
    """
    if path is None:
        return None
    # --leave-out names people of the hospital's own data, who are not in this file
    loading = request.loading | {"leave_out": []}
    return load_people(path, (), **loading)

"""The target of an audit: what a hospital contributed, and the people who were behind it."""

from dataclasses import dataclass

from fcforge.core.errors import DataError
from fcforge.data.cohort import Cohort
from fcforge.evaluation.privacy.audit_result import AuditPlan
from fcforge_consortium.ledger.ledger import Ledger


@dataclass(frozen=True)
class AuditTarget:
    """A hospital's people, and the ledger that proves that they are the ones who were learned.

    Attributes
    ----------
    site : str
    people : Cohort
        The hospital's own data.
    private : Ledger
        The hospital's ledger, whose entries prove that they are the people who were learned.
    plan : AuditPlan
        Sizes of the audit, and its seed.
    reference : Cohort, optional
        People of a similar population who are not among them.
    """

    site: str
    people: Cohort
    private: Ledger
    plan: AuditPlan
    reference: Cohort | None = None


def require_given(sites: tuple[str, ...], site: str) -> None:
    """Raise `DataError` if a site has contributed nothing that could be attacked.

    Parameters
    ----------
    sites : tuple of str
        Sites that have contributed.
    site : str
        The site to audit.
    """
    if site not in sites:
        known = ", ".join(sites) or "none"
        raise DataError(
            f"site '{site}' has contributed nothing to this file.",
            do=f"Sites that have: {known}.",
        )

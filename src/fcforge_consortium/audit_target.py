"""The target of an audit: what a hospital gave, and the people who were behind it."""

from dataclasses import dataclass

from fcforge.core.errors import DataError
from fcforge.data.cohort import Cohort
from fcforge.evaluation.privacy.audit_result import AuditPlan
from fcforge_consortium.ledger.ledger import Ledger


@dataclass(frozen=True)
class AuditTarget:
    """A hospital's people and the proof that they are the ones who were learned.

    Attributes
    ----------
    site : str
    people : Cohort
        The hospital's own data.
    private : PrivateRecord
        Its entries prove that they are the people who were learned.
    plan : AuditPlan
    reference : Cohort, optional
        People of a similar population who are not among them.
    """

    site: str
    people: Cohort
    private: Ledger
    plan: AuditPlan
    reference: Cohort | None = None


def require_given(sites: tuple[str, ...], site: str) -> None:
    """Raise `DataError` if a site gave nothing that could be attacked.

    Parameters
    ----------
    sites : tuple of str
        Those that gave something.
    site : str
    """
    if site not in sites:
        known = ", ".join(sites) or "none"
        raise DataError(
            f"site '{site}' gave nothing to this file.", do=f"Sites: {known}."
        )

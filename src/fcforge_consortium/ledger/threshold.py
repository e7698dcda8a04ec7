"""A hospital's own threshold: a line that maps the log odds of the consortium's model to its own.

It adapts the model to the hospital's share of patients and to its scanner. It stays in the ledger.
"""

from collections.abc import Iterable
from typing import Literal

from numpy import ndarray as Array

from fcforge.core.errors import DataError
from fcforge_consortium.records.fields import Closed, Number, Sha256, SiteName, Size


class Threshold(Closed):
    """A hospital's threshold: own log odds = intercept + slope * log odds of the model.

    Attributes
    ----------
    intercept, slope : float
    people : int
        Number of people on whom it was fitted.
    exchange : str
        Id of the exchange whose model it was fitted to (`Exchange.id`).
    site : str
        The hospital.
    """

    kind: Literal["threshold"] = "threshold"
    intercept: Number
    slope: Number
    people: Size
    exchange: Sha256
    site: SiteName

    def odds(self, shared: Array) -> Array:
        """Return the hospital's own log odds.

        Parameters
        ----------
        shared : ndarray
            Log odds of the consortium's model.

        Returns
        -------
        ndarray
            As many log odds by the hospital's threshold.
        """
        return self.intercept + self.slope * shared

    def require_site(self, sites: Iterable[str]) -> None:
        """Raise `DataError` for people of another site.

        Parameters
        ----------
        sites : iterable of str
            Site of each person; empty if unknown.
        """
        others = sorted({name for name in sites if name not in ("", self.site)})
        if others:
            raise DataError(
                f"the threshold belongs to site '{self.site}', these people to "
                f"{', '.join(others)}.",
                do="Name the ledger of their own hospital with --ledger.",
            )

    def stale(self, exchange: str) -> list[str]:
        """Return a warning if the threshold was fitted to the model of another set of records.

        Parameters
        ----------
        exchange : str
            Id of the exchange that is used now.

        Returns
        -------
        list of str
            One warning, or none.
        """
        if self.exchange == exchange:
            return []
        message = "The threshold was fitted with another state of the exchange; "
        return [
            message
            + "`fcforge consortium threshold` fits it again at home, at no cost."
        ]

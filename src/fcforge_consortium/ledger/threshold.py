"""Threshold of a hospital on the log odds of the consortium's model."""

from collections.abc import Iterable
from typing import Literal

from numpy import ndarray as Array

from fcforge.core.errors import DataError
from fcforge_consortium.records.fields import Closed, Number, Sha256, SiteName, Size


class Threshold(Closed):
    """A hospital's threshold: log odds = intercept + slope * log odds of the exchange.

    Attributes
    ----------
    intercept, slope : float
    people : int
        Number of people of the fit.
    exchange : str
        Id of the state of the exchange.
    site : str
    """

    kind: Literal["threshold"] = "threshold"
    intercept: Number
    slope: Number
    people: Size
    exchange: Sha256
    site: SiteName

    def odds(self, shared: Array) -> Array:
        """Return the hospital's log odds.

        Parameters
        ----------
        shared : ndarray
            Log odds of the exchange.

        Returns
        -------
        ndarray
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
        """Return warnings if the threshold was fitted on another state of the exchange.

        Parameters
        ----------
        exchange : str
            Id of the current state.

        Returns
        -------
        list of str
        """
        if self.exchange == exchange:
            return []
        message = "The threshold was fitted with another state of the exchange; "
        return [
            message
            + "`fcforge consortium threshold` fits it again at home, at no cost."
        ]

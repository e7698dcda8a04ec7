"""A hospital's own threshold on the consortium's log odds."""

from collections.abc import Iterable
from typing import Literal

from numpy import ndarray as Array

from fcforge.core.errors import DataError
from fcforge_consortium.records.fields import Closed, Number, Sha256, SiteName, Size


class Threshold(Closed):
    """A hospital's own threshold: log odds = intercept + slope * the exchange's log odds.

    It was fitted on `people` of `site` and the state `exchange` (an id).
    """

    kind: Literal["threshold"] = "threshold"
    intercept: Number
    slope: Number
    people: Size
    exchange: Sha256
    site: SiteName

    def odds(self, shared: Array) -> Array:
        """The hospital's own log odds from those of the exchange."""
        return self.intercept + self.slope * shared

    def require_site(self, sites: Iterable[str]) -> None:
        """Raise `DataError` where people say that they are of another site."""
        others = sorted({name for name in sites if name not in ("", self.site)})
        if others:
            raise DataError(
                f"the threshold is of site '{self.site}', these people are of "
                f"{', '.join(others)}.",
                do="Name the private record of their own hospital with --ledger.",
            )

    def stale(self, exchange: str) -> list[str]:
        """What to say where it was fitted on another state of the exchange."""
        if self.exchange == exchange:
            return []
        said = "The threshold was fitted with another state of the exchange; "
        return [
            said + "`fcforge consortium threshold` fits it again at home, at no cost."
        ]

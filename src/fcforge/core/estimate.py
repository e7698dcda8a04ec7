"""A number with its 95 % interval."""

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval, e.g. an accuracy.

    Attributes
    ----------
    value : float
    low, high : float
        Ends of the interval; NaN if there is none.
    sd_orders : float
        Standard deviation of the value over site orders; NaN if unknown.
    """

    value: float
    low: float
    high: float
    sd_orders: float = math.nan

    def within(self, low: float, high: float) -> "Estimate":
        """Return the estimate with its interval cut to the smallest and the largest possible value."""
        ends = {"low": max(self.low, low), "high": min(self.high, high)}
        return self if math.isnan(self.low) else replace(self, **ends)

    def to_json(self) -> list[float]:
        """Return value, low and high, each rounded to four digits."""
        return [round(float(v), 4) for v in (self.value, self.low, self.high)]

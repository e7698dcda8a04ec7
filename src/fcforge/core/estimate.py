"""A number with its 95 % interval."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """A number, its 95 % interval (NaN without one), and the SD over site orders where known."""

    value: float
    low: float
    high: float
    sd_orders: float = math.nan

    def to_json(self) -> list[float]:
        """Value, low, high, four digits each."""
        return [round(float(v), 4) for v in (self.value, self.low, self.high)]

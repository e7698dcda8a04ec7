"""Intervals over subjects, paired comparisons over orders and seeds, the results table."""

from fcforge.stats.compare import Comparer, Comparison, compare, holm
from fcforge.stats.resampling import at_site, bootstrap, estimate, means, per_site
from fcforge.stats.table import (
    Row,
    group,
    longest,
    majority_result,
    rows,
    table,
    with_majority,
)
from fcforge.types import Estimate

__all__ = [
    "Comparer",
    "Comparison",
    "Estimate",
    "Row",
    "at_site",
    "bootstrap",
    "compare",
    "estimate",
    "group",
    "holm",
    "longest",
    "majority_result",
    "means",
    "per_site",
    "rows",
    "table",
    "with_majority",
]

"""Intervals over subjects, paired comparisons over orders and seeds, the results table."""

from fcforge.stats.compare import Comparer, Comparison, compare, holm
from fcforge.stats.findings import Finding, findings, leaks_on
from fcforge.stats.resampling import at_site, bootstrap, estimate, means, per_site
from fcforge.stats.table import Row, group, longest, rows, table, with_majority
from fcforge.types import Estimate

__all__ = [
    "Comparer",
    "Comparison",
    "Estimate",
    "Finding",
    "Row",
    "at_site",
    "bootstrap",
    "compare",
    "estimate",
    "findings",
    "group",
    "holm",
    "leaks_on",
    "longest",
    "means",
    "per_site",
    "rows",
    "table",
    "with_majority",
]

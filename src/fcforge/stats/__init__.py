"""Intervals over subjects, paired comparisons over orders and seeds, the results table."""

from __future__ import annotations

from fcforge.stats.bootstrap import (
    Estimate,
    bootstrap,
    estimate,
    per_site,
    split_batches,
    subject_weights,
)
from fcforge.stats.compare import Comparer, Comparison, compare
from fcforge.stats.findings import findings, leaks_on
from fcforge.stats.table import COLUMNS, Column, Row, group, rows, table, with_majority

__all__ = [
    "COLUMNS",
    "Column",
    "Comparer",
    "Comparison",
    "Estimate",
    "Row",
    "bootstrap",
    "compare",
    "estimate",
    "findings",
    "group",
    "leaks_on",
    "per_site",
    "rows",
    "split_batches",
    "subject_weights",
    "table",
    "with_majority",
]

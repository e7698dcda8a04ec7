"""Results for people: terminal and file tables, and one self-contained HTML page."""

from __future__ import annotations

from fcforge.report.html import Section, write_report
from fcforge.report.tables import (
    as_csv,
    as_json,
    as_markdown,
    print_findings,
    print_table,
    terminal_table,
)

__all__ = [
    "Section",
    "as_csv",
    "as_json",
    "as_markdown",
    "print_findings",
    "print_table",
    "terminal_table",
    "write_report",
]

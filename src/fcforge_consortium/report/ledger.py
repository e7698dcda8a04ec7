"""The summary of a hospital's ledger for the hospital itself: counts and budgets, no names."""

import math
from typing import Any

from fcforge.report.tables import Table
from fcforge_consortium.ledger.ledger import Ledger

COLUMNS = ("site", "number", "round", "people", "epsilon", "delta")


def ledger_summary(ledger: Ledger) -> dict[str, Any]:
    """Return the entries of a ledger and the budget spent in all, in plain values.

    Parameters
    ----------
    ledger : Ledger

    Returns
    -------
    dict
        ``entries``, one per contribution or chain step; ``spent_epsilon``, None if something
        left without noise; ``spent_delta``; ``threshold``, whether one is kept.
    """
    entries = [
        {
            "site": entry.site,
            "number": entry.number,
            "round": entry.round,
            "people": len(entry.people),
            "epsilon": entry.epsilon,
            "delta": entry.delta,
        }
        for entry in ledger.entries
    ]
    epsilon, delta = ledger.spent
    return {
        "entries": entries,
        "spent_epsilon": epsilon if math.isfinite(epsilon) else None,
        "spent_delta": delta,
        "threshold": ledger.threshold is not None,
    }


def ledger_text(ledger: Ledger) -> str:
    """Return the summary of a ledger as a table and a sentence."""
    summary = ledger_summary(ledger)
    rows = []
    for entry in summary["entries"]:
        values = {**entry, "epsilon": _budget(entry["epsilon"])}
        rows.append([str(values[name]) for name in COLUMNS])
    lines = [Table.of(COLUMNS, rows).text()] if rows else ["No contribution yet."]
    epsilon = _budget(summary["spent_epsilon"])
    lines.append(f"Spent in all: epsilon {epsilon}, delta {summary['spent_delta']:g}.")
    kept = "An own threshold is kept." if summary["threshold"] else "No own threshold."
    return "\n".join([*lines, kept])


def _budget(epsilon: float | None) -> str:
    """Return an epsilon in words."""
    return "unlimited (no noise)" if epsilon is None else f"{epsilon:g}"

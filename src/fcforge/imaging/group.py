"""What a group of subjects looks like: sites, mixed TRs, subjects far from the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

OUTLIER_SD = 3.0


def mixed_trs(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for every site whose subjects were scanned with different TRs."""
    found = [site_row(site, rows) for site in sorted({str(r["site"]) for r in rows})]
    return [
        f"site {s['site']} mixes TRs ({s['tr']} s): its subjects were not scanned alike."
        for s in found
        if ", " in s["tr"]
    ]


def site_row(site: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Subjects, diagnoses and TRs of one site."""
    own = [r for r in rows if str(r["site"]) == site]
    diagnoses = [str(r.get("diagnosis", r.get("dx_group", "n/a"))) for r in own]
    counts = {d: diagnoses.count(d) for d in sorted(set(diagnoses))}
    return {
        "site": site,
        "n": len(own),
        "diagnosis": ", ".join(f"{k}: {v}" for k, v in counts.items()),
        "tr": ", ".join(sorted({str(r["tr"]) for r in own})),
    }


def outliers(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Subjects whose mean FC lies far from the others (often a failed normalisation)."""
    values = np.array([as_number(r["mean_fc"]) for r in rows])
    if len(values) < 8 or not np.isfinite(values).all() or values.std() == 0:
        return []
    median = np.median(values)
    spread = 1.4826 * np.median(np.abs(values - median)) or values.std()
    far = np.flatnonzero(np.abs(values - median) > OUTLIER_SD * spread)
    return [
        f"{rows[i]['participant_id']}: mean FC {values[i]:.2f} is far from the group's "
        f"median {median:.2f}; look at its page."
        for i in far
    ]


def as_number(value: Any) -> float:
    """A table's cell as a number, NaN where it is none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")

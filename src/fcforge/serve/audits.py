"""Audit results as rows of a table. What a ledger holds is somebody's JSON: any shape is shown."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from fcforge.capsule.words import printable

MOST_ROWS, MOST_TEXT = 200, 400
MEASURES = ("auc", "tpr_at_1pct_fpr", "identified", "control_auc")


class Share(NamedTuple):
    """A number between 0 and 1 with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class AuditTable:
    """An audit as it is shown.

    Attributes
    ----------
    attacks : list of (name, dict of measure to Share or None)
        What ``fcforge audit`` writes for every attack on every release.
    rest : list of (name, text)
        Everything else.
    """

    attacks: list[tuple[str, dict[str, Share | None]]]
    rest: list[tuple[str, str]]


def audit_table(result: Mapping[str, Any]) -> AuditTable:
    """Attacks with their numbers, and everything else as text."""
    attacks, rest = [], []
    for key, value in list(result.items())[:MOST_ROWS]:
        name = _text(key)
        if isinstance(value, Mapping) and _share(value.get("auc")):
            attacks.append((name, {m: _share(value.get(m)) for m in MEASURES}))
        else:
            rest.append((name, _text(value if isinstance(value, str) else json.dumps(value))))
    return AuditTable(attacks, rest)


def _text(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= MOST_TEXT else shown[: MOST_TEXT - 1] + "…"


def _share(value: Any) -> Share | None:
    """``[value, low, high]`` or a bare number, each between 0 and 1; else None."""
    numbers = value if isinstance(value, list) else [value] * 3
    if len(numbers) != 3 or not all(_within(n) for n in numbers):
        return None
    return Share(*map(float, numbers))


def _within(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) and 0 <= value <= 1

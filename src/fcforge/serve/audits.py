"""Audit results as rows of a table. What an audit wrote is somebody's JSON: any shape is shown."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from fcforge.capsule.words import printable
from fcforge.report.html import flat_settings

MOST_ROWS, MOST_TEXT = 200, 300

Measured = tuple[str, float, float | None, float | None]


def audit_rows(result: Mapping[str, Any]) -> tuple[list[Measured], list[tuple[str, str]]]:
    """Numbers between 0 and 1 with their intervals, and everything else as text.

    A number is either bare or a mapping with "value" (or "mean", "estimate") and optional
    "low" and "high"; nested mappings are walked, their names joined.
    """
    measured: list[Measured] = []
    rest: dict[str, Any] = {}
    _walk(result, "", measured, rest, 0)
    texts = [
        (printable(k)[:MOST_TEXT], printable(v)[:MOST_TEXT])
        for k, v in flat_settings(rest)[:MOST_ROWS]
    ]
    return measured[:MOST_ROWS], texts


def _walk(
    value: Mapping[str, Any],
    prefix: str,
    measured: list[Measured],
    rest: dict[str, Any],
    depth: int,
) -> None:
    for key, item in value.items():
        name = printable(f"{prefix}{key}")[:MOST_TEXT]
        found = _measure(name, item)
        if found:
            measured.append(found)
        elif isinstance(item, Mapping) and item and depth < 6:
            _walk(item, f"{name} · ", measured, rest, depth + 1)
        else:
            rest[name] = json.dumps(item)[:MOST_TEXT] if not isinstance(item, str) else item


def _measure(name: str, item: Any) -> Measured | None:
    if isinstance(item, Mapping):
        value = next((item[k] for k in ("value", "mean", "estimate") if k in item), None)
        low, high = item.get("low"), item.get("high")
        if isinstance(item.get("interval"), list) and len(item["interval"]) == 2:
            low, high = item["interval"]
        if value is None or not _share(value):
            return None
        if low is None or high is None or not (_share(low) and _share(high)):
            return name, float(value), None, None
        return name, float(value), float(low), float(high)
    return (name, float(item), None, None) if _share(item) and isinstance(item, float) else None


def _share(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) and 0 <= value <= 1

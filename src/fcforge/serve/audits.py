"""Audit results as rows of a table. What a ledger holds is somebody's JSON: any shape is shown."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from fcforge.studies.audit_result import BOOTSTRAP, UNTRAINED
from fcforge.text import printable

MOST_ROWS, MOST_TEXT = 200, 400
MOST_WORDS = 4_000  # characters of one sentence: all arrays that were not attacked are named in one
REFERENCES = (f"{BOOTSTRAP} /", f"{UNTRAINED} /")
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
    site : str
        Whose people were looked for; empty where the ledger does not say.
    words : list of str
        What the numbers say, in sentences.
    attacks : list of (name, dict of measure to Share or None)
        What ``fcforge audit`` writes for every attack on every release; the two reference rows
        come last, as in the sentences.
    rest : list of (name, text)
        Everything else.
    """

    site: str
    words: list[str]
    attacks: list[tuple[str, dict[str, Share | None]]]
    rest: list[tuple[str, str]]


def audit_table(result: Mapping[str, Any]) -> AuditTable:
    """Site, sentences, attacks with their numbers, and everything else as text."""
    attacks, rest = [], []
    site, said = result.get("site"), result.get("words")
    words = [w for w in said if isinstance(w, str)][:MOST_ROWS] if isinstance(said, list) else []
    shown = {"words"} if words else set()
    if isinstance(site, str):
        shown.add("site")
    for key, value in list(result.items())[:MOST_ROWS]:
        name = _text(key)
        if key in shown:
            continue
        if isinstance(value, Mapping) and _share(value.get("auc")):
            attacks.append((name, {m: _share(value.get(m)) for m in MEASURES}))
        else:
            rest.append((name, _text(value if isinstance(value, str) else json.dumps(value))))
    attacks.sort(key=lambda found: found[0].startswith(REFERENCES))
    sentences = [_text(w, MOST_WORDS) for w in words]
    return AuditTable(_text(site) if isinstance(site, str) else "", sentences, attacks, rest)


def _text(text: str, most: int = MOST_TEXT) -> str:
    shown = printable(text)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


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

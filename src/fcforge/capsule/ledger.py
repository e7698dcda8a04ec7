"""The ledger: one line per thing that happened to a capsule, each holding the hash of the last.

A line is canonical JSON (sorted keys, no spaces, no NaN). Its ``previous`` is the SHA-256 of the
line before it, so that no line can be changed, dropped or moved without breaking every later one.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from fcforge.errors import CapsuleError

GENESIS = "0" * 64
KINDS = ("learn", "audit")
SMALL_CELL = 10  # counts of subjects below this are never written

Entry = dict[str, Any]


def canonical(value: Any) -> bytes:
    """The one way to write a JSON value."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    ).encode()


def parse(data: bytes, what: str) -> dict[str, Any]:
    """A JSON object in canonical form; whatever else raises `CapsuleError`."""
    try:
        value = json.loads(data, parse_constant=_no_constant)
        same = isinstance(value, dict) and canonical(value) == data
    except (ValueError, RecursionError, UnicodeDecodeError, OverflowError) as error:
        raise CapsuleError(f"{what} cannot be read ({type(error).__name__}).") from error
    if not same:
        raise CapsuleError(f"{what} is not written as fcforge writes it.")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def sha256(data: bytes) -> str:
    """64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def now() -> str:
    """Time of an entry: UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def suppressed(count: int) -> int | None:
    """A count of subjects, or None where it is positive and below `SMALL_CELL`.

    Examples
    --------
    >>> suppressed(34), suppressed(3), suppressed(0)
    (34, None, 0)
    """
    return None if 0 < count < SMALL_CELL else int(count)


def rounded(value: float, digits: int = 4) -> float | None:
    """A metric for the ledger: few digits, None where it does not exist."""
    return round(float(value), digits) if math.isfinite(value) else None


def append(entries: Sequence[Entry], content: Mapping[str, Any]) -> tuple[Entry, ...]:
    """The entries and one more, chained to the last."""
    previous = sha256(canonical(entries[-1])) if entries else GENESIS
    entry = {**content, "number": len(entries), "previous": previous}
    return (*entries, entry)


def write(entries: Sequence[Entry]) -> bytes:
    """The ledger as lines."""
    return b"".join(canonical(entry) + b"\n" for entry in entries)


def read(data: bytes) -> tuple[Entry, ...]:
    """Entries of a ledger whose chain holds; else `CapsuleError`."""
    if not data.endswith(b"\n"):
        raise CapsuleError("the ledger is empty or cut off.")
    entries: list[Entry] = []
    previous = GENESIS
    for number, line in enumerate(data[:-1].split(b"\n")):
        entry = parse(line, f"ledger line {number + 1}")
        if entry.get("previous") != previous or entry.get("number") != number:
            raise CapsuleError(f"the ledger's chain is broken at line {number + 1}.")
        if entry.get("kind") not in KINDS:
            raise CapsuleError(f"ledger line {number + 1} is of an unknown kind.")
        entries.append(entry)
        previous = sha256(line)
    return tuple(entries)


def learned(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """The entries in which a site was learned."""
    return tuple(entry for entry in entries if entry["kind"] == "learn")

"""What a ledger line may say: every field, its type and its bounds; nothing else is accepted.

What `inspect` and the pages read of a line is exactly what is checked here, so that they agree
with `verify`.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fcforge.capsule import judging, ledger
from fcforge.errors import CapsuleError
from fcforge.settings import (
    Bound,
    Count,
    NotNegative,
    Share,
    field_types,
    validation_error,
)
from fcforge.studies.audit_result import Audit

MAX_TEXT, MAX_ITEMS = 2_000, 200


def like(pattern: str, what: str) -> Bound:
    """Texts that fit a pattern."""
    return Bound(lambda v: bool(re.fullmatch(pattern, v)), f"is not {what}", "")


Name = Annotated[str, Bound(lambda v: 0 < len(v) <= 200, "is not a name", "")]
Text = Annotated[
    str,
    Bound(lambda v: len(v) <= 200 and f"{v}x".isprintable(), "is not a short text", ""),
]
Number = Annotated[float, Bound(lambda v: abs(v) <= 1e9, "is too large", "")]
Sha256 = Annotated[str, like("[0-9a-f]{64}", "a SHA-256")]
MaybeSha256 = Annotated[str, like("([0-9a-f]{64})?", "a SHA-256")]
Time = Annotated[str, like(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "a time")]
Limit = Annotated[float, Bound(lambda v: 1e-9 <= v <= 1e9, "is not a limit", "")]

# What JSON may be: a table has exactly these fields, {type: schema} any names, (schema, None) may
# be missing; the rest are types with their bounds.
_ACCURACY = dict.fromkeys(("accuracy", "balanced_accuracy"), Share | None)
_PEOPLE = dict.fromkeys(
    ("controls", "patients"), Count | None
)  # None where there are few
LINE: dict[str, Any] = {
    "kind": Literal["learn", "audit"],
    "number": Count,
    "previous": Sha256,
    "time": Time,
    "parent": MaybeSha256,
    "flags": tuple[Name, ...],
    "environment": Mapping[str, Any],
    "key": MaybeSha256,
    "signature": str,
}
LEARNED = {
    **LINE,
    "site": Name,
    "settings": Sha256,
    "commitment": Sha256,
    "seconds": NotNegative,
    "arrays": MaybeSha256,  # empty where the next site was learned before anything was sealed
    "counts": {"learning": _PEOPLE, "test": _PEOPLE},
    "metrics": {"held_out": {str: _ACCURACY}, "own_test": (_ACCURACY, None)},
    "calibration": {
        "how": Literal["inner_val", "synthetic", "none"],
        "temperature": Limit | None,
    },
    "reference": dict.fromkeys(judging.DISTANCES, Limit | None),
}
AUDITED = {**LINE, "result": Mapping[str, Any]}


def check_line(entry: ledger.Entry) -> None:
    """Raise `CapsuleError` unless a line says what such a line may say."""
    learns, where = entry.get("kind") == "learn", f"ledger line {entry['number'] + 1}"
    more = {"harmonised": Sha256} if learns and "harmonised" in entry else {}
    check(LEARNED | more if learns else AUDITED, entry, where)
    check_sizes(entry, where)
    if learns and len({value is None for value in entry["reference"].values()}) != 1:
        raise CapsuleError(
            f"{where}: its limits are neither all there nor all missing."
        )
    if not learns and Audit.from_ledger(entry["result"]) is None:
        raise CapsuleError(f"{where}: its audit cannot be read.")


def check(schema: Any, value: Any, where: str) -> None:
    """Raise `CapsuleError` unless a JSON value is as a schema says; a dataclass is a table."""
    if isinstance(schema, tuple):
        if value is not None:
            check(schema[0], value, where)
        return
    table = field_types(schema) if hasattr(schema, "__dataclass_fields__") else schema
    if not isinstance(table, Mapping):
        if wrong := validation_error(table, value):
            raise CapsuleError(f"{where} = {value!r:.60} {wrong[0]}.")
    elif not isinstance(value, dict):
        raise CapsuleError(f"{where} = {value!r:.60} is not a table.")
    elif not isinstance(kind := next(iter(table)), str):
        for key, item in value.items():
            check(kind, key, where)
            check(table[kind], item, f"{where}.{key[:60]}")
    elif odd := sorted(set(value) ^ set(table)):
        raise CapsuleError(f"{where} has a field too many or too few ({odd[0]!r:.60}).")
    else:
        for key, hint in table.items():
            check(hint, value[key], f"{where}: {key}")


def check_sizes(value: Any, where: str) -> None:
    """Raise for texts and lists that nobody would read."""
    inside = list(value.values()) + list(value) if isinstance(value, dict) else value
    if isinstance(value, str) and len(value) > MAX_TEXT:
        raise CapsuleError(
            f"{where} holds a text of {len(value)} characters: too long."
        )
    for item in inside if isinstance(inside, list) else ():
        if len(inside) > 2 * MAX_ITEMS:
            raise CapsuleError(
                f"{where} holds a list of {len(inside)} items: too many."
            )
        check_sizes(item, where)

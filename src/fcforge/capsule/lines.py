"""What a ledger line may say: every field, its type and its bounds; nothing else is accepted.

What `inspect` and the pages read of a line is exactly what is checked here, so that they agree
with `verify`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from fcforge.capsule.ledger import Entry
from fcforge.errors import CapsuleError
from fcforge.settings import Bound, Count, NotNegative, Share, complaint, field_types
from fcforge.studies.audit_result import Audit

_HASH, _NOTHING_OR_HASH = re.compile("[0-9a-f]{64}"), re.compile("([0-9a-f]{64})?")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
MAX_TEXT, MAX_ITEMS = 2_000, 200


def _like(pattern: re.Pattern[str], what: str) -> Bound:
    return Bound(lambda v: bool(pattern.fullmatch(v)), f"is not {what}", "")


Name = Annotated[str, Bound(lambda v: 0 < len(v) <= 200, "is not a name", "")]
Text = Annotated[
    str, Bound(lambda v: len(v) <= 200 and f"{v}x".isprintable(), "is not a short text", "")
]
Number = Annotated[float, Bound(lambda v: abs(v) <= 1e9, "is too large", "")]
Sha256 = Annotated[str, _like(_HASH, "a SHA-256")]
MaybeSha256 = Annotated[str, _like(_NOTHING_OR_HASH, "a SHA-256")]
Time = Annotated[str, _like(_TIME, "a time")]
Limit = Annotated[float, Bound(lambda v: 1e-9 <= v <= 1e9, "is not a limit", "")]


@dataclass(frozen=True)
class ClassCounts:
    """Subjects per class; None where there are few."""

    controls: Count | None
    patients: Count | None


@dataclass(frozen=True)
class Counts:
    """Subjects learned and tested."""

    learning: ClassCounts
    test: ClassCounts


@dataclass(frozen=True)
class Accuracy:
    """How well a set of subjects is diagnosed."""

    accuracy: Share | None
    balanced_accuracy: Share | None


@dataclass(frozen=True)
class Metrics:
    """On every site's synthetic held-out set, and on the own real test split."""

    held_out: dict[str, Accuracy]
    own_test: Accuracy | None


@dataclass(frozen=True)
class Calibration:
    """How the temperature was found."""

    how: Literal["inner_val", "synthetic", "none"]
    temperature: Limit | None


@dataclass(frozen=True)
class Limits:
    """Largest ordinary distances from a site, all or none; see `fcforge.capsule.judging`."""

    inside: Limit | None
    outside: Limit | None
    pattern: Limit | None


@dataclass(frozen=True)
class LedgerLine:
    """What every line says."""

    kind: Literal["learn", "audit"]
    number: Count
    previous: Sha256
    time: Time
    parent: MaybeSha256
    flags: tuple[Name, ...]
    environment: Mapping[str, Any]
    key: MaybeSha256
    signature: str


@dataclass(frozen=True)
class LearnLine(LedgerLine):
    """A site was learned."""

    site: Name
    settings: Sha256
    commitment: Sha256
    arrays: MaybeSha256  # empty where the next site was learned before anything was sealed
    counts: Counts
    metrics: Metrics
    calibration: Calibration
    reference: Limits
    seconds: NotNegative


@dataclass(frozen=True)
class HarmonisedLine(LearnLine):
    """A site was learned, and harmonised: the hash of its part of the harmonisation."""

    harmonised: Sha256


@dataclass(frozen=True)
class AuditLine(LedgerLine):
    """A hospital attacked the capsule and wrote down what it found."""

    result: Mapping[str, Any]


def check_line(entry: Entry) -> None:
    """Raise `CapsuleError` unless a line says what such a line may say."""
    learns = entry.get("kind") == "learn"
    where = f"ledger line {entry['number'] + 1}"
    learned = HarmonisedLine if "harmonised" in entry else LearnLine
    check_table(learned if learns else AuditLine, entry, where)
    check_sizes(entry, where)
    if learns and len({value is None for value in entry["reference"].values()}) != 1:
        raise CapsuleError(f"{where}: its limits are neither all there nor all missing.")
    if not learns and Audit.from_ledger(entry["result"]) is None:
        raise CapsuleError(f"{where}: its audit cannot be read.")


def check_table(cls: Any, value: Any, where: str) -> None:
    """Raise `CapsuleError` unless a JSON object has exactly the fields of a dataclass."""
    hints = field_types(cls)
    if not isinstance(value, dict) or set(value) != set(hints):
        odd = sorted(set(value) ^ set(hints))[:1] if isinstance(value, dict) else [value]
        raise CapsuleError(f"{where} has a field too many or too few ({odd[0]!r:.60}).")
    for name, hint in hints.items():
        _check_value(hint, value[name], f"{where}: {name}")


def _check_value(hint: Any, value: Any, where: str) -> None:
    """The same for one value: a table, tables or values by name, or anything plain."""
    args = get_args(hint)
    table = next((h for h in (hint, *args) if isinstance(h, type) and is_dataclass(h)), None)
    if get_origin(hint) is not dict and table is not None:
        if value is not None or NoneType not in args:
            check_table(table, value, where)
        return
    try:
        wrong = complaint(hint, value)
    except OverflowError:  # a whole number of hundreds of digits
        wrong = "is too large", ""
    if wrong:
        raise CapsuleError(f"{where} = {value!r:.60} {wrong[0]}.")
    for key, item in value.items() if get_origin(hint) is dict and args[1] is not Any else ():
        _check_value(args[0], key, where)
        _check_value(args[1], item, f"{where}.{key[:60]}")


def check_sizes(value: Any, where: str) -> None:
    """Raise for texts and lists that nobody would read."""
    inside = list(value.values()) + list(value) if isinstance(value, dict) else value
    if isinstance(value, str):
        if len(value) > MAX_TEXT:
            raise CapsuleError(f"{where} holds a text of {len(value)} letters.")
    elif isinstance(inside, list):
        if len(inside) > 2 * MAX_ITEMS:
            raise CapsuleError(f"{where} holds a list of {len(inside)} things.")
        for item in inside:
            check_sizes(item, where)

"""The ledger: one line per thing that happened to a capsule, each holding the hash of the last.

A line is canonical JSON (sorted keys, no spaces, no NaN). Its ``previous`` is the SHA-256 of the
line before it, so that no line can be changed, dropped or moved without breaking every later one.
Its author signs the line, and with ``previous`` all lines before it: who rewrites another's line
must also forge that one's signature.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fcforge.errors import CapsuleError, optional

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey as PrivateKey,
    )
else:
    PrivateKey = Any  # an optional package

GENESIS = "0" * 64
CONTEXT = b"fcforge capsule 1\n"  # a signature for a capsule is valid for nothing else
SMALL_CELL = 10  # counts of subjects below this are never written

Entry = dict[str, Any]


def canonical(value: Any) -> bytes:
    """The one way to write a JSON value."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), allow_nan=False
    ).encode()


def parse(data: bytes, what: str) -> dict[str, Any]:
    """A JSON object in canonical form; whatever else raises `CapsuleError`."""
    try:
        value = json.loads(data)
        same = isinstance(value, dict) and canonical(value) == data
    except (ValueError, RecursionError, UnicodeDecodeError, OverflowError) as error:
        raise CapsuleError(
            f"{what} cannot be read ({type(error).__name__})."
        ) from error
    if not same:
        raise CapsuleError(f"{what} is not written as fcforge writes it.")
    return value


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


STEPS_OF_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2)


def published_share(share: float, counts: Sequence[int | None]) -> float | None:
    """A share of some people, rounded so that it gives away no count that was suppressed.

    From 13 controls, fewer than 10 patients and an accuracy of 0.6500 follow 7 patients. The share
    is rounded to the finest step at which every count that could be behind a suppressed one
    still fits; None where there is no such step.

    Parameters
    ----------
    share : float
        Between 0 and 1.
    counts : sequence of int or None
        People per class as they are published.

    Examples
    --------
    >>> published_share(13 / 20, (13, 7)), published_share(0.7512345, (413, 387))
    (0.65, 0.75)
    >>> published_share(13 / 20, (13, None))
    0.6
    """
    known = sum(n for n in counts if n is not None)
    hidden = sum(n is None for n in counts)
    totals = range(known + hidden, known + hidden * (SMALL_CELL - 1) + 1)
    for step in STEPS_OF_SHARES:
        said = round(share / step)
        if all(any(round(k / n / step) == said for k in range(n + 1)) for n in totals):
            return round(said * step, 2)
    return None


def append(entries: Sequence[Entry], content: Mapping[str, Any]) -> tuple[Entry, ...]:
    """The entries and one more, chained to the last, not signed yet."""
    previous = sha256(canonical(entries[-1])) if entries else GENESIS
    chained = {"number": len(entries), "previous": previous, "key": "", "signature": ""}
    return (*entries, {**content, **chained})


def library() -> Any:
    """What is used of the optional package: serialization, ed25519, exceptions."""
    base = "cryptography.hazmat.primitives"
    rooms = (
        f"{base}.serialization",
        f"{base}.asymmetric.ed25519",
        "cryptography.exceptions",
    )
    return [optional(room, "signing", CapsuleError) for room in rooms]


def public_hex(key: PrivateKey | None) -> str:
    """64 hex digits of the public key of a private one; empty without a key."""
    return "" if key is None else key.public_key().public_bytes_raw().hex()


def _content(entry: Mapping[str, Any]) -> bytes:
    """What a line's author signs: the SHA-256 of all of it but the signature."""
    said = {k: v for k, v in entry.items() if k != "signature"}
    return CONTEXT + sha256(canonical(said)).encode()


def signed(entry: Mapping[str, Any], key: PrivateKey) -> Entry:
    """A line or record, signed by its author."""
    named = {**entry, "key": public_hex(key)}
    return {**named, "signature": key.sign(_content(named)).hex()}


def check_signed(entry: Mapping[str, Any], what: str) -> None:
    """Raise `CapsuleError` unless the signature of a line or record fits its content."""
    _, ed25519, wrong = library()
    try:
        key = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(entry["key"]))
        key.verify(bytes.fromhex(entry["signature"]), _content(entry))
    except (wrong.InvalidSignature, ValueError, TypeError) as error:
        said = f"the signature of {what} does not fit its content: changed, or signed by another."
        raise CapsuleError(said) from error


def first_new(entries: Sequence[Entry]) -> int:
    """Place of the first line that was not sealed before: later ones grew on it in memory."""
    first = len(entries) - 1
    while first > 0 and not entries[first]["parent"]:
        first -= 1
    return first


def sign_new(entries: Sequence[Entry], key: PrivateKey) -> tuple[Entry, ...]:
    """The entries, every line that was not sealed before signed by its author, chained anew."""
    first = first_new(entries)
    done = tuple(entries[:first])
    for entry in entries[first:]:
        done = (*done, signed(append(done, entry)[-1], key))
    return done


def require_signed(
    said: Sequence[tuple[str, str]], required: bool | None = None
) -> None:
    """Raise `CapsuleError` for a line or record without a signature.

    Parameters
    ----------
    said : sequence of (what it is, key or signature that it names)
    required : bool, optional
        Whether all must be signed; by default, as soon as any is: it may have been taken off.
    """
    bare = [what for what, key in said if not key]
    others = len(bare) < len(said)
    if bare and (others if required is None else required):
        stripped = (
            ", though others are: its signature may have been taken off"
            if others
            else ""
        )
        raise CapsuleError(
            f"{bare[0]} is not signed{stripped}.",
            do="Ask that hospital for a signed one (`fcforge learn --sign KEY`).",
        )


def require_same_signing(keys: Sequence[str], signs: bool) -> None:
    """Raise unless a new line or record is signed where the earlier ones are, and only there.

    Else the next hospital could not tell it from a signature that was taken off.
    """
    if not signs and any(keys):
        raise CapsuleError(
            "the lines before yours are signed.", do="Sign yours, too: --sign KEY."
        )
    if signs and not all(keys):
        do = "Leave out --sign, or begin the chain anew with a signature."
        raise CapsuleError("the lines before yours are not signed.", do=do)


def require_author(site: str, own: str, given: str, what: str) -> None:
    """Raise `CapsuleError` unless an audit or a withdrawal has the key that its site signed with.

    Only the hospital itself has the people and the receipt that an audit needs.
    """
    if own != given:
        needed = f"signed by key {own[:16]}" if own else "not signed"
        raise CapsuleError(
            f"what site '{site}' gave is {needed}; its {what} must be, too.",
            do="Name that private key with --sign." if own else "Leave --sign out.",
        )


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
        entries.append(entry)
        previous = sha256(line)
    return tuple(entries)


def learned(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """The entries in which a site was learned."""
    return tuple(entry for entry in entries if entry["kind"] == "learn")

"""Canonical JSON: the one byte string of a value, its hash, and its strict reading."""

import hashlib
import json
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from fcforge.core.errors import ExchangeError

TIME = "%Y-%m-%dT%H:%M:%SZ"


Checked = TypeVar("Checked")


def canonical(value: Any) -> bytes:
    """The one way to write a JSON value: sorted keys, no spaces, ASCII, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), allow_nan=False
    ).encode()


def to_canonical(model: BaseModel) -> bytes:
    """A model in canonical JSON."""
    return canonical(model.model_dump())


def sha256(data: bytes) -> str:
    """64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def now() -> str:
    """UTC, to the second."""
    return datetime.now(UTC).strftime(TIME)


def read_canonical(kind: TypeAdapter[Checked], data: bytes, what: str) -> Checked:
    """What a schema says, from its canonical JSON; anything else raises `ExchangeError`.

    What is read must be written again to the same bytes: a field has one spelling.

    Parameters
    ----------
    kind : TypeAdapter
    data : bytes
    what : str
        What is read, for error messages.
    """
    try:
        found = kind.validate_json(data)
        same = canonical(kind.dump_python(found)) == data
    except ValidationError as error:
        raise ExchangeError(f"{what} {validation_message(error)}.") from error
    except (ValueError, RecursionError) as error:
        raise ExchangeError(f"{what} holds what JSON cannot ({error}).") from error
    if not same:
        raise ExchangeError(f"{what} is not written as fcforge writes it.")
    return found


def validation_message(error: ValidationError) -> str:
    """The first thing that is wrong, in words: where, the value, and why."""
    first = error.errors(include_url=False)[0]
    # pydantic also names the kind that a value was tried as, e.g. "literal['']"
    place = ".".join(str(part) for part in first["loc"] if "[" not in str(part))
    value = repr(first["input"])
    short = value if len(value) <= 60 else f"{value[:60]}..."
    why = first["msg"].removeprefix("Value error, ")
    return f"cannot be used: {place or 'all of it'} = {short} ({why})"

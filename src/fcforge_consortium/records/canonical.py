"""Canonical JSON: exactly one byte string for each value.

Signatures and SHA-256 are taken of bytes. If a value had several encodings, one statement could have
several ids. Therefore values are encoded in one form, and decoding refuses every other form.
"""

import hashlib
import json
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from fcforge.core.errors import ExchangeError

TIME = "%Y-%m-%dT%H:%M:%SZ"  # form of timestamps, for `strftime`

Checked = TypeVar("Checked")  # type of a value that a schema has validated


def canonical(value: Any) -> bytes:
    """Encode a JSON value canonically: sorted keys, no spaces, ASCII, no NaN.

    Parameters
    ----------
    value : JSON value
        None, bool, int, float, str, list or dict of these.

    Returns
    -------
    bytes
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), allow_nan=False
    ).encode()


def to_canonical(model: BaseModel) -> bytes:
    """Encode a pydantic model in canonical JSON.

    Parameters
    ----------
    model : BaseModel

    Returns
    -------
    bytes
    """
    return canonical(model.model_dump())


def sha256(data: bytes) -> str:
    """Return the SHA-256 of some bytes as 64 hex digits.

    Parameters
    ----------
    data : bytes

    Returns
    -------
    str
    """
    return hashlib.sha256(data).hexdigest()


def now() -> str:
    """Return the current UTC time, to the second.

    Returns
    -------
    str
        In the form `TIME`.
    """
    return datetime.now(UTC).strftime(TIME)


def read_canonical(kind: TypeAdapter[Checked], data: bytes, title: str) -> Checked:
    """Decode canonical JSON by a schema.

    Encoding the value again must give the same bytes, so that a value has one encoding.

    Parameters
    ----------
    kind : TypeAdapter
        Schema of the value.
    data : bytes
        The encoded value.
    title : str
        Name of the value, such as "record 3", for error messages.

    Returns
    -------
    object
        The validated value, of the type of the schema.

    Raises
    ------
    ExchangeError
        If the bytes do not fit the schema or are not canonical.
    """
    try:
        value = kind.validate_json(data)
        is_canonical = canonical(kind.dump_python(value)) == data
    except ValidationError as error:
        raise ExchangeError(f"{title} {validation_message(error)}.") from error
    except (ValueError, RecursionError) as error:
        raise ExchangeError(
            f"{title} holds a value that JSON cannot hold ({error})."
        ) from error
    if not is_canonical:
        raise ExchangeError(f"{title} is not in the canonical form.")
    return value


def validation_message(error: ValidationError) -> str:
    """Describe the first fault that a validation reports: the field, its value and the reason.

    Parameters
    ----------
    error : ValidationError
        Raised by pydantic.

    Returns
    -------
    str
        A predicate, such as "cannot be used: number = 0 (...)".
    """
    first = error.errors(include_url=False)[0]
    # pydantic also names the type that it tried, e.g. "literal['']"
    place = ".".join(str(part) for part in first["loc"] if "[" not in str(part))
    value = repr(first["input"])
    short = value if len(value) <= 60 else f"{value[:60]}..."
    reason = first["msg"].removeprefix("Value error, ")
    return f"cannot be used: {place or 'the whole'} = {short} ({reason})"

"""Field types of whatever comes from others' files: every text and number has its bounds.

One declaration serves reading, writing and the documentation. Models are `Closed`: strict types,
no field too many or too few, nothing that can be changed after it was checked.
"""

import hashlib
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)

from fcforge.errors import ExchangeError
from fcforge.exchange import names

TIME = "%Y-%m-%dT%H:%M:%SZ"
LAST_YEAR = 2100
CURVE = 2**255 - 19
# y of the points of order 1, 2, 4 and 8: a signature under such a key fits any text
EIGHTH = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
SMALL_ORDER = {0, 1, CURVE - 1, EIGHTH, CURVE - EIGHTH}


class Closed(BaseModel):
    """A table with exactly its fields, each strictly of its type, that never changes."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="forbid", allow_inf_nan=False
    )

    def changed(self, **fields: Any) -> Self:
        """The same with other values, checked anew (`model_copy` would check nothing)."""
        own = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**{**own, **fields})


Checked = TypeVar("Checked")


def key_fault(key: str) -> str:
    """Why a text is not an Ed25519 public key in its one spelling; empty where it is."""
    if not re.fullmatch("[0-9a-f]{64}", key):
        return "is not 64 lower-case hex digits"
    y = int.from_bytes(bytes.fromhex(key), "little") % 2**255
    if y >= CURVE:
        return "is not in its one spelling (y is beyond the field)"
    if y in SMALL_ORDER:
        return "is a weak key of small order, under which anybody can sign anything"
    return ""


def without(fault: Callable[[str], str]) -> AfterValidator:
    """Texts of which a function finds no fault."""

    def check(text: str) -> str:
        if why := fault(text):
            raise ValueError(why)
        return text

    return AfterValidator(check)


def _time_fault(text: str) -> str:
    when = datetime.strptime(text, TIME)
    if when.year <= LAST_YEAR and when.strftime(TIME) == text:
        return ""
    return "is not a time that can be meant"


def _unprintable(text: str) -> str:
    return "" if text.isprintable() else "holds what cannot be printed"


Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
PublicKey = Annotated[str, without(key_fault)]
EncryptionKey = Sha256  # the same 64 digits
Signature = Annotated[str, Field(pattern="^[0-9a-f]{128}$")]
Time = Annotated[str, without(_time_fault)]
Version = Annotated[str, Field(pattern="^[0-9A-Za-z.+-]{1,40}$")]
Text = Annotated[str, Field(max_length=200), without(_unprintable)]
Name = Annotated[Text, Field(min_length=1, max_length=80)]
SiteName = Annotated[str, without(names.fault)]
# whole numbers, or one over another: exact where a float is not
Rational = Annotated[str, Field(pattern="^(0|[1-9][0-9]{0,39})(/[1-9][0-9]{0,39})?$")]

Number = Annotated[float, Field(ge=-1e9, le=1e9)]
Positive = Annotated[float, Field(gt=0, le=1e9)]
NotNegative = Annotated[float, Field(ge=0, le=1e9)]
Share = Annotated[float, Field(ge=0, le=1)]
Budget = Annotated[float, Field(ge=0, le=1e6)]
Count = Annotated[int, Field(ge=0, le=10_000_000)]
Estimate = tuple[Share, Share, Share]  # value, lower and upper limit


def canonical(value: Any) -> bytes:
    """The one way to write a JSON value: sorted keys, no spaces, ASCII, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), allow_nan=False
    ).encode()


def written(model: BaseModel) -> bytes:
    """A model in canonical JSON."""
    return canonical(model.model_dump())


def sha256(data: bytes) -> str:
    """64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def now() -> str:
    """UTC, to the second."""
    return datetime.now(UTC).strftime(TIME)


def read(kind: TypeAdapter[Checked], data: bytes, what: str) -> Checked:
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
        raise ExchangeError(f"{what} {said(error)}.") from error
    except (ValueError, RecursionError) as error:
        raise ExchangeError(f"{what} holds what JSON cannot ({error}).") from error
    if not same:
        raise ExchangeError(f"{what} is not written as fcforge writes it.")
    return found


def said(error: ValidationError) -> str:
    """The first thing that is wrong, in words: where, the value, and why."""
    first = error.errors(include_url=False)[0]
    # pydantic also names the kind that a value was tried as, e.g. "literal['']"
    place = ".".join(str(part) for part in first["loc"] if "[" not in str(part))
    value = repr(first["input"])
    short = value if len(value) <= 60 else f"{value[:60]}..."
    why = first["msg"].removeprefix("Value error, ")
    return f"cannot be used: {place or 'all of it'} = {short} ({why})"

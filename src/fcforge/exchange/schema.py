"""What whatever comes from others' files is made of: names, texts and numbers with their bounds.

One declaration serves reading, writing and the documentation. Models are `Closed`: strict types,
no field too many or too few, nothing that can be changed after it was checked.

A record is found by the name of its author. A name that only looks like another hospital's would
speak beside that hospital's key, so a name has one spelling in Latin letters, and a file does not
hold two names that a reader could take for each other.
"""

import contextlib
import functools
import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Iterable
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

from fcforge.errors import ConfigError, ExchangeError

TIME = "%Y-%m-%dT%H:%M:%SZ"
LAST_YEAR = 2100
CURVE = 2**255 - 19
# y of the points of order 1, 2, 4 and 8: a signature under such a key fits any text
EIGHTH = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
SMALL_ORDER = {0, 1, CURVE - 1, EIGHTH, CURVE - EIGHTH}


# -- names of sites --------------------------------------------------------------------------------
LONGEST_NAME = 64  # characters of a name
PUNCTUATION = " -_.,'()&+/#:"
LIGATURES = "ßæœÆŒ"
PLAIN = "Write it in Latin letters, digits and - _ . only, as on the hospital's key."
_SHAPES = str.maketrans({"i": "l", "1": "l", "|": "l", "0": "o", "æ": "ae", "œ": "oe"})
# Greek and Cyrillic letters, which words for diagnoses may hold.
_ALIKE = str.maketrans(
    "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧαγεηικνορστυχωϜͿϳϺАВЕЅІЈКМНОРСТУХаеѕіјкмнорстухвгпԁһ",
    "ABEZHIKMNOPTYXayenikvopotuxwFJjMABESIJKMHOPCTYXaesijkmhopctyxbrndh",
)
_SEPARATORS = re.compile(r"[ _.,'()&+/#:-]+")


def site_name(said: str) -> str:
    """The one spelling of a name that somebody typed; `ConfigError` where there is none.

    Compatibility forms become plain letters (NFKC); spaces at the ends go, others become one.

    Examples
    --------
    >>> site_name(" ＮＹＵ  Langone ")
    'NYU Langone'
    """
    name = _normal(said)
    if why := name_fault(name):
        raise ConfigError(f"the site name {said[:LONGEST_NAME]!a} {why}.", do=PLAIN)
    return name


def name_fault(name: str) -> str:
    """Why this is not the one spelling of a site's name; empty where it is."""
    if not 1 <= len(name) <= LONGEST_NAME:
        return f"has {len(name)} characters instead of 1 to {LONGEST_NAME}"
    if name != _normal(name):
        return "is not in its plain spelling (NFKC, single spaces)"
    for letter in name:
        base = _bare(letter)
        plain = base.isascii() and base.isalnum()
        if not plain and letter not in PUNCTUATION + LIGATURES:
            return f"holds {unicodedata.name(letter, f'U+{ord(letter):04X}')}"
    if not _SEPARATORS.sub("", name):
        return "holds neither a letter nor a digit"
    return ""


def lookalike(one: str, other: str) -> bool:
    """Whether a reader could take one name for the other; a name looks like itself.

    Examples
    --------
    >>> lookalike("NYU_1", "nyu-l"), lookalike("NYU", "UM")
    (True, False)
    """
    return looks(one) == looks(other)


def require_distinct(names: Iterable[str]) -> None:
    """Raise `ExchangeError` where two different names look alike."""
    seen: dict[str, str] = {}
    for name in sorted(set(names)):
        first = seen.setdefault(looks(name), name)
        if first != name:
            raise ExchangeError(
                f"the sites {first!a} and {name!a} look alike.",
                do="One may pose as the other; ask both which name is theirs.",
            )


def _normal(said: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", said).split())


def _bare(letter: str) -> str:
    """A letter without accent or stroke: e of é, l of ł, o of ø; Ʋ stays, which looks like U."""
    base = unicodedata.normalize("NFD", letter)[0]
    with contextlib.suppress(KeyError):  # some exist with a stroke only
        return unicodedata.lookup(
            unicodedata.name(base, "").removesuffix(" WITH STROKE")
        )
    return base


@functools.lru_cache(maxsize=100_000)
def looks(name: str) -> str:
    """What is compared: the shapes of a name's letters, without accents, case and signs."""
    bare = "".join(_bare(c) for c in name if not unicodedata.combining(c))
    shapes = bare.translate(_ALIKE).casefold().translate(_SHAPES)
    shapes = shapes.replace("rn", "m").replace("vv", "w")
    return _SEPARATORS.sub("-", shapes).strip("-")


# -- fields and tables -----------------------------------------------------------------------------
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
Signature = Annotated[str, Field(pattern="^[0-9a-f]{128}$")]
Time = Annotated[str, without(_time_fault)]
Version = Annotated[str, Field(pattern="^[0-9A-Za-z.+-]{1,40}$")]
Text = Annotated[str, Field(max_length=200), without(_unprintable)]
Name = Annotated[Text, Field(min_length=1, max_length=80)]
SiteName = Annotated[str, without(name_fault)]
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

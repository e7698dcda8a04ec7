"""What whatever comes from others' files is made of: names, texts and numbers with their bounds.

One declaration serves reading, writing and the documentation. Models are `Closed`: strict types,
no field too many or too few, nothing that can be changed after it was checked.

A record is found by the name of its author. A name that only looks like another hospital's could
pass for that hospital's, so a name has one spelling, and a file does not hold two names that a reader
could take for each other.

What the hospitals of an exchange agreed on is its `Policy`: in the root, signed by its maker.
"""

import hashlib
import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import combinations
from typing import Annotated, Any, Self, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from fcforge.core.errors import ConfigError, DataError, ExchangeError
from fcforge.core.names import (
    LONGEST_NAME,
    canonical_name,
    first_look_alikes,
    look_alike,
    name_fault,
)
from fcforge.core.target import Target
from fcforge_consortium.privacy.noise import MOST_EPSILON

TIME = "%Y-%m-%dT%H:%M:%SZ"
LAST_YEAR = 2100
CURVE = 2**255 - 19
# y of the points of order 1, 2, 4 and 8: a signature under such a key fits any text
EIGHTH = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
SMALL_ORDER = {0, 1, CURVE - 1, EIGHTH, CURVE - EIGHTH}


# -- names of sites --------------------------------------------------------------------------------
ON_THE_KEY = "Write it as on the hospital's key."


def site_name(name: str) -> str:
    """Return the canonical spelling of a site's name; `ConfigError` where there is none.

    Parameters
    ----------
    name : str
        As somebody typed it, in any script.

    Examples
    --------
    >>> site_name(" ＮＹＵ  Langone ")
    'NYU Langone'
    """
    canonical = canonical_name(name)
    if fault := name_fault(canonical):
        raise ConfigError(
            f"the site name {name[:LONGEST_NAME]!a} {fault}.", do=ON_THE_KEY
        )
    return canonical


def require_distinct(names: Iterable[str]) -> None:
    """Raise `ExchangeError` if two different names look alike."""
    if pair := first_look_alikes(names):
        raise ExchangeError(
            f"the sites {pair[0]!a} and {pair[1]!a} look alike.",
            do="One may pose as the other; ask both which name is theirs.",
        )


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


def fits(public: str, signature: str, message: bytes) -> bool:
    """Whether a signature (128 lower-case hex digits) of a message is by this key."""
    if key_fault(public) or not re.fullmatch("[0-9a-f]{128}", signature):
        return False
    try:
        known = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        known.verify(bytes.fromhex(signature), message)
    except (InvalidSignature, ValueError):
        return False
    return True


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
Size = Annotated[int, Field(ge=1, le=10_000_000)]
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


# -- the policy of an exchange ---------------------------------------------------------------------
# What diagnoses are called in any data: they mean the same everywhere.
ANYWHERE = (("0", "1"), ("control", "patient"))
SIGNS = str.maketrans(
    {"+": "plus", "-": "minus"}
)  # of MCI+ and MCI- they are the point
DIAGNOSIS = Target().name
# of a table of predictions: a number of such a name would stand in place of what it is about
COLUMNS = frozenset(
    {
        "subject",
        "status",
        "probability",
        "own",
        "own_probability",
        "strangeness",
        "note",
        "sites_learned",
    }
)
NARROWEST = 1e-9  # of limits: numbers are scaled by how far they lie apart


class Keeper(Closed):
    """Somebody who adds up the shares of a round.

    Attributes
    ----------
    name : str
    key : str
        Ed25519 public key that signs the halves, hex.
    encryption_key : str
        X25519 public key that shares are encrypted to, hex.
    proof : str
        The first key's signature of name and second key: whoever makes a start cannot put an
        encryption key of his own beside a keeper's known key.
    """

    name: SiteName
    key: PublicKey
    encryption_key: Sha256  # as many digits
    proof: Signature

    @model_validator(mode="after")
    def _proven(self) -> Self:
        if not fits(self.key, self.proof, owned(self.name, self.encryption_key)):
            raise ValueError("the keeper's key did not sign its encryption key")
        return self


def owned(name: str, encryption_key: str) -> bytes:
    """What a keeper signs: that this encryption key is its own."""
    return b"fcforge keeper 1\n" + canonical([name, encryption_key])


class Measured(Closed):
    """A number that is learned instead of a diagnosis, and the limits that everybody agreed on."""

    name: Name
    limits: tuple[Number, Number]

    @model_validator(mode="after")
    def _increasing(self) -> Self:
        low, high = self.limits
        if not high - low >= NARROWEST:
            raise ValueError("the smaller limit comes first")
        if self.name == DIAGNOSIS:
            raise ValueError("a diagnosis is no number")
        if self.name.lower() in COLUMNS:
            raise ValueError("a table of predictions has a column of that name")
        return self


class Policy(Closed):
    """What every hospital of an exchange is held to.

    Attributes
    ----------
    disorder : str
        What the patients have; empty where it is not said.
    control, patient : str
        What the data call them.
    others : tuple of str
        Further groups, where more than two are told apart.
    number : Measured or None
        What is learned where it is no diagnosis.
    max_epsilon, max_delta : float
        Largest that one person may spend in all.
    fewest_people, most_people : int
        Of one release. The most also bounds what one release can do to the model.
    fewest_hospitals : int
        Of one sum.
    exact_allowed : bool
        Whether releases and sums without noise are taken.
    keepers : tuple of Keeper
        Two, or none where nobody adds up shares.
    """

    disorder: Text = ""
    control: Name = "control"
    patient: Name = "patient"
    # written only where they say something: files of before stay as they are
    others: Annotated[
        tuple[Name, ...], Field(max_length=18, exclude_if=operator.not_)
    ] = ()
    number: Annotated[Measured | None, Field(exclude_if=operator.not_)] = None
    max_epsilon: Annotated[float, Field(ge=0, le=MOST_EPSILON)] = 8.0
    max_delta: Annotated[float, Field(ge=0, lt=1)] = 1e-5
    fewest_people: Size = 10
    most_people: Size = 10_000
    fewest_hospitals: Annotated[int, Field(ge=2, le=10_000)] = 3
    exact_allowed: bool = False
    keepers: Annotated[tuple[Keeper, ...], Field(max_length=2)] = ()

    @model_validator(mode="after")
    def _two_apart(self) -> Self:
        if len(self.keepers) == 1:
            raise ValueError("one keeper is named; two must know nothing of each other")
        for first, other in combinations(self.keepers, 2):
            both = {first.key, first.encryption_key} & {other.key, other.encryption_key}
            if both or look_alike(first.name, other.name):
                named = f"'{first.name}' and '{other.name}'"
                raise ValueError(f"the keepers {named} are one and the same")
        return self

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        """A number, or diagnoses that can be told apart."""
        named = (self.control, self.patient, *self.others)
        for one, other in combinations(named, 2):
            if look_alike(one.translate(SIGNS), other.translate(SIGNS)):
                raise ValueError(f"the diagnoses '{one}' and '{other}' look alike")
        if self.number is not None and self.others:
            raise ValueError("a number has no further groups")
        return self

    @classmethod
    def of(cls, settings: Mapping[str, Any], keepers: Sequence[Keeper] = ()) -> Self:
        """A policy from a config or ``--set policy.max_epsilon=2``; else `ConfigError`."""
        given = dict(settings)
        if keepers:
            given["keepers"] = [keeper.model_dump() for keeper in keepers]
        try:
            return cls.model_validate_json(canonical(given))
        except ValidationError as error:
            raise ConfigError(f"the policy {said(error)}.") from error

    @property
    def target(self) -> Target:
        """What is learned of a person."""
        if self.number is not None:
            return Target(self.number.name, (), self.number.limits)
        return Target(classes=(self.control, self.patient, *self.others))

    def about(self, target: Target) -> Self:
        """The policy, for what some data are about; `ConfigError` where no policy can say it."""
        try:
            if target.kind == "number":
                number = Measured(name=target.name, limits=target.limits)
                return self.changed(number=number)
            control, patient, *others = target.classes
            return self.changed(control=control, patient=patient, others=tuple(others))
        except ValidationError as error:
            raise ConfigError(f"the target '{target.name}' {said(error)}.") from error

    def spoken(self, target: Target) -> Self:
        """The policy, with what the data say of the target where it says nothing itself."""
        unsaid = self.number is None and self.target.classes in ANYWHERE
        told = target.classes not in ANYWHERE
        return self.about(target) if unsaid and told else self

    @property
    def loading(self) -> dict[str, Any]:
        """Settings with which people are read that are learned here (`sites.load_people`)."""
        target = self.target
        if target.kind == "number":
            return {"target": target.name, "limits": target.limits}
        if target.kind == "two classes":
            return {}
        listed = tuple(name.replace("/", ",") for name in target.classes)
        return {"classes": listed, "partial": True}

    def require_target(self, theirs: Target) -> None:
        """Raise `DataError` for data about something else, or with diagnoses turned round.

        0 and 1 are controls and patients everywhere, and so are the words.
        """
        mine = self.target
        if {mine.kind, theirs.kind} != {"two classes"}:
            if not mine.fits(theirs):
                what = f"this exchange is about {mine}, these data about {theirs}."
                do = "Give people of whom the same is known."
                raise DataError(what, do=do)
            return
        own = tuple(word.lower() for word in mine.classes)
        other = tuple(word.lower() for word in theirs.classes)
        if own == other or other in ANYWHERE or own in ANYWHERE:
            return
        turned = " The other way round." if own == other[::-1] else ""
        about = f" ({self.disorder})" if self.disorder else ""
        control, patient = theirs.classes
        raise DataError(
            f"the patients of this exchange{about} are '{self.patient}' and its controls "
            f"'{self.control}', those of these data '{patient}' and '{control}'.{turned}",
            do=f"Say which diagnosis is '{self.patient}': --positive VALUE, and name it so in the "
            "data.",
        )

    def require_people(self, n: int) -> None:
        """Raise `DataError` where a release would be of too few or too many people."""
        if not self.fewest_people <= n <= self.most_people:
            raise DataError(
                f"{n} people cannot be one release: the policy asks for {self.fewest_people} to "
                f"{self.most_people}.",
                do="Gather more people, or release them in several parts.",
            )

    def require_budget(self, epsilon: float | None, delta: float) -> None:
        """Raise `ConfigError` for what the policy does not let a person spend; None: exact."""
        if epsilon is None:
            if not self.exact_allowed:
                raise ConfigError(
                    "the policy takes nothing without noise (mechanism none).",
                    do="Choose an epsilon, or ask the start's maker to allow exact sums.",
                )
            return
        # a budget that is no number fits no comparison
        if not (0 < epsilon <= self.max_epsilon and 0 < delta <= self.max_delta):
            raise ConfigError(
                f"epsilon {epsilon:g} and delta {delta:g} are not within the policy's "
                f"{self.max_epsilon:g} and {self.max_delta:g} per person.",
                do="Choose less; what a person spends adds up over releases, and whoever was given "
                "without noise has spent all there is.",
            )

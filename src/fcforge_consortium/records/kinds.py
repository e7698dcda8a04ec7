"""Records: everything that travels is one, canonical JSON signed by its author.

A record names the records it builds on (its parents) by their ids, and its arrays by their
SHA-256. Its id is the SHA-256 of all of it but the signature, so that nobody can give a record
another name by spelling its signature differently. Every kind is a closed schema with a limit of
bytes, which bounds its lists and tables, too: what a record may hold is what is declared here, and
nothing else travels.
"""

import operator
from collections.abc import Iterable
from functools import cached_property
from math import inf
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from fcforge.core.errors import ExchangeError
from fcforge.core.version import __version__
from fcforge_consortium.records import keys
from fcforge_consortium.records.canonical import (
    canonical,
    now,
    read_canonical,
    sha256,
    to_canonical,
    validation_message,
)
from fcforge_consortium.records.fields import (
    Budget,
    Closed,
    Count,
    Estimate,
    Name,
    NotNegative,
    Number,
    Positive,
    PublicKey,
    Rational,
    Sha256,
    Share,
    Signature,
    SiteName,
    Size,
    Text,
    Time,
    Version,
)
from fcforge_consortium.records.policy import Policy
from fcforge_consortium.records.signatures import fits

CONTEXT = b"fcforge exchange 5\n"  # a signature for a record is valid for nothing else
ASK = "Nothing of it was used; ask its author for the record again."
LONGEST = 4 << 20  # bytes of a record in canonical JSON, of whatever kind


class Record(Closed):
    """What all records share.

    Attributes
    ----------
    kind : str
    site : str
        Author: a hospital, the maker of a root, or an aggregator.
    number : int
        Of this author's records of this kind; 0 for a root.
    parents : tuple of str
        Ids of the records it builds on; none for a root.
    time : str
        UTC.
    fcforge : str
        Version that wrote it.
    payload : str
        SHA-256 of its arrays as stored (safetensors); empty without.
    key, signature : str
        Ed25519 public key and signature over everything else, hex; empty where unsigned.
    """

    limit: ClassVar[int] = 16 << 10  # bytes in canonical JSON
    is_root: ClassVar[bool] = False
    root_kind: ClassVar[str] = ""  # of the root that it builds on; empty: of any
    has_payload: ClassVar[bool] = False
    # its payload goes once another builds on it; none where that was learned in one process
    passes_on: ClassVar[bool] = False

    kind: str
    site: SiteName
    number: Count
    parents: tuple[Sha256, ...]
    time: Time
    fcforge: Version
    payload: Sha256 | Literal[""] = ""
    key: PublicKey | Literal[""] = ""
    signature: Signature | Literal[""] = ""

    @cached_property
    def content(self) -> bytes:
        """What its author signs: all of it but the signature."""
        return CONTEXT + canonical(self.model_dump(exclude={"signature"}))

    @cached_property
    def id(self) -> str:
        """SHA-256 of the content: the record's name."""
        return sha256(self.content)

    @cached_property
    def line(self) -> bytes:
        """The record as it stands in a file."""
        return to_canonical(self)

    @property
    def noun(self) -> str:
        """Return the kind in words, such as "aggregate share"."""
        return self.kind.replace("_", " ")

    @property
    def title(self) -> str:
        """Return kind, number and author, such as "contribution 1 of 'NYU'"."""
        return f"{self.noun} {self.number} of '{self.site}'"

    @property
    def builds_on(self) -> tuple[str, ...]:
        """Ids of the records without which it means nothing."""
        return self.parents

    @property
    def committed(self) -> str:
        """Its commitment to people; empty where it has none."""
        return getattr(self, "commitment", "")

    def signed(self, key: keys.Signer) -> Self:
        """The record with the author's signature, or as it is without a key."""
        if key is None:
            return self
        named = self.changed(key=keys.public_hex(key), signature="")
        return named.changed(signature=key.sign(named.content).hex())

    def checked(self) -> Self:
        """The record, if size, shape and signature are what they must be; else `ExchangeError`."""
        if self.fault:
            raise ExchangeError(f"the {self.title} {self.fault}.", do=ASK)
        return self

    @cached_property
    def fault(self) -> str:
        """Why this cannot be a record of its kind; empty where it can."""
        if len(self.line) > self.limit:
            return f"has {len(self.line)} bytes, more than {self.limit}"
        if self.is_root == bool(self.parents) or self.is_root != (self.number == 0):
            return "has no place among records"
        lost = self.has_payload and not self.payload and not self.passes_on
        if lost or (self.payload and not self.has_payload):
            return "has lost its arrays"
        if len(set(self.parents)) != len(self.parents):
            return "names a parent twice"
        if bool(self.key) != bool(self.signature):
            return "was stripped of its signature"
        if self.key and not fits(self.key, self.signature, self.content):
            return "has a signature that does not fit: changed, or signed by another"
        return ""


def make(
    kind: type[Record],
    site: str,
    number: int,
    parents: Iterable[str],
    key: keys.Signer,
    **content: Any,
) -> Any:
    """A record of this moment, signed where there is a key.

    Parameters
    ----------
    kind : class of the record
    site : str
        Its author.
    number : int
    parents : iterable of str
    key : private key, optional
    **content
        The fields of its kind, and `payload`.
    """
    said: dict[str, Any] = {
        "site": site,
        "number": number,
        "parents": tuple(parents),
        "time": now(),
        "fcforge": __version__,
    }
    try:
        return kind(**said, **content).signed(key).checked()
    except ValidationError as error:
        what = f"a {kind.__name__.lower()} of '{site}' {validation_message(error)}."
        raise ExchangeError(what) from error


# -- roots ---------------------------------------------------------------------------------------
class BaseModelLimits(Closed):
    """How far out, and how unlike the public mean, a scan or a site may be."""

    size: Positive
    likeness: Annotated[float, Field(gt=-1, lt=1)]
    site: Annotated[float, Field(gt=-1, lt=1)]


class ExpectedQuality(Closed):
    """How good the public head is at a public site it has not seen: estimates with intervals.

    `number` holds those of a number: r2, mae, spearman.
    """

    people: Count
    majority: Share | None = None
    accuracy: Estimate | None = None
    auroc: Estimate | None = None
    number: Annotated[
        dict[Name, tuple[Number, Number, Number]], Field(exclude_if=operator.not_)
    ] = {}


class Plan(Closed):
    """What a start is made for.

    Attributes
    ----------
    people, hospitals : int
        Planned in all.
    epsilon : float or None
        Of every person; None for exact sums.
    """

    people: Size = 600
    hospitals: Size = 10
    epsilon: Positive | None = 1.0


class ExpectedGainRow(Closed):
    """What one way of giving would add to the AUROC of the public head, with standard error."""

    epsilon: Positive | None
    aggregators: bool
    gain: Number
    error: NotNegative


class ExpectedGain(Closed):
    """What is expected of the plan, from the public people alone.

    Attributes
    ----------
    public : float
        AUROC within hospitals of the public head.
    pooled : float
        What ridge on everybody's data in one place adds.
    rows : tuple of WorthRow
    """

    public: Share
    pooled: Number
    rows: tuple[ExpectedGainRow, ...]


class BaseModelRecord(Record):
    """A public start: who the public people are, what is expected of a scan, and the policy.

    Attributes
    ----------
    dataset, people_sha256 : str
    people, patients : int
    sites : mapping of name to people
    ids, left_out : tuple of str
        Of the public people, and of those who look like another of them.
    n_rois : int
    roi_names : tuple of str
        Empty where unknown.
    removes : tuple of str
        Covariates taken out of every scan; `ranges` are the public people's.
    settings : mapping
        As in `fcforge_consortium.base_model.space.SpaceSettings`.
    limits : StartLimits
    expected : Expected
    plan : Plan
    expected_gain : ExpectedGain or None
        None where the public people are too few to tell.
    policy : Policy
    """

    limit: ClassVar[int] = LONGEST
    is_root: ClassVar[bool] = True
    has_payload: ClassVar[bool] = True

    kind: Literal["base_model"] = "base_model"
    dataset: Text
    people_sha256: Sha256
    people: Size
    patients: Count
    sites: dict[Text, Count]
    ids: tuple[Text, ...]
    left_out: tuple[Text, ...]
    n_rois: Annotated[int, Field(ge=2, le=2_000)]
    roi_names: tuple[Text, ...]
    removes: tuple[Name, ...]
    ranges: dict[Name, tuple[Number, Number]]
    settings: dict[Name, int | Number | Name]
    limits: BaseModelLimits
    expected: ExpectedQuality
    plan: Plan = Plan()
    expected_gain: ExpectedGain | None = None
    policy: Policy

    @property
    def most_people(self) -> int:
        """Most people of one contribution, by the policy and by the plan."""
        per_hospital = -(-self.plan.people // self.plan.hospitals)
        return min(self.policy.most_people, self.policy.most_planned * per_hospital)

    def hopeless(self, epsilon: float | None, aggregators: bool) -> str:
        """What to say where nothing is expected of a budget; empty where something may be.

        The row of the next epsilon that is not below decides: less noise would not help, either.
        """
        near = [
            row
            for row in (self.expected_gain.rows if self.expected_gain else ())
            if row.aggregators == aggregators
            and (row.epsilon or inf) >= (epsilon or inf)
        ]
        next_row = min(near, key=lambda row: row.epsilon or inf, default=None)
        if next_row is None or next_row.gain > next_row.error:
            return ""
        told = f"gain {next_row.gain:+.3f} ± {next_row.error:.3f}"
        return f"nothing beyond chance is expected of that ({told})"


class Chain(Record):
    """The root of a chain: what all its hospitals share.

    `settings` are held against `ChainSettings` field by field when the file is opened.
    """

    limit: ClassVar[int] = 256 << 10
    is_root: ClassVar[bool] = True

    kind: Literal["chain"] = "chain"
    settings: dict[Name, JsonValue]
    policy: Policy


# -- what hospitals give ---------------------------------------------------------------------------
class Budgeted(Record):
    """What has noise for a budget of each person in it.

    Attributes
    ----------
    mechanism : {"gaussian", "none"}
        Discrete Gaussian noise, or exact sums, which promise nothing.
    epsilon, delta : float
        0 and 0 under "none".
    """

    root_kind: ClassVar[str] = "base_model"

    mechanism: Literal["gaussian", "none"]
    epsilon: Budget
    delta: Share

    @property
    def budget(self) -> tuple[float | None, float]:
        """Epsilon, None where there is no noise, and delta."""
        return None if self.mechanism == "none" else self.epsilon, self.delta


class Charged(Budgeted):
    """What costs a hospital's people something.

    Attributes
    ----------
    spent_epsilon, spent_delta : float
        Most that one of these people has spent in all.
    commitment : str
        Salted SHA-256 of people, scans and diagnoses, in order; the salt stays at home.
    """

    spent_epsilon: Budget
    spent_delta: Share
    commitment: Sha256


class NoisyVector(Budgeted):
    """What holds a vector of whole numbers.

    Attributes
    ----------
    grid : float
        What one unit of the whole numbers is worth.
    variance : str
        Of the noise on each number, in squared units of the grid: an exact fraction.
    """

    has_payload: ClassVar[bool] = True

    grid: Positive
    variance: Rational


class Contribution(Charged, NoisyVector):
    """What one hospital gives around a start: a vector of whole numbers, and how it was made."""

    kind: Literal["contribution"] = "contribution"


class SplitCounts(Closed):
    """People of one part of a site; None where there are few."""

    controls: Count | None
    patients: Count | None


class StepCounts(Closed):
    """People of a chain's step."""

    learning: SplitCounts
    test: SplitCounts


class ScanLimits(Closed):
    """Largest ordinary distances of a scan from a site; all of them or none."""

    inside: Positive | None
    outside: Positive | None
    pattern: Positive | None


class Step(Record):
    """One hospital's step of a chain; its payload is all that the next one needs.

    Attributes
    ----------
    counts : StepCounts
    held_out : mapping of site to float
        Accuracy on every site's synthetic held-out set.
    own_test : float or None
        On the site's own real test people; None where it would give a count away.
    temperature : float or None
        That probabilities are calibrated with.
    reference : ScanLimits
    flags : tuple of str
        What was accepted by name.
    commitment : str
        As in a release.
    """

    limit: ClassVar[int] = 256 << 10
    has_payload: ClassVar[bool] = True
    passes_on: ClassVar[bool] = True
    root_kind: ClassVar[str] = "chain"

    kind: Literal["step"] = "step"
    counts: StepCounts
    held_out: dict[SiteName, Share]
    own_test: Share | None
    temperature: Positive | None
    reference: ScanLimits
    flags: tuple[Name, ...]
    commitment: Sha256


# -- rounds of aggregators -----------------------------------------------------------------------------
class GivenShare(Closed):
    """A share that a hospital encrypted to an aggregator, by the SHA-256 of the file."""

    aggregator: SiteName
    sha256: Sha256


class Notice(Charged):
    """A hospital's notice of what it gave to a round; it says no count of people.

    The budget is what is planned for the round's sum.

    Attributes
    ----------
    round : str
    shares : tuple of GivenShare
        One for each aggregator.
    """

    kind: Literal["notice"] = "notice"
    round: SiteName
    shares: Annotated[tuple[GivenShare, ...], Field(min_length=2, max_length=2)]


class RoundMember(Closed):
    """A hospital in an aggregator's half: its notice and the share that was added."""

    site: SiteName
    notice: Sha256
    share: Sha256


class AggregateShare(NoisyVector):
    """What one aggregator publishes of a round: the sum of its shares with its own noise.

    Attributes
    ----------
    round : str
    hospitals : tuple of Added
        Sorted by name.
    """

    limit: ClassVar[int] = LONGEST

    kind: Literal["aggregate_share"] = "aggregate_share"
    round: SiteName
    hospitals: Annotated[tuple[RoundMember, ...], Field(min_length=2)]

    @property
    def builds_on(self) -> tuple[str, ...]:
        """Its parents, and the notice of every hospital in the sum."""
        return (*self.parents, *(added.notice for added in self.hospitals))


# -- withdrawals and rotations -----------------------------------------------------------------------
class Withdrawn(Closed):
    """What is taken back, by content: no respelling of a record escapes it."""

    kind: Annotated[str, Field(pattern="^(contribution|notice)$")]
    number: Size
    commitment: Sha256


class Withdrawal(Record):
    """A hospital takes back what it gave: whatever fits `takes` no longer counts anywhere.

    Attributes
    ----------
    takes : tuple of Taken
    gone : tuple of str
        Ids of all records that went with it, for those who have seen them.
    """

    limit: ClassVar[int] = 256 << 10

    kind: Literal["withdrawal"] = "withdrawal"
    takes: Annotated[tuple[Withdrawn, ...], Field(min_length=1)]
    gone: tuple[Sha256, ...]


class Rotation(Record):
    """A hospital's old key (which signs this) names its new one, which agrees.

    Whatever else the old key signs from now on is refused: a thief who has it can date a record
    as he likes, but not put it among those that the new key vouches for.

    Attributes
    ----------
    new_key : str
    vouches : tuple of str
        Ids of the records by the old key that stand.
    proof : str
        Signature by the new key over what `agreement` says.
    """

    limit: ClassVar[int] = 256 << 10

    kind: Literal["rotation"] = "rotation"
    new_key: PublicKey
    vouches: tuple[Sha256, ...]
    proof: Signature

    @cached_property
    def fault(self) -> str:
        """Also: it is signed, and the new key agrees."""
        agreed = agreement(self.site, self.key, self.vouches)
        if not self.key or not fits(self.new_key, self.proof, agreed):
            return "is not signed by both keys"
        return super().fault


def agreement(site: str, old_key: str, vouches: Iterable[str]) -> bytes:
    """What a new key signs: that it speaks for a site after its old key, and what stands."""
    return CONTEXT + canonical(["rotation", site, old_key, *vouches])


ANY: TypeAdapter[Any] = TypeAdapter(
    Annotated[
        BaseModelRecord
        | Chain
        | Contribution
        | Step
        | Notice
        | AggregateShare
        | Withdrawal
        | Rotation,
        Field(discriminator="kind"),
    ]
)


def read_record(line: bytes, what: str = "the record") -> Any:
    """A record from its canonical line, everything checked that it says of itself."""
    if len(line) > LONGEST:
        raise ExchangeError(f"{what} has {len(line)} bytes: too many.", do=ASK)
    return read_canonical(ANY, line, what).checked()

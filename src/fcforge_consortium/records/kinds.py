"""Kinds of records: closed schemas of everything that hospitals exchange, signed by their authors.

A record is canonical JSON. It names the records that it builds on (its parents) by their ids, and
its arrays by their SHA-256. Its id is the SHA-256 of all fields but the signature, so that another
encoding of the signature does not give a record another id. Each kind limits its bytes and thereby
its lists and tables. A file cannot hold a field that is not declared in this module.
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

CONTEXT = b"fcforge exchange 5\n"  # binds signatures to records of this format
ASK = "The record was not used. Ask its author for it again."
LONGEST = 4 << 20  # most bytes of a record of any kind in canonical JSON


class Record(Closed):
    """A signed record; the fields that all kinds share.

    Attributes
    ----------
    kind : str
        Kind of record, such as "contribution".
    site : str
        Author: a hospital, the maker of a root, or an aggregator.
    number : int
        Number of the record among the author's records of this kind; 0 for a root.
    parents : tuple of str
        Ids of the records it builds on; none for a root.
    time : str
        Time of writing, UTC.
    fcforge : str
        Version of fcforge that wrote it.
    payload : str
        SHA-256 of its stored arrays (safetensors); empty without arrays.
    key, signature : str
        Ed25519 public key and signature over everything else, hex; empty where unsigned.
    """

    limit: ClassVar[int] = 16 << 10  # bytes in canonical JSON
    is_root: ClassVar[bool] = False
    root_kind: ClassVar[str] = ""  # required kind of root; empty: any
    has_payload: ClassVar[bool] = False
    # whether the payload is dropped once another record builds on this one; such a record has no
    # payload from the beginning if the next step was trained in the same process
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
        """Return the signed bytes: all fields but the signature."""
        return CONTEXT + canonical(self.model_dump(exclude={"signature"}))

    @cached_property
    def id(self) -> str:
        """Return the SHA-256 of the content, which identifies the record."""
        return sha256(self.content)

    @cached_property
    def line(self) -> bytes:
        """Return the line of the record in a file, in canonical JSON."""
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
        """Return the ids of all records that this one requires."""
        return self.parents

    @property
    def committed(self) -> str:
        """Return the commitment to people; empty for kinds without one."""
        return getattr(self, "commitment", "")

    def signed(self, key: keys.Signer) -> Self:
        """Return the record signed by its author.

        Parameters
        ----------
        key : private key or None
            None leaves the record as it is.

        Returns
        -------
        Record
        """
        if key is None:
            return self
        named = self.changed(key=keys.public_hex(key), signature="")
        return named.changed(signature=key.sign(named.content).hex())

    def checked(self) -> Self:
        """Return the record if it has no `fault`.

        Returns
        -------
        Record

        Raises
        ------
        ExchangeError
            If size, place or signature are wrong.
        """
        if self.fault:
            raise ExchangeError(f"the {self.title} {self.fault}.", do=ASK)
        return self

    @cached_property
    def fault(self) -> str:
        """Return why the record is invalid, as a predicate; empty for a valid record."""
        if len(self.line) > self.limit:
            return f"has {len(self.line)} bytes; at most {self.limit} are allowed"
        if self.is_root == bool(self.parents) or self.is_root != (self.number == 0):
            return "must have parents and a number above 0, or neither if it is a root"
        needs_payload = self.has_payload and not self.passes_on
        if needs_payload and not self.payload:
            return "has lost its arrays"
        if self.payload and not self.has_payload:
            return "names arrays, which its kind does not have"
        if len(set(self.parents)) != len(self.parents):
            return "names a parent twice"
        if bool(self.key) != bool(self.signature):
            return "has a key without a signature, or a signature without a key"
        if self.key and not fits(self.key, self.signature, self.content):
            return (
                "has an invalid signature: it was changed, or signed with another key"
            )
        return ""


def make(
    kind: type[Record],
    site: str,
    number: int,
    parents: Iterable[str],
    key: keys.Signer,
    **content: Any,
) -> Any:
    """Make a record of the current time and sign it.

    Parameters
    ----------
    kind : subclass of Record
    site : str
        Author of the record.
    number : int
    parents : iterable of str
    key : private key or None
        None leaves the record unsigned.
    **content
        Fields of the kind, and `payload`.

    Returns
    -------
    Record
        Of class `kind`.

    Raises
    ------
    ExchangeError
        If the record is invalid.
    """
    shared: dict[str, Any] = {
        "site": site,
        "number": number,
        "parents": tuple(parents),
        "time": now(),
        "fcforge": __version__,
    }
    try:
        return kind(**shared, **content).signed(key).checked()
    except ValidationError as error:
        message = f"a {kind.__name__.lower()} of '{site}' {validation_message(error)}."
        raise ExchangeError(message) from error


# -- roots ---------------------------------------------------------------------------------------
class BaseModelLimits(Closed):
    """Limits within which scans and sites resemble the public people.

    Attributes
    ----------
    size : float
        Largest distance of a scan from the public mean.
    likeness, site : float
        Lowest likeness of a scan and of a site's mean to the public mean.
    """

    size: Positive
    likeness: Annotated[float, Field(gt=-1, lt=1)]
    site: Annotated[float, Field(gt=-1, lt=1)]


class ExpectedQuality(Closed):
    """Quality of the base model alone at a public site it has not seen.

    Attributes
    ----------
    people : int
        People of the estimates.
    majority : float or None
        Share of the largest class.
    accuracy, auroc : (value, lower, upper) or None
        Estimates for diagnoses.
    number : mapping of str to (value, lower, upper)
        Estimates for a numeric target: r2, mae, spearman.
    """

    people: Count
    majority: Share | None = None
    accuracy: Estimate | None = None
    auroc: Estimate | None = None
    number: Annotated[
        dict[Name, tuple[Number, Number, Number]], Field(exclude_if=operator.not_)
    ] = {}


class Plan(Closed):
    """The consortium that a base model is planned for.

    Attributes
    ----------
    people, hospitals : int
        Planned numbers in all.
    epsilon : float or None
        Budget of every person; None for exact sums.
    """

    people: Size = 600
    hospitals: Size = 10
    epsilon: Positive | None = 1.0


class ExpectedGainRow(Closed):
    """Expected gain in AUROC over the base model alone, for one kind of contribution.

    Attributes
    ----------
    epsilon : float or None
        Budget of every person; None without noise.
    aggregators : bool
        Whether two aggregators add the noise, instead of every hospital.
    gain, error : float
        Expected gain and its standard error.
    """

    epsilon: Positive | None
    aggregators: bool
    gain: Number
    error: NotNegative


class ExpectedGain(Closed):
    """Expected gain of the plan, estimated from the public people alone.

    Attributes
    ----------
    public : float
        AUROC within hospitals of the base model alone.
    pooled : float
        Gain of ridge regression on the pooled data of all hospitals.
    rows : tuple of ExpectedGainRow
    """

    public: Share
    pooled: Number
    rows: tuple[ExpectedGainRow, ...]


class BaseModelRecord(Record):
    """The base model: its public people, the limits and quality expected of scans, and the policy.

    Attributes
    ----------
    dataset, people_sha256 : str
        Name of the public dataset, and SHA-256 of its scans.
    people, patients : int
        Numbers of public people and of patients among them.
    sites : mapping of str to int
        Public people by site.
    ids, left_out : tuple of str
        Ids of the public people, and of the people left out as duplicate scans.
    n_rois : int
    roi_names : tuple of str
        Empty if unknown.
    removes : tuple of str
        Covariates removed from every scan.
    ranges : mapping of str to (lowest, highest)
        Ranges of these covariates among the public people.
    settings : mapping
        Fields of `fcforge_consortium.base_model.space.SpaceSettings`.
    limits : BaseModelLimits
    expected : ExpectedQuality
    plan : Plan
    expected_gain : ExpectedGain or None
        None if the public people are too few for an estimate.
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
        """Return the most people of one contribution, by the policy and by the plan."""
        per_hospital = -(-self.plan.people // self.plan.hospitals)
        return min(self.policy.most_people, self.policy.most_planned * per_hospital)

    def hopeless(self, epsilon: float | None, aggregators: bool) -> str:
        """Return a warning if no gain beyond chance is expected of a budget.

        The row of the next larger epsilon decides: if even less noise does not help, this budget
        does not help either.

        Parameters
        ----------
        epsilon : float or None
            Budget of every person; None without noise.
        aggregators : bool
            Whether two aggregators add the noise.

        Returns
        -------
        str
            Empty if a gain is possible or unknown.
        """
        rows = [
            row
            for row in (self.expected_gain.rows if self.expected_gain else ())
            if row.aggregators == aggregators
            and (row.epsilon or inf) >= (epsilon or inf)
        ]
        next_row = min(rows, key=lambda row: row.epsilon or inf, default=None)
        if next_row is None or next_row.gain > next_row.error:
            return ""
        gain = f"gain {next_row.gain:+.3f} ± {next_row.error:.3f}"
        return f"nothing beyond chance is expected of that ({gain})"


class Chain(Record):
    """The root of a chain, with the settings that all its hospitals share.

    Attributes
    ----------
    settings : mapping
        Fields of `ChainSettings`, validated when the file is opened.
    policy : Policy
    """

    limit: ClassVar[int] = 256 << 10
    is_root: ClassVar[bool] = True

    kind: Literal["chain"] = "chain"
    settings: dict[Name, JsonValue]
    policy: Policy


# -- contributions and steps of hospitals ----------------------------------------------------------
class Budgeted(Record):
    """A record protected by differential privacy.

    Attributes
    ----------
    mechanism : {"gaussian", "none"}
        Discrete Gaussian noise, or exact sums without protection.
    epsilon, delta : float
        Budget of each person in the record; 0 and 0 under "none".
    """

    root_kind: ClassVar[str] = "base_model"

    mechanism: Literal["gaussian", "none"]
    epsilon: Budget
    delta: Share

    @property
    def budget(self) -> tuple[float | None, float]:
        """Return epsilon (None without noise) and delta."""
        return None if self.mechanism == "none" else self.epsilon, self.delta


class Charged(Budgeted):
    """A record that is charged to the budget of a hospital's people.

    Attributes
    ----------
    spent_epsilon, spent_delta : float
        Budget spent in all, including this record.
    commitment : str
        Salted SHA-256 of people, scans and diagnoses, in order; the salt stays in the ledger.
    """

    spent_epsilon: Budget
    spent_delta: Share
    commitment: Sha256


class NoisyVector(Budgeted):
    """A protected record whose payload is a vector of integers.

    Attributes
    ----------
    grid : float
        Value of one unit of the integers.
    variance : str
        Variance of the noise on each integer, in squared units of the grid: an exact fraction.
    """

    has_payload: ClassVar[bool] = True

    grid: Positive
    variance: Rational


class Contribution(Charged, NoisyVector):
    """A hospital's contribution to a base model: a vector of integers with noise of its own."""

    kind: Literal["contribution"] = "contribution"


class SplitCounts(Closed):
    """Numbers of people in one split of a site; None where they are too few to publish."""

    controls: Count | None
    patients: Count | None


class StepCounts(Closed):
    """Numbers of people in a chain's step, by split."""

    learning: SplitCounts
    test: SplitCounts


class ScanLimits(Closed):
    """Largest ordinary distances of a scan from a site; either all are given or none."""

    inside: Positive | None
    outside: Positive | None
    pattern: Positive | None


class Step(Record):
    """One hospital's step of a chain; its payload is all that the next step needs.

    Attributes
    ----------
    counts : StepCounts
    held_out : mapping of site to float
        Accuracy on every site's synthetic held-out set.
    own_test : float or None
        Accuracy on the site's own real test people; None if it would reveal a count.
    temperature : float or None
        Temperature that calibrates the probabilities.
    reference : ScanLimits
    flags : tuple of str
        Exceptions that the hospital accepted by name.
    commitment : str
        As in `Charged`.
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
    """A share that a hospital encrypted to an aggregator.

    Attributes
    ----------
    aggregator : str
    sha256 : str
        SHA-256 of the ciphertext.
    """

    aggregator: SiteName
    sha256: Sha256


class Notice(Charged):
    """A hospital's notice of its shares in a round; it holds no count of people.

    The budget is that of the round's sum.

    Attributes
    ----------
    round : str
    shares : tuple of GivenShare
        One for each aggregator.
    """

    kind: Literal["notice"] = "notice"
    round: SiteName
    shares: Annotated[tuple[GivenShare, ...], Field(min_length=2, max_length=2)]


class ClosedMember(Closed):
    """A hospital of a closed round, named as a withdrawal names its notice.

    Attributes
    ----------
    site : str
    notice : str
        Id of the hospital's notice.
    number : int
        Number of the notice.
    commitment : str
        Commitment of the notice.
    """

    site: SiteName
    notice: Sha256
    number: Size
    commitment: Sha256


class Closing(Record):
    """An aggregator's closing record of a round: its set of hospitals, before anything is published.

    A round is closed once both aggregators have signed the same set. A withdrawal of one of its
    notices afterwards takes the whole round out of the model. The record does not require its notices,
    so that it still shows then why the round is void.

    Attributes
    ----------
    round : str
    hospitals : tuple of ClosedMember
        Sorted by name.
    """

    limit: ClassVar[int] = LONGEST
    root_kind: ClassVar[str] = "base_model"

    kind: Literal["closing"] = "closing"
    round: SiteName
    hospitals: Annotated[tuple[ClosedMember, ...], Field(min_length=2)]


class RoundMember(Closed):
    """A hospital in an aggregate share.

    Attributes
    ----------
    site : str
    notice : str
        Id of the hospital's notice.
    share : str
        SHA-256 of the share that was added.
    """

    site: SiteName
    notice: Sha256
    share: Sha256


class AggregateShare(NoisyVector):
    """An aggregate share: the sum of one aggregator's shares in a round, with its own noise.

    Attributes
    ----------
    round : str
    hospitals : tuple of RoundMember
        Sorted by name.
    closings : tuple of str
        Ids of both aggregators' closing records.
    """

    limit: ClassVar[int] = LONGEST

    kind: Literal["aggregate_share"] = "aggregate_share"
    round: SiteName
    hospitals: Annotated[tuple[RoundMember, ...], Field(min_length=2)]
    closings: Annotated[tuple[Sha256, ...], Field(min_length=2, max_length=2)]

    @property
    def builds_on(self) -> tuple[str, ...]:
        """Return the ids of the parents, of the closing records, and of all notices in the sum."""
        notices = (member.notice for member in self.hospitals)
        return (*self.parents, *self.closings, *notices)


# -- withdrawals and rotations -----------------------------------------------------------------------
class Withdrawn(Closed):
    """A withdrawn record, named by content so that no other encoding of it escapes."""

    kind: Annotated[str, Field(pattern="^(contribution|notice)$")]
    number: Size
    commitment: Sha256


class Withdrawal(Record):
    """A hospital's withdrawal of its own records; all records that match `takes` are removed.

    Attributes
    ----------
    takes : tuple of Withdrawn
    gone : tuple of str
        Ids of all records removed with it, for readers who have them in an older file.
    """

    limit: ClassVar[int] = 256 << 10

    kind: Literal["withdrawal"] = "withdrawal"
    takes: Annotated[tuple[Withdrawn, ...], Field(min_length=1)]
    gone: tuple[Sha256, ...]


class Rotation(Record):
    """A change of a hospital's key, signed with the old key and confirmed with the new key.

    Records signed with the old key are refused unless the rotation lists them. A thief of the old
    key can choose a record's date, but cannot add the record to that list.

    Attributes
    ----------
    new_key : str
    vouches : tuple of str
        Ids of the records by the old key that remain valid.
    proof : str
        Signature by the new key over `agreement`.
    """

    limit: ClassVar[int] = 256 << 10

    kind: Literal["rotation"] = "rotation"
    new_key: PublicKey
    vouches: tuple[Sha256, ...]
    proof: Signature

    @cached_property
    def fault(self) -> str:
        """Return why the rotation is invalid; both keys must have signed it."""
        agreed = agreement(self.site, self.key, self.vouches)
        if not self.key or not fits(self.new_key, self.proof, agreed):
            return "is not signed by both keys"
        return super().fault


def agreement(site: str, old_key: str, vouches: Iterable[str]) -> bytes:
    """Return the bytes that the new key of a rotation signs.

    Parameters
    ----------
    site, old_key : str
    vouches : iterable of str
        Ids of the records by the old key that remain valid.

    Returns
    -------
    bytes
    """
    return CONTEXT + canonical(["rotation", site, old_key, *vouches])


ANY: TypeAdapter[Any] = TypeAdapter(
    Annotated[
        BaseModelRecord
        | Chain
        | Contribution
        | Step
        | Notice
        | Closing
        | AggregateShare
        | Withdrawal
        | Rotation,
        Field(discriminator="kind"),
    ]
)


def read_record(line: bytes, title: str = "the record") -> Any:
    """Decode a record from its line in a file and check it by itself.

    Parameters
    ----------
    line : bytes
        Canonical JSON.
    title : str, optional
        Name of the line, for error messages.

    Returns
    -------
    Record
        Of the class of its kind.

    Raises
    ------
    ExchangeError
        If the line is no valid record.
    """
    if len(line) > LONGEST:
        message = f"{title} has {len(line)} bytes; at most {LONGEST} are allowed."
        raise ExchangeError(message, do=ASK)
    return read_canonical(ANY, line, title).checked()

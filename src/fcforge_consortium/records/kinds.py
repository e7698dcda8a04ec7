"""Kinds of records: closed schemas of everything that hospitals exchange, signed by their authors.

A *record* is one signed statement in canonical JSON. Its *parents* are the records that it builds on,
named by their ids. Its *payload* are its arrays, named by their SHA-256. Its *id* is the SHA-256 of all
fields but the signature, so that another encoding of the signature does not give a record another id.
Each kind limits its bytes and thereby its lists and tables. A file cannot hold a field that is not
declared in this module.

================= ================== ==========================================================
kind              author             statement
================= ================== ==========================================================
`base_model`      its maker          root: base model, policy and plan
`chain`           first hospital     root: settings and policy of a chain
`contribution`    hospital           noisy sum over its people, published alone
`notice`          hospital           two encrypted shares were given to the aggregators of a round
`closing`         aggregator         set of hospitals of a round, before anything is published
`aggregate_share` aggregator         sum of its shares in a round, with noise
`step`            hospital           one step of a chain
`withdrawal`      hospital           its contributions or notices no longer count
`rotation`        hospital           a new key signs for it
================= ================== ==========================================================
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

    Class attributes
    ----------------
    limit : int
        Most bytes of a record of this kind in canonical JSON.
    is_root : bool
        Whether other records build on this kind, which itself has no parents.
    root_kind : str
        Kind of root that the record must build on; empty if any will do.
    has_payload : bool
        Whether the kind has arrays.
    passes_on : bool
        Whether the arrays are dropped once another record builds on this one. Such a record may also
        lack them from the beginning: if the next step was trained in the same process, nobody needs
        them.
    """

    limit: ClassVar[int] = 16 << 10
    is_root: ClassVar[bool] = False
    root_kind: ClassVar[str] = ""
    has_payload: ClassVar[bool] = False
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
        """Return the commitment: the salted hash of the people; empty for kinds without one."""
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
        unsigned = self.changed(key=keys.public_hex(key), signature="")
        return unsigned.changed(signature=key.sign(unsigned.content).hex())

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
        """Return why the record by itself is invalid, as a predicate; empty for a valid record.

        Size, parents, payload and signature are checked; other records are not looked at.
        """
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
    """Make a record of the current time, sign it and check it.

    Parameters
    ----------
    kind : subclass of Record
    site : str
        Author of the record.
    number : int
        Number among the author's records of this kind, from 1; 0 for a root.
    parents : iterable of str
        Ids of the records that it builds on.
    key : private key or None
        None leaves the record unsigned.
    **content
        The other fields of the kind, `payload` included.

    Returns
    -------
    Record
        A record of class `kind`.

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
        Largest distance of a scan from the mean scan of the public people.
    likeness : float
        Lowest correlation of a scan's edges with those of the mean public scan.
    site : float
        Lowest correlation of the edges of a site's mean scan with those of the mean public scan.
    """

    size: Positive
    likeness: Annotated[float, Field(gt=-1, lt=1)]
    site: Annotated[float, Field(gt=-1, lt=1)]


class ExpectedQuality(Closed):
    """Quality of the base model alone at a public site it has not seen.

    Attributes
    ----------
    people : int
        Public people on whom the quality was estimated.
    majority : float or None
        Share of the largest class among them.
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
        Planned numbers of people and of hospitals, over the whole consortium.
    epsilon : float or None
        Planned budget of every person; None for exact sums.
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
        Whether two aggregators add the noise to the sum of a round; if not, every hospital adds noise to
        its own contribution.
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
        AUROC of the base model alone, computed within each hospital.
    pooled : float
        Gain in AUROC of ridge regression on the pooled data of all hospitals, as a comparison.
    rows : tuple of ExpectedGainRow
    """

    public: Share
    pooled: Number
    rows: tuple[ExpectedGainRow, ...]


class BaseModelRecord(Record):
    """The base model: its public people, limits of scans, expected quality, plan and policy.

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
        Fields of `fcforge_consortium.base_model.space.SpaceSettings`, by name.
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

        Of the estimates at the same or a larger epsilon, the one with the smallest epsilon decides: if
        even that little noise does not help, this budget does not help either.

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
        # a row without epsilon is one without noise: it counts as the largest epsilon of all
        no_more_noise = [
            row
            for row in (self.expected_gain.rows if self.expected_gain else ())
            if row.aggregators == aggregators
            and (row.epsilon or inf) >= (epsilon or inf)
        ]
        nearest = min(no_more_noise, key=lambda row: row.epsilon or inf, default=None)
        if nearest is None or nearest.gain > nearest.error:
            return ""
        gain = f"gain {nearest.gain:+.3f} ± {nearest.error:.3f}"
        return f"nothing beyond chance is expected of that ({gain})"


class Chain(Record):
    """The root of a chain, with the settings that all its hospitals share.

    Attributes
    ----------
    settings : mapping
        Fields of `fcforge_consortium.chains.settings.ChainSettings`, which validates them when the
        model of the file is computed.
    policy : Policy
    """

    limit: ClassVar[int] = 256 << 10
    is_root: ClassVar[bool] = True

    kind: Literal["chain"] = "chain"
    settings: dict[Name, JsonValue]
    policy: Policy


# -- contributions and steps of hospitals ----------------------------------------------------------
class Budgeted(Record):
    """A record that states a budget of differential privacy.

    Attributes
    ----------
    mechanism : {"gaussian", "none"}
        Discrete Gaussian noise, or exact sums without protection.
    epsilon, delta : float
        Budget that the record alone spends of each person in it; 0 and 0 under "none".
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
        Sum of the budgets in the hospital's ledger, this record included.
    commitment : str
        Salted SHA-256 of people, scans and diagnoses, in order; the salt stays in the ledger.
    """

    spent_epsilon: Budget
    spent_delta: Share
    commitment: Sha256


class NoisyVector(Budgeted):
    """A record whose payload is a vector of integers, usually with noise.

    Attributes
    ----------
    grid : float
        Real value that one unit of the integers stands for.
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
    """Numbers of people in one split of a site; None where a number is too small to publish."""

    controls: Count | None
    patients: Count | None


class StepCounts(Closed):
    """Numbers of people in a chain's step: those it trained on, and those it tested on."""

    learning: SplitCounts
    test: SplitCounts


class ScanLimits(Closed):
    """Largest ordinary distances of a scan from the scans of a site; all are given, or none.

    Attributes
    ----------
    inside, outside, pattern : float or None
        Distance along the axes of the site's scans, away from these axes, and of the pattern of edges
        (`fcforge.data.scan_checks.limits`).
    """

    inside: Positive | None
    outside: Positive | None
    pattern: Positive | None


class Step(Record):
    """One hospital's step of a chain; its payload is all that the next step needs.

    Attributes
    ----------
    counts : StepCounts
    held_out : mapping of site to float
        Accuracy on the synthetic held-out subjects of this site and of all sites before it.
    own_test : float or None
        Accuracy on the site's own real test people; None if there are none, or if it would reveal a
        small number of people.
    temperature : float or None
        Temperature that calibrates the probabilities.
    reference : ScanLimits
        Limits of ordinary scans at this site.
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
    """A share that a hospital encrypted to an aggregator, as its notice names it.

    Attributes
    ----------
    aggregator : str
        Name of the aggregator.
    sha256 : str
        SHA-256 of the ciphertext.
    """

    aggregator: SiteName
    sha256: Sha256


class Notice(Charged):
    """A hospital's notice of its shares in a round; it holds no count of people.

    The budget is that of the sum over all hospitals of the round, to which the aggregators add noise.

    Attributes
    ----------
    round : str
        Name of the round.
    shares : tuple of GivenShare
        One for each aggregator.
    """

    kind: Literal["notice"] = "notice"
    round: SiteName
    shares: Annotated[tuple[GivenShare, ...], Field(min_length=2, max_length=2)]


class ClosedMember(Closed):
    """A hospital of a closed round.

    Number and commitment are those by which a withdrawal names a notice, so that a later withdrawal is
    recognised although the notice itself has gone.

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
    notices afterwards makes the round void: it leaves the model as a whole. The notices are not parents
    of this record, so that it stays in the file and shows why the round is void.

    Attributes
    ----------
    round : str
        Name of the round.
    hospitals : tuple of ClosedMember
        Sorted by name.
    """

    limit: ClassVar[int] = LONGEST
    root_kind: ClassVar[str] = "base_model"

    kind: Literal["closing"] = "closing"
    round: SiteName
    hospitals: Annotated[tuple[ClosedMember, ...], Field(min_length=2)]


class RoundMember(Closed):
    """A hospital whose share is part of an aggregate share.

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
        Name of the round.
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
    """A contribution or notice that its hospital withdraws.

    It is named by number and by commitment and not by id, so that the same people cannot come back in a
    record with another id.
    """

    kind: Annotated[str, Field(pattern="^(contribution|notice)$")]
    number: Size
    commitment: Sha256


class Withdrawal(Record):
    """A hospital's withdrawal of its own contributions and notices.

    All records of the hospital that match `takes` are removed, and all records that build on them.

    Attributes
    ----------
    takes : tuple of Withdrawn
    gone : tuple of str
        Ids of all records that were removed, for readers who have them in an older file.
    """

    limit: ClassVar[int] = 256 << 10

    kind: Literal["withdrawal"] = "withdrawal"
    takes: Annotated[tuple[Withdrawn, ...], Field(min_length=1)]
    gone: tuple[Sha256, ...]


class Rotation(Record):
    """A change of a hospital's key, signed with the old key and confirmed with the new key.

    Records signed with the old key are refused unless the rotation lists them: the new key *vouches*
    for these. A thief of the old key can choose a record's date, but cannot add the record to that list.

    Attributes
    ----------
    new_key : str
        Ed25519 public key in hex.
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
    """Return the bytes that the new key of a rotation signs, as its agreement to the rotation.

    Parameters
    ----------
    site : str
        The hospital.
    old_key : str
        Public key in hex that signed until now.
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
        A record of the class that its kind names.

    Raises
    ------
    ExchangeError
        If the line is no valid record.
    """
    if len(line) > LONGEST:
        message = f"{title} has {len(line)} bytes; at most {LONGEST} are allowed."
        raise ExchangeError(message, do=ASK)
    return read_canonical(ANY, line, title).checked()

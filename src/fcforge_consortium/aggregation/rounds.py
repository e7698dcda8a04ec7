"""Rounds: encrypted shares of hospitals, and aggregate shares that add up to a noisy sum.

**Shares.** A hospital splits its contribution, a vector of whole numbers, into two vectors of *words*
(integers of 64 bits) that add up to it modulo 2^64. One of them is drawn from the system's entropy, so
that each by itself is uniformly random and reveals nothing. Each is encrypted to one aggregator with
HPKE (RFC 9180: X25519, HKDF-SHA256, ChaCha20-Poly1305), bound to base model, round, hospital and
aggregator. HPKE does not authenticate the sender, so the hospital signs a *notice* that names both
ciphertexts by their SHA-256. A *share* is one file: a line with its format, the signed notice, and the
ciphertext.

**Aggregate shares.** Before anything is published, both aggregators sign the set of hospitals of a
round, each in a *closing record*. Only a round that both have closed is published. Each aggregator
publishes an *aggregate share*: the sum of its shares of exactly that set, plus noise. An aggregate share
is uniformly random by itself; both together are the noisy sum over the set.

**Void rounds.** If a hospital of a closed round withdraws, the round is *void*: it is not in the model,
now or later.
"""

import os
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from fcforge.core.errors import ConfigError, ExchangeError, at, refuse
from fcforge.core.files import read_plain
from fcforge_consortium.ledger.entries import LedgerEntry, Spent
from fcforge_consortium.records.canonical import canonical, sha256
from fcforge_consortium.records.keys import Signer
from fcforge_consortium.records.kinds import (
    AggregateShare,
    ClosedMember,
    Closing,
    GivenShare,
    Notice,
    Withdrawal,
    make,
    read_record,
)
from fcforge_consortium.records.names import site_name
from fcforge_consortium.records.policy import Aggregator, Policy
from fcforge_consortium.records.trust import Trust

if TYPE_CHECKING:
    from fcforge_consortium.records.exchange import Exchange

NUMBERS = "numbers"  # name of the array of an aggregate share
LOST = (
    "Nothing was changed. Ask both aggregators which shares they have, and contribute to a new "
    "round."
)
FIRST_LINE = b"fcforge-share 2\n"
OLDER_LINE = b"fcforge-share 1\n"  # of fcforge 0.2
MAX_BYTES = 320 << 20  # a share for 20 classes and 2,000 ROIs, the largest possible
SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
WORD = np.dtype("<u8")  # little-endian, unsigned, 64 bits


def split(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split integers into two vectors of words that add up to them modulo 2^64.

    The first is the system's entropy, the second the difference: each by itself is uniformly random.

    Parameters
    ----------
    numbers : ndarray of shape (m,), int64

    Returns
    -------
    first, second : ndarray of shape (m,), uint64
    """
    words = np.ascontiguousarray(numbers, dtype="<i8").view(WORD)
    first = np.frombuffer(os.urandom(words.nbytes), dtype=WORD)
    return first, words - first


def added(words: Sequence[np.ndarray]) -> np.ndarray:
    """Return the sum (m,) of vectors of m words, modulo 2^64."""
    return np.stack(words).sum(0, dtype=WORD)


def signed_numbers(words: np.ndarray) -> np.ndarray:
    """Return words (m,) as integers (m,) from -2^63 to 2^63 - 1; the inverse of `split` after `added`."""
    return words.view("<i8").astype(np.int64)


class Share(NamedTuple):
    """A share as it travels to an aggregator.

    Attributes
    ----------
    notice : Notice
        The hospital's signed record of both its shares.
    sealed : bytes
        Ciphertext of this share: the words, encrypted to the aggregator.
    """

    notice: Notice
    sealed: bytes

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of the ciphertext, by which the notice names it."""
        return sha256(self.sealed)

    @property
    def aggregator(self) -> str:
        """Return the name of the aggregator that can decrypt it.

        Raises
        ------
        ExchangeError
            If the notice does not name this ciphertext.
        """
        for given in self.notice.shares:
            if given.sha256 == self.sha256:
                return given.aggregator
        raise ExchangeError(
            f"the ciphertext is not the one that '{self.notice.site}' signed for.",
            do="It was changed on the way; ask the hospital to send the file again.",
        )

    @property
    def data(self) -> bytes:
        """Return the bytes of the share's file."""
        return FIRST_LINE + self.notice.line + b"\n" + self.sealed


def seal(
    numbers: np.ndarray,
    aggregators: Sequence[Aggregator],
    base_model: str,
    place: tuple[str, str],
) -> dict[str, bytes]:
    """Split a hospital's numbers into two shares and encrypt each to its aggregator.

    Parameters
    ----------
    numbers : ndarray of shape (m,), int64
        The contribution, without noise.
    aggregators : sequence of two Aggregator
    base_model : str
        Id of the base model.
    place : (round, hospital)
        Names that the ciphertexts are bound to.

    Returns
    -------
    dict of str to bytes
        Ciphertext by the name of the aggregator.
    """
    sealed = {}
    for aggregator, words in zip(aggregators, split(numbers), strict=True):
        context = _bound(base_model, place, aggregator.name)
        public = X25519PublicKey.from_public_bytes(
            bytes.fromhex(aggregator.encryption_key)
        )
        try:
            sealed[aggregator.name] = SUITE.encrypt(words.tobytes(), public, context)
        except ValueError as error:  # a point of small order
            message = f"the encryption key of aggregator '{aggregator.name}' is weak ({error})."
            hint = "Contribute nothing; ask the maker of the base model."
            raise ExchangeError(message, do=hint) from error
    return sealed


def opened(
    share: Share, base_model: str, key: X25519PrivateKey, size: int
) -> np.ndarray:
    """Decrypt a share.

    Parameters
    ----------
    share : Share
    base_model : str
        Id of the base model.
    key : X25519PrivateKey
        Decryption key of the aggregator (`aggregators.encryption_key`).
    size : int
        Expected number of words.

    Returns
    -------
    ndarray of shape (size,), uint64

    Raises
    ------
    ExchangeError
        If the share was encrypted for another round, hospital, base model or key.
    """
    notice = share.notice
    context = _bound(base_model, (notice.round, notice.site), share.aggregator)
    try:
        data = SUITE.decrypt(share.sealed, key, context)
    except InvalidTag as error:
        raise ExchangeError(
            f"the share of '{notice.site}' cannot be opened: it was encrypted to another key, or "
            "for another round, hospital or base model.",
            do="Ask the hospital for a share of this round.",
        ) from error
    if len(data) != size * WORD.itemsize:
        raise ExchangeError(
            f"the share of '{notice.site}' holds {len(data) // WORD.itemsize} numbers instead of "
            f"{size}.",
            do="It was made with another base model or version; ask the hospital for another.",
        )
    return np.frombuffer(data, dtype=WORD)


def _bound(base_model: str, place: tuple[str, str], aggregator: str) -> bytes:
    """Return the context that a ciphertext is bound to (the info of HPKE).

    Parameters
    ----------
    base_model : str
        Id of the base model.
    place : (round, hospital)
    aggregator : str
        Name of the aggregator.
    """
    return canonical(["fcforge share 2", base_model, *place, aggregator])


def read_share(path: str | Path, trust: Trust | None = None) -> Share:
    """Read a share and check its signed notice and its ciphertext.

    Parameters
    ----------
    path : str or Path
    trust : Trust, optional
        Conditions on the signature of the notice; by default any valid signature will do.

    Returns
    -------
    Share

    Raises
    ------
    ExchangeError
        If the file is no share, or notice, signature and ciphertext do not fit.
    """
    data = read_plain(path, MAX_BYTES, ExchangeError)
    with at(path, do="Nothing of it was used; ask the hospital for the file again."):
        if data.startswith(OLDER_LINE):
            raise ExchangeError(
                "is a share of version 1, which fcforge 0.2 reads; this fcforge reads version 2.",
                do="Ask the hospital for a share made with this fcforge.",
            )
        if not data.startswith(FIRST_LINE):
            raise ExchangeError("is not a share.")
        line, _, sealed = data.removeprefix(FIRST_LINE).partition(b"\n")
        notice = read_record(line, "its notice")
        if not isinstance(notice, Notice) or not notice.key:
            raise ExchangeError("holds no signed notice of a hospital.")
        share = Share(notice, sealed)
        _ = share.aggregator
        if trust is not None:
            trust.require(notice)
    return share


# -- the hospital's part of a round ----------------------------------------------------------------
def give(
    exchange: "Exchange",
    entry: LedgerEntry,
    numbers: np.ndarray,
    spent: Spent,
    key: Signer,
) -> tuple[Notice, dict[str, bytes]]:
    """Make the signed notice of a hospital in a round, and its share files by aggregator.

    Parameters
    ----------
    exchange : Exchange
    entry : LedgerEntry
        Ledger entry of the contribution: its people, its round, and the budget of the round's sum.
    numbers : ndarray of shape (m,), int64
        The contribution, without noise: the aggregators add it.
    spent : Spent
        Sum of the budgets in the hospital's ledger, this entry included.
    key : private key
        Key of the hospital, which must sign.

    Returns
    -------
    notice : Notice
    files : dict of str to bytes
        Share file by the name of its aggregator.
    """
    aggregators = _two_aggregators(exchange, key)
    round_name = site_name(entry.round)
    _require_open(exchange, round_name, entry.site)
    base_model = exchange.root.id
    sealed = seal(numbers, aggregators, base_model, (round_name, entry.site))
    shares = []
    for name, ciphertext in sorted(sealed.items()):
        shares.append(GivenShare(aggregator=name, sha256=sha256(ciphertext)))
    notice = make(
        Notice,
        entry.site,
        entry.number,
        [base_model],
        key,
        round=round_name,
        shares=tuple(shares),
        **entry.budget_fields(spent),
    )
    files = {
        name: Share(notice, ciphertext).data for name, ciphertext in sealed.items()
    }
    return notice, files


def _two_aggregators(exchange: "Exchange", key: Signer) -> list[Aggregator]:
    """Return the two aggregators of the policy, sorted by name.

    Parameters
    ----------
    exchange : Exchange
    key : private key or None
        Key of the hospital that contributes to a round.

    Raises
    ------
    ConfigError
        If the policy names no aggregators, or the hospital does not sign.
    ExchangeError
        If the base model is not signed.
    """
    aggregators = sorted(
        exchange.root.policy.aggregators, key=lambda aggregator: aggregator.name
    )
    if len(aggregators) != 2:
        hint = "Leave out --round, or ask the maker of the base model to name two aggregators."
        raise ConfigError(
            "the policy of this base model names no aggregators.", do=hint
        )
    if not exchange.root.key:
        raise ExchangeError(
            "the base model is not signed: whoever handed it on could have named other "
            "aggregators.",
            do="Ask its maker for a signed one (`fcforge consortium base-model --sign KEY`).",
        )
    if key is None:
        hint = "Sign with --sign KEY; `fcforge consortium keys new KEY` makes one."
        raise ConfigError("a contribution to a round must be signed.", do=hint)
    return aggregators


def _require_open(exchange: "Exchange", name: str, site: str) -> None:
    """Raise `ConfigError` if a round is closed already, or the site has contributed to it.

    Parameters
    ----------
    exchange : Exchange
    name : str
        Name of the round.
    site : str
        The hospital that is about to contribute to it.
    """
    obstacles: list[AggregateShare | Closing | Notice] = [
        *exchange.of(AggregateShare),
        *exchange.of(Closing),
        *exchange.of(Notice, site),
    ]
    for record in obstacles:
        if record.round == name:
            message = f"round '{name}' has the {record.title} already."
            raise ConfigError(message, do="Contribute to the next round: --round NEXT.")


# -- the rounds of an exchange ---------------------------------------------------------------------
class Round(NamedTuple):
    """A round that at least one aggregator has closed.

    Attributes
    ----------
    name : str
    closings : tuple of Closing
        One or two, sorted by aggregator.
    aggregate_shares : tuple of AggregateShare
        None, one or two, sorted by aggregator.
    withdrawn : tuple of str
        Hospitals of the round that have withdrawn their notices since.
    """

    name: str
    closings: tuple[Closing, ...]
    aggregate_shares: tuple[AggregateShare, ...]
    withdrawn: tuple[str, ...]

    @property
    def closed(self) -> bool:
        """Return whether both aggregators have closed the round."""
        return len(self.closings) == 2

    @property
    def void(self) -> bool:
        """Return whether a hospital has withdrawn since the round was closed."""
        return bool(self.withdrawn)

    @property
    def published(self) -> bool:
        """Return whether both aggregators have published the round."""
        return len(self.aggregate_shares) == 2

    @property
    def members(self) -> tuple[ClosedMember, ...]:
        """Return the hospitals of the round with their notices."""
        return self.closings[0].hospitals

    @property
    def hospitals(self) -> tuple[str, ...]:
        """Return the names of the hospitals of the round."""
        return tuple(member.site for member in self.members)

    @property
    def notices(self) -> frozenset[str]:
        """Return the ids of the notices of the round."""
        return frozenset(member.notice for member in self.members)

    @property
    def state(self) -> str:
        """Return the state of the round in words."""
        if self.void:
            return f"void: {', '.join(self.withdrawn)} withdrew after it was closed"
        if self.published:
            return "published"
        if self.aggregate_shares:
            return f"closed; published by {self.aggregate_shares[0].site} alone"
        if self.closed:
            return "closed by both aggregators; not published"
        return f"closed by {self.closings[0].site} alone"


def rounds_of(exchange: "Exchange") -> tuple[Round, ...]:
    """Return the rounds of an exchange that are closed, sorted by name.

    Parameters
    ----------
    exchange : Exchange

    Returns
    -------
    tuple of Round

    Raises
    ------
    ExchangeError
        If a closing record or an aggregate share is invalid, or two of one round contradict each
        other.
    """
    policy = exchange.root.policy
    notices = {notice.id: notice for notice in exchange.of(Notice)}
    # (site, number) and (site, commitment): a withdrawal names a notice by both
    withdrawn = {
        (withdrawal.site, identity)
        for withdrawal in exchange.of(Withdrawal)
        for taken in withdrawal.takes
        if taken.kind == "notice"
        for identity in (taken.number, taken.commitment)
    }
    closings: dict[str, list[Closing]] = {}
    left: dict[str, tuple[str, ...]] = {}  # hospitals that withdrew, by round
    for closing in exchange.of(Closing):
        with at(closing.title):
            left[closing.round] = _check_closing(closing, policy, notices, withdrawn)
        closings.setdefault(closing.round, []).append(closing)
    for name, round_closings in closings.items():
        _check_same_set(name, round_closings)
    shares: dict[str, list[AggregateShare]] = {}
    for aggregate_share in exchange.of(AggregateShare):
        with at(aggregate_share.title):
            _check_aggregate_share(
                aggregate_share,
                policy,
                notices,
                closings.get(aggregate_share.round, []),
            )
        shares.setdefault(aggregate_share.round, []).append(aggregate_share)
    for name, aggregate_shares in shares.items():
        _check_pair(name, aggregate_shares)
    return tuple(
        Round(name, tuple(closings[name]), tuple(shares.get(name, ())), left[name])
        for name in sorted(closings)
    )


def _aggregator_keys(policy: Policy) -> dict[str, str]:
    """Return the signing keys of the policy's aggregators by name."""
    return {aggregator.name: aggregator.key for aggregator in policy.aggregators}


def _check_closing(
    closing: Closing,
    policy: Policy,
    notices: Mapping[str, Notice],
    withdrawn: Set[tuple[str, int | str]],
) -> tuple[str, ...]:
    """Check a closing record, and return those of its hospitals that have withdrawn since.

    Parameters
    ----------
    closing : Closing
    policy : Policy
    notices : mapping of str to Notice
        All notices of the exchange by id; withdrawn ones are absent.
    withdrawn : set of (site, number or commitment)
        Withdrawn notices.

    Returns
    -------
    tuple of str

    Raises
    ------
    ExchangeError
        If the record does not fit the policy, its notices or their budgets.
    """
    names = [member.site for member in closing.hospitals]
    too_few = (
        f"is of {len(names)} hospitals; the policy asks for {policy.fewest_hospitals}"
    )
    key = _aggregator_keys(policy).get(closing.site)
    refuse(
        {
            "is not by the aggregator's key in the policy": closing.key != key,
            "names a hospital twice, or not in order": names != sorted(set(names)),
            too_few: len(names) < policy.fewest_hospitals,
        }
    )
    left = []
    budgets = set()
    for member in closing.hospitals:
        site = member.site
        notice = notices.get(member.notice)
        if notice is None:
            if withdrawn.isdisjoint({(site, member.number), (site, member.commitment)}):
                raise ExchangeError(
                    f"names a notice of '{site}' that is not there.",
                    do="Merge the file that holds it, or the withdrawal of it.",
                )
            left.append(site)
            continue
        stated = (site, closing.round, member.number, member.commitment)
        if stated != (notice.site, notice.round, notice.number, notice.commitment):
            raise ExchangeError(f"names a notice of '{site}' that is another one.")
        budgets.add(notice.budget)
        spent = None if notice.mechanism == "none" else notice.spent_epsilon
        with at(f"'{site}'", kind=ExchangeError):
            policy.require_budget(spent, notice.spent_delta)
    if len(budgets) > 1:
        raise ExchangeError("closes over notices with different budgets.")
    return tuple(left)


def _check_same_set(name: str, closings: list[Closing]) -> None:
    """Raise `ExchangeError` unless both closing records of a round name the same notices.

    Parameters
    ----------
    name : str
        Name of the round.
    closings : list of Closing
        All closing records of the round.
    """
    first = closings[0]
    records_of_author = Counter(closing.site for closing in closings)
    for other in closings[1:]:
        with at(f"round '{name}'", do=LOST):
            if records_of_author[other.site] > 1:
                raise ExchangeError(f"aggregator '{other.site}' has closed it twice.")
            first_set = {(member.site, member.notice) for member in first.hospitals}
            other_set = {(member.site, member.notice) for member in other.hospitals}
            for site, _ in sorted(first_set ^ other_set):
                raise ExchangeError(
                    f"the aggregators closed it over different notices of '{site}', or only one "
                    "over any."
                )


def _check_aggregate_share(
    aggregate_share: AggregateShare,
    policy: Policy,
    notices: Mapping[str, Notice],
    closings: Sequence[Closing],
) -> None:
    """Raise `ExchangeError` unless an aggregate share fits the policy, its closings and its notices.

    Parameters
    ----------
    aggregate_share : AggregateShare
    policy : Policy
    notices : mapping of str to Notice
        All notices of the exchange by id.
    closings : sequence of Closing
        All closing records of its round.
    """
    key = _aggregator_keys(policy).get(aggregate_share.site)
    hospitals = [(member.site, member.notice) for member in aggregate_share.hospitals]
    refuse(
        {
            "is not by the aggregator's key in the policy": aggregate_share.key != key,
            "is of a round that both aggregators have not closed": len(closings) != 2
            or set(aggregate_share.closings) != {closing.id for closing in closings},
        }
    )
    for closing in closings:
        closed = [(member.site, member.notice) for member in closing.hospitals]
        differing = sorted({site for site, _ in set(hospitals) ^ set(closed)})
        if hospitals != closed:
            hospital = f"'{differing[0]}'" if differing else "a hospital"
            raise ExchangeError(f"differs in {hospital} from the set that was closed.")
    for member in aggregate_share.hospitals:
        site = member.site
        notice = notices.get(member.notice)
        if notice is None or (notice.site, notice.round) != (
            site,
            aggregate_share.round,
        ):
            raise ExchangeError(f"names a notice of '{site}' that is not there.")
        given_shares = {given.aggregator: given.sha256 for given in notice.shares}
        if given_shares.get(aggregate_share.site) != member.share:
            raise ExchangeError(f"adds a share that '{site}' did not give.")
        if notice.budget != aggregate_share.budget:
            raise ExchangeError(
                f"has another budget than the one for which '{site}' gave its share."
            )
        spent = None if notice.mechanism == "none" else notice.spent_epsilon
        with at(f"'{site}'", kind=ExchangeError):
            policy.require_budget(spent, notice.spent_delta)


def _check_pair(name: str, aggregate_shares: list[AggregateShare]) -> None:
    """Raise `ExchangeError` unless the aggregate shares of a round have two authors and one noise.

    Parameters
    ----------
    name : str
        Name of the round.
    aggregate_shares : list of AggregateShare
        All aggregate shares of the round.
    """
    first = aggregate_shares[0]
    records_of_author = Counter(record.site for record in aggregate_shares)
    for other in aggregate_shares[1:]:
        with at(f"round '{name}'", do=LOST):
            if records_of_author[other.site] > 1:
                raise ExchangeError(
                    f"aggregator '{other.site}' has published it twice."
                )
            for field in ("budget", "grid", "variance"):
                if getattr(first, field) != getattr(other, field):
                    raise ExchangeError(
                        f"the aggregate shares have different noise ({field})."
                    )

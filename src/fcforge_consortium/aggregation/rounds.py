"""Rounds: encrypted shares of hospitals, and aggregate shares that add up to a noisy sum.

A vector of whole numbers becomes two vectors of words that add up to it modulo 2^64. One is drawn
from the system's entropy, so that each by itself is uniform and says nothing, to anybody, for ever.
Each is encrypted to one aggregator with HPKE (RFC 9180: X25519, HKDF-SHA256, ChaCha20-Poly1305), bound
to base model, round, hospital and aggregator. HPKE does not authenticate
the sender, so the hospital signs a notice that names both ciphertexts by their SHA-256.

A share is one file: a line with its format, the signed notice, and the ciphertext.

Before anything is published, both aggregators sign the set of hospitals of a round (`Closing`). Only a
closed round is published, and each of the two aggregate shares adds exactly the shares of that set. An
aggregate share is uniform by itself; both together are the noisy sum over the set. Once a round is closed,
a withdrawal of one of its hospitals makes it void: it is not in the model, now or later.
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
LOST = "Nothing was changed. Ask both aggregators which shares they have, and give a new round."
FIRST_LINE = b"fcforge-share 1\n"
MAX_BYTES = 320 << 20  # of 20 classes and 2,000 ROIs
SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
WORD = np.dtype("<u8")


def split(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split integers (d,) into two vectors of words that add up to them modulo 2^64.

    The first is the system's entropy, the second what is missing: each by itself is uniform.
    """
    whole = np.ascontiguousarray(numbers, dtype="<i8").view(WORD)
    first = np.frombuffer(os.urandom(whole.nbytes), dtype=WORD)
    return first, whole - first


def added(words: Sequence[np.ndarray]) -> np.ndarray:
    """Return the sum (d,) of vectors of words modulo 2^64."""
    return np.stack(words).sum(0, dtype=WORD)


def signed_numbers(words: np.ndarray) -> np.ndarray:
    """Return words (d,) as integers from -2^63 to 2^63 - 1."""
    return words.view("<i8").astype(np.int64)


class Share(NamedTuple):
    """A share as it travels: the hospital's signed notice, and what is encrypted to an aggregator."""

    notice: Notice
    sealed: bytes

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of the encrypted content."""
        return sha256(self.sealed)

    @property
    def aggregator(self) -> str:
        """Name of the aggregator who can open it; `ExchangeError` where its notice names none."""
        for given in self.notice.shares:
            if given.sha256 == self.sha256:
                return given.aggregator
        raise ExchangeError(
            f"the ciphertext is not the one that '{self.notice.site}' signed for.",
            do="It was changed on the way; ask the hospital to send the file again.",
        )

    @property
    def data(self) -> bytes:
        """The file."""
        return FIRST_LINE + self.notice.line + b"\n" + self.sealed


def seal(
    numbers: np.ndarray,
    aggregators: Sequence[Aggregator],
    start: str,
    place: tuple[str, str],
) -> dict[str, bytes]:
    """Encrypt the two shares of a hospital; return ciphertexts by aggregator.

    Parameters
    ----------
    numbers : ndarray of shape (d,)
        Whole numbers.
    aggregators : sequence of two Aggregator
    start : str
        Id of the start.
    place : (round, hospital)
    """
    sealed = {}
    for aggregator, words in zip(aggregators, split(numbers), strict=True):
        bound = _bound(start, place, aggregator.name)
        public = X25519PublicKey.from_public_bytes(
            bytes.fromhex(aggregator.encryption_key)
        )
        try:
            sealed[aggregator.name] = SUITE.encrypt(words.tobytes(), public, bound)
        except ValueError as error:  # a point of small order
            what = f"the encryption key of aggregator '{aggregator.name}' is weak ({error})."
            do = "Give nothing; ask whoever made the start."
            raise ExchangeError(what, do=do) from error
    return sealed


def opened(share: Share, start: str, key: X25519PrivateKey, size: int) -> np.ndarray:
    """Decrypt a share.

    Parameters
    ----------
    share : Share
    start : str
        Id of the base model.
    key : X25519PrivateKey
    size : int
        Expected number of words.

    Returns
    -------
    ndarray of uint64, shape (size,)

    Raises
    ------
    ExchangeError
        If the share was encrypted for another round, hospital, base model or key.
    """
    notice = share.notice
    bound = _bound(start, (notice.round, notice.site), share.aggregator)
    try:
        data = SUITE.decrypt(share.sealed, key, bound)
    except InvalidTag as error:
        raise ExchangeError(
            f"the share of '{notice.site}' cannot be opened: it was encrypted to another key, or "
            "for another round, hospital or start.",
            do="Ask the hospital for a share of this round.",
        ) from error
    if len(data) != size * WORD.itemsize:
        raise ExchangeError(
            f"the share of '{notice.site}' holds {len(data) // WORD.itemsize} numbers instead of "
            f"{size}.",
            do="It was made with another start or version; ask the hospital for another.",
        )
    return np.frombuffer(data, dtype=WORD)


def _bound(start: str, place: tuple[str, str], aggregator: str) -> bytes:
    """Return the context that a ciphertext is bound to (the info of HPKE)."""
    return canonical(["fcforge share 1", start, *place, aggregator])


def read_share(path: str | Path, trust: Trust | None = None) -> Share:
    """Read a share and check its signed notice and its ciphertext.

    Parameters
    ----------
    path : str or Path
    trust : Trust, optional
        Signatures that are required of the notice.

    Returns
    -------
    Share
    """
    data = read_plain(path, MAX_BYTES, ExchangeError)
    with at(path, do="Nothing of it was used; ask the hospital for the file again."):
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


# -- what a hospital does --------------------------------------------------------------------------
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
        Of the people, the round and the budget of its sum.
    numbers : ndarray of shape (d,)
        Whole numbers, exact: the aggregators add the noise.
    spent : Spent
        Most that one of its people has spent with this.
    key : private key
    """
    aggregators = _two_aggregators(exchange, key)
    title = site_name(entry.round)
    _require_open(exchange, title, entry.site)
    start = exchange.root.id
    sealed = seal(numbers, aggregators, start, (title, entry.site))
    shares = []
    for name, data in sorted(sealed.items()):
        shares.append(GivenShare(aggregator=name, sha256=sha256(data)))
    place = (entry.site, entry.number, [start], key)
    said = entry.budget_fields(spent)
    notice = make(Notice, *place, round=title, shares=tuple(shares), **said)
    return notice, {name: Share(notice, data).data for name, data in sealed.items()}


def _two_aggregators(exchange: "Exchange", key: Signer) -> list[Aggregator]:
    """Return the two aggregators by name; raise unless base model and hospital sign."""
    aggregators = sorted(
        exchange.root.policy.aggregators, key=lambda aggregator: aggregator.name
    )
    if len(aggregators) != 2:
        do = "Leave out --round, or ask whoever made the start to name two aggregators."
        raise ConfigError("the policy of this start names no aggregators.", do=do)
    if not exchange.root.key:
        raise ExchangeError(
            "the start is not signed: whoever handed it on could have named other aggregators.",
            do="Ask its maker for a signed one (`fcforge consortium base-model --sign KEY`).",
        )
    if key is None:
        do = "Sign with --sign KEY; `fcforge consortium keys new KEY` makes one."
        raise ConfigError("what is given to aggregators must be signed.", do=do)
    return aggregators


def _require_open(exchange: "Exchange", title: str, site: str) -> None:
    """Raise `ConfigError` if a round is closed already, or the site has contributed to it."""
    given: list[AggregateShare | Closing | Notice] = [
        *exchange.of(AggregateShare),
        *exchange.of(Closing),
        *exchange.of(Notice, site),
    ]
    for record in given:
        if record.round == title:
            what = f"round '{title}' has the {record.title} already."
            raise ConfigError(what, do="Give to the next round: --round NEXT.")


# -- what an exchange holds ------------------------------------------------------------------------
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
    taken = {
        (withdrawal.site, name)
        for withdrawal in exchange.of(Withdrawal)
        for one in withdrawal.takes
        if one.kind == "notice"
        for name in (one.number, one.commitment)
    }
    closings: dict[str, list[Closing]] = {}
    gone: dict[str, tuple[str, ...]] = {}
    for closing in exchange.of(Closing):
        with at(closing.title):
            gone[closing.round] = _check_closing(closing, policy, notices, taken)
        closings.setdefault(closing.round, []).append(closing)
    for name, both in closings.items():
        _check_same_set(name, both)
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
        Round(name, tuple(closings[name]), tuple(shares.get(name, ())), gone[name])
        for name in sorted(closings)
    )


def _aggregator_keys(policy: Policy) -> dict[str, str]:
    """Return the signing keys of the policy's aggregators by name."""
    return {aggregator.name: aggregator.key for aggregator in policy.aggregators}


def _check_closing(
    closing: Closing,
    policy: Policy,
    notices: Mapping[str, Notice],
    taken: Set[tuple[str, int | str]],
) -> tuple[str, ...]:
    """Return the hospitals that withdrew; raise `ExchangeError` for an invalid closing record.

    Parameters
    ----------
    closing : Closing
    policy : Policy
    notices : mapping of str to Notice
        All notices by id.
    taken : set of (site, number or commitment)
        Withdrawn notices.
    """
    names = [one.site for one in closing.hospitals]
    few = f"is of {len(names)} hospitals; the policy asks for {policy.fewest_hospitals}"
    key = _aggregator_keys(policy).get(closing.site)
    refuse(
        {
            "is not by the aggregator's key in the policy": closing.key != key,
            "names a hospital twice, or not in order": names != sorted(set(names)),
            few: len(names) < policy.fewest_hospitals,
        }
    )
    withdrawn = []
    budgets = set()
    for one in closing.hospitals:
        notice = notices.get(one.notice)
        if notice is None:
            if taken.isdisjoint({(one.site, one.number), (one.site, one.commitment)}):
                raise ExchangeError(
                    f"names a notice of '{one.site}' that is not there.",
                    do="Merge the file that holds it, or the withdrawal of it.",
                )
            withdrawn.append(one.site)
            continue
        named = (notice.site, notice.round, notice.number, notice.commitment)
        if named != (one.site, closing.round, one.number, one.commitment):
            raise ExchangeError(f"names a notice of '{one.site}' that is another one.")
        budgets.add(notice.budget)
        spent = None if notice.mechanism == "none" else notice.spent_epsilon
        with at(f"'{one.site}'", kind=ExchangeError):
            policy.require_budget(spent, notice.spent_delta)
    if len(budgets) > 1:
        raise ExchangeError("closes over notices with different budgets.")
    return tuple(withdrawn)


def _check_same_set(name: str, closings: list[Closing]) -> None:
    """Raise `ExchangeError` unless both closing records of a round name the same notices."""
    first = closings[0]
    authors = Counter(one.site for one in closings)
    for other in closings[1:]:
        with at(f"round '{name}'", do=LOST):
            if authors[other.site] > 1:
                raise ExchangeError(f"aggregator '{other.site}' has closed it twice.")
            mine = {(one.site, one.notice) for one in first.hospitals}
            theirs = {(one.site, one.notice) for one in other.hospitals}
            for site, _ in sorted(mine ^ theirs):
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
    """Raise `ExchangeError` unless an aggregate share fits the policy, its closing and its notices."""
    key = _aggregator_keys(policy).get(aggregate_share.site)
    hospitals = [(one.site, one.notice) for one in aggregate_share.hospitals]
    refuse(
        {
            "is not by the aggregator's key in the policy": aggregate_share.key != key,
            "is of a round that both aggregators have not closed": len(closings) != 2
            or set(aggregate_share.closings) != {one.id for one in closings},
        }
    )
    for closing in closings:
        closed = [(one.site, one.notice) for one in closing.hospitals]
        differing = sorted({site for site, _ in set(hospitals) ^ set(closed)})
        if hospitals != closed:
            named = f"'{differing[0]}'" if differing else "a hospital"
            raise ExchangeError(f"differs in {named} from the set that was closed.")
    for one in aggregate_share.hospitals:
        notice = notices.get(one.notice)
        if notice is None or (notice.site, notice.round) != (
            one.site,
            aggregate_share.round,
        ):
            raise ExchangeError(f"names a notice of '{one.site}' that is not there.")
        gave = {given.aggregator: given.sha256 for given in notice.shares}
        if gave.get(aggregate_share.site) != one.share:
            raise ExchangeError(f"adds a share that '{one.site}' did not give.")
        if notice.budget != aggregate_share.budget:
            raise ExchangeError(f"has another budget than '{one.site}' gave its for.")
        spent = None if notice.mechanism == "none" else notice.spent_epsilon
        with at(f"'{one.site}'", kind=ExchangeError):
            policy.require_budget(spent, notice.spent_delta)


def _check_pair(name: str, aggregate_shares: list[AggregateShare]) -> None:
    """Raise `ExchangeError` unless both aggregate shares have the same hospitals and noise."""
    first = aggregate_shares[0]
    authors = Counter(one.site for one in aggregate_shares)
    for other in aggregate_shares[1:]:
        with at(f"round '{name}'", do=LOST):
            if authors[other.site] > 1:
                raise ExchangeError(
                    f"aggregator '{other.site}' has published it twice."
                )
            for name in ("budget", "grid", "variance"):
                if getattr(first, name) != getattr(other, name):
                    raise ExchangeError(
                        f"the aggregate shares have different noise ({name})."
                    )

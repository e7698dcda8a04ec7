"""Aggregators: two institutions that add the shares of a round, which neither can read alone.

Each hospital gives a share to either aggregator (`rounds`). Both aggregators first sign the set of
hospitals of the round: the aggregator whose name comes first closes it, the other confirms the same set.
Then each adds the shares of that set and its own noise, signs the result and publishes it as its
aggregate share. The two aggregate shares add up to the noisy sum. If one aggregator is honest, nobody
learns more than that sum with the noise of one aggregator.

An aggregator closes and publishes a round once: two sums over different hospitals would give the
difference away. Its list of rounds is begun with its key and locked while in use. Every line of it is
sealed, and it knows what was closed and published even if the process dies.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pydantic import Field, TypeAdapter

from fcforge.core.errors import ExchangeError, at, refuse
from fcforge.core.files import read_plain, write_bytes
from fcforge_consortium.aggregation import rounds
from fcforge_consortium.aggregation.rounds import Round, Share, added, opened
from fcforge_consortium.ledger.journal import Header, Intent, Journal
from fcforge_consortium.privacy.noise import discrete_gaussian
from fcforge_consortium.records import keys
from fcforge_consortium.records.archive import Contents, save_arrays
from fcforge_consortium.records.canonical import read_canonical, sha256, to_canonical
from fcforge_consortium.records.fields import Closed, Sha256, SiteName
from fcforge_consortium.records.kinds import (
    AggregateShare,
    ClosedMember,
    Closing,
    RoundMember,
    make,
)
from fcforge_consortium.records.names import site_name
from fcforge_consortium.records.policy import Aggregator, card_statement

if TYPE_CHECKING:
    from fcforge_consortium.records.exchange import Exchange

CARD = ".card"
ROUNDS = ".rounds"
NEXT_ROUND = (
    "Hospitals contribute to a new round (`fcforge consortium contribute --round NEXT`), which is "
    "charged like any other."
)
DERIVED = b"fcforge aggregator encryption 1"  # a key for nothing else


# -- keys and cards of aggregators -----------------------------------------------------------------
def encryption_key(key: Ed25519PrivateKey) -> X25519PrivateKey:
    """Derive the key that decrypts shares from the key that signs aggregate shares.

    Parameters
    ----------
    key : Ed25519PrivateKey

    Returns
    -------
    X25519PrivateKey
    """
    kdf = HKDF(SHA256(), 32, None, DERIVED)
    return X25519PrivateKey.from_private_bytes(kdf.derive(key.private_bytes_raw()))


def card_of(name: str, key: Ed25519PrivateKey) -> Aggregator:
    """Return the card of an aggregator: its public keys, for the policy of a base model.

    Parameters
    ----------
    name : str
    key : Ed25519PrivateKey

    Returns
    -------
    Aggregator
    """
    encryption = encryption_key(key).public_key().public_bytes_raw().hex()
    proof = key.sign(card_statement(name, encryption)).hex()
    public = keys.public_hex(key)
    return Aggregator(name=name, key=public, encryption_key=encryption, proof=proof)


def write_aggregator(path: str | Path, name: str, passphrase: str = "") -> Aggregator:
    """Write a new key of an aggregator, its card and its empty list of rounds.

    Parameters
    ----------
    path : str or Path
        File of the private key; ``path.pub`` gets the public key, ``path.card`` the card and
        ``path.rounds`` the list of rounds.
    name : str
    passphrase : str, optional

    Returns
    -------
    Aggregator
    """
    title = site_name(name)
    keys.write_keys(path, passphrase)
    key = keys.read_private(path, passphrase)
    card = card_of(title, key)
    with RoundList.open(f"{path}{ROUNDS}", key, new=RoundList.new(title, key)):
        pass
    write_bytes(f"{path}{CARD}", to_canonical(card) + b"\n")
    return card


def read_card(path: str | Path) -> Aggregator:
    """Read the card of an aggregator.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    Aggregator
    """
    data = read_plain(path, 1 << 12, ExchangeError)
    with at(path, do="Ask the aggregator for the file that ends in .card."):
        return read_canonical(TypeAdapter(Aggregator), data.removesuffix(b"\n"), "it")


# -- the aggregator's part of a round --------------------------------------------------------------
class ClosedRound(Closed):
    """A round that the aggregator has closed, with the notices of its hospitals."""

    kind: Literal["closed"] = "closed"
    base_model: Sha256
    round: SiteName
    notices: tuple[Sha256, ...]


class Published(Closed):
    """A round that the aggregator has published, with the notices of its hospitals."""

    kind: Literal["published"] = "published"
    base_model: Sha256
    round: SiteName
    notices: tuple[Sha256, ...]


class RoundList(Journal):
    """The rounds that an aggregator has closed and published; beside its key."""

    format = "fcforge-rounds"
    pays = (ClosedRound, Published)
    kinds = TypeAdapter(
        Annotated[
            Header | Intent | ClosedRound | Published, Field(discriminator="kind")
        ]
    )
    keep = "Nothing else knows which rounds were published: bring back your copy of it."
    missing = (
        "`fcforge consortium aggregators new` began it with the key. Bring back your copy of it: "
        "nothing else knows which rounds were published."
    )

    @property
    def closed(self) -> list[ClosedRound]:
        """Return all closed rounds."""
        return [line for line in self.lines if isinstance(line, ClosedRound)]

    @property
    def published(self) -> list[Published]:
        """Return all published rounds."""
        return [line for line in self.lines if isinstance(line, Published)]


class Noise(NamedTuple):
    """Noise of an aggregator: its sigma in units of the grid, the grid, and the number of integers."""

    sigma: int
    grid: float
    size: int


class Aggregated(NamedTuple):
    """The result of an aggregator in a round.

    Attributes
    ----------
    aggregate_share : AggregateShare
    contents : Contents
        The aggregate share with the notices it builds on, to publish.
    exchange : Exchange
        The exchange with these records.
    """

    aggregate_share: AggregateShare
    contents: Contents
    exchange: "Exchange"

    @property
    def line(self) -> Published:
        """Return the line for the aggregator's list of rounds."""
        aggregate_share = self.aggregate_share
        (base_model,) = aggregate_share.parents
        notices = tuple(one.notice for one in aggregate_share.hospitals)
        return Published(
            base_model=base_model, round=aggregate_share.round, notices=notices
        )


class ClosedResult(NamedTuple):
    """The result of closing a round.

    Attributes
    ----------
    closing : Closing
    contents : Contents
        The closing record with the notices of its hospitals, to send on.
    exchange : Exchange
        The exchange with these records.
    """

    closing: Closing
    contents: Contents
    exchange: "Exchange"

    @property
    def line(self) -> ClosedRound:
        """Return the line for the aggregator's list of rounds."""
        closing = self.closing
        notices = tuple(one.notice for one in closing.hospitals)
        return ClosedRound(
            base_model=closing.parents[0], round=closing.round, notices=notices
        )


def close(
    exchange: "Exchange",
    shares: Sequence[Share],
    key: Ed25519PrivateKey,
    size: int,
    listed: RoundList,
) -> ClosedResult:
    """Sign the set of hospitals of a round; nothing is published yet.

    The aggregator whose name comes first chooses the set: all hospitals whose shares it can open and
    that have not withdrawn. The other confirms the same set, for which it must have the shares, too.

    Parameters
    ----------
    exchange : Exchange
        The base model and all records so far; for the second aggregator with the closing record
        of the first.
    shares : sequence of Share
        All of one round and for this aggregator.
    key : private key
        The aggregator's.
    size : int
        Number of integers of a share.
    listed : RoundList
        Rounds closed so far; the caller adds the new one.

    Returns
    -------
    ClosedResult
    """
    aggregator = own_card(exchange, key)
    joined, staying = _joined_shares(exchange, shares, aggregator.name)
    name = shares[0].notice.round
    with at(f"round '{name}'"):
        place = (exchange.root.id, name)
        if place in {(one.base_model, one.round) for one in listed.closed}:
            raise ExchangeError(
                "was closed before: its set of hospitals is fixed.", do=NEXT_ROUND
            )
        _require_enough(exchange, staying)
        private = encryption_key(key)
        for share in staying:
            opened(share, exchange.root.id, private, size)
        _require_confirmed(joined, name, aggregator.name, staying)
    members = tuple(
        ClosedMember(
            site=share.notice.site,
            notice=share.notice.id,
            number=share.notice.number,
            commitment=share.notice.commitment,
        )
        for share in staying
    )
    closing = make(
        Closing,
        aggregator.name,
        1 + len(listed.closed),
        [exchange.root.id],
        key,
        round=name,
        hospitals=members,
    )
    whole = joined.joined([closing])
    rounds.rounds_of(whole)  # one that contradicts the other aggregator's is not signed
    before = [one for one in whole.of(Closing) if one.round == name]
    contents = Contents((*(share.notice for share in staying), *before), {})
    return ClosedResult(closing, contents, whole)


def _require_confirmed(
    exchange: "Exchange", name: str, aggregator: str, staying: Sequence[Share]
) -> None:
    """Raise `ExchangeError` unless an aggregator is the first, or has exactly the first one's set.

    Parameters
    ----------
    exchange : Exchange
        With the closing record of the first aggregator, if there is one.
    name : str
        The round.
    aggregator : str
        Who is about to close it.
    staying : sequence of Share
    """
    first = min(card.name for card in exchange.root.policy.aggregators)
    found = _round_of(exchange, name)
    if found is not None and found.void:
        raise ExchangeError(f"is {found.state}.", do=NEXT_ROUND)
    if aggregator == first:
        return
    if found is None:
        raise ExchangeError(
            f"aggregator '{first}' closes it first; its closing record is not in the file.",
            do=f"Ask '{first}' for the file that it wrote, and name it with --state.",
        )
    _require_same_hospitals(found, staying)


def _round_of(exchange: "Exchange", name: str) -> Round | None:
    """Return a round by name if an aggregator has closed it."""
    matching = (one for one in rounds.rounds_of(exchange) if one.name == name)
    return next(matching, None)


def _require_same_hospitals(closed: Round, staying: Sequence[Share]) -> None:
    """Raise `ExchangeError` unless shares are exactly those of a round's closed set."""
    mine = {share.notice.id: share.notice.site for share in staying}
    theirs = {member.notice: member.site for member in closed.members}
    who = f"'{closed.closings[0].site}' closed the round"
    for id_, site in theirs.items():
        if id_ not in mine:
            raise ExchangeError(
                f"{who} with '{site}', whose share is not among yours.",
                do=f"Ask '{site}' for its share; without it the round cannot be published.",
            )
    for id_, site in mine.items():
        if id_ not in theirs:
            raise ExchangeError(
                f"{who} without this share of '{site}', which came too late.",
                do=f"Leave the share of '{site}' out; it can join the next round.",
            )


def _joined_shares(
    exchange: "Exchange", shares: Sequence[Share], aggregator: str
) -> tuple["Exchange", list[Share]]:
    """Return the exchange with the notices of shares, and the shares that were not withdrawn."""
    _require_one_round(shares, exchange.root.id, aggregator)
    joined = exchange.joined([share.notice for share in shares])
    here = {record.id for record in joined.records}
    ordered = sorted(shares, key=lambda share: share.notice.site)
    return joined, [share for share in ordered if share.notice.id in here]


def _require_enough(exchange: "Exchange", staying: Sequence[Share]) -> None:
    """Raise `ExchangeError` if a round has too few hospitals."""
    fewest = exchange.root.policy.fewest_hospitals
    if len(staying) < fewest:
        raise ExchangeError(
            f"has shares of {len(staying)} hospitals; the policy asks for {fewest}.",
            do="Nothing was written; wait for more, or begin another round.",
        )


def aggregate(
    exchange: "Exchange",
    shares: Sequence[Share],
    key: Ed25519PrivateKey,
    noise: Noise,
    listed: RoundList,
) -> Aggregated:
    """Add the shares of a closed round and noise to an aggregate share.

    Parameters
    ----------
    exchange : Exchange
        The base model and all records so far, with the closing records of both aggregators.
    shares : sequence of Share
        All of one round and for this aggregator.
    key : private key
        The aggregator's.
    noise : Noise
        For the budget that the notices name; sigma 0 without noise.
    listed : RoundList
        Rounds closed and published so far; the caller publishes the new one.

    Returns
    -------
    Aggregated
    """
    aggregator = own_card(exchange, key)
    joined, staying = _joined_shares(exchange, shares, aggregator.name)
    closed = _require_publishable(joined, listed, shares, staying)
    data = _sum(staying, exchange.root.id, key, noise)
    place = (aggregator.name, 1 + len(listed.published), [exchange.root.id], key)
    fields = _share_fields(staying, closed, noise)
    aggregate_share = make(AggregateShare, *place, payload=sha256(data), **fields)
    payloads = {aggregate_share.payload: data}
    whole = joined.joined([aggregate_share], payloads)
    rounds.rounds_of(whole)  # one that does not fit the other aggregator's stays here
    notices = (share.notice for share in staying)
    contents = Contents((*notices, *closed.closings, aggregate_share), payloads)
    return Aggregated(aggregate_share, contents, whole)


def _sum(
    staying: Sequence[Share], start: str, key: Ed25519PrivateKey, noise: Noise
) -> bytes:
    """Return the array of an aggregate share: the shares and secret noise, modulo 2^64."""
    private = encryption_key(key)
    words = [opened(share, start, private, noise.size) for share in staying]
    if noise.sigma:
        drawn = discrete_gaussian(noise.sigma, noise.size)
        words.append(drawn.astype("<i8").view("<u8"))
    return save_arrays({rounds.NUMBERS: added(words)})


def _share_fields(
    staying: Sequence[Share], closed: Round, noise: Noise
) -> dict[str, Any]:
    """Return the fields of an aggregate share: round, hospitals and noise."""
    first = staying[0].notice
    hospitals = [
        RoundMember(site=share.notice.site, notice=share.notice.id, share=share.sha256)
        for share in staying
    ]
    return {
        "round": first.round,
        "hospitals": tuple(hospitals),
        "closings": tuple(sorted(one.id for one in closed.closings)),
        "mechanism": first.mechanism,
        "epsilon": first.epsilon,
        "delta": first.delta,
        "grid": noise.grid,
        "variance": str(noise.sigma**2),
    }


def own_card(exchange: "Exchange", key: Ed25519PrivateKey) -> Aggregator:
    """Return the aggregator of the policy that has this key.

    Parameters
    ----------
    exchange : Exchange
    key : Ed25519PrivateKey

    Returns
    -------
    Aggregator

    Raises
    ------
    ExchangeError
        If the policy does not name the key.
    """
    for aggregator in exchange.root.policy.aggregators:
        if aggregator == card_of(aggregator.name, key):
            return aggregator
    named = ", ".join(k.name for k in exchange.root.policy.aggregators) or "none"
    raise ExchangeError(
        f"the key {keys.public_hex(key)[:16]} is of no aggregator of this start.",
        do=f"Its policy names {named}. Use the key that `fcforge consortium aggregators new` made for it.",
    )


def _require_one_round(shares: Sequence[Share], start: str, aggregator: str) -> None:
    """Raise `ExchangeError` unless all shares belong to one round of this aggregator."""
    if not shares:
        raise ExchangeError("there is no share to add.", do="Name the share files.")
    first = shares[0].notice
    sites = Counter(share.notice.site for share in shares)
    for share in shares:
        notice = share.notice
        often = sites[notice.site]
        with at(f"share of '{notice.site}'", do="Leave it out, or ask the hospital."):
            refuse(
                {
                    "was made for another start": notice.parents != (start,),
                    f"is for aggregator '{share.aggregator}'": share.aggregator
                    != aggregator,
                    f"is of round '{notice.round}'": notice.round != first.round,
                    f"is there {often} times": often > 1,
                    f"has the budget {notice.budget}": notice.budget != first.budget,
                }
            )


def _require_publishable(
    exchange: "Exchange",
    listed: RoundList,
    shares: Sequence[Share],
    staying: Sequence[Share],
) -> Round:
    """Return the closed round of some shares; raise `ExchangeError` if it must not be published.

    A round is published once, by the set that both aggregators have closed: two sums over different
    hospitals would give the difference away.

    Parameters
    ----------
    exchange : Exchange
    listed : RoundList
    shares : sequence of Share
        All shares.
    staying : sequence of Share
        Those that were not withdrawn.
    """
    name = shares[0].notice.round
    place = (exchange.root.id, name)
    with at(f"round '{name}'"):
        if place in {(one.base_model, one.round) for one in listed.published}:
            raise ExchangeError(
                "was published before. Twice would give the difference away.",
                do=NEXT_ROUND,
            )
        closed = _round_of(exchange, name)
        if closed is not None and closed.void:
            raise ExchangeError(f"is {closed.state}.", do=NEXT_ROUND)
        if closed is None or not closed.closed:
            raise ExchangeError(
                "is not closed by both aggregators.",
                do="Close it first (`fcforge consortium close`), and name the file with both "
                "closing records with --state.",
            )
        notices = tuple(member.notice for member in closed.members)
        own = [o.notices for o in listed.closed if (o.base_model, o.round) == place]
        if own != [notices]:
            raise ExchangeError(
                f"is not in the list {listed.path} as closed over these hospitals.",
                do="The list is older than the closing record: bring back the newest copy of it.",
            )
        _require_enough(exchange, staying)
        _require_same_hospitals(closed, staying)
        return closed

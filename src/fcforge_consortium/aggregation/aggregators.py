"""Aggregators: two institutions that add the shares of a round, which neither can read alone.

A *round* is a set of hospitals. Each of them splits its contribution into two *shares* that look random
by themselves, encrypts one to each aggregator, and signs a *notice* of both (`rounds`). An aggregator
then does two things:

- *close*: it signs a closing record, which fixes the set of hospitals. The aggregator whose name comes
  first in the alphabet closes first; the other confirms the same set.
- *aggregate*: once both have closed, it adds the shares of that set and its own noise, and publishes
  the signed result as its *aggregate share*.

The two aggregate shares add up to the noisy sum of the contributions. If one aggregator is honest,
nobody learns more than that sum with the noise of one aggregator.

An aggregator closes and publishes a round once: from two sums over different hospitals their
difference would follow. Its *list of rounds* is a journal (`ledger.journal`) that is begun with its key.
It records what was closed and published even if the process is killed.
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

CARD = ".card"  # KEY.card has the public keys of the aggregator with the key KEY
ROUNDS = ".rounds"  # KEY.rounds is its list of rounds
ASK_CARD = (
    "Ask the aggregator for the file that ends in .card. A file that ends in .keeper is of fcforge 0.2: "
    "the aggregator needs a new key (`fcforge consortium aggregators new`)."
)
NEXT_ROUND = (
    "Hospitals contribute to a new round (`fcforge consortium contribute --round NEXT`), which is "
    "charged like any other."
)
DERIVED = b"fcforge aggregator encryption 1"  # binds the derived key to this one use


# -- keys and cards of aggregators -----------------------------------------------------------------
def encryption_key(key: Ed25519PrivateKey) -> X25519PrivateKey:
    """Derive the key that decrypts shares from the key that signs, so that one key file is enough.

    Parameters
    ----------
    key : Ed25519PrivateKey
        The aggregator's key, which signs its closing records and aggregate shares.

    Returns
    -------
    X25519PrivateKey
    """
    kdf = HKDF(SHA256(), 32, None, DERIVED)
    return X25519PrivateKey.from_private_bytes(kdf.derive(key.private_bytes_raw()))


def card_of(name: str, key: Ed25519PrivateKey) -> Aggregator:
    """Return the card of an aggregator: its name and public keys, for the policy of a base model.

    Parameters
    ----------
    name : str
    key : Ed25519PrivateKey
        The aggregator's key.

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
        Name of the aggregator.
    passphrase : str, optional
        Encrypts the private key.

    Returns
    -------
    Aggregator
        The card.
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
    with at(path, do=ASK_CARD):
        return read_canonical(TypeAdapter(Aggregator), data.removesuffix(b"\n"), "it")


# -- the aggregator's part of a round --------------------------------------------------------------
class ClosedRound(Closed):
    """Line of the list of rounds: a round that the aggregator has closed.

    Attributes
    ----------
    base_model : str
        Id of the base model.
    round : str
        Name of the round.
    notices : tuple of str
        Ids of the notices of its hospitals.
    """

    kind: Literal["closed"] = "closed"
    base_model: Sha256
    round: SiteName
    notices: tuple[Sha256, ...]


class Published(Closed):
    """Line of the list of rounds: a round whose aggregate share the aggregator has published.

    Attributes
    ----------
    base_model, round, notices
        As in `ClosedRound`.
    """

    kind: Literal["published"] = "published"
    base_model: Sha256
    round: SiteName
    notices: tuple[Sha256, ...]


class RoundList(Journal):
    """List of the rounds that an aggregator has closed and published; a journal beside its key."""

    format = "fcforge-rounds"
    committing = (ClosedRound, Published)
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
    """Noise that an aggregator adds to the sum of its shares.

    Attributes
    ----------
    sigma : int
        Standard deviation, in units of the grid; 0 without noise.
    grid : float
        Real value of one unit.
    size : int
        Number of integers of a share.
    """

    sigma: int
    grid: float
    size: int


class Aggregated(NamedTuple):
    """The result of publishing a round: one aggregator's aggregate share.

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
        notices = tuple(member.notice for member in aggregate_share.hospitals)
        return Published(
            base_model=base_model, round=aggregate_share.round, notices=notices
        )


class ClosedResult(NamedTuple):
    """The result of closing a round: one aggregator's closing record.

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
        notices = tuple(member.notice for member in closing.hospitals)
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
        Shares of one round for this aggregator.
    key : private key
        Key of the aggregator.
    size : int
        Number of integers of a share.
    listed : RoundList
        Rounds closed so far; the caller adds the new one.

    Returns
    -------
    ClosedResult

    Raises
    ------
    ExchangeError
        If the round was closed before, a share cannot be opened, there are too few hospitals, or the
        set differs from that of the first aggregator.
    """
    aggregator = own_card(exchange, key)
    joined, staying = _joined_shares(exchange, shares, aggregator.name)
    name = shares[0].notice.round
    with at(f"round '{name}'"):
        this_round = (exchange.root.id, name)
        if this_round in {(line.base_model, line.round) for line in listed.closed}:
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
    # raises for a closing record that contradicts the other aggregator's: it is never written
    rounds.rounds_of(whole)
    closings = [record for record in whole.of(Closing) if record.round == name]
    contents = Contents((*(share.notice for share in staying), *closings), {})
    return ClosedResult(closing, contents, whole)


def _require_confirmed(
    exchange: "Exchange", name: str, aggregator: str, staying: Sequence[Share]
) -> None:
    """Raise `ExchangeError` unless an aggregator may close a round over these shares.

    The aggregator whose name comes first may close it over any set; the second one only over the set
    that the first has signed. Nobody may close a void round.

    Parameters
    ----------
    exchange : Exchange
        With the closing record of the first aggregator, if there is one.
    name : str
        Name of the round.
    aggregator : str
        Name of the aggregator that is about to close it.
    staying : sequence of Share
        Its shares, without those that were withdrawn.
    """
    first = min(card.name for card in exchange.root.policy.aggregators)
    closed = _round_of(exchange, name)
    if closed is not None and closed.void:
        raise ExchangeError(f"is {closed.state}.", do=NEXT_ROUND)
    if aggregator == first:
        return
    if closed is None:
        raise ExchangeError(
            f"aggregator '{first}' closes it first; its closing record is not in the file.",
            do=f"Ask '{first}' for the file that it wrote, and name it with --state.",
        )
    _require_same_hospitals(closed, staying)


def _round_of(exchange: "Exchange", name: str) -> Round | None:
    """Return a round by name if at least one aggregator has closed it, else None."""
    matching = (each for each in rounds.rounds_of(exchange) if each.name == name)
    return next(matching, None)


def _require_same_hospitals(closed: Round, staying: Sequence[Share]) -> None:
    """Raise `ExchangeError` unless shares are exactly those of a round's closed set.

    Parameters
    ----------
    closed : Round
    staying : sequence of Share
        Shares of one aggregator, without those that were withdrawn.
    """
    own_sites = {share.notice.id: share.notice.site for share in staying}
    closed_sites = {member.notice: member.site for member in closed.members}
    first = f"'{closed.closings[0].site}' closed the round"
    for notice_id, site in closed_sites.items():
        if notice_id not in own_sites:
            raise ExchangeError(
                f"{first} with '{site}', whose share is not among yours.",
                do=f"Ask '{site}' for its share; without it the round cannot be published.",
            )
    for notice_id, site in own_sites.items():
        if notice_id not in closed_sites:
            raise ExchangeError(
                f"{first} without this share of '{site}', which came too late.",
                do=f"Leave the share of '{site}' out; it can join the next round.",
            )


def _joined_shares(
    exchange: "Exchange", shares: Sequence[Share], aggregator: str
) -> tuple["Exchange", list[Share]]:
    """Return the exchange with the notices of shares, and the shares that were not withdrawn.

    Parameters
    ----------
    exchange : Exchange
    shares : sequence of Share
        All shares that the aggregator was given for a round.
    aggregator : str
        Name of the aggregator.

    Returns
    -------
    joined : Exchange
    staying : list of Share
        Sorted by hospital.
    """
    _require_one_round(shares, exchange.root.id, aggregator)
    joined = exchange.joined([share.notice for share in shares])
    present = {record.id for record in joined.records}  # without withdrawn notices
    ordered = sorted(shares, key=lambda share: share.notice.site)
    return joined, [share for share in ordered if share.notice.id in present]


def _require_enough(exchange: "Exchange", staying: Sequence[Share]) -> None:
    """Raise `ExchangeError` if a round has fewer hospitals than the policy asks for."""
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
    """Make an aggregate share: the sum of the shares of a closed round, plus noise.

    Parameters
    ----------
    exchange : Exchange
        The base model and all records so far, with the closing records of both aggregators.
    shares : sequence of Share
        Shares of one round for this aggregator.
    key : private key
        Key of the aggregator.
    noise : Noise
        Noise for the budget that the notices name.
    listed : RoundList
        Rounds closed and published so far; the caller adds the new one.

    Returns
    -------
    Aggregated

    Raises
    ------
    ExchangeError
        If the round was published before, is void, or is not closed over exactly these shares.
    """
    aggregator = own_card(exchange, key)
    joined, staying = _joined_shares(exchange, shares, aggregator.name)
    closed = _require_publishable(joined, listed, shares, staying)
    data = _sum(staying, exchange.root.id, key, noise)
    number = 1 + len(listed.published)
    fields = _share_fields(staying, closed, noise)
    aggregate_share = make(
        AggregateShare,
        aggregator.name,
        number,
        [exchange.root.id],
        key,
        payload=sha256(data),
        **fields,
    )
    payloads = {aggregate_share.payload: data}
    whole = joined.joined([aggregate_share], payloads)
    # raises for one that does not fit the other aggregator's: it is never written
    rounds.rounds_of(whole)
    notices = (share.notice for share in staying)
    contents = Contents((*notices, *closed.closings, aggregate_share), payloads)
    return Aggregated(aggregate_share, contents, whole)


def _sum(
    staying: Sequence[Share], base_model: str, key: Ed25519PrivateKey, noise: Noise
) -> bytes:
    """Return the payload of an aggregate share: the sum of shares and secret noise, modulo 2^64.

    Parameters
    ----------
    staying : sequence of Share
        The shares of the closed set of hospitals.
    base_model : str
        Id of the base model.
    key : private key
        Key of the aggregator.
    noise : Noise
    """
    private = encryption_key(key)
    words = [opened(share, base_model, private, noise.size) for share in staying]
    if noise.sigma:
        drawn = discrete_gaussian(noise.sigma, noise.size)
        # the same 64 bits as a word: modulo 2^64 a negative number adds like any other
        words.append(drawn.astype("<i8").view("<u8"))
    return save_arrays({rounds.NUMBERS: added(words)})


def _share_fields(
    staying: Sequence[Share], closed: Round, noise: Noise
) -> dict[str, Any]:
    """Return the fields of an aggregate share: round, hospitals, budget and noise.

    Parameters
    ----------
    staying : sequence of Share
        The shares of the closed set of hospitals, all with the same budget.
    closed : Round
    noise : Noise
    """
    first = staying[0].notice
    hospitals = [
        RoundMember(site=share.notice.site, notice=share.notice.id, share=share.sha256)
        for share in staying
    ]
    return {
        "round": first.round,
        "hospitals": tuple(hospitals),
        "closings": tuple(sorted(closing.id for closing in closed.closings)),
        "mechanism": first.mechanism,
        "epsilon": first.epsilon,
        "delta": first.delta,
        "grid": noise.grid,
        "variance": str(noise.sigma**2),
    }


def own_card(exchange: "Exchange", key: Ed25519PrivateKey) -> Aggregator:
    """Return the card in the policy of the aggregator that has this key.

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
    names = ", ".join(card.name for card in exchange.root.policy.aggregators) or "none"
    raise ExchangeError(
        f"the key {keys.public_hex(key)[:16]} belongs to no aggregator of this base model.",
        do=f"Its policy names {names}. Use the key that `fcforge consortium aggregators new` made for it.",
    )


def _require_one_round(
    shares: Sequence[Share], base_model: str, aggregator: str
) -> None:
    """Raise `ExchangeError` unless all shares belong to one round and are for one aggregator.

    Parameters
    ----------
    shares : sequence of Share
    base_model : str
        Id of the base model.
    aggregator : str
        Name of the aggregator.
    """
    if not shares:
        raise ExchangeError("there is no share to add.", do="Name the share files.")
    first = shares[0].notice
    shares_of_site = Counter(share.notice.site for share in shares)
    for share in shares:
        notice = share.notice
        times = shares_of_site[notice.site]
        other_aggregator = share.aggregator != aggregator
        with at(f"share of '{notice.site}'", do="Leave it out, or ask the hospital."):
            refuse(
                {
                    "was made for another base model": notice.parents != (base_model,),
                    f"is for aggregator '{share.aggregator}'": other_aggregator,
                    f"is of round '{notice.round}'": notice.round != first.round,
                    f"is there {times} times": times > 1,
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

    A round is published once, over the set that both aggregators have closed: from two sums over
    different hospitals their difference would follow.

    Parameters
    ----------
    exchange : Exchange
    listed : RoundList
        Rounds that this aggregator has closed and published.
    shares : sequence of Share
        All shares that it was given.
    staying : sequence of Share
        Those that were not withdrawn.

    Returns
    -------
    Round
    """
    name = shares[0].notice.round
    this_round = (exchange.root.id, name)
    with at(f"round '{name}'"):
        if this_round in {(line.base_model, line.round) for line in listed.published}:
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
        listed_notices = [
            line.notices
            for line in listed.closed
            if (line.base_model, line.round) == this_round
        ]
        if listed_notices != [notices]:
            raise ExchangeError(
                f"is not in the list {listed.path} as closed over these hospitals.",
                do="The list is older than the closing record: bring back the newest copy of it.",
            )
        _require_enough(exchange, staying)
        _require_same_hospitals(closed, staying)
        return closed

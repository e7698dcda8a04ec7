"""Aggregators: two institutions that add the shares of a round, which neither can read alone.

A round is a named set of hospitals. Each gives a share to either aggregator (`rounds`). An aggregator adds
the shares of a round and its own noise, signs the result and publishes it as its aggregate share.
The two aggregate shares add up to the noisy sum. If one aggregator is honest, nobody learns more
than that sum with the noise of one aggregator.

An aggregator publishes a round once: two sums over different hospitals would give the difference away.
Its list of rounds is locked while in use, and knows what was published even if the process dies.
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
from fcforge_consortium.aggregation.rounds import Share, added, opened
from fcforge_consortium.ledger.journal import Header, Intent, Journal
from fcforge_consortium.privacy.noise import discrete_gaussian
from fcforge_consortium.records import keys
from fcforge_consortium.records.archive import Contents, save_arrays
from fcforge_consortium.records.canonical import read_canonical, sha256, to_canonical
from fcforge_consortium.records.fields import Closed, Sha256, SiteName
from fcforge_consortium.records.kinds import AggregateShare, RoundMember, make
from fcforge_consortium.records.names import site_name
from fcforge_consortium.records.policy import Aggregator, card_statement

if TYPE_CHECKING:
    from fcforge_consortium.records.exchange import Exchange

CARD = ".card"
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
    """Write a new key of an aggregator and its card.

    Parameters
    ----------
    path : str or Path
        File of the private key; ``path.pub`` gets the public key, ``path.card`` the card.
    name : str
    passphrase : str, optional

    Returns
    -------
    Aggregator
    """
    title = site_name(name)
    keys.write_keys(path, passphrase)
    card = card_of(title, keys.read_private(path, passphrase))
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
class Published(Closed):
    """A round that the aggregator has published, with the notices of its hospitals."""

    kind: Literal["published"] = "published"
    base_model: Sha256
    round: SiteName
    notices: tuple[Sha256, ...]


class RoundList(Journal):
    """The rounds that an aggregator has published; beside its key."""

    format = "fcforge-rounds"
    pays = Published
    kinds = TypeAdapter(
        Annotated[Header | Intent | Published, Field(discriminator="kind")]
    )
    keep = "Nothing else knows which rounds were published: bring back your copy of it."

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


def aggregate(
    exchange: "Exchange",
    shares: Sequence[Share],
    key: Ed25519PrivateKey,
    noise: Noise,
    listed: RoundList,
) -> Aggregated:
    """Add the shares of one round and noise to an aggregate share.

    Parameters
    ----------
    exchange : Exchange
        The base model and all records so far.
    shares : sequence of Share
        All of one round and for this aggregator.
    key : private key
        The aggregator's.
    noise : Noise
        For the budget that the notices name; sigma 0 without noise.
    listed : RoundList
        Rounds published so far; the caller publishes the new one.

    Returns
    -------
    Aggregated
    """
    aggregator = own_card(exchange, key)
    _require_one_round(shares, exchange.root.id, aggregator.name)
    joined = exchange.joined([share.notice for share in shares])
    here = {record.id for record in joined.records}
    ordered = sorted(shares, key=lambda share: share.notice.site)
    staying = [share for share in ordered if share.notice.id in here]
    _require_publishable(exchange, listed, shares, staying)
    data = _sum(staying, exchange.root.id, key, noise)
    place = (aggregator.name, 1 + len(listed.published), [exchange.root.id], key)
    fields = _share_fields(staying, noise)
    aggregate_share = make(AggregateShare, *place, payload=sha256(data), **fields)
    payloads = {aggregate_share.payload: data}
    whole = joined.joined([aggregate_share], payloads)
    rounds.rounds_of(whole)  # one that does not fit the other aggregator's stays here
    contents = Contents(
        (*(share.notice for share in staying), aggregate_share), payloads
    )
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


def _share_fields(staying: Sequence[Share], noise: Noise) -> dict[str, Any]:
    """Return the fields of an aggregate share: round, hospitals and noise."""
    first = staying[0].notice
    hospitals = [
        RoundMember(site=share.notice.site, notice=share.notice.id, share=share.sha256)
        for share in staying
    ]
    return {
        "round": first.round,
        "hospitals": tuple(hospitals),
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
) -> None:
    """Raise `ExchangeError` if a round has too few hospitals, or was published before.

    A round is published once, whatever was withdrawn since: two sums over different hospitals
    would give the difference away.
    """
    fewest = exchange.root.policy.fewest_hospitals
    name = shares[0].notice.round
    with at(f"round '{name}'"):
        if len(staying) < fewest:
            raise ExchangeError(
                f"has shares of {len(staying)} hospitals; the policy asks for {fewest}.",
                do="Nothing was published now; wait for more, or begin another round.",
            )
        place = (exchange.root.id, name)
        earlier = [p for p in listed.published if (p.base_model, p.round) == place]
        if not earlier:
            return
        late = [s.notice.site for s in staying if s.notice.id not in earlier[0].notices]
        who = f"; the share of '{late[0]}' came too late for it" if late else ""
        raise ExchangeError(
            f"was published before{who}. Twice would give the difference away.",
            do="Hospitals contribute to a new round (`fcforge consortium contribute --round "
            "NEXT`), which is charged like any other.",
        )

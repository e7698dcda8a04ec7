"""What a keeper does with files: adds the shares of a round and publishes its half."""

from collections.abc import Sequence

from fcforge.exchange import archive
from fcforge.exchange.exchange import open_exchange
from fcforge.exchange.keeping.keepers import Kept, Noise, RoundList, keep, own_card
from fcforge.exchange.keeping.shares import Share, read_share
from fcforge.exchange.keys import Trust, read_private
from fcforge.exchange.starts.releases import Releases
from fcforge.releases.vector import noise_units
from fcforge.requests import KeepRequest


def keep_files(asked: KeepRequest) -> Kept:
    """Add the shares of a round; the half is written and on the keeper's list, or neither."""
    archive.require_place(asked.out)
    key = read_private(asked.key)
    trust = Trust.asked(asked)
    exchange = open_exchange(asked.state, trust)
    own_card(exchange, key)  # a chain has no keepers
    shares = [read_share(path, trust) for path in asked.shares]
    model = Releases(exchange)
    noise = _noise(model, shares)
    with RoundList.open(asked.rounds or f"{asked.key}.rounds") as listed:
        place = (exchange, shares, key, noise, model.size, listed)
        kept = keep(*place, again=asked.again)
        kept.exchange.require_trusted(trust)
        listed.publish(kept.line, {asked.out: archive.pack(kept.contents)})
    return kept


def _noise(model: Releases, shares: Sequence[Share]) -> Noise:
    """A keeper's dose for the budget that the notices name; `keep` sees that it is one."""
    epsilon, delta = shares[0].notice.budget if shares else (None, 0.0)
    if epsilon is not None:
        model.exchange.root.policy.require_budget(epsilon, delta)
    return Noise(noise_units(epsilon, delta), model.grid)

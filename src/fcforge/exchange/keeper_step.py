"""What a keeper does with files: adds the shares of a round and publishes its half."""

from collections.abc import Sequence
from pathlib import Path

from fcforge.exchange import archive
from fcforge.exchange.exchange import open_exchange
from fcforge.exchange.keepers import Kept, Noise, RoundList, keep, rounds_file
from fcforge.exchange.keys import Trust, read_private
from fcforge.exchange.release_step import Budget
from fcforge.exchange.releases import Releases
from fcforge.exchange.shares import read_share


def keep_files(
    paths: Sequence[Path],
    state: Path,
    key: Path,
    out: Path,
    trust: Trust,
    *,
    listed: Path | None = None,
    again: bool = False,
    overwrite: bool = False,
) -> Kept:
    """Add the shares of a round; the half is written and on the keeper's list, or neither.

    Parameters
    ----------
    paths : sequence of Path
        Share files.
    state : Path
        The start, or the exchange with what was withdrawn or published since.
    key : Path
        The keeper's private key.
    out : Path
        Written: the half with the notices of its hospitals.
    trust : Trust
        Whose notices are accepted.
    listed : Path, optional
        The keeper's list of rounds; by default beside the key.
    again, overwrite : bool
        As in `keepers.keep`; replace `out`.
    """
    archive.require_place(out, overwrite=overwrite)
    private = read_private(key)
    exchange = open_exchange(state, trust)
    shares = [read_share(path) for path in paths]
    model = Releases(exchange)
    noise = Noise(0, model.grid)
    if shares and shares[0].notice.mechanism == "gaussian":
        first = shares[0].notice
        exchange.root.policy.require_budget(first.epsilon, first.delta)
        budget = Budget(first.epsilon, first.delta)
        noise = Noise(model.noise_units(budget), model.grid)
    with RoundList.open(listed or rounds_file(key)) as rounds:
        kept = keep(exchange, shares, private, noise, model.size, rounds, again=again)
        kept.exchange.require_trusted(trust)
        rounds.publish(kept.line, {out: archive.pack(kept.contents)})
    return kept

"""Merge files, withdraw a site's contributions, and rotate a site's key."""

from collections.abc import Callable
from typing import Any

from fcforge_consortium.aggregation.rounds import rounds_of
from fcforge_consortium.operations.ledger import hand_over
from fcforge_consortium.operations.people import no_report
from fcforge_consortium.options import MergeRequest, RotateRequest, WithdrawRequest
from fcforge_consortium.records import exchange
from fcforge_consortium.records.exchange import Exchange
from fcforge_consortium.records.keys import read_private, read_signer
from fcforge_consortium.records.kinds import Rotation, Withdrawal
from fcforge_consortium.records.names import site_name
from fcforge_consortium.records.trust import Trust


def merge_files(request: MergeRequest) -> Exchange:
    """Write the union of whole consortium files and single records, in any order, and return it."""
    merged = exchange.union_of(request.files, Trust.asked(request))
    exchange.save(merged, request.out)
    return merged


def withdraw_file(
    request: WithdrawRequest, warn: Callable[[str], Any] = no_report
) -> Exchange:
    """Withdraw a site's contributions and write the file without them.

    Parameters
    ----------
    request : WithdrawRequest
        ``out`` is the whole file, or with the suffix ``.record`` the withdrawal alone.
    warn : callable
        Called with a sentence about each round that is lost, and whose contributions with it.

    Returns
    -------
    Exchange
        Without the contributions, with the withdrawal.
    """
    name = site_name(request.site)
    opened = exchange.open_exchange(request.state, Trust.asked(request))
    without = opened.withdrawn(name, read_signer(request.sign))
    exchange.save(without, request.out, without.of(Withdrawal, name)[-1:])
    for lost in rounds_of(opened):
        if name in lost.hospitals:
            others = ", ".join(site for site in lost.hospitals if site != name)
            warn(
                f"WARNING: round '{lost.name}' leaves the model as a whole, and with it the "
                f"contributions of {others}: nobody can be taken out of its sum. The others may "
                "run a new round, which is charged like any other."
            )
    return without


def rotate_file(
    request: RotateRequest, warn: Callable[[str], Any] = no_report
) -> Rotation:
    """Write a file, or the rotation alone, in which a new key signs for a site.

    The new key also seals the ledgers of the old one from now on.

    Parameters
    ----------
    request : RotateRequest
    warn : callable
        Called with a sentence about each ledger that is missing.

    Returns
    -------
    Rotation
    """
    name = site_name(request.site)
    opened = exchange.open_exchange(request.state, Trust.asked(request))
    old, new = read_private(request.old), read_private(request.new)
    rotated = opened.rotated(name, old, new)
    for place in hand_over(request, old, new):
        warn(
            f"WARNING: the ledger {place} is not in its place and still needs the old key. Restore "
            "it, then run the same command again with another --out."
        )
    last = rotated.of(Rotation, name)[-1:]
    exchange.save(rotated, request.out, last)
    return last[0]

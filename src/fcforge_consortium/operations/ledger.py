"""Open, begin, register and hand over the ledgers of a hospital."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from fcforge.core.errors import ExchangeError
from fcforge_consortium.ledger.journal import Handover
from fcforge_consortium.ledger.known import KnownLedgers
from fcforge_consortium.ledger.ledger import Ledger
from fcforge_consortium.operations.people import ledger_of
from fcforge_consortium.options import (
    LedgerNewRequest,
    LedgerRegisterRequest,
    RotateRequest,
    SiteRequest,
)
from fcforge_consortium.records.keys import PrivateKey, Signer, public_hex, read_private
from fcforge_consortium.records.names import site_name


@contextlib.contextmanager
def open_ledger(request: SiteRequest, key: Signer) -> Iterator[Ledger]:
    """Open the ledger of a hospital for one more entry, or begin it with ``--new-ledger``.

    Parameters
    ----------
    request : SiteRequest
    key : private key or None
        The hospital's.

    Yields
    ------
    Ledger

    Raises
    ------
    FCForgeError
        If the ledger is missing, changed, older than the key's list says, of another hospital or
        sealed by another key; or if a new one would hide an earlier one.
    """
    new = Ledger.new(request.site, key) if request.new_ledger else None
    with Ledger.of_key(ledger_of(request), key, request.sign, new) as ledger:
        ledger.require_site(request.site)
        yield ledger


def new_ledger(request: LedgerNewRequest) -> Path:
    """Begin a ledger for people who are in no other ledger of the key; return its path."""
    key = read_private(request.sign)
    header = Ledger.new(site_name(request.site), key, request.cohort)
    with Ledger.of_key(request.file, key, request.sign, header) as ledger:
        return ledger.path


def register_ledger(request: LedgerRegisterRequest) -> Path:
    """Write the place of a ledger into the list beside its key; return the list's path.

    A ledger that the list knows must have all lines that the list knows of it.
    """
    key = read_private(request.sign)
    ledger = Ledger.read(request.file)
    if ledger.key != public_hex(key):
        raise ExchangeError(
            "is not sealed by this key.", where=request.file, do="Name its own key."
        )
    with KnownLedgers.open(request.sign, key) as known:
        if ledger.header.id in known.ledgers:
            known.require_newest(ledger.header.id, request.file, ledger.heads)
        known.note(ledger.header, request.file, ledger.heads[-1])
    return known.path


def hand_over(request: RotateRequest, old: PrivateKey, new: PrivateKey) -> list[Path]:
    """Let a new key seal all ledgers of the old one; return those that are not in their places.

    A missing ledger must not keep a hospital from replacing a stolen key. A command that was killed
    can be repeated: what was handed over before is left as it is. The list of the old key keeps the
    ledgers, so that the old key cannot begin another one for the same people.

    Parameters
    ----------
    request : RotateRequest
    old, new : private key

    Returns
    -------
    list of Path
    """
    public = public_hex(new)
    missing = []
    with (
        KnownLedgers.open(request.old, old) as before,
        KnownLedgers.open(request.new, new) as after,
    ):
        for id_, known in tuple(before.ledgers.items()):
            place = Path(known.path)
            if not place.exists():
                missing.append(place)
                continue
            if Ledger.read(place).key != public:
                with Ledger.known_by(before, place, old) as ledger:
                    ledger.append(Handover(new_key=public))
            ledger = Ledger.read(place)
            before.require_newest(id_, place, ledger.heads)
            after.note(ledger.header, place, ledger.heads[-1])
    return missing

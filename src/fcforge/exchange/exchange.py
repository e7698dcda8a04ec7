"""An exchange: the set of records around one root, and the one walk that checks it.

Merging is union: the order of files never matters, and the same record twice is one. A withdrawal
is a record that takes others away. Whatever does not fit is refused by name, and nothing of it is
used.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from fcforge.errors import ExchangeError, at
from fcforge.exchange import archive, model, rules, schema
from fcforge.exchange.archive import Contents, load_arrays
from fcforge.exchange.keys import PrivateKey, Signer, Trust, public_hex
from fcforge.exchange.records import (
    Record,
    Rotation,
    Taken,
    Withdrawal,
    agreement,
    make,
)

ZIP = b"PK"  # how an exchange file begins, and a private record does not
SINGLE = ".record"  # suffix of a file with the new records alone
Kind = TypeVar("Kind", bound=Record)


@dataclass(frozen=True, eq=False)
class Exchange:
    """A root and the records that build on it, all checked by `joined`.

    Attributes
    ----------
    root : Record
        A start or a chain.
    records : tuple of Record
        Without the root, in the order of a file; what was withdrawn is gone.
    payloads : mapping of SHA-256 to bytes
        Arrays of the records.
    """

    root: Any
    records: tuple[Record, ...] = ()
    payloads: Mapping[str, bytes] = field(default_factory=dict)

    @cached_property
    def id(self) -> str:
        """SHA-256 over all record ids: names this state of the exchange."""
        ids = sorted(record.id for record in self.everything)
        return schema.sha256(schema.canonical(ids))

    @property
    def everything(self) -> tuple[Record, ...]:
        """Root and records."""
        return (self.root, *self.records)

    @cached_property
    def model(self) -> model.Model:
        """What these records make, everything in them checked."""
        return model.open_model(self)

    def of(self, kind: type[Kind], site: str = "") -> tuple[Kind, ...]:
        """Records of a kind, of one author where that is named, by number."""
        mine = [r for r in self.records if isinstance(r, kind)]
        mine = [r for r in mine if site in ("", r.site)]
        return tuple(sorted(mine, key=lambda r: (r.site, r.number)))

    def arrays(self, record: Record) -> dict[str, np.ndarray]:
        """The arrays of a record by name."""
        return load_arrays(self.payloads[record.payload], record.title)

    @cached_property
    def key_lines(self) -> dict[str, tuple[str, ...]]:
        """Keys that each author has signed with, first to last; ("",) where it signs nothing."""
        return rules.key_lines(self.everything)

    def next_number(self, kind: type[Record], site: str) -> int:
        """Number of the next record of this kind that an author makes."""
        return 1 + max((r.number for r in self.of(kind, site)), default=0)

    def joined(
        self, records: Iterable[Record], payloads: Mapping[str, bytes] | None = None
    ) -> Self:
        """The union with some records; whatever does not fit raises `ExchangeError` by name."""
        every = {record.id: record for record in self.records}
        for record in records:
            record.check()
            if record.is_root and record.id != self.root.id:
                raise ExchangeError(
                    f"the files have different roots ({self.root.id[:12]} and "
                    f"{record.id[:12]}).",
                    do="What was made for one start cannot be moved to another; make it again.",
                )
            every[record.id] = record
        every.pop(self.root.id, None)
        rules.key_lines([self.root, *every.values()])  # of what is withdrawn, too
        kept = archive.in_order(rules.without_taken(every))
        arrays = {**self.payloads, **(payloads or {})}
        carried = rules.carried((self.root, *kept))
        made = type(self)(
            self.root, kept, {k: v for k, v in arrays.items() if k in carried}
        )
        made.check()
        return made

    def merged(self, *others: Self) -> Self:
        """The union of files; the same record twice is one."""
        records = [record for other in others for record in other.everything]
        payloads: dict[str, bytes] = {}
        for other in others:
            payloads |= other.payloads
        return self.joined(records, payloads)

    def withdrawn(self, site: str, key: Signer = None) -> Self:
        """The exchange as if `site` had given nothing, with the withdrawal on record."""
        mine = [r for r in self.records if r.site == site and r.withdrawable]
        if not mine:
            known = sorted({r.site for r in self.records if r.withdrawable})
            raise ExchangeError(
                f"there is nothing of site '{site}' that could be withdrawn.",
                do=f"Sites with something: {', '.join(known) or 'none'}. A step of a chain cannot "
                "be undone; begin the chain anew without it.",
            )
        takes = tuple(
            Taken(kind=r.kind, number=r.number, commitment=r.committed) for r in mine
        )
        lost = rules.taken(self.records, {(site, t.kind, t.commitment) for t in takes})
        gone = tuple(sorted(lost))
        return self.recorded(Withdrawal, site, key, takes=takes, gone=gone)

    def rotated(self, site: str, old: Signer, new: PrivateKey) -> Self:
        """The exchange with a rotation on record: from now on `new` signs for `site`."""
        if site not in self.key_lines:
            known = ", ".join(sorted(self.key_lines))
            raise ExchangeError(
                f"there is nothing of '{site}' here.", do=f"Authors here: {known}."
            )
        public = public_hex(old)
        mine = [r.id for r in self.everything if (r.site, r.key) == (site, public)]
        vouches = tuple(sorted(mine))
        proof = new.sign(agreement(site, public, vouches)).hex()
        said: dict[str, Any] = {"vouches": vouches, "proof": proof}
        return self.recorded(Rotation, site, old, new_key=public_hex(new), **said)

    def recorded(
        self,
        kind: type[Record],
        site: str,
        key: Signer,
        parents: Sequence[str] = (),
        **said: Any,
    ) -> Self:
        """The exchange with one more record by somebody who is in it; `parents`: the root."""
        self.require_author(site, key, kind.__name__.lower())
        number = self.next_number(kind, site)
        record = make(kind, site, number, parents or (self.root.id,), key, **said)
        return self.joined([record])

    def require_author(self, site: str, key: Signer, what: str) -> None:
        """Raise `ExchangeError` unless this is the key that the site signs with now."""
        own = self.key_lines[site][-1]
        if own != public_hex(key):
            needed = f"signed by key {own[:16]}" if own else "not signed"
            raise ExchangeError(
                f"what site '{site}' gave is {needed}; its {what} must be, too.",
                do="Name that private key with --sign." if own else "Leave --sign out.",
            )

    def require_same_signing(self, signs: bool) -> None:
        """Raise unless a new record is signed where the earlier ones are, and only there.

        Else nobody could tell it from one whose signature was taken off.
        """
        keys = [record.key for record in self.records]
        if not signs and any(keys):
            raise ExchangeError(
                "the records before yours are signed.",
                do="Sign yours, too: --sign KEY (`fcforge keys new KEY` makes one).",
            )
        if signs and not all(keys):
            raise ExchangeError(
                "the records before yours are not signed.",
                do="Leave out --sign, or begin anew with signatures.",
            )

    def check(self) -> None:
        """Hold the records against one another, then against what the model says of them."""
        rules.check_places(self.everything)
        rules.check_audits(self.everything)
        rules.check_vouched(self.everything)
        rules.check_arrays(self.everything, self.payloads)
        _ = self.model

    def require_trusted(self, trust: Trust) -> None:
        """Raise `ExchangeError` for a record that is not signed as it must be.

        An unsigned root passes unless signatures are required: the records name it by its id.
        """
        for record in self.everything:
            rules.require_signer(record, self.key_lines[record.site], trust)
        rules.require_signed(self.everything, trust)


# -- files -----------------------------------------------------------------------------------------
def read_parcel(path: str | Path, trust: Trust = Trust()) -> Contents:  # noqa: B008
    """Records of a file by themselves, with or without a root."""
    found = archive.read(path)
    with at(path):
        lines = rules.key_lines(found.records)
        for record in found.records:
            rules.require_signer(record, lines[record.site], trust)
    return found


def open_exchange(path: str | Path, trust: Trust = Trust()) -> Exchange:  # noqa: B008
    """The exchange in a file, after every check of `verify` has passed."""
    with at(path, do=archive.ASK_AGAIN):
        found = _opened(archive.read(path))
        found.require_trusted(trust)
    return found


def _opened(contents: Contents) -> Exchange:
    """The exchange of one file, which holds nothing that was withdrawn or handed on."""
    found = _assembled([contents])
    kept = {record.id for record in found.everything}
    gone = [record.title for record in contents.records if record.id not in kept]
    if gone or set(found.payloads) != set(contents.payloads):
        raise ExchangeError(
            f"still holds what was withdrawn or handed on ({', '.join(gone) or 'arrays'})."
        )
    return found


def union_of(paths: Sequence[str | Path], trust: Trust) -> Exchange:
    """The union of files, in any order; at least one must hold the root."""
    found = _assembled([read_parcel(path, trust) for path in paths])
    found.require_trusted(trust)
    return found


def _assembled(parcels: Sequence[Contents]) -> Exchange:
    records = [record for parcel in parcels for record in parcel.records]
    payloads: dict[str, bytes] = {}
    for parcel in parcels:
        payloads |= parcel.payloads
    root = next((record for record in records if record.is_root), None)
    if root is None:
        raise ExchangeError(
            f"holds no start and no chain, only {len(records)} single records.",
            do="Merge it with a file of the exchange: `fcforge merge FILE FILE --out FILE`.",
        )
    return Exchange(root).joined(records, payloads)


def packed(exchange: Exchange, out: str | Path, new: Sequence[Record] = ()) -> bytes:
    """Bytes of a file: the exchange, or where `out` ends in ``.record`` the `new` records alone."""
    if Path(out).suffix != SINGLE:
        return archive.pack(Contents(exchange.everything, exchange.payloads))
    digests = [record.payload for record in new if record.payload]
    arrays = {digest: exchange.payloads[digest] for digest in digests}
    return archive.pack(Contents(tuple(new), arrays))


def save(exchange: Exchange, out: str | Path, new: Sequence[Record] = ()) -> Path:
    """Write what `packed` makes, whole or not at all."""
    return archive.write(packed(exchange, out, new), out)


# -- verify ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Check:
    """One thing that was verified."""

    name: str
    ok: bool
    detail: str = ""


def verify(
    path: str | Path, trust: Trust, expect: str | Path | None = None
) -> list[Check]:
    """What was checked, record by record; a file that must not be used has a failed check.

    Parameters
    ----------
    path : path
    trust : Trust
    expect : path, optional
        What somebody has seen and must be here: a private record, or an earlier file.
    """
    try:
        contents = archive.read(path)
        checks = [Check("file", True, f"{len(contents.records)} records, unchanged")]
        if not any(record.is_root for record in contents.records):
            said = "single records without a root: merge them with the exchange's file"
            signers = _signers(
                contents.records, rules.key_lines(contents.records), trust
            )
            return [*checks, *signers, Check("parcel", True, said)]
        found = _opened(contents)
    except ExchangeError as error:
        where = error.where.removeprefix(str(path)).removeprefix(": ")
        return [Check("file", False, f"{where}: {error.what}" if where else error.what)]
    checks += _signers(found.everything, found.key_lines, trust)
    checks.append(Check("model", True, found.model.summary()))
    if expect is not None:
        checks.append(_expected(found, expect))
    return checks


def _signers(
    records: Sequence[Record], lines: Mapping[str, tuple[str, ...]], trust: Trust
) -> list[Check]:
    """Who signed each record, and whether all are signed that must be."""
    checks = []
    for record in records:
        said = f"signed by key {trust.keyring.said(record.key)}"
        if not record.key:
            said = "not signed: anybody can have made it"
        try:
            rules.require_signer(record, lines[record.site], trust)
            checks.append(Check(record.title, True, said))
        except ExchangeError as error:
            checks.append(Check(record.title, False, error.what))
    try:
        rules.require_signed(records, trust)
    except ExchangeError as error:
        checks.append(Check("signatures", False, error.what))
    return checks


def _expected(found: Exchange, expect: str | Path) -> Check:
    """Whether every record that was seen is here, or was withdrawn by who gave it."""
    here = {record.id for record in found.everything}
    try:
        seen, excused = _seen(expect, found)
    except ExchangeError as error:
        if error.where:  # the file that was named, not what is in it
            raise
        return Check("expected records", False, error.what)
    lost = [title for one, title in seen.items() if one not in here | excused]
    if lost:
        said = f"{len(lost)} that you have seen are missing: {', '.join(lost[:5])}"
        return Check("expected records", False, said)
    said = f"all {len(seen)} are here or withdrawn"
    if not here >= seen.keys():
        by = ", ".join(sorted({w.site for w in found.of(Withdrawal)}))
        said += f" ({len(seen.keys() - here)}, by {by}: ask whether they did)"
    return Check("expected records", True, said)


def _seen(path: str | Path, found: Exchange) -> tuple[dict[str, str], set[str]]:
    """Records that a file has, or a hospital has seen, by id; and those that may be missing.

    An earlier file has the records, so that only what withdrawals by their own authors take is
    excused. A private record has ids alone: what a withdrawal says that went with it is excused,
    but what the hospital itself gave only by the hospital's withdrawal.
    """
    withdrawals = found.of(Withdrawal)
    with at(path, do=archive.ASK_AGAIN):
        data = archive.read_file(path)
        earlier = archive.unpack(data).records if data.startswith(ZIP) else ()
    if earlier:
        seen = {record.id: record for record in earlier}
        every = seen | {one.id: one for one in withdrawals}
        rules.key_lines([*seen.values(), *found.everything])
        stand = {record.id for record in rules.without_taken(every)}
        return {one: seen[one].title for one in seen}, every.keys() - stand
    from fcforge.exchange.home.private_record import PrivateRecord

    receipts = PrivateRecord.read(path).receipts
    mine = [receipt for receipt in receipts if found.root.id in receipt.seen]
    if not mine:
        raise ExchangeError("has seen nothing of this exchange.", where=path)
    titles = {one: f"record {one[:12]}" for receipt in mine for one in receipt.seen}
    known = {(record.site, record.committed) for record in found.records}
    for withdrawal in withdrawals:
        known |= {(withdrawal.site, one.commitment) for one in withdrawal.takes}
    for receipt in mine:
        if (receipt.site, receipt.commitment) not in known:
            what = f"what '{receipt.site}' gave as {receipt.number}"
            titles[receipt.commitment] = what
    return titles, {one for w in withdrawals for one in w.gone}

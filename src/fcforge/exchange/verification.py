"""`fcforge verify`: what was checked in a file, and whether all is here that somebody has seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fcforge.exchange import archive
from fcforge.exchange.exchange import Exchange, key_lines, opened, without_taken
from fcforge.exchange.keys import Trust
from fcforge.exchange.private_record import PrivateRecord
from fcforge.exchange.records import Record, Withdrawal
from fcforge.files import read_plain
from fcforge.messages import ExchangeError, at

ZIP = b"PK"  # how an exchange file begins, and a private record does not


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
        signers = _signers(contents.records, trust)
        whole = any(record.is_root for record in contents.records)
        found = opened(contents) if whole else None
    except ExchangeError as error:
        where = error.where.removeprefix(str(path)).removeprefix(": ")
        return [Check("file", False, f"{where}: {error.what}" if where else error.what)]
    said = f"{len(contents.records)} records, unchanged"
    checks = [Check("file", True, said), *signers]
    if found is None:
        said = "single records without a root: merge them with the exchange's file"
        checks.append(Check("parcel", True, said))
        if expect is not None:
            said = "not looked for in single records: give the file that they are merged into"
            checks.append(Check("expected records", False, said))
        return checks
    checks.append(Check("model", True, found.model.summary()))
    if expect is not None:
        checks.append(_expected(found, expect))
    return checks


def _signers(records: Sequence[Record], trust: Trust) -> list[Check]:
    """Who signed each record, and whether all are signed that must be."""
    lines = key_lines(records)
    checks = []
    for record in records:
        said = f"signed by key {trust.keyring.said(record.key)}"
        if not record.key:
            said = "not signed: anybody can have made it"
        try:
            trust.require(record, lines[record.site])
            checks.append(Check(record.title, True, said))
        except ExchangeError as error:
            checks.append(Check(record.title, False, error.what))
    try:
        trust.require_signed(records)
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
        data = read_plain(path, archive.MAX_BYTES, ExchangeError)
        earlier = archive.unpack(data).records if data.startswith(ZIP) else ()
    if earlier:
        seen = {record.id: record for record in earlier}
        every = seen | {one.id: one for one in withdrawals}
        key_lines([*seen.values(), *found.everything])
        stand = {record.id for record in without_taken(every)}
        titles = {one: record.title for one, record in seen.items()}
        return titles, every.keys() - stand
    known = {(record.site, record.committed) for record in found.records}
    for withdrawal in withdrawals:
        known |= {(withdrawal.site, one.commitment) for one in withdrawal.takes}
    titles = {}
    for receipt in PrivateRecord.read(path).receipts:
        if found.root.id in receipt.seen:
            titles |= {one: f"record {one[:12]}" for one in receipt.seen}
            if (receipt.site, receipt.commitment) not in known:
                what = f"what '{receipt.site}' gave as {receipt.number}"
                titles[receipt.commitment] = what
    if not titles:
        raise ExchangeError("has seen nothing of this exchange.", where=path)
    return titles, {one for w in withdrawals for one in w.gone}

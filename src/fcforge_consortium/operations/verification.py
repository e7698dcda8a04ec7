"""`fcforge consortium verify`: what was checked in a file, and whether all is here that somebody has seen."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fcforge.core.errors import ExchangeError, at
from fcforge.core.files import read_plain
from fcforge_consortium.ledger.ledger import Ledger
from fcforge_consortium.records import archive
from fcforge_consortium.records.exchange import Exchange, key_lines, opened, removed_ids
from fcforge_consortium.records.kinds import Withdrawal
from fcforge_consortium.records.trust import Trust

EXPECTED = "expected records"
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
    """Return every check of a file; a file that must not be used has a failed one.

    Parameters
    ----------
    path : path
    trust : Trust
    expect : path, optional
        What somebody has seen and must be here: a private record, or an earlier file.
    """
    try:
        contents = archive.read(path)
        lines = key_lines(contents.records)
        whole = any(record.is_root for record in contents.records)
        found = opened(contents) if whole else None
    except ExchangeError as error:
        where = error.where.removeprefix(str(path)).removeprefix(": ")
        return [Check("file", False, f"{where}: {error.what}" if where else error.what)]
    checks = [Check("file", True, f"{len(contents.records)} records, unchanged")]
    for record in contents.records:
        with _failing(checks, record.title):
            trust.require(record, lines[record.site])
            said = f"signed by key {trust.keyring.label(record.key)}"
            bare = "not signed: anybody can have made it"
            checks.append(Check(record.title, True, said if record.key else bare))
    with _failing(checks, "signatures"):
        trust.require_signed(contents.records)
    if found is None:
        said = "single records without a root: merge them with the exchange's file"
        checks.append(Check("parcel", expect is None, said))
        return checks
    checks.append(Check("model", True, found.model.summary()))
    if expect is not None:
        with _failing(checks, EXPECTED):
            checks.append(Check(EXPECTED, True, _expected(found, expect)))
    return checks


@contextmanager
def _failing(checks: list[Check], name: str) -> Iterator[None]:
    """Turn an error of the block into a failed check, unless it is about another file."""
    try:
        yield
    except ExchangeError as error:
        if error.where:
            raise
        checks.append(Check(name, False, error.what))


def _expected(found: Exchange, expect: str | Path) -> str:
    """Return a summary if every known record is here or was withdrawn by its author; else raise."""
    here = {record.id for record in found.everything}
    seen, excused = _seen(expect, found)
    lost = [title for one, title in seen.items() if one not in here | excused]
    if lost:
        some = ", ".join(lost[:5])
        raise ExchangeError(f"{len(lost)} that you have seen are missing: {some}")
    said = f"all {len(seen)} are here or withdrawn"
    if not here >= seen.keys():
        by = ", ".join(sorted({w.site for w in found.of(Withdrawal)}))
        said += f" ({len(seen.keys() - here)}, by {by}: ask whether they did)"
    return said


def _seen(path: str | Path, found: Exchange) -> tuple[dict[str, str], set[str]]:
    """Return known records by id, and the ids of those that may be missing.

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
        titles = {one: record.title for one, record in seen.items()}
        return titles, removed_ids(every.values())
    known = {(record.site, record.committed) for record in found.records}
    for withdrawal in withdrawals:
        known |= {(withdrawal.site, one.commitment) for one in withdrawal.takes}
    titles = {}
    for receipt in Ledger.read(path).receipts:
        if found.root.id in receipt.seen:
            titles |= {one: f"record {one[:12]}" for one in receipt.seen}
            if (receipt.site, receipt.commitment) not in known:
                what = f"what '{receipt.site}' gave as {receipt.number}"
                titles[receipt.commitment] = what
    if not titles:
        raise ExchangeError("has seen nothing of this exchange.", where=path)
    return titles, {one for w in withdrawals for one in w.gone}

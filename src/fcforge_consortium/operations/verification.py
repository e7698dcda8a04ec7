"""Verification of a file: integrity, signatures, model, and completeness of known records."""

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
ZIP = b"PK"  # first bytes of a consortium file, but not of a ledger


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes
    ----------
    name : str
        Subject of the check: the file, a record, the signatures, the model.
    ok : bool
        Whether the check passed.
    detail : str
        Result in words, or the reason of the failure.
    """

    name: str
    ok: bool
    detail: str = ""


def verify(
    path: str | Path, trust: Trust, expect: str | Path | None = None
) -> list[Check]:
    """Check a file; one that must not be used has a failed check.

    Parameters
    ----------
    path : path
    trust : Trust
    expect : path, optional
        A ledger or an earlier file, whose records must be in this file or withdrawn.

    Returns
    -------
    list of Check
    """
    try:
        contents = archive.read(path)
        lines = key_lines(contents.records)
        whole = any(record.is_root for record in contents.records)
        exchange = opened(contents) if whole else None
    except ExchangeError as error:
        where = error.where.removeprefix(str(path)).removeprefix(": ")
        return [Check("file", False, f"{where}: {error.what}" if where else error.what)]
    checks = [Check("file", True, f"{len(contents.records)} records, unchanged")]
    for record in contents.records:
        with _failing(checks, record.title):
            trust.require(record, lines[record.site])
            signed = f"signed by key {trust.keyring.label(record.key)}"
            unsigned = "not signed: anybody can have made it"
            detail = signed if record.key else unsigned
            checks.append(Check(record.title, True, detail))
    with _failing(checks, "signatures"):
        trust.require_signed(contents.records)
    if exchange is None:
        detail = "single records without a root: merge them with the whole file"
        checks.append(Check("parcel", expect is None, detail))
        return checks
    checks.append(Check("model", True, exchange.model.summary()))
    if expect is not None:
        with _failing(checks, EXPECTED):
            checks.append(Check(EXPECTED, True, _expected(exchange, expect)))
    return checks


@contextmanager
def _failing(checks: list[Check], name: str) -> Iterator[None]:
    """Turn an error of the block into a failed check, unless it is about another file.

    Parameters
    ----------
    checks : list of Check
        Gets the failed check.
    name : str
        Name of the check.
    """
    try:
        yield
    except ExchangeError as error:
        if error.where:
            raise
        checks.append(Check(name, False, error.what))


def _expected(exchange: Exchange, expect: str | Path) -> str:
    """Return a summary if every known record is present or was withdrawn by its author.

    Parameters
    ----------
    exchange : Exchange
    expect : path
        A ledger or an earlier file.

    Raises
    ------
    ExchangeError
        If a known record is missing.
    """
    present = {record.id for record in exchange.everything}
    known, excused = _known_records(expect, exchange)
    lost = [title for id_, title in known.items() if id_ not in present | excused]
    if lost:
        first = ", ".join(lost[:5])
        raise ExchangeError(f"{len(lost)} records known before are missing: {first}")
    summary = f"all {len(known)} are here or withdrawn"
    withdrawn = known.keys() - present
    if withdrawn:
        authors = ", ".join(sorted({w.site for w in exchange.of(Withdrawal)}))
        summary += f" ({len(withdrawn)}, by {authors}: ask whether they did)"
    return summary


def _known_records(
    path: str | Path, exchange: Exchange
) -> tuple[dict[str, str], set[str]]:
    """Return the records that an earlier file or a ledger knows, and those that may be missing.

    An earlier file has whole records: one may be missing only if a withdrawal by its own author
    takes it. A ledger has ids alone: one may be missing if a withdrawal lists it, and the hospital's
    own contributions only if the hospital itself withdrew them.

    Parameters
    ----------
    path : path
        A ledger or an earlier file.
    exchange : Exchange
        The file that is verified.

    Returns
    -------
    titles : dict of str to str
        Titles of known records by id.
    excused : set of str
        Ids of records that may be missing.
    """
    withdrawals = exchange.of(Withdrawal)
    with at(path, do=archive.ASK_AGAIN):
        data = read_plain(path, archive.MAX_BYTES, ExchangeError)
        earlier = archive.unpack(data).records if data.startswith(ZIP) else ()
    if earlier:
        records = {record.id: record for record in earlier}
        every = records | {one.id: one for one in withdrawals}
        # raises if an author has changed keys between the files without a rotation
        key_lines([*records.values(), *exchange.everything])
        titles = {one: record.title for one, record in records.items()}
        return titles, removed_ids(every.values())
    # contributions of each hospital that the file holds, or shows as withdrawn
    accounted = {(record.site, record.committed) for record in exchange.records}
    for withdrawal in withdrawals:
        accounted |= {(withdrawal.site, one.commitment) for one in withdrawal.takes}
    titles = {}
    for entry in Ledger.read(path).entries:
        if exchange.root.id in entry.seen:
            titles |= {id_: f"record {id_[:12]}" for id_ in entry.seen}
            if (entry.site, entry.commitment) not in accounted:
                title = f"contribution {entry.number} of '{entry.site}'"
                titles[entry.commitment] = title
    if not titles:
        message = "the ledger has no entry about this file or its base model."
        raise ExchangeError(message, where=path)
    return titles, {id_ for withdrawal in withdrawals for id_ in withdrawal.gone}

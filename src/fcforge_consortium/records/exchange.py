"""Exchange: the records that build on one root, their validation and their union.

Merging is union: the order of files does not matter, and a record that occurs twice counts once. A
withdrawal is a record that removes others. An invalid record is named in the error, and no record
of the same file is used.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from fcforge.core.errors import DataError, ExchangeError, at
from fcforge.data.scan_checks import wrong_rois
from fcforge_consortium.model import Model
from fcforge_consortium.records import archive
from fcforge_consortium.records.archive import Contents, in_order, load_arrays
from fcforge_consortium.records.canonical import canonical, sha256
from fcforge_consortium.records.keys import PrivateKey, Signer, public_hex
from fcforge_consortium.records.kinds import (
    ASK,
    Charged,
    Record,
    Rotation,
    Withdrawal,
    Withdrawn,
    agreement,
    make,
)
from fcforge_consortium.records.names import require_distinct
from fcforge_consortium.records.trust import Trust

if TYPE_CHECKING:
    from fcforge.data.cohort import Cohort

# class of the model by kind of root; a chain needs torch
MODELS = {
    "base_model": "fcforge_consortium.contributions.model:ContributionModel",
    "chain": "fcforge_consortium.chains.chain:Chain",
}
SINGLE = ".record"  # suffix of a file that holds only the new records
Kind = TypeVar("Kind", bound=Record)


@dataclass(frozen=True, eq=False)
class Exchange:
    """A root and the records that build on it; `joined` checks them.

    Attributes
    ----------
    root : Record
        A base model or a chain.
    records : tuple of Record
        All other records in the order of `in_order`, without withdrawn ones.
    payloads : mapping of str to bytes
        Stored arrays of the records, by their SHA-256.
    """

    root: Any
    records: tuple[Record, ...] = ()
    payloads: Mapping[str, bytes] = field(default_factory=dict)

    @cached_property
    def id(self) -> str:
        """Return the SHA-256 over all record ids, which identifies this state."""
        ids = sorted(record.id for record in self.everything)
        return sha256(canonical(ids))

    @property
    def everything(self) -> tuple[Record, ...]:
        """Return the root followed by the records."""
        return (self.root, *self.records)

    @cached_property
    def model(self) -> Model:
        """Return the model of these records, checked."""
        model = resolve_name(MODELS[self.root.kind])(self)
        model.check()
        return model

    def of(self, kind: type[Kind], site: str = "") -> tuple[Kind, ...]:
        """Return the records of a kind, sorted by author and number.

        Parameters
        ----------
        kind : subclass of Record
        site : str, optional
            Author; empty for all authors.

        Returns
        -------
        tuple of Record
        """
        selected = [
            record
            for record in self.records
            if isinstance(record, kind) and site in ("", record.site)
        ]
        return tuple(sorted(selected, key=lambda r: (r.site, r.number)))

    def arrays(self, record: Record) -> dict[str, np.ndarray]:
        """Return the arrays of a record by name.

        Parameters
        ----------
        record : Record

        Returns
        -------
        dict of str to ndarray
        """
        return load_arrays(self.payloads[record.payload], record.title)

    @cached_property
    def key_lines(self) -> dict[str, tuple[str, ...]]:
        """Return the keys of each author, first to last; ("",) for an author without a key."""
        return key_lines(self.everything)

    def joined(
        self, records: Iterable[Record], payloads: Mapping[str, bytes] | None = None
    ) -> Self:
        """Return the union with further records, checked.

        Parameters
        ----------
        records : iterable of Record
        payloads : mapping of str to bytes, optional
            Their arrays, by SHA-256.

        Returns
        -------
        Exchange

        Raises
        ------
        ExchangeError
            If a record is invalid or contradicts another one.
        """
        by_id = {record.id: record for record in self.records}
        for record in records:
            record.checked()
            if record.is_root and record.id != self.root.id:
                raise ExchangeError(
                    f"the files have different roots ({self.root.id[:12]} and "
                    f"{record.id[:12]}).",
                    do="A record of one base model cannot be moved to another; make it again.",
                )
            by_id[record.id] = record
        by_id.pop(self.root.id, None)
        key_lines([self.root, *by_id.values()])  # withdrawn records are checked, too
        # checked now: a withdrawal that removes its own parent is absent afterwards
        acting = [r for r in by_id.values() if isinstance(r, (Rotation, Withdrawal))]
        _check_vouched(acting)
        removed = removed_ids(by_id.values())
        kept = in_order(record for record in by_id.values() if record.id not in removed)
        arrays = {**self.payloads, **(payloads or {})}
        required = _required_payloads((self.root, *kept))
        carried = {
            digest: data for digest, data in arrays.items() if digest in required
        }
        union = type(self)(self.root, kept, carried)
        union.check()
        return union

    def merged(self, *others: Self) -> Self:
        """Return the union with other exchanges of the same root.

        Parameters
        ----------
        *others : Exchange

        Returns
        -------
        Exchange
        """
        union = self
        for other in others:
            union = union.joined(other.everything, other.payloads)
        return union

    def withdrawn(self, site: str, key: Signer = None) -> Self:
        """Return the exchange without the contributions of a site, with its withdrawal.

        Parameters
        ----------
        site : str
        key : private key, optional
            Key with which the site signs.

        Returns
        -------
        Exchange

        Raises
        ------
        ExchangeError
            If the site has contributed nothing, or the key is not its own.
        """
        charged = self.of(Charged, site)
        if not charged:
            known = sorted({r.site for r in self.of(Charged)})
            raise ExchangeError(
                f"site '{site}' has nothing that could be withdrawn.",
                do=f"Sites with contributions: {', '.join(known) or 'none'}. A step of a chain "
                "cannot be undone; begin the chain anew without it.",
            )
        takes = [
            Withdrawn(kind=r.kind, number=r.number, commitment=r.commitment)
            for r in charged
        ]
        removed = removed_ids(self.records, [(site, taken) for taken in takes])
        gone = tuple(sorted(removed))
        return self.recorded(Withdrawal, site, key, takes=tuple(takes), gone=gone)

    def rotated(self, site: str, old: Signer, new: PrivateKey) -> Self:
        """Return the exchange with a rotation, after which a new key signs for a site.

        Parameters
        ----------
        site : str
        old, new : private key

        Returns
        -------
        Exchange
        """
        public = public_hex(old)
        signed = [r.id for r in self.everything if (r.site, r.key) == (site, public)]
        vouches = tuple(sorted(signed))
        proof = new.sign(agreement(site, public, vouches)).hex()
        new_key = public_hex(new)
        return self.recorded(
            Rotation, site, old, new_key=new_key, vouches=vouches, proof=proof
        )

    def recorded(
        self,
        kind: type[Record],
        site: str,
        key: Signer,
        parents: Sequence[str] = (),
        **content: Any,
    ) -> Self:
        """Return the exchange with one more record of a site that is already in it.

        Parameters
        ----------
        kind : subclass of Record
        site : str
        key : private key or None
        parents : sequence of str, optional
            Ids of the parents; by default the root.
        **content
            Fields of the kind.

        Returns
        -------
        Exchange
        """
        self.require_author(site, key, kind.__name__.lower())
        last = max((r.number for r in self.of(kind, site)), default=0)
        record = make(kind, site, last + 1, parents or (self.root.id,), key, **content)
        return self.joined([record])

    def require_author(self, site: str, key: Signer, noun: str) -> None:
        """Raise `ExchangeError` unless a key is the one that a site signs with now.

        Parameters
        ----------
        site : str
        key : private key or None
        noun : str
            Kind of record to be signed, for the error message.
        """
        if site not in self.key_lines:
            message = f"no record is by site '{site}'."
            raise ExchangeError(
                message, do=f"Authors here: {', '.join(self.key_lines)}."
            )
        current = self.key_lines[site][-1]
        if current != public_hex(key):
            signing = f"signed by key {current[:16]}" if current else "not signed"
            raise ExchangeError(
                f"the records of site '{site}' are {signing}; its {noun} must be, too.",
                do="Name that private key with --sign."
                if current
                else "Leave --sign out.",
            )

    def require_fit(self, people: "Cohort") -> None:
        """Raise `DataError` for people with other ROIs or another target.

        Parameters
        ----------
        people : Cohort
        """
        with at("the data"):
            if wrong := wrong_rois(people.roi_names, self.model.roi_names):
                do = "All hospitals use one atlas with its ROIs in one order."
                raise DataError(wrong, do=do)
            self.root.policy.require_target(people.target)

    def require_same_signing(self, signs: bool) -> None:
        """Raise `ExchangeError` unless a new record is signed exactly if the earlier ones are.

        An unsigned record among signed ones could not be told from one whose signature was removed.

        Parameters
        ----------
        signs : bool
            Whether the new record will be signed.
        """
        if any(bool(record.key) != signs for record in self.records):
            signing = "not signed" if signs else "signed"
            raise ExchangeError(
                f"the earlier records are {signing}; yours must be {signing}, too.",
                do="Leave out --sign KEY, or add it (`fcforge consortium keys new KEY` makes one).",
            )

    def check(self) -> None:
        """Raise `ExchangeError` if records contradict one another or the model is invalid."""
        _check_parents(self.everything)
        _check_once(self.everything)
        _check_vouched(self.everything)
        for record in self.records:
            if record.root_kind not in ("", self.root.kind):
                message = f"the {record.title} cannot build on a {self.root.noun}."
                raise ExchangeError(message, do=ASK)
        required = _required_payloads(self.everything)
        if missing := required - set(self.payloads):
            raise ExchangeError(f"the arrays {min(missing)[:12]} are missing.")
        if surplus := set(self.payloads) - required:
            raise ExchangeError(f"the arrays {min(surplus)[:12]} belong to no record.")
        _ = self.model  # its property checks the model


# -- rules of a set of records; each model has further rules of its own ---------------------------
def removed_ids(
    records: Iterable[Record], also: Iterable[tuple[str, Withdrawn]] = ()
) -> set[str]:
    """Return the ids of withdrawn records and of all records that build on them.

    Parameters
    ----------
    records : iterable of Record
        Their withdrawals count.
    also : iterable of (author, Withdrawn), optional
        Further withdrawals.

    Returns
    -------
    set of str
    """
    ordered = in_order(records)
    takes = list(also)
    for record in ordered:
        if isinstance(record, Withdrawal):
            takes += [(record.site, taken) for taken in record.takes]
    withdrawn = set[tuple[str, str, int | str]]()
    for site, taken in takes:
        withdrawn |= {
            (site, taken.kind, taken.number),
            (site, taken.kind, taken.commitment),
        }
    removed = set[str]()
    for record in ordered:
        by_number = (record.site, record.kind, record.number)
        by_content = (record.site, record.kind, record.committed)
        follows = not removed.isdisjoint(record.builds_on)
        if follows or by_number in withdrawn or by_content in withdrawn:
            removed.add(record.id)
    return removed


def _required_payloads(records: Sequence[Record]) -> set[str]:
    """Return the SHA-256 of all arrays of a file.

    The arrays of a chain step are dropped once another step builds on it.
    """
    passing = [record for record in records if record.passes_on]
    continued = {parent for record in passing for parent in record.parents}
    dropped = {record.payload for record in passing if record.id in continued}
    return {record.payload for record in records} - dropped - {""}


def _check_parents(records: Sequence[Record]) -> None:
    """Raise `ExchangeError` for a record whose parent is missing."""
    ids = {record.id for record in records}
    for record in records:
        with at(record.title):
            missing = [parent for parent in record.builds_on if parent not in ids]
            if missing:
                raise ExchangeError(
                    f"builds on record {missing[0][:12]}, which is missing or was withdrawn.",
                    do="Merge the file that holds it, too.",
                )


def _check_once(records: Sequence[Record]) -> None:
    """Raise `ExchangeError` if two records share a number, a commitment or arrays."""
    seen: dict[tuple[str, str], Record] = {}
    for record in records:
        identities = {
            "number": record.title,
            "people and salt": record.committed,
            "numbers": record.payload,
        }
        for name, value in identities.items():
            first = seen.setdefault((name, value or record.id), record)
            if first is not record:
                raise ExchangeError(
                    f"has the same {name} as the {first.title}: one is a copy or was made by "
                    "somebody else.",
                    where=record.title,
                    do="Ask both hospitals. Nothing was changed.",
                )


def key_lines(records: Sequence[Record]) -> dict[str, tuple[str, ...]]:
    """Return the keys of every author, first to last, as its rotations order them.

    Parameters
    ----------
    records : sequence of Record

    Returns
    -------
    dict of str to tuple of str
        Public keys in hex by author; ("",) for an author who does not sign.

    Raises
    ------
    ExchangeError
        If an author signs with two keys without a rotation, two authors share a key, or the names
        of two authors look alike.
    """
    by_site: dict[str, list[Record]] = {}
    for record in records:
        by_site.setdefault(record.site, []).append(record)
    require_distinct(by_site)
    lines = {site: _key_line(signed) for site, signed in by_site.items()}
    _check_one_site_for_each_key(records, lines)
    return lines


def _check_one_site_for_each_key(
    records: Sequence[Record], lines: Mapping[str, tuple[str, ...]]
) -> None:
    """Raise `ExchangeError` if a key signs for two sites; a root's maker may also be a site."""
    makers = {record.site for record in records if record.is_root}
    owners: dict[str, str] = {}
    for site in sorted(set(lines) - makers):
        for key in filter(None, lines[site]):
            first = owners.setdefault(key, site)
            if first != site:
                raise ExchangeError(
                    f"one key ({key[:16]}) signs for the sites {first!a} and {site!a}.",
                    do="Each site needs a key of its own (`fcforge consortium keys new`). Ask both "
                    "sites.",
                )


def _key_line(records: Sequence[Record]) -> tuple[str, ...]:
    """Return the keys of one author's records in the order of its rotations."""
    rotations = [record for record in records if isinstance(record, Rotation)]
    new = {rotation.key: rotation.new_key for rotation in rotations}
    used = {record.key for record in records}
    first = (used | set(new)) - set(new.values())
    line = [*first][:1]
    while line and line[-1] in new and len(line) <= len(new):
        line.append(new[line[-1]])
    forked = len(first) != 1 or len(new) < len(rotations)
    if forked or not used <= set(line):
        raise ExchangeError(
            f"records of '{records[0].site}' are signed with different keys.",
            do="An author has one key, or rotates it (`fcforge consortium keys rotate`). Ask the "
            "author.",
        )
    return tuple(line)


def _check_vouched(records: Sequence[Record]) -> None:
    """Raise `ExchangeError` for a record by an old key that its rotation does not list."""
    valid = {}
    for rotation in [record for record in records if isinstance(record, Rotation)]:
        valid[rotation.site, rotation.key] = {rotation.id, *rotation.vouches}
    for record in records:
        vouched = valid.get((record.site, record.key), {record.id})
        if record.id not in vouched:
            raise ExchangeError(
                f"the {record.title} is signed with an old key of '{record.site}', and its new "
                "key does not vouch for it.",
                do="Ask that hospital whether the record is its own; if so, it must sign it again.",
            )


def require_trusted(records: Sequence[Record], trust: Trust) -> None:
    """Raise `ExchangeError` for a record without the signature that a reader requires.

    Parameters
    ----------
    records : sequence of Record
    trust : Trust
    """
    lines = key_lines(records)
    for record in records:
        trust.require(record, lines[record.site])
    trust.require_signed(records)


# -- files -----------------------------------------------------------------------------------------
def open_exchange(path: str | Path, trust: Trust = Trust()) -> Exchange:  # noqa: B008
    """Read the exchange of a file and check all of it.

    Parameters
    ----------
    path : str or Path
    trust : Trust, optional
        Whose signatures are required.

    Returns
    -------
    Exchange
    """
    with at(path, do=archive.ASK_AGAIN):
        exchange = opened(archive.read(path))
        require_trusted(exchange.everything, trust)
    return exchange


def opened(contents: Contents) -> Exchange:
    """Return the exchange of one file.

    Parameters
    ----------
    contents : Contents

    Returns
    -------
    Exchange

    Raises
    ------
    ExchangeError
        If the file holds withdrawn records or arrays that it should have dropped.
    """
    exchange = _assembled([contents])
    kept = {record.id for record in exchange.everything}
    withdrawn = [record.title for record in contents.records if record.id not in kept]
    if withdrawn:
        raise ExchangeError(f"still holds withdrawn records: {', '.join(withdrawn)}.")
    if set(exchange.payloads) != set(contents.payloads):
        raise ExchangeError(
            "still holds the arrays of a step that another step continued."
        )
    return exchange


def union_of(paths: Sequence[str | Path], trust: Trust) -> Exchange:
    """Return the union of the exchanges of several files.

    Parameters
    ----------
    paths : sequence of str or Path
        In any order; at least one file must hold the root.
    trust : Trust

    Returns
    -------
    Exchange
    """
    files = [archive.read(path) for path in paths]
    exchange = _assembled(files)
    # withdrawn records are checked, too: a withdrawal by a stolen key could remove itself
    require_trusted([record for file in files for record in file.records], trust)
    return exchange


def _assembled(files: Sequence[Contents]) -> Exchange:
    """Return the exchange of all records in some files."""
    records = [record for file in files for record in file.records]
    root = next((record for record in records if record.is_root), None)
    if root is None:
        raise ExchangeError(
            "holds neither a base model nor the root of a chain.",
            do="Merge it with a file of the exchange: `fcforge consortium merge FILE FILE --out FILE`.",
        )
    payloads: dict[str, bytes] = {}
    for file in files:
        payloads |= file.payloads
    return Exchange(root).joined(records, payloads)


def packed(exchange: Exchange, out: str | Path, new: Sequence[Record] = ()) -> bytes:
    """Encode an exchange, or only its new records, as the bytes of a file.

    Parameters
    ----------
    exchange : Exchange
    out : str or Path
        Name of the file; with the suffix ``.record`` it holds the new records alone.
    new : sequence of Record, optional

    Returns
    -------
    bytes
    """
    if Path(out).suffix != SINGLE:
        return archive.pack(Contents(exchange.everything, exchange.payloads))
    digests = [record.payload for record in new if record.payload]
    arrays = {digest: exchange.payloads[digest] for digest in digests}
    return archive.pack(Contents(tuple(new), arrays))


def save(exchange: Exchange, out: str | Path, new: Sequence[Record] = ()) -> Path:
    """Write an exchange, or only its new records, to a file, whole or not at all.

    Parameters
    ----------
    exchange, out, new
        As in `packed`.

    Returns
    -------
    Path
    """
    return archive.write(packed(exchange, out, new), out)

"""Exchange: a root and the records that build on it, their validation and their union.

A *record* is one signed statement (`records.kinds`). The *root* is a base model or the beginning of a
chain. Records name their *parents*, the records that they build on, by id.

Merging is union: the order of files does not matter, and a record that occurs twice counts once. A
withdrawal is a record that removes others of its author. A *rotation* is a record by which an author
changes its key; the keys of an author, first to last, are its *line* of keys. An invalid record is
named in the error, and no record of the same file is used.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
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
    BaseModelRecord,
    Chain,
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

# Class of the model by kind of root, imported when it is needed: that of a chain needs torch.
MODELS = {
    "base_model": "fcforge_consortium.contributions.model:ContributionModel",
    "chain": "fcforge_consortium.chains.chain:Chain",
}
SINGLE = ".record"  # suffix of a file that holds only new records, without the root
Kind = TypeVar("Kind", bound=Record)


@dataclass(frozen=True, eq=False)
class Exchange:
    """A root and the records that build on it.

    The constructor checks nothing: `joined` returns a checked exchange.

    Attributes
    ----------
    root : Record
        A base model or a chain.
    records : tuple of Record
        All other records, parents before children (`archive.in_order`), without withdrawn ones.
    payloads : mapping of str to bytes
        Arrays of the records as safetensors bytes, by their SHA-256.
    """

    root: Any
    records: tuple[Record, ...] = ()
    payloads: Mapping[str, bytes] = field(default_factory=dict)

    @cached_property
    def id(self) -> str:
        """Return the SHA-256 over all record ids, which identifies this set of records."""
        ids = sorted(record.id for record in self.everything)
        return sha256(canonical(ids))

    @property
    def everything(self) -> tuple[Record, ...]:
        """Return the root followed by the records."""
        return (self.root, *self.records)

    @cached_property
    def model(self) -> Model:
        """Return the model that follows from these records, after its own checks."""
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
        """Return the keys of each author, first to last; ("",) for an author who does not sign."""
        return key_lines(self.everything)

    def joined(
        self, records: Iterable[Record], payloads: Mapping[str, bytes] | None = None
    ) -> Self:
        """Return the union with further records, checked.

        Withdrawn records, records that build on them, and arrays that nobody needs any longer are left
        out of the union.

        Parameters
        ----------
        records : iterable of Record
            They must build on this root.
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
        _check_one_parent(by_id)
        key_lines([self.root, *by_id.values()])  # withdrawn records are checked, too
        removed = removed_ids(by_id.values())
        kept = in_order(record for record in by_id.values() if record.id not in removed)
        all_payloads = {**self.payloads, **(payloads or {})}
        required = _required_payloads((self.root, *kept))
        kept_payloads = {
            digest: data for digest, data in all_payloads.items() if digest in required
        }
        union = type(self)(self.root, kept, kept_payloads)
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
        """Return the exchange without the contributions of a site, but with a withdrawal of them.

        Parameters
        ----------
        site : str
            The hospital that withdraws everything it has contributed.
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
                do=f"Sites with contributions: {', '.join(known) or 'none'}. If your own record "
                "is not in this file, merge it first. A step of a chain cannot be undone; begin "
                "the chain anew without it.",
            )
        takes = [
            Withdrawn(kind=r.kind, number=r.number, commitment=r.commitment)
            for r in charged
        ]
        removed = removed_ids(self.records, [(site, withdrawn) for withdrawn in takes])
        gone = tuple(sorted(removed))
        return self.recorded(Withdrawal, site, key, takes=tuple(takes), gone=gone)

    def rotated(self, site: str, old: Signer, new: PrivateKey) -> Self:
        """Return the exchange with a rotation, after which a new key signs for a site.

        The new key vouches for all records that the site has signed with the old key.

        Parameters
        ----------
        site : str
        old, new : private key

        Returns
        -------
        Exchange
        """
        old_public = public_hex(old)
        signed = [
            r.id for r in self.everything if (r.site, r.key) == (site, old_public)
        ]
        vouches = tuple(sorted(signed))
        proof = new.sign(agreement(site, old_public, vouches)).hex()
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
        """Return the exchange with one more record of a site that has already signed one here.

        Parameters
        ----------
        kind : subclass of Record
        site : str
            Author of the new record.
        key : private key or None
            Must be the author's current key; None for an author who does not sign.
        parents : sequence of str, optional
            Ids of the parents; by default the root.
        **content
            The other fields of the kind.

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
            Key for the next record; None if that will not be signed.
        noun : str
            Kind of that record in words, for the error message.
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
                hint = "All hospitals use one atlas with its ROIs in one order."
                raise DataError(wrong, do=hint)
            self.root.policy.require_target(people.target)

    def require_same_signing(self, signs: bool) -> None:
        """Raise `ExchangeError` unless a new record is signed exactly if the earlier ones are.

        An unsigned record among signed ones would look like one whose signature was removed.

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
        _check_gone(self.records)
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

    A record is withdrawn if its author has withdrawn a record of its kind with its number or with its
    commitment.

    Parameters
    ----------
    records : iterable of Record
        Records to search; the withdrawals among them are applied.
    also : iterable of (author, Withdrawn), optional
        Further withdrawals to apply.

    Returns
    -------
    set of str
    """
    ordered = in_order(records)
    takes = list(also)
    for record in ordered:
        if isinstance(record, Withdrawal):
            takes += [(record.site, withdrawn) for withdrawn in record.takes]
    # (author, kind, number) and (author, kind, commitment) of what was withdrawn
    named = set[tuple[str, str, int | str]]()
    for site, withdrawn in takes:
        named |= {
            (site, withdrawn.kind, withdrawn.number),
            (site, withdrawn.kind, withdrawn.commitment),
        }
    removed = set[str]()
    for record in ordered:
        by_number = (record.site, record.kind, record.number)
        by_commitment = (record.site, record.kind, record.committed)
        builds_on_removed = not removed.isdisjoint(record.builds_on)
        if builds_on_removed or by_number in named or by_commitment in named:
            removed.add(record.id)
    return removed


def _required_payloads(records: Sequence[Record]) -> set[str]:
    """Return the SHA-256 of all arrays that a file with these records must hold.

    The arrays of a chain's step are dropped once another step builds on it.
    """
    steps = [record for record in records if record.passes_on]
    continued = {parent for step in steps for parent in step.parents}
    dropped = {step.payload for step in steps if step.id in continued}
    return {record.payload for record in records} - dropped - {""}


def _check_one_parent(by_id: Mapping[str, Record]) -> None:
    """Raise `ExchangeError` for a record with another parent than the root; a step may follow a step.

    A withdrawal removes all records that build on what is withdrawn. If a rotation could name another
    hospital's contribution as a parent, that hospital could not withdraw without breaking the file.

    Parameters
    ----------
    by_id : mapping of str to Record
        All records but the root, withdrawn ones included, by id.
    """
    for record in by_id.values():
        (first, *more) = record.parents
        if more or (first in by_id and not record.passes_on):
            raise ExchangeError(
                f"the {record.title} builds on other records than the root.", do=ASK
            )


def _check_gone(records: Sequence[Record]) -> None:
    """Raise `ExchangeError` if a withdrawal lists a record as gone that it does not remove.

    A ledger knows ids alone and believes this list (`operations.verification`). A hospital that lists
    another's contribution would excuse whoever leaves that contribution out.

    Parameters
    ----------
    records : sequence of Record
        All records but the root, without withdrawn ones.
    """
    titles = {record.id: record.title for record in records}
    for record in records:
        for id_ in record.gone if isinstance(record, Withdrawal) else ():
            if id_ in titles:
                raise ExchangeError(
                    f"the {record.title} lists the {titles[id_]} as gone, but does not remove it.",
                    do=ASK,
                )


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
    """Raise `ExchangeError` if two records share a number, a commitment or arrays.

    Withdrawals may share a number: a hospital may withdraw in two copies of a file, and both hold.
    """
    seen: dict[tuple[str, str], Record] = {}
    for record in records:
        identities = {
            "number": "" if isinstance(record, Withdrawal) else record.title,
            "people and salt": record.committed,
            "numbers": record.payload,
        }
        for name, value in identities.items():
            # where a record has no such value, its id stands for it, which no other record has
            first = seen.setdefault((name, value or record.id), record)
            if first is not record:
                raise ExchangeError(
                    f"has the same {name} as the {first.title}: one is a copy or was made by "
                    "somebody else.",
                    where=record.title,
                    do="Ask both hospitals. Nothing was changed.",
                )


def key_lines(records: Sequence[Record]) -> dict[str, tuple[str, ...]]:
    """Return the line of keys of every author: its keys, first to last, as its rotations order them.

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
        If an author signs with two keys without a rotation, two authors share a key, the names
        of two authors look alike, or an author uses the name or the key of an aggregator.
    """
    by_site: dict[str, list[Record]] = {}
    for record in records:
        by_site.setdefault(record.site, []).append(record)
    roots = [
        record for record in records if isinstance(record, (BaseModelRecord, Chain))
    ]
    cards = [card for root in roots for card in root.policy.aggregators]
    require_distinct([*by_site, *(card.name for card in cards)])
    lines = {site: _key_line(signed) for site, signed in by_site.items()}
    for card in (
        cards
    ):  # an aggregator has one key, that of its card; it may have no record yet
        if lines.get(card.name, (card.key,)) != (card.key,):
            raise ExchangeError(
                f"a record is by '{card.name}', the name of an aggregator, but not signed with "
                "the aggregator's key.",
                do="A hospital needs a name of its own. Ask whoever sent the record.",
            )
    _check_one_site_for_each_key(
        {record.site for record in roots},
        lines,
        {card.key: card.name for card in cards},
    )
    return lines


def _check_one_site_for_each_key(
    makers: Set[str],
    lines: Mapping[str, tuple[str, ...]],
    aggregators: Mapping[str, str],
) -> None:
    """Raise `ExchangeError` if a key signs for two sites; a root's maker may also be a site.

    Parameters
    ----------
    makers : set of str
        Authors of roots.
    lines : mapping of str to tuple of str
        Keys of each author, as returned by `key_lines`.
    aggregators : mapping of str to str
        Names of the policy's aggregators by key.
    """
    owners = dict(aggregators)
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
    """Return the keys of one author's records in the order of its rotations.

    Raises
    ------
    ExchangeError
        If the keys do not form one line from a first key to a last one.
    """
    rotations = [record for record in records if isinstance(record, Rotation)]
    next_key = {rotation.key: rotation.new_key for rotation in rotations}
    used = {record.key for record in records}
    first_keys = (used | set(next_key)) - set(next_key.values())
    line = [*first_keys][:1]  # any of them: more than one is refused below
    # the bound on the length ends a circle of rotations
    while line and line[-1] in next_key and len(line) <= len(next_key):
        line.append(next_key[line[-1]])
    forked = len(first_keys) != 1 or len(next_key) < len(rotations)
    if forked or not used <= set(line):
        raise ExchangeError(
            f"records of '{records[0].site}' are signed with different keys.",
            do="An author has one key, or rotates it (`fcforge consortium keys rotate`). Ask the "
            "author.",
        )
    return tuple(line)


def _check_vouched(records: Sequence[Record]) -> None:
    """Raise `ExchangeError` for a record signed with an old key if the rotation does not list it."""
    valid_ids = {}  # of an old key that a rotation has replaced
    for rotation in [record for record in records if isinstance(record, Rotation)]:
        valid_ids[rotation.site, rotation.key] = {rotation.id, *rotation.vouches}
    for record in records:
        valid = valid_ids.get((record.site, record.key), {record.id})
        if record.id not in valid:
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
        All records of a file, or of several files to merge.
    trust : Trust
        The reader's conditions.
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
        Conditions on the signatures; by default unsigned files are accepted.

    Returns
    -------
    Exchange

    Raises
    ------
    ExchangeError
        If anything in the file is invalid, or a required signature is missing.
    """
    with at(path, do=archive.ASK_AGAIN):
        exchange = opened(archive.read(path))
        require_trusted(exchange.everything, trust)
    return exchange


def opened(contents: Contents) -> Exchange:
    """Return the checked exchange of one file.

    Parameters
    ----------
    contents : Contents
        Records and arrays as read from the file.

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
    # withdrawn records are checked, too
    require_trusted([record for file in files for record in file.records], trust)
    return exchange


def _assembled(files: Sequence[Contents]) -> Exchange:
    """Return the checked exchange of all records in some files, of which one must hold the root."""
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
        The new records; they are part of the exchange.

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

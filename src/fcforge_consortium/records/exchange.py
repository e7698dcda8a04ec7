"""An exchange: the set of records around one root, and the one walk that checks it.

Merging is union: the order of files never matters, and the same record twice is one. A withdrawal
is a record that takes others away. Whatever does not fit is refused by name, and nothing of it is
used.
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

# the model of each kind of root; a chain needs torch
MODELS = {
    "base_model": "fcforge_consortium.contributions.model:ContributionModel",
    "chain": "fcforge_consortium.chains.chain:Chain",
}
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
        return sha256(canonical(ids))

    @property
    def everything(self) -> tuple[Record, ...]:
        """Root and records."""
        return (self.root, *self.records)

    @cached_property
    def model(self) -> Model:
        """What these records make, everything in them checked."""
        made = resolve_name(MODELS[self.root.kind])(self)
        made.check()
        return made

    def of(self, kind: type[Kind], site: str = "") -> tuple[Kind, ...]:
        """Records of a kind, of one author where that is named, by number."""
        own = [r for r in self.records if site in ("", r.site)]
        mine = [r for r in own if isinstance(r, kind)]
        return tuple(sorted(mine, key=lambda r: (r.site, r.number)))

    def arrays(self, record: Record) -> dict[str, np.ndarray]:
        """The arrays of a record by name."""
        return load_arrays(self.payloads[record.payload], record.title)

    @cached_property
    def key_lines(self) -> dict[str, tuple[str, ...]]:
        """Keys that each author has signed with, first to last; ("",) where it signs nothing."""
        return key_lines(self.everything)

    def joined(
        self, records: Iterable[Record], payloads: Mapping[str, bytes] | None = None
    ) -> Self:
        """The union with some records; whatever does not fit raises `ExchangeError` by name."""
        every = {record.id: record for record in self.records}
        for record in records:
            record.checked()
            if record.is_root and record.id != self.root.id:
                raise ExchangeError(
                    f"the files have different roots ({self.root.id[:12]} and "
                    f"{record.id[:12]}).",
                    do="What was made for one start cannot be moved to another; make it again.",
                )
            every[record.id] = record
        every.pop(self.root.id, None)
        key_lines([self.root, *every.values()])  # of what is withdrawn, too
        # one that takes back its own parent is gone afterwards
        acting = [r for r in every.values() if isinstance(r, (Rotation, Withdrawal))]
        _check_vouched(acting)
        gone = taken_back(every.values())
        kept = in_order(record for record in every.values() if record.id not in gone)
        arrays = {**self.payloads, **(payloads or {})}
        travel = _carried((self.root, *kept))
        carried = {name: data for name, data in arrays.items() if name in travel}
        made = type(self)(self.root, kept, carried)
        made.check()
        return made

    def merged(self, *others: Self) -> Self:
        """The union of exchanges; the same record twice is one."""
        found = self
        for other in others:
            found = found.joined(other.everything, other.payloads)
        return found

    def withdrawn(self, site: str, key: Signer = None) -> Self:
        """The exchange as if `site` had given nothing, with the withdrawal on record."""
        mine = self.of(Charged, site)
        if not mine:
            known = sorted({r.site for r in self.of(Charged)})
            raise ExchangeError(
                f"there is nothing of site '{site}' that could be withdrawn.",
                do=f"Sites with something: {', '.join(known) or 'none'}. A step of a chain cannot "
                "be undone; begin the chain anew without it.",
            )
        takes = [
            Withdrawn(kind=r.kind, number=r.number, commitment=r.commitment)
            for r in mine
        ]
        gone = taken_back(self.records, [(site, one) for one in takes])
        lost = tuple(sorted(gone))
        return self.recorded(Withdrawal, site, key, takes=tuple(takes), gone=lost)

    def rotated(self, site: str, old: Signer, new: PrivateKey) -> Self:
        """The exchange with a rotation on record: from now on `new` signs for `site`."""
        public = public_hex(old)
        mine = [r.id for r in self.everything if (r.site, r.key) == (site, public)]
        vouches = tuple(sorted(mine))
        proof = new.sign(agreement(site, public, vouches)).hex()
        named = public_hex(new)
        return self.recorded(
            Rotation, site, old, new_key=named, vouches=vouches, proof=proof
        )

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
        last = max((r.number for r in self.of(kind, site)), default=0)
        record = make(kind, site, last + 1, parents or (self.root.id,), key, **said)
        return self.joined([record])

    def require_author(self, site: str, key: Signer, what: str) -> None:
        """Raise `ExchangeError` unless this is the key that the site signs with now."""
        if site not in self.key_lines:
            what = f"there is nothing of '{site}' here."
            raise ExchangeError(what, do=f"Authors here: {', '.join(self.key_lines)}.")
        own = self.key_lines[site][-1]
        if own != public_hex(key):
            needed = f"signed by key {own[:16]}" if own else "not signed"
            raise ExchangeError(
                f"what site '{site}' gave is {needed}; its {what} must be, too.",
                do="Name that private key with --sign." if own else "Leave --sign out.",
            )

    def require_fit(self, people: "Cohort") -> None:
        """Raise `DataError` for other ROIs, or for people of whom something else is known."""
        with at("the data"):
            if wrong := wrong_rois(people.roi_names, self.model.roi_names):
                do = "All hospitals use one atlas with its ROIs in one order."
                raise DataError(wrong, do=do)
            self.root.policy.require_target(people.target)

    def require_same_signing(self, signs: bool) -> None:
        """Raise unless a new record is signed where the earlier ones are, and only there.

        Else nobody could tell it from one whose signature was taken off.
        """
        if any(bool(record.key) != signs for record in self.records):
            said = "not signed" if signs else "signed"
            raise ExchangeError(
                f"the records before yours are {said}, and yours must be as they are.",
                do="Leave out --sign KEY, or add it (`fcforge consortium keys new KEY` makes one).",
            )

    def check(self) -> None:
        """Hold the records against one another, then against what the model says of them."""
        _check_parents(self.everything)
        _check_once(self.everything)
        _check_vouched(self.everything)
        for record in self.records:
            if record.root_kind not in ("", self.root.kind):
                what = f"the {record.title} cannot build on a {self.root.noun}."
                raise ExchangeError(what, do=ASK)
        odd = _carried(self.everything) ^ set(self.payloads)
        if odd:
            raise ExchangeError(f"the arrays {min(odd)[:12]} are missing or too many.")
        _ = self.model


# -- rules of a set of records, whatever they make: the model has rules of its own ---------------
def taken_back(
    records: Iterable[Record], also: Iterable[tuple[str, Withdrawn]] = ()
) -> set[str]:
    """Ids of the records that their own authors took back, and of what builds on those.

    Parameters
    ----------
    records : iterable of Record
    also : iterable of (author, Taken)
        What is being taken back, beside what the withdrawals among the records name.
    """
    ordered = in_order(records)
    takes = list(also)
    for record in ordered:
        if isinstance(record, Withdrawal):
            takes += [(record.site, one) for one in record.takes]
    named = set[tuple[str, str, int | str]]()
    for site, one in takes:
        named |= {(site, one.kind, one.number), (site, one.kind, one.commitment)}
    gone = set[str]()
    for record in ordered:
        by_number = (record.site, record.kind, record.number)
        by_content = (record.site, record.kind, record.committed)
        follows = not gone.isdisjoint(record.builds_on)
        if follows or by_number in named or by_content in named:
            gone.add(record.id)
    return gone


def _carried(records: Sequence[Record]) -> set[str]:
    """Arrays that travel: those of all records but the ones whose arrays were handed on."""
    passing = [record for record in records if record.passes_on]
    handed = {parent for record in passing for parent in record.parents}
    gone = {record.payload for record in passing if record.id in handed}
    return {record.payload for record in records} - gone - {""}


def _check_parents(records: Sequence[Record]) -> None:
    """Raise `ExchangeError` for a record whose parent is missing."""
    here = {record.id: record for record in records}
    for record in records:
        with at(record.title):
            lost = [parent for parent in record.builds_on if parent not in here]
            if lost:
                raise ExchangeError(
                    f"builds on record {lost[0][:12]}, which is not here or was withdrawn.",
                    do="Merge the file that holds it, too.",
                )


def _check_once(records: Sequence[Record]) -> None:
    """No number, no commitment and no arrays are there twice."""
    seen: dict[tuple[str, str], Record] = {}
    for record in records:
        own = {"number": record.title, "people and salt": record.committed}
        for what, mark in {**own, "numbers": record.payload}.items():
            first = seen.setdefault((what, mark or record.id), record)
            if first is not record:
                raise ExchangeError(
                    f"has the same {what} as the {first.title}: one is a copy, or not of its "
                    "author.",
                    where=record.title,
                    do="Ask both hospitals; nothing was changed.",
                )


def key_lines(records: Sequence[Record]) -> dict[str, tuple[str, ...]]:
    """Keys of every author, first to last; `ExchangeError` for two voices or lookalike names."""
    own: dict[str, list[Record]] = {}
    for record in records:
        own.setdefault(record.site, []).append(record)
    require_distinct(own)
    lines = {site: _line(mine) for site, mine in own.items()}
    _check_one_site_for_each_key(records, lines)
    return lines


def _check_one_site_for_each_key(
    records: Sequence[Record], lines: Mapping[str, tuple[str, ...]]
) -> None:
    """Raise `ExchangeError` if a key signs for two sites; the maker of a root may be another."""
    makers = {record.site for record in records if record.is_root}
    whose: dict[str, str] = {}
    for site in sorted(set(lines) - makers):
        for key in filter(None, lines[site]):
            first = whose.setdefault(key, site)
            if first != site:
                raise ExchangeError(
                    f"one key ({key[:16]}) signs for the sites {first!a} and {site!a}.",
                    do="Each site has a key of its own (`fcforge consortium keys new`); ask both.",
                )


def _line(mine: Sequence[Record]) -> tuple[str, ...]:
    """Keys of one author's records, as its rotations order them."""
    rotations = [record for record in mine if isinstance(record, Rotation)]
    new = {rotation.key: rotation.new_key for rotation in rotations}
    used = {record.key for record in mine}
    first = (used | set(new)) - set(new.values())
    line = [*first][:1]
    while line and line[-1] in new and len(line) <= len(new):
        line.append(new[line[-1]])
    forked = len(first) != 1 or len(new) < len(rotations)
    if forked or not used <= set(line):
        raise ExchangeError(
            f"records of '{mine[0].site}' are signed by different keys.",
            do="An author has one key, or rotates it (`fcforge consortium keys rotate`); ask it.",
        )
    return tuple(line)


def _check_vouched(records: Sequence[Record]) -> None:
    """Refuse what an old key signed and the rotation away from it does not vouch for."""
    stands = {}
    for rotation in [record for record in records if isinstance(record, Rotation)]:
        stands[rotation.site, rotation.key] = {rotation.id, *rotation.vouches}
    for record in records:
        vouched = stands.get((record.site, record.key), {record.id})
        if record.id not in vouched:
            raise ExchangeError(
                f"the {record.title} is signed by an old key of '{record.site}', and its new "
                "key does not vouch for it.",
                do="Ask that hospital whether it is its own; if so, it signs it anew.",
            )


def require_trusted(records: Sequence[Record], trust: Trust) -> None:
    """Raise `ExchangeError` for a record that is not signed as it must be."""
    lines = key_lines(records)
    for record in records:
        trust.require(record, lines[record.site])
    trust.require_signed(records)


# -- files -----------------------------------------------------------------------------------------
def open_exchange(path: str | Path, trust: Trust = Trust()) -> Exchange:  # noqa: B008
    """The exchange in a file, after every check of `verify` has passed."""
    with at(path, do=archive.ASK_AGAIN):
        found = opened(archive.read(path))
        require_trusted(found.everything, trust)
    return found


def opened(contents: Contents) -> Exchange:
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
    parcels = [archive.read(path) for path in paths]
    found = _assembled(parcels)
    # of what is withdrawn, too: else a stolen key could withdraw and be gone
    require_trusted([r for parcel in parcels for r in parcel.records], trust)
    return found


def _assembled(parcels: Sequence[Contents]) -> Exchange:
    records = [record for parcel in parcels for record in parcel.records]
    root = next((record for record in records if record.is_root), None)
    if root is None:
        raise ExchangeError(
            "holds no start and no chain, only what was given to one.",
            do="Merge it with a file of the exchange: `fcforge consortium merge FILE FILE --out FILE`.",
        )
    payloads: dict[str, bytes] = {}
    for parcel in parcels:
        payloads |= parcel.payloads
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

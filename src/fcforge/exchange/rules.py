"""Rules of a set of records: who may say what beside whom, and what no longer counts.

They look at the records alone, whatever they make; the model has rules of its own.
"""

from collections.abc import Iterable, Mapping, Sequence, Set

from fcforge.errors import ExchangeError, at
from fcforge.exchange.archive import in_order
from fcforge.exchange.keys import Trust
from fcforge.exchange.names import require_distinct
from fcforge.exchange.records import Audit, Record, Rotation


def without_taken(every: Mapping[str, Record]) -> list[Record]:
    """Records but those that their own authors took back, and what builds on those."""
    named = set[tuple[str, str, int | str]]()
    for record in every.values():
        for one in record.taken:
            named.add((record.site, one.kind, one.number))
            named.add((record.site, one.kind, one.commitment))
    gone = taken(every.values(), named)
    return [record for record in every.values() if record.id not in gone]


def taken(
    records: Iterable[Record], named: Set[tuple[str, str, int | str]]
) -> set[str]:
    """Ids of the records of these authors, kinds and numbers (or commitments), and what follows."""
    gone = set[str]()
    for record in in_order(records):
        by_number = (record.site, record.kind, record.number)
        by_content = (record.site, record.kind, record.committed)
        follows = not gone.isdisjoint(record.builds_on)
        if follows or by_number in named or by_content in named:
            gone.add(record.id)
    return gone


def carried(records: Sequence[Record]) -> set[str]:
    """Arrays that travel: those of all records but the ones whose arrays were handed on."""
    handed = {
        (parent, record.kind) for record in records for parent in record.builds_on
    }
    return {
        record.payload
        for record in records
        if record.payload
        and not (record.passes_on and (record.id, record.kind) in handed)
    }


def check_places(records: Sequence[Record]) -> None:
    """One root, every parent present, nothing twice."""
    here = {record.id: record for record in records}
    numbers: dict[tuple[str, str, int], str] = {}
    commitments: dict[str, str] = {}
    for record in records:
        with at(record.title):
            lost = [parent for parent in record.builds_on if parent not in here]
            if lost:
                raise ExchangeError(
                    f"builds on record {lost[0][:12]}, which is not here or was withdrawn.",
                    do="Merge the file that holds it, too.",
                )
            place = (record.site, record.kind, record.number)
            if numbers.setdefault(place, record.id) != record.id:
                raise ExchangeError(
                    "there are two different ones with this number.",
                    do="One of them is not the hospital's; ask it.",
                )
            first = commitments.setdefault(record.committed or record.id, record.title)
            if first != record.title:
                raise ExchangeError(
                    f"has the same people and salt as the {first}: one is a copy.",
                    do="Ask both hospitals; nothing was changed.",
                )


def check_audits(records: Sequence[Record]) -> None:
    """An audit is by who gave what it attacks."""
    here = {record.id: record for record in records}
    for audit in [record for record in records if isinstance(record, Audit)]:
        giver = here[audit.parents[0]].site
        if giver != audit.site:
            raise ExchangeError(
                f"the {audit.title} is of something that '{giver}' gave.",
                do="A hospital audits what it has given itself.",
            )


def check_arrays(records: Sequence[Record], payloads: Iterable[str]) -> None:
    """Every array that should travel is here, and no other."""
    odd = carried(records) ^ set(payloads)
    if odd:
        raise ExchangeError(f"the arrays {min(odd)[:12]} are missing or too many.")


def key_lines(records: Sequence[Record]) -> dict[str, tuple[str, ...]]:
    """Keys of every author, first to last; `ExchangeError` for two voices or lookalike names."""
    own: dict[str, list[Record]] = {}
    for record in records:
        own.setdefault(record.site, []).append(record)
    require_distinct(own)
    return {site: _line(mine) for site, mine in own.items()}


def _line(mine: Sequence[Record]) -> tuple[str, ...]:
    """Keys of one author's records, as its rotations order them."""
    rotations = [record for record in mine if isinstance(record, Rotation)]
    new = {rotation.key: rotation.new_key for rotation in rotations}
    used = {record.key for record in mine}
    first = (used | set(new)) - set(new.values())
    line = [*first][:1]
    while line and line[-1] in new and len(line) <= len(new):
        line.append(new[line[-1]])
    if len(first) != 1 or len(new) < len(rotations) or not used <= set(line):
        raise ExchangeError(
            f"records of '{mine[0].site}' are signed by different keys.",
            do="An author speaks with one key, or rotates it (`fcforge keys rotate`); ask which "
            "records are its own.",
        )
    return tuple(line)


def check_vouched(records: Sequence[Record]) -> None:
    """Refuse what an old key signed and the rotation away from it does not vouch for."""
    stands = {}
    for rotation in [record for record in records if isinstance(record, Rotation)]:
        stands[rotation.site, rotation.key] = {rotation.id, *rotation.vouches}
    for record in records:
        if record.id not in stands.get((record.site, record.key), {record.id}):
            raise ExchangeError(
                f"the {record.title} is signed by an old key of '{record.site}', and its new "
                "key does not vouch for it.",
                do="Ask that hospital whether it is its own; if so, it signs it anew.",
            )


def require_signer(record: Record, line: tuple[str, ...], trust: Trust) -> None:
    """Raise `ExchangeError` for a record that is not signed by whom it should be."""
    if record.is_root and not record.key:
        return
    trust.require(record.key, f"the {record.title}", record.site, line)


def require_signed(records: Sequence[Record], trust: Trust) -> None:
    """Raise `ExchangeError` for a record without a signature where one is needed."""
    asked = [r for r in records if trust.required or not r.is_root]
    trust.require_signed([(f"the {record.title}", record.key) for record in asked])

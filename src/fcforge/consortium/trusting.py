"""Opening a capsule of releases: who signed it, and what `fcforge verify` checks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fcforge.capsule.keyring import Keyring, read_keyring
from fcforge.capsule.opening import Check
from fcforge.capsule.signing import read_public
from fcforge.consortium.files import read_consortium, read_release
from fcforge.consortium.members import Consortium
from fcforge.consortium.records import Record, Release
from fcforge.errors import CapsuleError
from fcforge.text import counted


def public_keys(trust: Sequence[str | Path]) -> list[str]:
    """Hex of public keys in PEM files."""
    return [read_public(path) for path in trust]


def open_group(path: str | Path, trust: Sequence[str | Path] = ()) -> Consortium:
    """Open a capsule of releases; every record must be signed by a trusted key, if any is given."""
    group = read_consortium(path)
    require_trusted(group.records, public_keys(trust), str(path))
    return group


def open_release(path: str | Path, trust: Sequence[str | Path] = ()) -> Record:
    """Read a ``.release`` file; it must be signed by a trusted key, if any is given."""
    record = read_release(path)
    require_trusted([record], public_keys(trust), str(path))
    return record


def require_trusted(records: Sequence[Record], trusted: Sequence[str], where: str) -> None:
    """Raise `CapsuleError` for a record that none of the keys signed; no keys: all pass.

    What a revoked key of the user's keyring signed is refused in any case, and what is said for a
    site that the keyring has another key of.
    """
    keyring = read_keyring()
    for record in records:
        _require_trusted(record, trusted, keyring, where)


def _require_trusted(
    record: Record, trusted: Sequence[str], keyring: Keyring, where: str = ""
) -> None:
    what = f"the {record.kind} of site '{record.site}'"
    keyring.require_valid(record.key, what, record.site)
    if trusted and record.key not in trusted:
        by = f"by key {record.key[:16]}, which is not trusted" if record.key else "by nobody"
        raise CapsuleError(
            f"{what} is signed {by}.",
            where=where,
            do="Ask the hospital for its public key and name it with --trust.",
        )


def union_of(paths: Sequence[str | Path], trust: Sequence[str | Path] = ()) -> Consortium:
    """The union of capsules and ``.release`` files; at least one must hold the start."""
    single = [Path(p) for p in paths if Path(p).suffix == ".release"]
    whole = [open_group(p, trust) for p in paths if Path(p) not in single]
    if not whole:
        raise CapsuleError(
            "releases alone do not make a capsule.",
            do="Name the public start (or any capsule of the consortium) among the files.",
        )
    records = [open_release(p, trust) for p in single]
    return whole[0].merged(*whole[1:]).joined(records)


def verify(path: str | Path, trust: Sequence[str | Path] = ()) -> list[Check]:
    """What was checked, record by record; a damaged or forged capsule is one failed check."""
    try:
        group = read_consortium(path)
    except CapsuleError as error:
        return [Check("capsule", False, error.what)]
    trusted, keyring = public_keys(trust), read_keyring()
    found = [Check("start", True, f"{group.start.digest[:16]}, as its papers and arrays say")]
    for record in group.records:
        try:
            _require_trusted(record, trusted, keyring)
        except CapsuleError as error:
            found.append(Check(_title(record), False, error.what))
        else:
            found.append(Check(_title(record), True, signer(record, keyring)))
    return [*found, Check("head", True, _head(group))]


def _title(record: Record) -> str:
    wave = f", wave {record.wave}" if isinstance(record, Release) else ""
    return f"{record.kind} of {record.site}{wave}"


def signer(record: Record, keyring: Keyring | None = None) -> str:
    """Who signed a record, in words."""
    if not record.key:
        return "not signed: anybody can have made it"
    return f"signed by key {(keyring or Keyring()).said(record.key)}"


def _head(group: Consortium) -> str:
    made = f"computed anew from {counted(len(group.releases), 'release')}"
    step = f"{float(group.beta.norm()):.4f} away from the public head"
    return f"{made}, {step}; state {group.digest[:16]}"

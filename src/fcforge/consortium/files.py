"""Consortium files: a start with releases as one capsule, or a single release as JSON.

A capsule is a container of `fcforge.capsule.container`: its manifest says the start's papers, its
parts are the start's arrays and one line per record. The head is not among them: whoever opens the
file computes it.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fcforge import text, writing
from fcforge.capsule import arrays, keys, ledger
from fcforge.capsule import container as box
from fcforge.capsule.sealing import Check, Trust
from fcforge.consortium.members import Consortium
from fcforge.consortium.public import from_parts
from fcforge.consortium.records import Record, Release, checked_papers, read_record
from fcforge.errors import CapsuleError, at

MAX_BYTES = 1 << 28
MAX_RELEASE = 16 << 10  # bytes of one record


def is_consortium(path: str | Path) -> bool:
    """Whether a file begins as a capsule of releases does (it may still be damaged)."""
    path = Path(path, box.MANIFEST) if Path(path).is_dir() else Path(path)
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return f'"format":"{box.RELEASES.name}"'.encode() in stream.read(1 << 16)


def write_consortium(
    group: Consortium, out: str | Path, *, overwrite: bool = False
) -> Path:
    """Write a capsule of releases whole or not at all; only its owner may read it."""
    parts = {
        box.START: arrays.save_arrays(group.start.tensors()),
        box.RECORDS: b"".join(_line(r) for r in group.records),
    }
    whole = box.sealed(box.RELEASES, dict(group.start.papers), parts)
    return box.write_parts(whole, out, overwrite=overwrite)


def read_consortium(path: str | Path, trust: Trust | None = None) -> Consortium:
    """Open a capsule of releases: every part, record, signature and budget checked first.

    With `trust`, every record must be signed by one of its keys, if it has any.
    """
    with at(path, do="Nothing of it was used."):
        parts = box.read_parts(path, box.RELEASES, MAX_BYTES)
        papers = checked_papers(box.opened(parts, box.RELEASES))
        start = from_parts(arrays.load_arrays(parts[box.START], box.START), papers)
        lines = parts[box.RECORDS].split(b"\n")
        if lines.pop():
            raise CapsuleError("its list of records is cut off.")
        found = [read_record(line, f"record {i + 1}") for i, line in enumerate(lines)]
        group = Consortium(start).joined(found)
        if [r.digest for r in found] != [r.digest for r in group.records]:
            raise CapsuleError(
                "its records repeat each other, are withdrawn or in disorder."
            )
        require_trusted(group.records, trust)
    return group


def _line(record: Record) -> bytes:
    line = ledger.canonical(record.to_json()) + b"\n"
    if len(line) > MAX_RELEASE:
        what = f"a record of site '{record.site}' has {len(line)} bytes, more than {MAX_RELEASE}."
        raise CapsuleError(what, do="Use fewer axes.")
    return line


def write_release(record: Record, out: str | Path, *, overwrite: bool = False) -> Path:
    """Write one record alone: a few kilobytes that can be mailed and read."""
    box.require_place(out, overwrite=overwrite)
    writing.write_bytes(out, _line(record), private=True)
    return Path(out)


def read_release(path: str | Path, trust: Trust | None = None) -> Record:
    """Read one record, checked; the start it belongs to is checked when it joins others."""
    with at(path, do="Ask the sender for it again."):
        data = box.read_file(path, MAX_RELEASE)
        if not data.endswith(b"\n"):
            raise CapsuleError("is cut off.")
        record = read_record(data[:-1], "the release")
        require_trusted([record], trust)
    return record


def require_trusted(records: Sequence[Record], trust: Trust | None) -> None:
    """Raise `CapsuleError` for a record that is not signed as it must be."""
    if trust is None:
        return
    for record in records:
        trust.require(record.key, f"the {record.title}", record.site)
    ledger.require_signed([(f"the {r.title}", r.key) for r in records], trust.required)


def write_either(
    group: Consortium, record: Record, out: Path, *, overwrite: bool
) -> None:
    """Write the capsule, or where `out` ends in ``.release`` the new record alone."""
    if out.suffix == ".release":
        write_release(record, out, overwrite=overwrite)
    else:
        write_consortium(group, out, overwrite=overwrite)


def union_of(paths: Sequence[str | Path], trust: Trust) -> Consortium:
    """The union of capsules and ``.release`` files; at least one must hold the start."""
    single = [Path(p) for p in paths if Path(p).suffix == ".release"]
    whole = [read_consortium(p, trust) for p in paths if Path(p) not in single]
    if not whole:
        do = "Name the public start (or any capsule of the consortium) among the files."
        raise CapsuleError("releases alone do not make a capsule.", do=do)
    group = whole[0].merged(*whole[1:]).joined([read_release(p, trust) for p in single])
    require_trusted(group.records, trust)
    return group


def verify(path: str | Path, trust: Trust) -> list[Check]:
    """What was checked, record by record; a damaged or forged capsule is one failed check."""
    try:
        group = read_consortium(path)
    except CapsuleError as error:
        return [
            Check("capsule", False, str(error).removeprefix(f"{path}: "))
        ]  # whose record, too
    found = [
        Check(
            "start",
            True,
            f"{group.start.digest[:16]}, as its description and arrays say",
        )
    ]
    for record in group.records:
        number = f" {record.wave}" if isinstance(record, Release) else ""
        name = f"{record.kind}{number} of {record.site}"
        try:
            trust.require(record.key, f"the {record.title}", record.site)
            found.append(Check(name, True, signer(record, trust.keyring)))
        except CapsuleError as error:
            found.append(Check(name, False, error.what))
    try:
        ledger.require_signed(
            [(f"the {r.title}", r.key) for r in group.records], trust.required
        )
    except CapsuleError as error:
        found.append(Check("signatures", False, error.what))
    made = f"computed anew from {text.counted(len(group.releases), 'release')}"
    step = f"{np.linalg.norm(group.beta):.4f} away from the public head"
    return [*found, Check("head", True, f"{made}, {step}; state {group.digest[:16]}")]


def signer(record: Record, keyring: keys.Keyring | None = None) -> str:
    """Who signed a record, in words."""
    if not record.key:
        return "not signed: anybody can have made it"
    return f"signed by key {(keyring or keys.Keyring()).said(record.key)}"

"""Consortium files: a start with releases as one capsule, or a single release as JSON.

A capsule is the canonical zip of `fcforge.capsule.container` with three parts: the start's papers,
its arrays, and one line per record. The head is not among them: whoever opens the file computes it.
"""

from __future__ import annotations

from pathlib import Path

from fcforge.capsule import ledger
from fcforge.capsule.arrays import load_arrays, save_arrays
from fcforge.capsule.container import pack, read_file, require_place, unpack
from fcforge.consortium.members import Consortium
from fcforge.consortium.papers import checked_papers
from fcforge.consortium.public import from_parts
from fcforge.consortium.records import Record, read_record
from fcforge.errors import CapsuleError
from fcforge.writing import write_bytes

FORMAT, VERSION = "fcforge-consortium", 2
MANIFEST, START, RECORDS = "manifest.json", "start.safetensors", "records.jsonl"
PARTS = (MANIFEST, START, RECORDS)
MAX_BYTES = 1 << 28
MAX_RELEASE = 16 << 10  # bytes of one record


def is_consortium(path: str | Path) -> bool:
    """Whether a file begins as a capsule of releases does (it may still be damaged)."""
    path = Path(path)
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return f'"format":"{FORMAT}"'.encode() in stream.read(1 << 16)


def write_consortium(group: Consortium, out: str | Path, *, overwrite: bool = False) -> Path:
    """Write a capsule of releases whole or not at all; only its owner may read it."""
    require_place(out, overwrite=overwrite)
    arrays = save_arrays(group.start.tensors())
    records = b"".join(_line(r) for r in group.records)
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "start": group.start.digest,
        "papers": dict(group.start.papers),
        "parts": {START: ledger.sha256(arrays), RECORDS: ledger.sha256(records)},
    }
    parts = {MANIFEST: ledger.canonical(manifest), START: arrays, RECORDS: records}
    write_bytes(out, pack(parts, PARTS), private=True)
    return Path(out)


def read_consortium(path: str | Path) -> Consortium:
    """Open a capsule of releases: every part, record, signature and budget checked first."""
    parts = unpack(read_file(Path(path), MAX_BYTES), path, PARTS)
    try:
        return _opened(parts)
    except CapsuleError as error:
        raise CapsuleError(
            str(error), where=str(path), do="Nothing of it was used." if not error.do else ""
        ) from error


def _opened(parts: dict[str, bytes]) -> Consortium:
    manifest = ledger.parse(parts[MANIFEST], "the manifest")
    if manifest.get("format") != FORMAT or set(manifest) != _KEYS:
        raise CapsuleError("this is not a capsule of releases.")
    if manifest["version"] != VERSION:
        raise CapsuleError(
            f"is of version {manifest['version']!r:.20}, this fcforge reads version {VERSION}.",
            do="A newer fcforge reads newer versions: pip install -U fcforge.",
        )
    if not isinstance(manifest["parts"], dict) or set(manifest["parts"]) != {START, RECORDS}:
        raise CapsuleError("its list of parts is malformed.")
    for name, sha in manifest["parts"].items():
        if sha != ledger.sha256(parts[name]):
            raise CapsuleError(f"part '{name}' was changed after it was written.")
    start = from_parts(load_arrays(parts[START], START), checked_papers(manifest["papers"]))
    if start.digest != manifest["start"]:
        raise CapsuleError("the start is not the one it says: papers or arrays were changed.")
    lines = parts[RECORDS].split(b"\n")
    if lines.pop():
        raise CapsuleError("its list of records is cut off.")
    found = [read_record(line, f"record {i + 1}") for i, line in enumerate(lines)]
    group = Consortium(start).joined(found)
    if [r.digest for r in found] != [r.digest for r in group.records]:
        raise CapsuleError("its records repeat each other, are withdrawn, or stand in disorder.")
    return group


_KEYS = {"format", "version", "start", "papers", "parts"}


def _line(record: Record) -> bytes:
    line = ledger.canonical(record.to_json()) + b"\n"
    if len(line) > MAX_RELEASE:
        raise CapsuleError(
            f"a record of site '{record.site}' has {len(line)} bytes, more than {MAX_RELEASE}.",
            do="Use fewer axes.",
        )
    return line


def write_release(record: Record, out: str | Path, *, overwrite: bool = False) -> Path:
    """Write one record alone: a few kilobytes that can be mailed and read."""
    require_place(out, overwrite=overwrite)
    write_bytes(out, _line(record), private=True)
    return Path(out)


def read_release(path: str | Path) -> Record:
    """Read one record, checked; the start it belongs to is checked when it joins others."""
    data = read_file(Path(path), MAX_RELEASE)
    if not data.endswith(b"\n"):
        raise CapsuleError("is cut off.", where=str(path), do="Ask the sender for it again.")
    try:
        return read_record(data[:-1], "the release")
    except CapsuleError as error:
        raise CapsuleError(str(error), where=str(path)) from error

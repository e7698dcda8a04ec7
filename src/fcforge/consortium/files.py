"""Consortium files: a start with releases as one capsule, or a single release as JSON.

A capsule is the canonical zip of `fcforge.capsule.container` with three parts: the start's papers,
its arrays, and one line per record. The head is not among them: whoever opens the file computes it.
"""

from collections.abc import Sequence
from pathlib import Path

from fcforge.capsule import ledger, opening
from fcforge.capsule.arrays import load_arrays, save_arrays
from fcforge.capsule.container import pack, read_file, require_place, unpack
from fcforge.capsule.keys import Keyring
from fcforge.capsule.ledger import require_signed
from fcforge.capsule.opening import Check, Trust
from fcforge.consortium.members import Consortium
from fcforge.consortium.public import from_parts
from fcforge.consortium.records import Record, Release, checked_papers, read_record
from fcforge.errors import CapsuleError, at
from fcforge.text import counted
from fcforge.writing import write_bytes

FORMAT, VERSION = "fcforge-consortium", 2
MANIFEST, START, RECORDS = "manifest.json", "start.safetensors", "records.jsonl"
PARTS = (MANIFEST, START, RECORDS)
MAX_BYTES = 1 << 28
MAX_RELEASE = 16 << 10  # bytes of one record
_KEYS = {"format", "version", "start", "papers", "parts"}


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
        "format": FORMAT, "version": VERSION, "start": group.start.digest,
        "papers": dict(group.start.papers),
        "parts": {START: ledger.sha256(arrays), RECORDS: ledger.sha256(records)},
    }  # fmt: skip
    parts = {MANIFEST: ledger.canonical(manifest), START: arrays, RECORDS: records}
    write_bytes(out, pack(parts, PARTS), private=True)
    return Path(out)


def read_consortium(path: str | Path, trust: Trust | None = None) -> Consortium:
    """Open a capsule of releases: every part, record, signature and budget checked first.

    With `trust`, every record must be signed by one of its keys, if it has any.
    """
    with at(path, do="Nothing of it was used."):
        group = _opened(unpack(read_file(path, MAX_BYTES), PARTS))
        require_trusted(group.records, trust)
    return group


def _opened(parts: dict[str, bytes]) -> Consortium:
    manifest = ledger.parse(parts[MANIFEST], "the manifest")
    if manifest.get("format") != FORMAT or set(manifest) != _KEYS:
        raise CapsuleError("this is not a capsule of releases.")
    if manifest["version"] != VERSION:
        what = f"is of version {manifest['version']!r:.20}, this fcforge reads version {VERSION}."
        raise CapsuleError(what, do="A newer fcforge reads newer versions: pip install -U fcforge.")
    if manifest["parts"] != {name: ledger.sha256(parts[name]) for name in (START, RECORDS)}:
        raise CapsuleError("a part was changed after it was written.")
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


def _line(record: Record) -> bytes:
    line = ledger.canonical(record.to_json()) + b"\n"
    if len(line) > MAX_RELEASE:
        what = f"a record of site '{record.site}' has {len(line)} bytes, more than {MAX_RELEASE}."
        raise CapsuleError(what, do="Use fewer axes.")
    return line


def write_release(record: Record, out: str | Path, *, overwrite: bool = False) -> Path:
    """Write one record alone: a few kilobytes that can be mailed and read."""
    require_place(out, overwrite=overwrite)
    write_bytes(out, _line(record), private=True)
    return Path(out)


def read_release(path: str | Path, trust: Trust | None = None) -> Record:
    """Read one record, checked; the start it belongs to is checked when it joins others."""
    with at(path, do="Ask the sender for it again."):
        data = read_file(path, MAX_RELEASE)
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
    require_signed([(f"the {r.title}", r.key) for r in records], trust.required)


def write_either(group: Consortium, record: Record, out: Path, *, overwrite: bool) -> None:
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
        return [Check("capsule", False, str(error).removeprefix(f"{path}: "))]  # whose record, too
    found = [Check("start", True, f"{group.start.digest[:16]}, as its papers and arrays say")]
    for record in group.records:
        wave = f", wave {record.wave}" if isinstance(record, Release) else ""
        said, known = signer(record, trust.keyring), True
        try:
            trust.require(record.key, f"the {record.title}", record.site)
        except CapsuleError as error:
            said, known = error.what, False
        found.append(Check(f"{record.kind} of {record.site}{wave}", known, said))
    try:
        require_signed([(f"the {r.title}", r.key) for r in group.records], trust.required)
    except CapsuleError as error:
        found.append(Check("signatures", False, error.what))
    made = f"computed anew from {counted(len(group.releases), 'release')}"
    step = f"{float(group.beta.norm()):.4f} away from the public head"
    return [*found, Check("head", True, f"{made}, {step}; state {group.digest[:16]}")]


def verify_either(path: str | Path, trust: Trust) -> tuple[list[Check], bool]:
    """What was checked of either kind of capsule, and whether it may be used."""
    if is_consortium(path):
        checks = verify(path, trust)
        return checks, all(check.ok for check in checks)
    checks = opening.verify(path, trust)
    return checks, opening.intact(checks)


def signer(record: Record, keyring: Keyring | None = None) -> str:
    """Who signed a record, in words."""
    if not record.key:
        return "not signed: anybody can have made it"
    return f"signed by key {(keyring or Keyring()).said(record.key)}"

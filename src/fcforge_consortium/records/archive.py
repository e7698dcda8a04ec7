"""The one container of exchange files: a canonical zip of a manifest, records and arrays.

The zip is written and read in one form: members in a fixed order, stored without compression, no
extra fields, no comment, a fixed date. Whatever deviates from it by one bit is refused. So a
member cannot be larger than the file that holds it (no zip bomb), cannot have another name than
its part (no path tricks, no links, no duplicates), and nothing can hide between members. Ordinary
tools open it.

Parts: ``manifest.json`` (format, version, SHA-256 of every other part), ``records.jsonl`` (one
canonical line per record, in the order of `in_order`), ``payloads/SHA256.safetensors``.
"""

import io
import json
import stat
import struct
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fcforge.core.errors import ExchangeError, at
from fcforge.core.files import read_plain, write_bytes
from fcforge_consortium.records.canonical import canonical, sha256
from fcforge_consortium.records.kinds import Record, read_record

FORMAT = "fcforge-exchange"
VERSION = 5
READ_BY = {4: "0.2"}  # versions of fcforge that read an older format
MANIFEST = "manifest.json"
RECORDS = "records.jsonl"
FOLDER = "payloads/"
SUFFIX = ".safetensors"
MAX_BYTES = 1 << 30  # 32-bit offsets of a zip end at 4 GiB
MAX_RECORDS = 40_000
NUMBERS = "fiub"  # kinds of arrays: floats, whole numbers, yes or no
ASK_AGAIN = "Nothing of it was used; ask the sender for the file again."
# All that reading a zip of other bytes was seen to raise.
BROKEN = (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError, struct.error)


class Contents(NamedTuple):
    """Records of a file, in order, and their arrays by SHA-256."""

    records: tuple[Record, ...]
    payloads: Mapping[str, bytes]


def in_order(records: Iterable[Record]) -> tuple[Record, ...]:
    """Records after those they build on, and by id among equals."""
    here = {record.id: record for record in records}
    waiting = TopologicalSorter[str]()
    for record in here.values():
        waiting.add(record.id, *here.keys() & set(record.builds_on))
    waiting.prepare()
    done: list[str] = []
    while waiting.is_active():
        ready = sorted(waiting.get_ready())
        waiting.done(*ready)
        done += ready
    return tuple(here[name] for name in done)


def pack(contents: Contents) -> bytes:
    """The bytes of a file."""
    lines = b"".join(r.line + b"\n" for r in in_order(contents.records))
    parts = {RECORDS: lines}
    for digest, data in sorted(contents.payloads.items()):
        parts[f"{FOLDER}{digest}{SUFFIX}"] = data
    sums = {name: sha256(data) for name, data in parts.items()}
    manifest = {"format": FORMAT, "version": VERSION, "parts": sums}
    total = sum(len(part) for part in parts.values())
    if total > MAX_BYTES:
        what = f"would be {total} bytes, more than the {MAX_BYTES} a file may have."
        raise ExchangeError(what, do="Choose a smaller model or memory.")
    return _zipped({MANIFEST: canonical(manifest), **parts})


def _zipped(parts: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, data in parts.items():
            info = zipfile.ZipInfo(name)  # dated 1980-01-01, the first day of zips
            info.create_system = 3
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(info, data)
    return out.getvalue()


def unpack(data: bytes) -> Contents:
    """Records and arrays of a file's bytes; `ExchangeError` for anything but such a file.

    What is found would be packed into `data` itself: one comparison rules out every other trick.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
            if size > len(data) or any(member.compress_type for member in members):
                raise ExchangeError("a part is compressed; such files store theirs.")
            parts = {member.filename: archive.read(member) for member in members}
    except BROKEN as error:
        raise ExchangeError(
            f"is damaged, cut off, or not an exchange file ({error})."
        ) from error
    _check_version(parts.pop(MANIFEST, b""))
    records = _read_lines(parts.pop(RECORDS, b""))
    found = Contents(records, {Path(name).stem: parts[name] for name in parts})
    named = {record.payload for record in records}
    for digest, part in found.payloads.items():
        if sha256(part) != digest or digest not in named:
            raise ExchangeError(f"the arrays {digest[:16]!r} are not of its records.")
    if pack(found) != data:
        raise ExchangeError("holds something other than its records and their arrays.")
    return found


def _check_version(manifest: bytes) -> None:
    """Refuse files of other versions by name."""
    try:
        said = json.loads(manifest)
        form = said["format"]
        version = said["version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ExchangeError("has no manifest of an exchange file.") from error
    if form == FORMAT and version in READ_BY:
        raise ExchangeError(
            f"is of {FORMAT} version {version}, which fcforge {READ_BY[version]} reads; this "
            f"fcforge reads version {VERSION}.",
            do=f"Read it with fcforge {READ_BY[version]}, or make it again with this one.",
        )
    if form != FORMAT or version != VERSION:
        raise ExchangeError(
            f"is of format {form!r:.40} version {version!r:.20}; this fcforge reads {FORMAT} "
            f"version {VERSION}.",
            do="Make an older one again with this fcforge; read a newer one with a newer.",
        )


def _read_lines(data: bytes) -> tuple[Record, ...]:
    lines = data.split(b"\n")
    if lines.pop() or not lines:
        raise ExchangeError("its list of records is empty or cut off.")
    if len(lines) > MAX_RECORDS:
        raise ExchangeError(f"it has {len(lines)} records, more than {MAX_RECORDS}.")
    return tuple(read_record(line, f"record {i + 1}") for i, line in enumerate(lines))


def read(path: str | Path) -> Contents:
    """Records and arrays of a file, each checked by itself."""
    with at(path, do=ASK_AGAIN):
        return unpack(read_plain(path, MAX_BYTES, ExchangeError))


def require_place(out: str | Path) -> None:
    """Raise unless a file can be written to `out`; asked before hours of training, too."""
    out = Path(out)
    folder = next(above for above in out.absolute().parents if above.exists())
    with at(out):
        if out.exists():
            raise ExchangeError("exists already.", do="Choose another name.")
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            said = f"cannot be written ({error.strerror})."
            raise ExchangeError(said, do="Choose another folder.") from error


def write(data: bytes, out: str | Path) -> Path:
    """Write the bytes of a file whole or not at all; only its owner may read it."""
    out = Path(out)
    require_place(out)
    try:
        write_bytes(out, data, private=True)
    except OSError as error:
        do = f"It needs {len(data) / 1e6:.1f} MB; make room and run the same command again."
        what = f"cannot be written ({error.strerror})."
        raise ExchangeError(what, where=out, do=do) from error
    return out


# -- arrays of a record: safetensors bytes, written one way only -----------------------------------
def save_arrays(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Arrays as they are stored; names sorted, nothing beside them."""
    from safetensors.numpy import save

    return save({k: np.asarray(arrays[k], order="C") for k in sorted(arrays)})


def load_arrays(data: bytes, what: str) -> dict[str, np.ndarray]:
    """Arrays by name, types and numbers checked; anything else raises `ExchangeError`.

    What is read must be stored again as the same bytes: nothing hides beside the arrays.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        found = load(data)
        same = save_arrays(found) == data
    except (SafetensorError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise ExchangeError(
            f"the arrays of the {what} cannot be read ({type(error).__name__})."
        ) from error
    if not same:
        raise ExchangeError(f"the arrays of the {what} hide something beside them.")
    for name, array in found.items():
        if array.dtype.kind not in NUMBERS or not np.isfinite(array).all():
            raise ExchangeError(
                f"array {name!r:.80} of the {what} ({array.dtype}) holds what is no number."
            )
    return {name: found[name] for name in sorted(found)}

"""Exchange files as bytes: a canonical zip of a manifest, records and arrays.

A *part* is one file inside the zip:

- ``manifest.json``: format, version, and the SHA-256 of every other part;
- ``records.jsonl``: one line of canonical JSON for each record, in the order of `in_order`;
- ``payloads/SHA256.safetensors``: the arrays of one record (its *payload*), named by their SHA-256.

The same contents always give the same bytes: parts in a fixed order, stored without compression, no
extra fields, no comment, a fixed date. A file that deviates by one bit is refused. Therefore a part
cannot be larger than the file that holds it (no zip bomb), names of parts cannot contain paths, links
or duplicates, and no bytes can hide between parts. Ordinary zip tools open the file.
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
CHECKOUT = "0.2 before 16 November 2026"  # never released
READ_BY = {  # version of fcforge by older format and version
    ("fcforge-capsule", 1): "0.1",
    ("fcforge-capsule", 2): "0.1",
    ("fcforge-capsule", 3): CHECKOUT,
    ("fcforge-consortium", 2): "0.1",
    ("fcforge-consortium", 3): CHECKOUT,
    (FORMAT, 4): "0.2",
}
MANIFEST = "manifest.json"
RECORDS = "records.jsonl"
FOLDER = "payloads/"
SUFFIX = ".safetensors"
MAX_BYTES = 1 << 30  # of a file; the 32-bit offsets of a zip would reach 4 GiB
MAX_RECORDS = 40_000
MEMBER = b"PK\x01\x02"  # first bytes of each entry in the directory of a zip
NUMBERS = "fiub"  # allowed numpy kinds: floats, signed and unsigned integers, booleans
ASK_AGAIN = "The file was not used. Ask the sender for it again."
# errors that `zipfile` raises for damaged or foreign bytes
BROKEN = (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError, struct.error)


class Contents(NamedTuple):
    """The contents of a consortium file.

    Attributes
    ----------
    records : tuple of Record
    payloads : mapping of str to bytes
        Arrays of the records as safetensors bytes, by their SHA-256.
    """

    records: tuple[Record, ...]
    payloads: Mapping[str, bytes]


def in_order(records: Iterable[Record]) -> tuple[Record, ...]:
    """Sort records so that each follows the records that it builds on.

    Parameters
    ----------
    records : iterable of Record
        In any order; a record may build on one that is not among them.

    Returns
    -------
    tuple of Record
        Each record once. The order depends on nothing but the set of records: those that are ready at
        the same time are sorted by id.
    """
    by_id = {record.id: record for record in records}
    sorter = TopologicalSorter[str]()
    for record in by_id.values():
        sorter.add(record.id, *by_id.keys() & set(record.builds_on))
    sorter.prepare()
    ordered: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        sorter.done(*ready)
        ordered += ready
    return tuple(by_id[record_id] for record_id in ordered)


def pack(contents: Contents) -> bytes:
    """Encode records and arrays as the bytes of a consortium file.

    Parameters
    ----------
    contents : Contents

    Returns
    -------
    bytes
        The only encoding of these contents.

    Raises
    ------
    ExchangeError
        If the file would be larger than `MAX_BYTES`.
    """
    lines = b"".join(r.line + b"\n" for r in in_order(contents.records))
    parts = {RECORDS: lines}
    for digest, data in sorted(contents.payloads.items()):
        parts[f"{FOLDER}{digest}{SUFFIX}"] = data
    checksums = {name: sha256(data) for name, data in parts.items()}
    manifest = {"format": FORMAT, "version": VERSION, "parts": checksums}
    total = sum(len(part) for part in parts.values())
    if total > MAX_BYTES:
        message = f"would have {total} bytes; at most {MAX_BYTES} are allowed."
        raise ExchangeError(message, do="Choose a smaller model or memory.")
    return _zipped({MANIFEST: canonical(manifest), **parts})


def _zipped(parts: Mapping[str, bytes]) -> bytes:
    """Return the canonical zip of parts, given as bytes by name."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, data in parts.items():
            info = zipfile.ZipInfo(name)  # its default date is 1980-01-01
            info.create_system = 3  # Unix, on whatever machine this runs
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(info, data)
    return out.getvalue()


def unpack(data: bytes) -> Contents:
    """Decode the bytes of a consortium file, and check each of its records by itself.

    The decoded contents are packed again and must give `data` itself. This one comparison excludes
    every other encoding of the same contents.

    Parameters
    ----------
    data : bytes

    Returns
    -------
    Contents

    Raises
    ------
    ExchangeError
        If the bytes are not a canonical consortium file of this version.
    """
    # The arrays of each record, the manifest and the records are a part each. They are counted first,
    # because `zipfile` makes an object of each.
    n_parts = data.count(MEMBER)
    if n_parts > MAX_RECORDS + 2:
        raise ExchangeError(
            f"has {n_parts} parts; at most {MAX_RECORDS + 2} are allowed."
        )
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
            if size > len(data) or any(member.compress_type for member in members):
                raise ExchangeError("a part is compressed; the parts must be stored.")
            parts = {member.filename: archive.read(member) for member in members}
    except BROKEN as error:
        raise ExchangeError(
            f"is damaged, cut off, or not a consortium file ({error})."
        ) from error
    _check_version(parts.pop(MANIFEST, b""))
    records = _read_lines(parts.pop(RECORDS, b""))
    contents = Contents(records, {Path(name).stem: parts[name] for name in parts})
    required = {record.payload for record in records}
    for digest, arrays in contents.payloads.items():
        if sha256(arrays) != digest or digest not in required:
            raise ExchangeError(
                f"the arrays {digest[:16]!r} do not belong to its records."
            )
    if pack(contents) != data:
        raise ExchangeError("holds something other than its records and their arrays.")
    return contents


def _check_version(manifest: bytes) -> None:
    """Raise `ExchangeError` for a file of another format or version.

    Parameters
    ----------
    manifest : bytes
        The part ``manifest.json``; empty if the file has none.
    """
    try:
        fields = json.loads(manifest)
        name = str(fields["format"])
        version = fields["version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ExchangeError(
            "does not have the manifest of a consortium file."
        ) from error
    reader = READ_BY.get((name, version)) if isinstance(version, int) else None
    if reader:
        without = "" if name == FORMAT else " Its contributions count as without noise."
        raise ExchangeError(
            f"has the format {name} version {version}, which fcforge {reader} reads; this fcforge "
            f"reads {FORMAT} version {VERSION}.",
            do=f"Read it with fcforge {reader}, or make the file again with this fcforge.{without}",
        )
    if name != FORMAT or version != VERSION:
        raise ExchangeError(
            f"has format {name!r:.40} version {version!r:.20}; this fcforge reads {FORMAT} "
            f"version {VERSION}.",
            do="Make an older file again with this fcforge; read a newer file with a newer fcforge.",
        )


def _read_lines(data: bytes) -> tuple[Record, ...]:
    """Return the records of ``records.jsonl``, each checked by itself.

    Parameters
    ----------
    data : bytes
        The part: one record on each line, the last line closed, too.
    """
    if (n_lines := data.count(b"\n")) > MAX_RECORDS:
        raise ExchangeError(
            f"has {n_lines} records; at most {MAX_RECORDS} are allowed."
        )
    lines = data.split(b"\n")
    if lines.pop() or not lines:
        raise ExchangeError("its list of records is empty or cut off.")
    return tuple(read_record(line, f"record {i + 1}") for i, line in enumerate(lines))


def read(path: str | Path) -> Contents:
    """Read a consortium file and check each of its records by itself.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    Contents
    """
    with at(path, do=ASK_AGAIN):
        return unpack(read_plain(path, MAX_BYTES, ExchangeError))


def require_place(out: str | Path) -> None:
    """Raise `ExchangeError` unless a new file can be written to `out`.

    Commands call it before hours of training.

    Parameters
    ----------
    out : str or Path
        File that must not exist. Missing folders above it are allowed.
    """
    out = Path(out)
    folder = next(above for above in out.absolute().parents if above.exists())
    with at(out):
        if out.exists():
            raise ExchangeError("exists already.", do="Choose another name.")
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            message = f"cannot be written ({error.strerror})."
            raise ExchangeError(message, do="Choose another folder.") from error


def write(data: bytes, out: str | Path) -> Path:
    """Write a new file whole or not at all; only its owner may read it.

    Parameters
    ----------
    data : bytes
    out : str or Path
        File that must not exist.

    Returns
    -------
    Path
        The file.
    """
    out = Path(out)
    require_place(out)
    try:
        write_bytes(out, data, private=True)
    except OSError as error:
        hint = f"It needs {len(data) / 1e6:.1f} MB; make room and run the same command again."
        message = f"cannot be written ({error.strerror})."
        raise ExchangeError(message, where=out, do=hint) from error
    return out


# -- arrays of a record: safetensors bytes in one canonical form ----------------------------------
def save_arrays(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Encode arrays as safetensors bytes, with sorted names and no metadata.

    Parameters
    ----------
    arrays : mapping of str to ndarray

    Returns
    -------
    bytes
        The same bytes for the same arrays.
    """
    from safetensors.numpy import save

    return save({k: np.asarray(arrays[k], order="C") for k in sorted(arrays)})


def load_arrays(data: bytes, title: str) -> dict[str, np.ndarray]:
    """Decode arrays and check that they hold finite numbers only.

    Encoding the arrays again must give the same bytes, so that no bytes hide beside the arrays.

    Parameters
    ----------
    data : bytes
        Encoded by `save_arrays`.
    title : str
        Title of the record, such as "contribution 1 of 'NYU'", for error messages.

    Returns
    -------
    dict of str to ndarray
        Sorted by name.

    Raises
    ------
    ExchangeError
        If the bytes are not those of `save_arrays`, or an array holds NaN, infinity or text.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = load(data)
        canonical_bytes = save_arrays(arrays)
    except (SafetensorError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise ExchangeError(
            f"the arrays of the {title} cannot be read ({type(error).__name__})."
        ) from error
    if canonical_bytes != data:
        raise ExchangeError(f"the arrays of the {title} hide something beside them.")
    for name, array in arrays.items():
        if array.dtype.kind not in NUMBERS or not np.isfinite(array).all():
            raise ExchangeError(
                f"array {name!r:.80} of the {title} ({array.dtype}) holds values that are not "
                "finite numbers."
            )
    return {name: arrays[name] for name in sorted(arrays)}

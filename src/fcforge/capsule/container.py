"""The container: six named parts in a folder or in one zip file, nothing else.

The zip is written and read in one canonical form: members in a fixed order, stored without
compression, no extra fields, no comment, a fixed date. Whatever deviates from it by one bit is
refused. So a member cannot be larger than the file that holds it (no zip bomb), cannot have
another name than the six (no path tricks, no links, no duplicates), and nothing can hide between
members. Ordinary tools open it; a folder with the six files is as good.
"""

import io
import os
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from fcforge.errors import CapsuleError, at
from fcforge.writing import whole_folder, write_bytes

MANIFEST, LEDGER, SEAL = "manifest.json", "ledger.jsonl", "seal.json"
LANE, REMEMBERED, HELD_OUT = "lane.safetensors", "remembered.safetensors", "held_out.safetensors"
PARTS = (MANIFEST, LEDGER, LANE, REMEMBERED, HELD_OUT, SEAL)
SEALED_PARTS = (LEDGER, LANE, REMEMBERED, HELD_OUT)  # listed with size and SHA-256 in the manifest

MAX_BYTES = 1 << 30  # a whole capsule; 32-bit zip offsets end at 4 GiB
MAX_TEXT = 16 << 20  # one JSON part

ASK_AGAIN = "Nothing of it was used; ask the sender for the capsule again."
_LOCAL = struct.Struct("<4s5H3I2H")


def pack(parts: Mapping[str, bytes], names: Sequence[str] = PARTS) -> bytes:
    """The canonical zip of the named parts."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as box:
        for name in names:
            info = zipfile.ZipInfo(name)  # dated 1980-01-01, the first day a zip can name
            info.create_system, info.external_attr = 3, (stat.S_IFREG | 0o644) << 16
            box.writestr(info, parts[name])
    return out.getvalue()


def unpack(data: bytes, names: Sequence[str] = PARTS) -> dict[str, bytes]:
    """The named parts of a canonical zip; anything else raises `CapsuleError`.

    Members are walked from the first byte on, never beyond the end of `data`, and what they
    would be packed into must be `data` itself: one comparison rules out every other trick.
    """
    parts: dict[str, bytes] = {}
    place = 0
    for name in names:
        start = place + _LOCAL.size + len(name)
        head = data[place:start]
        if len(head) < _LOCAL.size + len(name):
            raise CapsuleError(f"the file ends before part '{name}'.")
        fields = _LOCAL.unpack_from(head)
        if fields[0] != b"PK\3\4" or head[_LOCAL.size :] != name.encode():
            raise CapsuleError(f"part '{name}' is not where it belongs; this is not a capsule.")
        if fields[3] != 0:
            raise CapsuleError(f"part '{name}' is compressed; capsules store their parts.")
        size = fields[8]
        if start + size > len(data):
            raise CapsuleError(f"the file ends within part '{name}'.")
        parts[name] = data[start : start + size]
        if zlib.crc32(parts[name]) != fields[6]:
            raise CapsuleError(f"part '{name}' was damaged or changed: its checksum is another.")
        place = start + size
    if pack(parts, names) != data:
        raise CapsuleError("the zip holds something other than the parts of a capsule.")
    return parts


def read_parts(path: str | Path, max_bytes: int = MAX_BYTES) -> dict[str, bytes]:
    """Bytes of the six parts of a capsule file or folder, size checked before reading."""
    path = Path(path)
    if path.is_dir():
        return _read_folder(path, max_bytes)
    return unpack(read_file(path, max_bytes))


def read_file(path: str | Path, limit: int) -> bytes:
    """A regular file of at most `limit` bytes; links are not followed inside a folder."""
    if not Path(path).is_file():  # a pipe would never end
        raise CapsuleError("no such capsule.", do="Check the path.")
    try:
        with Path(path).open("rb") as stream:
            info, data = os.fstat(stream.fileno()), b""
            if stat.S_ISREG(info.st_mode) and info.st_size <= limit:
                data = stream.read(limit + 1)  # it may have grown since
    except OSError as error:
        raise CapsuleError(f"cannot be read ({error.strerror}).") from error
    if not stat.S_ISREG(info.st_mode) or max(info.st_size, len(data)) > limit:
        raise CapsuleError(f"is not a regular file of at most {limit} bytes.")
    return data


def _read_folder(path: Path, max_bytes: int) -> dict[str, bytes]:
    entries = {entry.name: entry for entry in os.scandir(path)}
    odd = sorted(set(entries) - set(PARTS))
    if odd:
        raise CapsuleError(f"holds something that is not part of a capsule ({odd[0]!r}).")
    parts: dict[str, bytes] = {}
    left = max_bytes
    for name in PARTS:
        if name not in entries:
            raise CapsuleError(f"part '{name}' is missing.")
        if not entries[name].is_file(follow_symlinks=False):
            raise CapsuleError(f"part '{name}' is a link or a folder.")
        with at(name):
            parts[name] = read_file(path / name, left)
        left -= len(parts[name])
    return parts


def require_place(out: str | Path, *, overwrite: bool = False) -> None:
    """Raise unless a capsule can be written to `out`; asked before hours of training, too."""
    out = Path(out)
    folder = next(above for above in out.absolute().parents if above.exists())
    with at(out):
        if out.exists() and not (overwrite and out.is_file()):
            raise CapsuleError("exists already.", do="Choose another name, or give --overwrite.")
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            said = f"cannot be written ({error.strerror})."
            raise CapsuleError(said, do="Choose another folder.") from error


def write_parts(parts: Mapping[str, bytes], out: str | Path, *, overwrite: bool = False) -> Path:
    """Write a capsule whole or not at all: a zip, or a folder when `out` has no suffix.

    An existing capsule is replaced only with `overwrite` (and a folder never).
    """
    out = Path(out)
    require_place(out, overwrite=overwrite)
    total = sum(len(data) for data in parts.values())
    if total > MAX_BYTES:
        what = f"would be {total} bytes, more than the {MAX_BYTES} a capsule may have."
        do = "Choose a smaller model or memory, or `projection` for analytic."
        raise CapsuleError(what, where=out, do=do)
    try:
        if out.suffix:
            write_bytes(out, pack(parts), private=True)
        else:
            with whole_folder(out) as folder:
                for name in PARTS:
                    write_bytes(folder / name, parts[name], private=True)
    except OSError as error:
        do = f"Nothing was written. It needs {total / 1e6:.0f} MB; run the same command again."
        raise CapsuleError(f"cannot be written ({error.strerror}).", where=out, do=do) from error
    return out

"""The container of both kinds of capsule: a manifest and named parts, in a folder or one zip file.

The zip is written and read in one canonical form: members in a fixed order, stored without
compression, no extra fields, no comment, a fixed date. Whatever deviates from it by one bit is
refused. So a member cannot be larger than the file that holds it (no zip bomb), cannot have
another name than its part (no path tricks, no links, no duplicates), and nothing can hide between
members. Ordinary tools open it; a folder with the same files is as good.

The manifest says which kind and version it is, what all its hospitals share, and the SHA-256 of
every part; its own SHA-256 is the capsule's id.
"""

import io
import os
import stat
import struct
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fcforge.capsule.ledger import canonical, parse, sha256
from fcforge.errors import CapsuleError, at
from fcforge.writing import whole_folder, write_bytes

MANIFEST = "manifest.json"
MAX_BYTES = 1 << 30  # a whole capsule; 32-bit zip offsets end at 4 GiB
MAX_TEXT = 16 << 20  # one JSON part

ASK_AGAIN = "Nothing of it was used; ask the sender for the capsule again."
# All that reading a zip of other bytes was seen to raise.
BROKEN = (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError, struct.error)


class Form(NamedTuple):
    """A kind of capsule: its format and version, and the parts beside the manifest."""

    name: str
    version: int
    parts: tuple[str, ...]


LEDGER, LANE = "ledger.jsonl", "lane.safetensors"
REMEMBERED, HELD_OUT = "remembered.safetensors", "held_out.safetensors"
ARRAYS = (LANE, REMEMBERED, HELD_OUT)
CHAIN = Form("fcforge-capsule", 3, (LEDGER, *ARRAYS))
START, RECORDS = "start.safetensors", "records.jsonl"
RELEASES = Form("fcforge-consortium", 3, (START, RECORDS))


def pack(parts: Mapping[str, bytes]) -> bytes:
    """The canonical zip of the parts, in their order."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as box:
        for name, data in parts.items():
            info = zipfile.ZipInfo(
                name
            )  # dated 1980-01-01, the first day a zip can name
            info.create_system, info.external_attr = 3, (stat.S_IFREG | 0o644) << 16
            box.writestr(info, data)
    return out.getvalue()


def unpack(data: bytes, names: Sequence[str]) -> dict[str, bytes]:
    """The named parts of a canonical zip; anything else raises `CapsuleError`.

    What is found would be packed into `data` itself: one comparison rules out every other trick.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if [m.filename for m in members] != [*names]:
                raise CapsuleError("the file has other parts than such a capsule.")
            size = sum(m.file_size for m in members)
            if size > len(data) or any(m.compress_type for m in members):
                raise CapsuleError("a part is compressed; capsules store their parts.")
            parts = {m.filename: archive.read(m) for m in members}
    except BROKEN as error:
        raise CapsuleError(
            f"is damaged, cut off, or not a capsule ({error})."
        ) from error
    if pack(parts) != data:
        raise CapsuleError("the zip holds something other than the parts of a capsule.")
    return parts


def read_parts(
    path: str | Path, form: Form, max_bytes: int = MAX_BYTES
) -> dict[str, bytes]:
    """Bytes of manifest and parts of a capsule file or folder, size checked before reading."""
    path, names = Path(path), (MANIFEST, *form.parts)
    if not path.is_dir():
        return unpack(read_file(path, max_bytes), names)
    entries = {entry.name: entry for entry in os.scandir(path)}
    if odd := sorted(set(entries) - set(names)):
        raise CapsuleError(
            f"holds something that is not part of a capsule ({odd[0]!r})."
        )
    parts: dict[str, bytes] = {}
    for name in names:
        if name not in entries:
            raise CapsuleError(f"part '{name}' is missing.")
        if not entries[name].is_file(follow_symlinks=False):
            raise CapsuleError(f"part '{name}' is a link or a folder.")
        with at(name):
            parts[name] = read_file(
                path / name, max_bytes - sum(map(len, parts.values()))
            )
    return parts


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


def sealed(form: Form, says: Any, parts: Mapping[str, bytes]) -> dict[str, bytes]:
    """Parts with their manifest, which also holds what the capsule `says` of itself."""
    sums = {name: sha256(parts[name]) for name in form.parts}
    sums[MANIFEST] = sha256(canonical(says))  # a folder has no other checksum of it
    said = {"format": form.name, "version": form.version, "says": says, "parts": sums}
    return {MANIFEST: canonical(said), **{name: parts[name] for name in form.parts}}


def opened(parts: Mapping[str, bytes], form: Form) -> Any:
    """What a capsule says of itself, after its manifest was held against its parts."""
    for name, data in parts.items():
        if not name.endswith(".safetensors") and len(data) > MAX_TEXT:
            raise CapsuleError(f"part '{name}' is larger than {MAX_TEXT} bytes.")
    manifest = parse(parts[MANIFEST], MANIFEST)
    said, version = manifest.get("format"), manifest.get("version")
    if said != form.name or type(version) is not int or version != form.version:
        age = (
            "an older"
            if isinstance(version, int) and version < form.version
            else "a newer"
        )
        raise CapsuleError(
            f"is of format {said!r:.40} version {version!r:.20}; this fcforge reads {form.name} "
            f"version {form.version}.",
            do=f"Read it with {age} fcforge, or ask the sender for one of this version.",
        )
    listed = manifest.get("parts")
    for name in form.parts:
        if not isinstance(listed, dict) or listed.get(name) != sha256(parts[name]):
            raise CapsuleError(f"part '{name}' is not the one that was sealed.")
    if sealed(form, manifest.get("says"), parts)[MANIFEST] != parts[MANIFEST]:
        raise CapsuleError(
            "the manifest was changed, or holds what is not part of a capsule."
        )
    return manifest["says"]


def require_place(out: str | Path, *, overwrite: bool = False) -> None:
    """Raise unless a capsule can be written to `out`; asked before hours of training, too."""
    out = Path(out)
    folder = next(above for above in out.absolute().parents if above.exists())
    with at(out):
        if out.exists() and not (overwrite and out.is_file()):
            raise CapsuleError(
                "exists already.", do="Choose another name, or give --overwrite."
            )
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            said = f"cannot be written ({error.strerror})."
            raise CapsuleError(said, do="Choose another folder.") from error


def write_parts(
    parts: Mapping[str, bytes], out: str | Path, *, overwrite: bool = False
) -> Path:
    """Write a capsule whole or not at all: a zip, or a folder when `out` has no suffix.

    An existing capsule is replaced only with `overwrite` (and a folder never).
    """
    out = Path(out)
    require_place(out, overwrite=overwrite)
    total = sum(len(data) for data in parts.values())
    if total > MAX_BYTES:
        what = f"would be {total} bytes, more than the {MAX_BYTES} a capsule may have."
        do = "Choose a smaller model or memory."
        raise CapsuleError(what, where=out, do=do)
    try:
        if out.suffix:
            write_bytes(out, pack(parts), private=True)
        else:
            with whole_folder(out) as folder:
                for name, data in parts.items():
                    write_bytes(folder / name, data, private=True)
    except OSError as error:
        do = f"Nothing was written. It needs {total / 1e6:.0f} MB; run the same command again."
        raise CapsuleError(
            f"cannot be written ({error.strerror}).", where=out, do=do
        ) from error
    return out

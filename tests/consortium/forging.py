"""Forged consortium files: every field of every record re-encoded, swapped or out of bounds.

The forger is one of the hospitals: it has the file and its own key, not those of the others. What
it changes is packed as a whole file again, all hashes right, with the old signature, with its own,
and with none. A forged file may be refused, or say nothing of others that they did not say:
`accepted` tells.
"""

import io
import itertools
import json
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from exchange_records import key_of

from fcforge.core.errors import ExchangeError, FCForgeError
from fcforge.core.names import look_alike
from fcforge_consortium.records import archive
from fcforge_consortium.records import kinds as records
from fcforge_consortium.records.archive import load_arrays, save_arrays
from fcforge_consortium.records.canonical import canonical, sha256
from fcforge_consortium.records.exchange import Exchange, open_exchange
from fcforge_consortium.records.keyring import Keyring
from fcforge_consortium.records.keys import public_hex
from fcforge_consortium.records.trust import Trust
from fcforge_consortium.report.describe import describe

SCANS = b"scan" * 1_000
MOST_ITEMS = 2  # of a list whose entries are changed one by one


class Forgery(NamedTuple):
    """A forged file: a description of the change, its lines and its arrays."""

    what: str
    lines: tuple[bytes, ...]
    payloads: dict[str, bytes]
    wrapped: Callable[[bytes], bytes] = bytes

    def packed(self) -> bytes:
        """Return the bytes of the file, packed without any check."""
        parts = {archive.RECORDS: b"".join(line + b"\n" for line in self.lines)}
        for digest, data in sorted(self.payloads.items()):
            parts[f"{archive.FOLDER}{digest}{archive.SUFFIX}"] = data
        sums = {name: sha256(data) for name, data in parts.items()}
        said = {"format": archive.FORMAT, "version": archive.VERSION, "parts": sums}
        whole = archive._zipped({archive.MANIFEST: canonical(said), **parts})
        return self.wrapped(whole)


def forgeries(exchange: Exchange, forger: str) -> Iterator[Forgery]:
    """Yield every forgery of a file by one of its authors."""
    lines = tuple(r.line for r in archive.in_order(exchange.everything))
    payloads = dict(exchange.payloads)
    yield from _of_lines(lines, payloads)
    yield from _of_zips(lines, payloads)
    said = [json.loads(line) for line in lines]
    for place, value in enumerate(said):
        changes = [_changed(value), _swapped(value, said), _posing(value, forger)]
        for what, other in itertools.chain(*changes):
            for how, text in _signed(other, forger):
                new = (*lines[:place], text, *lines[place + 1 :])
                yield Forgery(f"line {place + 1}: {what}, {how}", new, payloads)
                if what.startswith("as "):
                    both = (*lines[: place + 1], text, *lines[place + 1 :])
                    yield Forgery(f"line {place + 1} and {what}, {how}", both, payloads)
    for digest in payloads:
        yield from _of_arrays(lines, payloads, digest)


def _of_lines(
    lines: tuple[bytes, ...], payloads: dict[str, bytes]
) -> Iterator[Forgery]:
    """Yield files with records dropped, repeated or in another order."""
    for place in range(len(lines)):
        rest = lines[:place] + lines[place + 1 :]
        yield Forgery(f"line {place + 1} dropped", rest, payloads)
        yield Forgery(f"line {place + 1} twice", (*lines, lines[place]), payloads)
        yield Forgery(f"line {place + 1} last", (*rest, lines[place]), payloads)
        yield Forgery(
            f"line {place + 1} spaced", (*rest, b" " + lines[place]), payloads
        )
    yield Forgery("no line", (), payloads)


def _of_zips(lines: tuple[bytes, ...], payloads: dict[str, bytes]) -> Iterator[Forgery]:
    """Yield files with something beside their parts."""
    wraps = {
        "tail": lambda data: data + SCANS,
        "head": lambda data: SCANS + data,
        "half": lambda data: data[: len(data) // 2],
        "comment": lambda data: _added(data, comment=SCANS),
        "part": lambda data: _added(data, "scans.npy"),
        "path": lambda data: _added(data, "../../scans.npy"),
        "folder": lambda data: _added(data, archive.FOLDER),
        "arrays": lambda data: _added(data, f"{archive.FOLDER}{'ab' * 32}"),
        "bomb": lambda data: _added(data, "bomb", bytes(50_000_000)),
    }
    for what, wrap in wraps.items():
        yield Forgery(f"zip: {what}", lines, payloads, wrap)
    for what, line in {"deep": b"[" * 50_000, "long": b"9" * 5_000_000}.items():
        yield Forgery(f"line: {what}", (*lines, line), payloads)


def _added(
    data: bytes, name: str = "", content: bytes = SCANS, comment: bytes = b""
) -> bytes:
    out = io.BytesIO(data)
    with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as more:
        more.comment = comment
        if name:
            more.writestr(name, content)
    return out.getvalue()


def _swapped(value: Any, others: list[Any]) -> Iterator[tuple[str, Any]]:
    """Yield a record with one field of another record."""
    for other in others:
        for name in sorted(value.keys() & other.keys()):
            if value[name] != other[name]:
                title = f"{name} of {other['kind']} of {other['site']}"
                yield title, {**value, name: other[name]}


def _posing(value: Any, forger: str) -> Iterator[tuple[str, Any]]:
    """Yield a record under the forger's name, another number, or a name that looks alike."""
    yield "as mine", {**value, "site": forger}
    yield "as one more", {**value, "number": 77}
    for name in ("{}.", "{} ", "{}\u200b", "\u039d{}", "\u202e{}"):
        posed = name.format(value["site"])
        yield f"as {posed!a}", {**value, "site": posed}
    yield "as a lookalike", {**value, "site": value["site"].swapcase()}


def _changed(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield a JSON value with one change, at every place."""
    name = ".".join(map(str, path)) or "record"
    for other in _others(value):
        yield f"{name} = {other!r:.40}", other
    inner: list[Any] = []
    if isinstance(value, dict):
        inner = list(value)
    if isinstance(value, list):
        inner = list(range(min(len(value), MOST_ITEMS)))
    for key in inner:
        for what, other in _changed(value[key], (*path, key)):
            copy = value.copy()
            copy[key] = other
            yield what, copy


def _others(value: Any) -> list[Any]:
    """Return the values that replace a value."""
    if isinstance(value, bool):
        return [not value, int(value), None]
    if isinstance(value, int | float):
        return [
            -1,
            value + 1,
            1.5,
            10**400,
            1e308,
            float("nan"),
            True,
            None,
            str(value),
        ]
    if isinstance(value, str):
        reencoded = [
            value.upper(),
            f" {value}",
            f"{value} ",
            f"{value}\u200b",
            value[::-1],
        ]
        return [*reencoded, "", "x" * 10_000, "\u202e" + value, 7, None, [value]]
    if isinstance(value, list):
        return [[], value + value, [*value, "x"], [*value, [0.5] * 50], {}, None]
    if isinstance(value, dict):
        less = dict(list(value.items())[1:])
        return [{**value, "scans": [0.5] * 2_000}, less, {}, [], None]
    return [0.5, "x", {}]


def _signed(value: Any, forger: str) -> Iterator[tuple[str, bytes]]:
    """Yield the line as it is, and signed by the forger."""
    yield "signature left", _written(value)
    if isinstance(value, dict):
        named = {**value, "key": public_hex(key_of(forger))}
        named.pop("signature", None)
        signature = key_of(forger).sign(records.CONTEXT + _written(named)).hex()
        yield "signed by the forger", _written({**named, "signature": signature})
        bare = {**value, "key": "", "signature": ""}
        yield "signature taken off", _written(bare)


def _written(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _of_arrays(
    lines: tuple[bytes, ...], payloads: dict[str, bytes], digest: str
) -> Iterator[Forgery]:
    """Yield files with other arrays: under the old name, under their own, and in the record, too."""
    rest = {name: data for name, data in payloads.items() if name != digest}
    for what, data in _other_arrays(payloads[digest]):
        new = sha256(data)
        yield Forgery(f"arrays: {what}, old name", lines, {**rest, digest: data})
        yield Forgery(f"arrays: {what}, own name", lines, {**rest, new: data})
        told = tuple(line.replace(digest.encode(), new.encode()) for line in lines)
        yield Forgery(f"arrays: {what}, in the record", told, {**rest, new: data})
    yield Forgery("arrays: dropped", lines, rest)
    extra = {**payloads, sha256(b"scans"): b"scans"}
    yield Forgery("arrays: further ones", lines, extra)


def _other_arrays(data: bytes) -> Iterator[tuple[str, bytes]]:
    arrays = load_arrays(data, "it")
    yield "cut", data[:-3]
    yield "longer", data + b"\0"
    yield "empty", b""
    yield "hidden", save_arrays({**arrays, "scans": np.zeros((86, 50))})
    for name, array in arrays.items():
        less = {k: v for k, v in arrays.items() if k != name}
        yield f"{name} gone", save_arrays(less) if less else b""
        yield f"{name} flat", save_arrays({**arrays, name: np.zeros(())})
        yield f"{name} zero", save_arrays({**arrays, name: np.zeros_like(array)})
        if array.dtype.kind == "f":
            yield f"{name} nan", save_arrays({**arrays, name: array + np.nan})
            yield f"{name} double", save_arrays({**arrays, name: array.astype("f8")})
            huge = np.full_like(array, 1e30)
            yield f"{name} huge", save_arrays({**arrays, name: huge})


def knowing(exchange: Exchange) -> Trust:
    """Return the trust of a reader who knows the key of every author."""
    ring = Keyring()
    for site, line in exchange.key_lines.items():
        if line[-1]:
            ring = ring.add(site, line[-1])
    return Trust(keyring=ring)


def accepted(
    forgery: Forgery, exchange: Exchange, forger: str, trust: Trust, place: Any
) -> str:
    """Return statements in the name of others that a forged file smuggles in; empty if it is refused.

    Whatever else it raises is a traceback that somebody would see.
    """
    try:
        data = forgery.packed()
    except (ValueError, ExchangeError):
        return ""  # JSON that cannot be written
    place.write_bytes(data)
    try:
        found = open_exchange(place, trust)
    except FCForgeError:
        return ""
    describe(found)
    known = {record.line for record in exchange.everything}
    others = set(exchange.key_lines) - {forger}  # of itself it may say what it likes
    false = [
        record.title
        for record in found.everything
        if record.line not in known
        and any(look_alike(record.site, name) for name in others)
    ]
    return f"{forgery.what}: {', '.join(false)}" if false else ""

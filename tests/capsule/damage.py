"""Ways to damage, forge or trick a capsule. Each takes a `draw` and sound parts, and returns
what an attacker would send: bytes of a file, or a mapping of names to bytes for a folder."""

import io
import json
import struct
import warnings
import zipfile
from collections.abc import Callable

import torch
from hypothesis import strategies as st
from safetensors.torch import load, save

from fcforge.capsule import container as box
from fcforge.capsule.ledger import canonical, sha256

Parts = dict[str, bytes]
Draw = Callable[[st.SearchStrategy], object]


PARTS = (box.MANIFEST, *box.CHAIN.parts)


def reseal(parts: Parts, **changes: bytes) -> Parts:
    """Parts with some replaced and every checksum made to fit again, that of the arrays too."""
    parts = {**parts, **changes}
    if box.LEDGER not in changes:
        *lines, last = parts[box.LEDGER].splitlines(keepends=True)
        sums = canonical({name: sha256(parts[name]) for name in box.ARRAYS})
        line = canonical({**json.loads(last), "arrays": sha256(sums)})
        parts[box.LEDGER] = b"".join([*lines, line, b"\n"])
    return box.sealed(box.CHAIN, json.loads(parts[box.MANIFEST])["says"], parts)


def bit_flip(draw, parts: Parts) -> bytes:
    data = bytearray(box.pack(parts))
    place = draw(st.integers(0, len(data) * 8 - 1))
    data[place // 8] ^= 1 << (place % 8)
    return bytes(data)


def folder_bit_flip(draw, parts: Parts) -> Parts:
    name = draw(st.sampled_from(PARTS))
    data = bytearray(parts[name])
    place = draw(st.integers(0, len(data) * 8 - 1))
    data[place // 8] ^= 1 << (place % 8)
    return {**parts, name: bytes(data)}


def truncation(draw, parts: Parts) -> bytes:
    data = box.pack(parts)
    return data[: draw(st.integers(0, len(data) - 1))]


def folder_truncation(draw, parts: Parts) -> Parts:
    name = draw(st.sampled_from(PARTS))
    return {**parts, name: parts[name][: draw(st.integers(0, len(parts[name]) - 1))]}


def extension(draw, parts: Parts) -> bytes:
    more = draw(st.binary(min_size=1, max_size=50))
    data = box.pack(parts)
    return draw(st.sampled_from([data + more, more + data]))


def swapped(draw, parts: Parts) -> bytes:
    a, b = draw(st.permutations(PARTS))[:2]
    return box.pack({**parts, a: parts[b], b: parts[a]})


def noise(draw, parts: Parts) -> bytes:
    return draw(st.binary(max_size=400))


JSON = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 10**7),
    st.text(max_size=5),
    st.just([]),
    st.just({}),
)


def _paths(value, prefix=()):
    yield prefix
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, inner in items:
        yield from _paths(inner, (*prefix, key))


def _change(draw, value):
    """The JSON value with one place changed, dropped or added."""
    value = json.loads(json.dumps(value))
    *way, last = draw(st.sampled_from([p for p in _paths(value) if p]))
    node = value
    for key in way:
        node = node[key]
    how = draw(st.sampled_from(["set", "drop", "add"]))
    if how == "drop" and isinstance(node, dict):
        del node[last]
    elif how == "add" and isinstance(node, dict):
        node["more"] = draw(JSON)
    else:
        old = node[last]
        node[last] = draw(
            JSON.filter(lambda new: new != old or type(new) is not type(old))
        )
    return value


def forged_manifest(draw, parts: Parts) -> bytes:
    manifest = _change(draw, json.loads(parts[box.MANIFEST]))
    return box.pack({**parts, box.MANIFEST: canonical(manifest)})


def forged_ledger(draw, parts: Parts) -> bytes:
    """One line changed, all checksums of parts made to fit; the last is its author's own."""
    lines = parts[box.LEDGER].splitlines()
    i = draw(st.integers(0, len(lines) - 2))
    lines[i] = canonical(_change(draw, json.loads(lines[i])))
    return box.pack(reseal(parts, **{box.LEDGER: b"\n".join(lines) + b"\n"}))


def cut_ledger(draw, parts: Parts) -> bytes:
    lines = parts[box.LEDGER].splitlines()
    order = draw(st.permutations(lines))
    kept = order[: draw(st.integers(0, len(lines)))]
    if kept == lines:
        kept = lines[:-1]
    return box.pack(
        reseal(parts, **{box.LEDGER: b"".join(line + b"\n" for line in kept)})
    )


def odd_json(draw, parts: Parts) -> bytes:
    text = draw(
        st.sampled_from(
            [
                b"[" * 100_000,
                b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
                b'{"format":' + b"9" * 10_000 + b"}",
                b'{"format":NaN}',
                b'{"format":1,"format":2}',
                b"\xff\xfe",
                b"",
                b"null",
                b"[]",
                b"{}",
                b'{ "format": 1 }',
            ]
        )
    )
    name = draw(st.sampled_from([box.MANIFEST, box.LEDGER]))
    if name == box.LEDGER:
        return box.pack(reseal(parts, **{name: text + b"\n"}))
    return box.pack({**parts, name: text})


def forged_arrays(draw, parts: Parts) -> bytes:
    """Arrays of other names, shapes, types or values, all checksums made to fit."""
    name = draw(st.sampled_from([box.LANE, box.REMEMBERED, box.HELD_OUT]))
    arrays = load(parts[name])
    # what a method keeps in its own state is its own business, unless it points at subjects
    keys = [k for k in arrays if not k.startswith("state/") or k.endswith(".row")]
    key = draw(st.sampled_from(sorted(keys)))
    old = arrays[key]
    ways = ["drop", "rename", "type", "nan", "far", "cut"]
    # a longer memory that points at subjects who are there is no contradiction in itself
    how = draw(
        st.sampled_from([*ways, "wider"] if not key.startswith("state/") else ways)
    )
    if how == "drop":
        del arrays[key]
    elif how == "rename":
        arrays[draw(st.sampled_from(["x", "params/", "params/x", "../x"]))] = (
            arrays.pop(key)
        )
    elif how == "wider":
        arrays[key] = torch.cat(
            [old, old[:1] if len(old) else torch.ones(1, *old.shape[1:]).to(old)]
        )
    elif how == "type":
        arrays[key] = old.to(
            torch.float16 if old.dtype != torch.float16 else torch.float32
        )
    elif how == "nan":
        arrays[key] = (
            torch.full(old.shape, torch.nan)
            if old.numel()
            else torch.full((1,), torch.nan)
        )
    elif how == "far":
        huge = torch.full(old.shape, 99).to(old) if key != "params/x" else old
        arrays[key] = (
            huge if name != box.LANE or key.endswith(".row") else huge.to(torch.float64)
        )
        if not old.numel():
            del arrays[key]
    else:
        return box.pack(
            reseal(parts, **{name: parts[name][: draw(st.integers(0, 60))]})
        )
    return box.pack(reseal(parts, **{name: save(arrays)}))


def forged_header(draw, parts: Parts) -> bytes:
    """A safetensors header that claims what is not there."""
    shape = draw(
        st.sampled_from([[2**40], [2**62, 4], [10**9, 10**9], [-1], ["a"], None])
    )
    ends = draw(st.sampled_from([[0, 4], [0, 2**50], [4, 0], [-4, 0], []]))
    header = json.dumps(
        {"upper": {"dtype": "F32", "shape": shape, "data_offsets": ends}}
    ).encode()
    size = draw(st.sampled_from([len(header), 0, 2**40, 2**63]))
    name = draw(st.sampled_from([box.LANE, box.REMEMBERED, box.HELD_OUT]))
    return box.pack(
        reseal(parts, **{name: struct.pack("<Q", size) + header + b"\0\0\0\0"})
    )


def _zip(members, compression=zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", compression) as archive:
        warnings.simplefilter("ignore")  # zipfile warns of a name that is there twice
        for info, data in members:
            archive.writestr(info, data)
    return out.getvalue()


def zip_bomb(draw, parts: Parts) -> bytes:
    """Compressed members: one huge, all of them, or a bomb in place of one part."""
    name = draw(st.sampled_from(PARTS))
    bomb = {**parts, name: bytes(draw(st.sampled_from([1, 2**20, 2**23])))}
    return _zip([(n, bomb[n]) for n in PARTS], zipfile.ZIP_DEFLATED)


def false_sizes(draw, parts: Parts) -> bytes:
    """A member whose header claims another size."""
    data = bytearray(box.pack(parts))
    where = draw(
        st.sampled_from([14, 18, 22])
    )  # crc, compressed, uncompressed size of the first
    value = draw(st.sampled_from([0, 1, 2**31, 2**32 - 1]))
    data[where : where + 4] = struct.pack("<I", value)
    return bytes(data)


BAD_NAMES = [
    "../evil",
    "/etc/evil",
    "..\\evil",
    "C:\\evil",
    "a/../../evil",
    "manifest.json\0.txt",
    "MANIFEST.JSON",
    "./manifest.json",
    "lane.safetensors/",
    "evil",
    "",
    " ",
    "manifest.json",
]


def path_trick(draw, parts: Parts) -> bytes:
    """Members with other names, twice the same name, links, or more members than parts."""
    bad = draw(st.sampled_from(BAD_NAMES))
    members = [(zipfile.ZipInfo(n), parts[n]) for n in PARTS]
    info = zipfile.ZipInfo(bad.split("\0")[0] or "x")
    info.filename = bad
    if draw(st.booleans()):
        info.external_attr = 0o120777 << 16  # a symbolic link
    place = draw(st.integers(0, len(members)))
    if draw(st.booleans()) and place < len(members):
        members[place] = (info, members[place][1])
    else:
        members.insert(place, (info, b"/etc/passwd"))
    return _zip(members)


def reordered(draw, parts: Parts) -> bytes:
    order = draw(st.permutations(PARTS).filter(lambda p: tuple(p) != PARTS))
    return _zip([(zipfile.ZipInfo(n), parts[n]) for n in order])


def fewer_parts(draw, parts: Parts) -> Parts:
    gone = draw(st.sampled_from(PARTS))
    return {k: v for k, v in parts.items() if k != gone}


def more_parts(draw, parts: Parts) -> Parts:
    name = draw(
        st.sampled_from(["evil.py", "lane.safetensors.bak", "__init__.py", "x.pkl"])
    )
    return {**parts, name: b"import os"}


DAMAGES = (
    bit_flip,
    folder_bit_flip,
    truncation,
    folder_truncation,
    extension,
    swapped,
    noise,
    forged_manifest,
    forged_ledger,
    cut_ledger,
    odd_json,
    forged_arrays,
    forged_header,
    zip_bomb,
    false_sizes,
    path_trick,
    reordered,
    fewer_parts,
    more_parts,
)

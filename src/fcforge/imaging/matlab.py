"""Variables out of MATLAB 5-7 files, read defensively.

SciPy's reader can crash the whole process on a damaged file (seen: a segmentation fault after
one flipped byte), so the little that is needed is read here: real, dense numeric variables, cells
of text (names of ROIs) and the numeric fields of struct arrays. Everything else is passed over.
Format: MathWorks, "MAT-File Level 5 File Format".
"""

import math
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

MATRIX, COMPRESSED = 14, 15
STORED = {
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8",
}  # fmt: skip
CELL, STRUCT, TEXT = 1, 2, 4
NUMERIC_CLASSES = range(6, 16)  # double, single, int8 ... uint64
COMPLEX_FLAG = 0x0800


class OtherMatVersion(Exception):
    """A .mat file of a version that is not read (7.3 is HDF5, 4 is from before 1996)."""


@dataclass(frozen=True)
class _Element:
    kind: int
    data: bytes
    order: str

    def numbers(self) -> np.ndarray:
        if self.kind not in STORED:
            raise ValueError(f"element of type {self.kind} where numbers belong")
        return np.frombuffer(self.data, dtype=self.order + STORED[self.kind])


def parse_mat(content: bytes, take: Callable[[int], None] = lambda n: None) -> dict[str, Any]:
    """Variables of a .mat file given as bytes.

    Parameters
    ----------
    content : bytes
    take : callable
        Called with the size of what is to be unpacked, before it is; may raise.

    Returns
    -------
    dict
        Arrays by name; of a struct array ``name.field`` is the list of that field's arrays.

    Raises
    ------
    OtherMatVersion
        For MATLAB 7.3 (HDF5) and MATLAB 4 files.
    ValueError, struct.error, zlib.error
        For anything damaged.
    """
    if len(content) < 128:
        raise ValueError("shorter than the header of a .mat file")
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None:
        if content[:4].count(0) and content[:4] != bytes(4):
            raise OtherMatVersion("MATLAB 4")
        raise ValueError("no header of a .mat file")
    if struct.unpack(order + "H", content[124:126])[0] == 0x0200:
        raise OtherMatVersion("MATLAB 7.3")
    variables: dict[str, Any] = {}
    for element in _elements(content[128:], order):
        inner = iter([element])
        if element.kind == COMPRESSED:
            inner = _elements(_inflate(element.data, order, take), order)
        for one in inner:
            if one.kind == MATRIX:
                _read_variable(one, variables, take)
    return variables


def _inflate(data: bytes, order: str, take: Callable[[int], None]) -> bytes:
    """The one variable in a compressed element, whose tag says its size."""
    stream = zlib.decompressobj()
    tag = stream.decompress(data, 8)
    if len(tag) < 8:
        raise ValueError("compressed variable is incomplete")
    size = struct.unpack(order + "II", tag)[1]
    take(size)
    out = tag + stream.decompress(stream.unconsumed_tail, size + 1)
    if not stream.eof:
        raise ValueError("compressed variable is not as long as it says")
    return out


def _elements(content: bytes, order: str) -> Iterator[_Element]:
    """Tagged elements that lie one after the other in `content`."""
    at = 0
    while at < len(content):
        if len(content) - at < 8:
            raise ValueError("cut off inside a tag")
        first, size = struct.unpack_from(order + "II", content, at)
        if first >> 16:  # small element: size, type and up to 4 bytes of data in 8 bytes
            kind, size, start, end = first & 0xFFFF, first >> 16, at + 4, at + 8
            if size > 4:
                raise ValueError("small element of more than 4 bytes")
        else:
            kind, start = first, at + 8
            end = start + size + (-size % 8 if kind != COMPRESSED else 0)
        if start + size > len(content):
            raise ValueError("cut off inside a variable")
        yield _Element(kind, content[start : start + size], order)
        at = end


def _read_variable(
    element: _Element, variables: dict[str, Any], take: Callable[[int], None]
) -> None:
    """Add a dense numeric variable, a cell of texts or a struct; pass over everything else."""
    kind, dims, name, parts = _header(element)
    if kind == CELL:
        texts = [text for part in parts if (text := _text(part)) is not None]
        if texts and len(texts) == math.prod(dims):
            take(len(texts) * max(map(len, texts)) * 4)  # numpy gives all the room of the longest
            variables[name] = np.array(texts, dtype=np.str_)
    elif kind == STRUCT:
        width, names = (next(parts, _Element(0, b"", "")) for _ in range(2))
        step = max(int(width.numbers()[0]), 1)
        fields = [names.data[i : i + step] for i in range(0, len(names.data), step)]
        cells = [_cell(part) for part in parts]
        for k, field in enumerate(fields):
            found = [values for values in cells[k :: len(fields)] if values is not None]
            variables[f"{name}.{field.rstrip(bytes(1)).decode()}"] = found
    elif kind in NUMERIC_CLASSES:
        variables[name] = _values(dims, next(parts, None))


def _header(element: _Element) -> tuple[int, tuple[int, ...], str, Iterator[_Element]]:
    """Class (-1 for complex numbers), shape and name of a variable, and the rest of it."""
    parts = _elements(element.data, element.order)
    found = [part for _, part in zip(range(3), parts, strict=False)]
    if len(found) < 3:
        raise ValueError("variable without flags, shape and name")
    flags, shape, name = found
    word = flags.numbers()
    if word.size < 1:
        raise ValueError("variable without flags")
    kind = -1 if int(word[0]) & COMPLEX_FLAG else int(word[0]) & 0xFF
    dims = tuple(int(d) for d in shape.numbers())
    return kind, dims, name.data.decode("utf-8"), parts


def _text(element: _Element) -> str | None:
    """Text in a cell, None where it holds anything else."""
    if element.kind != MATRIX:
        return None
    kind, _, _, parts = _header(element)
    characters = next(parts, None)
    if kind != TEXT or characters is None:
        return None
    if characters.kind in STORED:  # UTF-16 code units, or bytes
        return "".join(chr(c) for c in characters.numbers().tolist())
    return characters.data.decode("utf-8")


def _cell(element: _Element) -> np.ndarray | None:
    """Numbers in a field of a struct, None where it holds anything else."""
    kind, dims, _, parts = _header(element)
    return _values(dims, next(parts, None)) if kind in NUMERIC_CLASSES else None


def _values(dims: tuple[int, ...], values: _Element | None) -> np.ndarray:
    if values is None or min(dims, default=-1) < 0:
        raise ValueError("variable without values")
    numbers = values.numbers()
    if math.prod(dims) != numbers.size:  # Python integers: a damaged shape cannot overflow
        raise ValueError(f"{numbers.size} values for shape {dims}")
    native = numbers.astype(numbers.dtype.newbyteorder("="))
    return native.reshape(dims, order="F")

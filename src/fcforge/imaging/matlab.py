"""Numeric matrices out of MATLAB 5-7 files, read defensively.

SciPy's reader can crash the whole process on a damaged file (seen: a segmentation fault after
one flipped byte), so the little that is needed is read here: real, dense numeric variables.
Structs, cells, text and sparse variables are passed over. Format: MathWorks, "MAT-File Level 5
File Format".
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

MATRIX, COMPRESSED = 14, 15
STORED = {
    1: "i1",
    2: "u1",
    3: "i2",
    4: "u2",
    5: "i4",
    6: "u4",
    7: "f4",
    9: "f8",
    12: "i8",
    13: "u8",
}
NUMERIC_CLASSES = range(6, 16)  # double, single, int8 ... uint64
COMPLEX_FLAG = 0x0800
MAX_BYTES = 2**31


@dataclass(frozen=True)
class _Element:
    kind: int
    data: bytes
    order: str

    def numbers(self) -> np.ndarray:
        if self.kind not in STORED:
            raise ValueError(f"element of type {self.kind} where numbers belong")
        return np.frombuffer(self.data, dtype=self.order + STORED[self.kind])


class OtherMatVersion(Exception):
    """A .mat file of a version that is not read (7.3 is HDF5, 4 is from before 1996)."""


def parse_mat(content: bytes) -> dict[str, np.ndarray]:
    """Numeric variables of a .mat file given as bytes.

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
    variables: dict[str, np.ndarray] = {}
    for element in _elements(content[128:], order):
        if element.kind == COMPRESSED:
            inner = list(_elements(_inflate(element.data), order))
        else:
            inner = [element]
        for one in inner:
            if one.kind == MATRIX:
                _read_variable(one, variables)
    return variables


def _inflate(data: bytes) -> bytes:
    stream = zlib.decompressobj()
    out = stream.decompress(data, MAX_BYTES)
    if not stream.eof:
        raise ValueError("compressed variable is incomplete")
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


def _read_variable(element: _Element, variables: dict[str, np.ndarray]) -> None:
    """Add a real dense numeric variable; pass over everything else."""
    parts = _elements(element.data, element.order)
    try:
        flags, shape, name = (next(parts) for _ in range(3))
    except RuntimeError as error:  # the generator ended early
        raise ValueError("variable without flags, shape and name") from error
    word = flags.numbers()
    if word.size < 1:
        raise ValueError("variable without flags")
    if int(word[0]) & 0xFF not in NUMERIC_CLASSES or int(word[0]) & COMPLEX_FLAG:
        return
    dims = tuple(int(d) for d in shape.numbers())
    values = next(parts, None)
    if values is None or min(dims, default=-1) < 0:
        raise ValueError("variable without values")
    numbers = values.numbers()
    count = 1
    for d in dims:
        count *= d  # Python integers: a damaged shape cannot overflow
    if count != numbers.size:
        raise ValueError(f"{numbers.size} values for shape {dims}")
    native = numbers.astype(numbers.dtype.newbyteorder("="))
    variables[name.data.decode("utf-8")] = native.reshape(dims, order="F")

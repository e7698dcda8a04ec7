"""Numbers out of text and out of MATLAB files, as toolboxes write them.

Text: .csv, .tsv, .txt and .1D in their many spellings. MATLAB 5-7: SciPy's reader can crash the
whole process on a damaged file (seen: a segmentation fault after one flipped byte), so the little
that is needed is read here: real, dense numeric variables, cells of text (names of ROIs) and the
numeric fields of struct arrays. Everything else is passed over. Format: MathWorks, "MAT-File Level
5 File Format".
"""

import codecs
import csv
import math
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from fcforge.errors import DataError

_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+([eE][-+]?\d+)?")
MISSING = {"", "nan", "na", "n/a", "null", "none", "-nan"}
MATRIX = 14
COMPRESSED = 15
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
CELL = 1
STRUCT = 2
TEXT = 4
NUMERIC_CLASSES = range(6, 16)  # double, single, int8 ... uint64
COMPLEX_FLAG = 0x0800
Rows = list[tuple[int, list[str]]]  # line number and cells
Take = Callable[
    [int], None
]  # called with the size of what is to be unpacked; may raise


def decoded(content: bytes) -> str:
    """Text of a file: UTF-8 or UTF-16, else as older spreadsheets write it (Windows-1252).

    Raises
    ------
    ValueError
        For bytes that are no text.
    """
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16")
    if b"\0" in content:
        raise ValueError("not text")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", errors="replace")


def delimiter_of(line: str) -> str | None:
    """What separates the cells of a line: tab, semicolon, comma, or (None) white space.

    Examples
    --------
    >>> delimiter_of("0.5,1"), delimiter_of("0,5;1,2"), delimiter_of("0,5 1,2")
    (',', ';', None)
    """
    found = next((d for d in "\t;," if d in line), None)
    cells = line.split()
    decimal_commas = len(cells) > 1 and all(map(_DECIMAL_COMMA.fullmatch, cells))
    return None if found == "," and decimal_commas else found


def parse_text(text: str, where: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Matrix of a text: comment lines (``#``, ``%``), header row and row names are left out.

    Parameters
    ----------
    text : str
        Cells are separated by tab, semicolon, comma or white space; decimal commas are read.
    where : str
        File named in an error.

    Returns
    -------
    values : ndarray of shape (rows, columns), float64
        Missing values (``nan``, ``n/a``, empty) are NaN.
    names : tuple of str
        Column names of the header row or, as AFNI and C-PAC write them, of the last comment
        before the numbers; empty where there are none.
    """
    lines = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip()]
    numbers = [(i, line) for i, line in lines if line.lstrip()[0] not in "#%"]
    if not numbers:
        raise DataError("is empty.", where=where, do="Make the file again.")
    delimiter = delimiter_of(numbers[0][1])
    rows = [(i, _cells(line, delimiter)) for i, line in numbers]
    if all(len(cells) > 1 and not cells[-1] for _, cells in rows):
        # AFNI and DPABI end lines with a tab
        rows = [(i, cells[:-1]) for i, cells in rows]
    header, rows = _without_header(rows)
    if not all(cells for _, cells in rows):  # a line of row names alone
        do = "Make the file again."
        raise DataError("has a row without numbers.", where=where, do=do)
    comments = [line for i, line in lines if i < numbers[0][0]]
    if comments and not header:
        header = _cells(comments[-1].strip().lstrip("#% "), delimiter)
    if rows and all(as_number(cells[0]) is None for _, cells in rows):
        rows = [(i, cells[1:]) for i, cells in rows]
        header = header[1:]  # row names
    values = _numbers(rows, where)
    names = tuple(cell.lstrip("#").strip() for cell in header)
    return values, names if len(names) == values.shape[1] else ()


def _cells(line: str, delimiter: str | None) -> list[str]:
    if delimiter is not None and '"' in line:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter))]
    return [cell.strip() for cell in line.split(delimiter)]


def _without_header(rows: Rows) -> tuple[list[str], Rows]:
    """Header row, and the rest: words, or the column numbers that pandas writes (0, 1, 2, ...).

    Column numbers are not names: the header is empty then.
    """
    header = rows[0][1]
    first = [as_number(cell) for cell in header]
    words = all(value is None for value in first)
    inner = first[1:] if first[0] is None or np.isnan(first[0]) else first
    n = len(inner)
    counted = n > 2 and inner in (list(range(n)), list(range(1, n + 1)))
    counted = counted and len(rows) > 1 and len(rows[1][1]) == len(first)
    whole = all(v is None or math.isnan(v) or v.is_integer() for v in inner)
    blank = header[0] in ("", "Unnamed: 0") and whole  # pandas' column of row names
    if not (words or counted or blank) or len(rows) == 1:
        return [], rows
    start = int(blank)
    rest = [(i, cells[start:]) for i, cells in rows[1:]]
    return [] if counted else header[start:], rest


def as_number(cell: str) -> float | None:
    """Value of a cell, NaN when missing, None when it is not a number.

    Examples
    --------
    >>> as_number("0,5"), as_number("n/a"), as_number("NYU")
    (0.5, nan, None)
    """
    try:
        return float(cell)
    except ValueError:
        if _DECIMAL_COMMA.fullmatch(cell):
            return float(cell.replace(",", "."))
        return math.nan if cell.lower() in MISSING else None


def _numbers(rows: Rows, where: str) -> np.ndarray:
    width = len(rows[0][1]) if rows else 0
    out = np.empty((len(rows), width))
    for k, (line, cells) in enumerate(rows):
        if len(cells) != width:
            what = f"line {line} has {len(cells)} values, the lines before it {width}."
            do = "The file is cut off or mixed; make it again."
            raise DataError(what, where=where, do=do)
        values = [as_number(cell) for cell in cells]
        if None in values:
            what = f"line {line} holds '{cells[values.index(None)]}', which is not a number."
            do = "Remove the text, or put # before comment lines."
            raise DataError(what, where=where, do=do)
        out[k] = values
    return out


class OtherMatVersion(Exception):
    """A .mat file of a version that is not read (7.3 is HDF5, 4 is from before 1996)."""


class _Element(NamedTuple):
    kind: int
    data: bytes
    order: str

    def numbers(self) -> np.ndarray:
        if self.kind not in STORED:
            raise ValueError(f"element of type {self.kind} where numbers belong")
        return np.frombuffer(self.data, dtype=self.order + STORED[self.kind])


def parse_mat(content: bytes, take: Take = lambda n: None) -> dict[str, Any]:
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
        packed = element.kind == COMPRESSED
        inner = _elements(_inflate(element, take), order) if packed else iter([element])
        for one in inner:
            if one.kind == MATRIX:
                variables |= _variable(one, take)
    return variables


def _inflate(packed: _Element, take: Take) -> bytes:
    """The one variable in a compressed element, whose tag says its size."""
    stream = zlib.decompressobj()
    tag = stream.decompress(packed.data, 8)
    if len(tag) < 8:
        raise ValueError("compressed variable is incomplete")
    size = struct.unpack(packed.order + "II", tag)[1]
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
        if first >> 16:  # small: size, type and up to 4 bytes of data in 8 bytes
            kind = first & 0xFFFF
            size = first >> 16
            start = at + 4
            end = at + 8
            if size > 4:
                raise ValueError("small element of more than 4 bytes")
        else:
            kind = first
            start = at + 8
            end = start + size + (-size % 8 if kind != COMPRESSED else 0)
        if start + size > len(content):
            raise ValueError("cut off inside a variable")
        yield _Element(kind, content[start : start + size], order)
        at = end


def _variable(element: _Element, take: Take) -> dict[str, Any]:
    """A dense numeric variable, a cell of texts or the fields of a struct; else nothing."""
    kind, dims, name, parts = _header(element)
    if kind in NUMERIC_CLASSES:
        return {name: _simple(element)}
    if kind == CELL:
        texts = [text for part in parts if isinstance(text := _simple(part), str)]
        if not texts or len(texts) != math.prod(dims):
            return {}
        # numpy gives all of them the room of the longest
        take(len(texts) * max(map(len, texts)) * 4)
        return {name: np.array(texts, dtype=np.str_)}
    if kind == STRUCT and len(parts) > 1:
        fields = _fields(*parts)
        return {f"{name}.{field}": arrays for field, arrays in fields.items()}
    return {}


def _fields(width: _Element, names: _Element, *cells: _Element) -> dict[str, Any]:
    """Arrays of each field of a struct array; its values lie one after the other."""
    step = max(int(width.numbers()[0]), 1)
    starts = range(0, len(names.data), step)
    fields = [names.data[i : i + step].rstrip(bytes(1)).decode() for i in starts]
    values = [_simple(cell) for cell in cells]
    own = {field: values[k :: len(fields)] for k, field in enumerate(fields)}
    return {
        field: [array for array in found if isinstance(array, np.ndarray)]
        for field, found in own.items()
    }


def _header(element: _Element) -> tuple[int, tuple[int, ...], str, list[_Element]]:
    """Class (-1 for complex numbers), shape and name of a variable, and the rest of it."""
    parts = list(_elements(element.data, element.order))
    if len(parts) < 3 or parts[0].numbers().size < 1:
        raise ValueError("variable without flags, shape and name")
    flags = int(parts[0].numbers()[0])
    shape = parts[1].numbers()
    name = parts[2].data
    kind = -1 if flags & COMPLEX_FLAG else flags & 0xFF
    return kind, tuple(map(int, shape)), name.decode("utf-8"), parts[3:]


def _simple(element: _Element) -> np.ndarray | str | None:
    """Numbers or text of a variable; None for anything else."""
    kind, dims, _, parts = (
        _header(element) if element.kind == MATRIX else (-1, (), "", [])
    )
    if kind == TEXT and parts:
        if parts[0].kind in STORED:  # UTF-16 code units, or bytes
            return "".join(map(chr, parts[0].numbers().tolist()))
        return parts[0].data.decode("utf-8")
    if kind not in NUMERIC_CLASSES:
        return None
    if not parts or min(dims, default=-1) < 0:
        raise ValueError("variable without values")
    numbers = parts[0].numbers()
    if (
        math.prod(dims) != numbers.size
    ):  # Python integers: a damaged shape cannot overflow
        raise ValueError(f"{numbers.size} values for shape {dims}")
    return numbers.astype(numbers.dtype.newbyteorder("=")).reshape(dims, order="F")

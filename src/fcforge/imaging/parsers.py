"""Parsing of matrices and tables from text and from MATLAB files, as toolboxes write them.

Text is .csv, .tsv, .txt and .1D in their many variations. MATLAB files are of versions 5 to 7. SciPy's reader
can crash the whole process on a damaged file (by a segmentation fault after one flipped byte), so what is
needed is read here: real, dense numeric variables and cells of text (names of ROIs). Everything else is
skipped. The format is described in MathWorks, "MAT-File Level 5 File Format".
"""

import codecs
import csv
import math
import re
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fcforge.core.errors import DataError

_SEPARATOR = re.compile(r'"?sep=(.)"?', re.IGNORECASE)  # first line of a spreadsheet
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+([eE][-+]?\d+)?")
MISSING = {"", "nan", "na", "n/a", "null", "none", "-nan"}  # cells without a value
# Numbers by which a .mat file states types of elements and classes of arrays.
MATRIX = 14
COMPRESSED = 15
STORED = {  # types of numbers, by numpy's names
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
Rows = list[list[str]]  # cells of every line
Element = tuple[int, bytes]  # an element of a .mat file: its type and content
Take = Callable[
    [int], None
]  # takes the number of bytes to be unpacked; may raise an error


def decoded(content: bytes) -> str:
    """Decode the text of a file: UTF-8 or UTF-16, else Windows-1252 (older spreadsheets).

    Raises
    ------
    ValueError
        If the bytes are not text.
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
    """Return the delimiter of a line: tab, semicolon, comma, or None for white space.

    Examples
    --------
    >>> delimiter_of("0.5,1"), delimiter_of("0,5;1,2"), delimiter_of("0,5 1,2")
    (',', ';', None)
    """
    delimiter = next((d for d in "\t;," if d in line), None)
    cells = line.split()
    decimal_commas = len(cells) > 1 and all(map(_DECIMAL_COMMA.fullmatch, cells))
    return None if delimiter == "," and decimal_commas else delimiter


def declared_delimiter(lines: list[str]) -> tuple[str | None, list[str]]:
    """Split off a first line such as ``sep=;``, by which spreadsheets declare the delimiter.

    Parameters
    ----------
    lines : list of str

    Returns
    -------
    delimiter : str or None
        None if the first line declares none.
    rest : list of str
        The other lines.

    Examples
    --------
    >>> declared_delimiter(["sep=;", "a;b"]), declared_delimiter(["a;b"])
    ((';', ['a;b']), (None, ['a;b']))
    """
    first = lines[0].rstrip(" \r\n") if lines else ""
    if match := _SEPARATOR.fullmatch(first):
        return match[1], lines[1:]
    return None, lines


def parse_text(text: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Parse a matrix from text, without comment lines (``#``, ``%``), header row and row names.

    Parameters
    ----------
    text : str
        Cells are separated by tab, semicolon, comma or white space; decimal commas are read.

    Returns
    -------
    values : ndarray of shape (rows, columns), float64
        Missing values (``nan``, ``n/a``, empty) are NaN.
    names : tuple of str
        Column names of the header row or, as AFNI and C-PAC write them, of the last comment
        before the numbers; empty where there are none.
    """
    everything = text.splitlines()
    declared, kept = declared_delimiter(everything)
    start = 1 + len(everything) - len(kept)
    # Pairs of the number of a line and its text; `data` is without comments.
    lines = [(i, line) for i, line in enumerate(kept, start) if line.strip()]
    data = [(i, line) for i, line in lines if line.lstrip()[0] not in "#%"]
    if not data:
        raise DataError("is empty.", do="Make the file again.")
    delimiter = declared or delimiter_of(data[0][1])
    rows = [_cells(line, delimiter) for _, line in data]
    if all(len(cells) > 1 and not cells[-1] for cells in rows):
        # AFNI and DPABI end lines with a tab
        rows = [cells[:-1] for cells in rows]
    header, rows = _without_header(rows)
    if not all(rows):  # a line of row names alone
        raise DataError("has a row without numbers.", do="Make the file again.")
    comments = [line for i, line in lines if i < data[0][0]]
    if comments and not header:
        header = _cells(comments[-1].strip().lstrip("#% "), delimiter)
    has_row_names = all(as_number(cells[0]) is None for cells in rows)
    if has_row_names:
        rows = [cells[1:] for cells in rows]
        header = header[1:]
    values = as_numbers(rows, [i for i, _ in data[-len(rows) :]])
    names = tuple(cell.lstrip("#").strip() for cell in header)
    return values, names if len(names) == values.shape[1] else ()


def _cells(line: str, delimiter: str | None) -> list[str]:
    """Split a line into cells, which may be quoted; None splits at white space."""
    if delimiter is not None and '"' in line:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter))]
    return [cell.strip() for cell in line.split(delimiter)]


def _without_header(rows: Rows) -> tuple[list[str], Rows]:
    """Split off the header row, if the first row is one.

    A header has words alone, or the numbers of the columns from 0 or 1 on (pandas writes 0, 1, 2, ...,
    after an empty cell above row names), or other whole numbers after such a cell.

    Returns
    -------
    header : list of str
        Names of columns; empty without a header, and for column numbers.
    rows : list of list of str
        The other rows.
    """
    header = rows[0]
    if len(rows) == 1:
        return [], rows
    first = [as_number(cell) for cell in header]
    words = all(value is None for value in first)
    # The cell above row names is a word or empty; the other cells are those of columns.
    above_row_names = first[0] is None or np.isnan(first[0])
    inner = first[1:] if above_row_names else first
    n = len(inner)
    from_zero = list(range(n))
    from_one = list(range(1, n + 1))
    counted = n > 2 and inner in (from_zero, from_one)
    counted = counted and len(rows[1]) == len(first)
    whole = all(v is None or math.isnan(v) or v.is_integer() for v in inner)
    blank = header[0] in ("", "Unnamed: 0") and whole  # pandas' column of row names
    if not (words or counted or blank):
        return [], rows
    start = int(blank)
    rest = [cells[start:] for cells in rows[1:]]
    return [] if counted else header[start:], rest


def as_number(cell: str) -> float | None:
    """Return the value of a cell, NaN when missing, None when it is not a number.

    Examples
    --------
    >>> as_number("0,5"), as_number("n/a"), as_number("NYU")
    (0.5, nan, None)
    """
    if "_" in cell:  # float takes 1_0 for 10
        return None
    try:
        return float(cell)
    except ValueError:
        if _DECIMAL_COMMA.fullmatch(cell):
            return float(cell.replace(",", "."))
        return math.nan if cell.lower() in MISSING else None


def as_numbers(rows: Rows, lines: Sequence[int]) -> np.ndarray:
    """Convert cells to numbers.

    Parameters
    ----------
    rows : list of list of str
        Cells.
    lines : sequence of int
        Number of the line of each row in the file, for errors.

    Returns
    -------
    ndarray of shape (n_rows, n_columns)
        NaN where a value is missing.

    Raises
    ------
    DataError
        If a row has more or fewer cells than the first, or a cell is not a number.
    """
    width = len(rows[0])
    out = np.empty((len(rows), width))
    for k, (line, cells) in enumerate(zip(lines, rows, strict=True)):
        if len(cells) != width:
            raise DataError(
                f"line {line} has {len(cells)} values, the lines before it {width}.",
                do="The file is cut off or mixed; make it again.",
            )
        values = [as_number(cell) for cell in cells]
        if None in values:
            raise DataError(
                f"line {line} holds '{cells[values.index(None)]}', which is not a number.",
                do="Remove the text, or put # before comment lines.",
            )
        out[k] = values
    return out


def parse_table(text: str) -> list[dict[str, str]]:
    """Parse the rows of a table with a header.

    Lines that begin with ``#`` are comments. Rows of empty cells, as spreadsheets write them, are left out.

    Returns
    -------
    list of dict of str to str
        Cells of each row by column.

    Raises
    ------
    DataError
        If the table is empty, names a column twice, or a row has more or fewer cells than the header.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    declared, lines = declared_delimiter(lines)
    lines = [line for line in lines if line.lstrip()[0] != "#"]
    delimiter = declared or (delimiter_of(lines[0]) if lines else None)
    cells = csv.reader(lines or [""], delimiter=delimiter or ",")
    header, *filled = ([cell.strip() for cell in row] for row in cells)
    rows = [row for row in filled if any(row)]
    if not rows:
        raise DataError("is empty.", do="It needs a header and rows.")
    for name, times in Counter(filter(None, header)).items():
        if times > 1:
            problem = f"has {times} columns named '{name}'."
            raise DataError(
                problem, do="Keep the one to use; rename or remove the others."
            )
    for number, row in enumerate(rows, 2):  # as a spreadsheet counts
        if len(row) != len(header):
            raise DataError(
                f"row {number} has {len(row)} values for {len(header)} columns.",
                do="The table is cut off or mixed.",
            )
    return [dict(zip(header, row, strict=True)) for row in rows]


def parse_mat(content: bytes, take: Take = lambda n: None) -> dict[str, Any]:
    """Parse the variables of a .mat file given as bytes.

    Parameters
    ----------
    content : bytes
    take : callable
        Called with the number of bytes that are about to be unpacked; it may raise an error.

    Returns
    -------
    dict
        Arrays by name. For a struct array, ``name.field`` is the list of the arrays of a field.

    Raises
    ------
    DataError
        If the file is of MATLAB 7.3, whose files are HDF5.
    ValueError, struct.error, zlib.error
        If the file is damaged.
    """
    if content.startswith(b"MATLAB 7.3"):
        raise DataError(
            "is a MATLAB 7.3 file, which is not read.",
            do="Save it again with `save(..., '-v7')`.",
        )
    if content[126:128] != b"IM":
        raise ValueError("no header of a .mat file")
    variables: dict[str, Any] = {}
    for kind, data in _elements(content[128:]):
        packed = kind == COMPRESSED
        inner = _elements(_inflate(data, take)) if packed else [(kind, data)]
        for name, value in map(_variable, inner):
            if isinstance(value, dict):
                variables |= {
                    f"{name}.{field}": arrays for field, arrays in value.items()
                }
            elif isinstance(value, np.ndarray):
                variables[name] = value
    return variables


def _inflate(packed: bytes, take: Take) -> bytes:
    """Decompress an element; the tag at its beginning states the size of the variable inside.

    Parameters
    ----------
    packed : bytes
    take : callable
        Called with the size before the variable is unpacked.
    """
    stream = zlib.decompressobj()
    tag = stream.decompress(packed, 8)
    if len(tag) < 8:
        raise ValueError("compressed variable is incomplete")
    size = struct.unpack("<II", tag)[1]
    take(size)
    out = tag + stream.decompress(stream.unconsumed_tail, size + 1)
    if not stream.eof:
        raise ValueError("a compressed variable differs from its stated length")
    return out


def _elements(content: bytes) -> Iterator[Element]:
    """Yield the elements of a .mat file in turn, each with its type and content."""
    at = 0
    while at < len(content):
        kind, size = struct.unpack_from("<II", content, at)
        start = at + 8
        if kind >> 16:  # small: size, type and up to 4 bytes of data in 8 bytes
            size = kind >> 16
            kind &= 0xFFFF
            start = at + 4
        end = start + size
        if end > len(content) or (start == at + 4 and size > 4):
            raise ValueError("cut off inside a variable")
        yield kind, content[start:end]
        # Elements begin at multiples of 8 bytes, except after a compressed one.
        at = end if kind == COMPRESSED else end + (at - end) % 8


def _variable(element: Element) -> tuple[str, Any]:
    """Parse one variable.

    Returns
    -------
    name : str
    value : ndarray, str, dict or None
        Numbers; text; an array of texts for a cell array; arrays by field for a struct array. None for all
        other kinds.
    """
    if element[0] != MATRIX:
        return "", None
    flags, shape, name, *parts = _elements(element[1])
    flag_bits = int(_numbers(flags)[0])
    kind = -1 if flag_bits & COMPLEX_FLAG else flag_bits & 0xFF
    value: Any = None
    if kind == CELL:
        texts = [_variable(part)[1] for part in parts]
        if all(isinstance(text, str) for text in texts):
            value = np.array(texts, dtype=object)
    elif kind == STRUCT:
        value = _fields(*parts)
    elif kind == TEXT and parts[0][0] in STORED:  # UTF-16 code units, or bytes
        value = "".join(map(chr, _numbers(parts[0]).tolist()))
    elif kind == TEXT:
        value = parts[0][1].decode()
    elif kind in NUMERIC_CLASSES:
        value = _numbers(parts[0])
        sizes = _numbers(shape).tolist()
        # Python integers: a damaged shape cannot overflow
        if min(sizes, default=-1) < 0 or math.prod(sizes) != value.size:
            raise ValueError(f"{value.size} values for shape {sizes}")
        value = value.reshape(sizes, order="F")
    return name[1].decode(), value


def _fields(width: Element, names: Element, *cells: Element) -> dict[str, list[Any]]:
    """Return the arrays of each field of a struct array.

    Parameters
    ----------
    width : Element
        Number of bytes of a field's name.
    names : Element
        Names of the fields, padded to that width.
    *cells : Element
        Values of all fields of the first element, then of the second, and so on.
    """
    step = max(int(_numbers(width)[0]), 1)
    padded = [names[1][start : start + step] for start in range(0, len(names[1]), step)]
    fields = [name.rstrip(bytes(1)).decode() for name in padded]
    values = [_variable(cell)[1] for cell in cells]
    arrays = {}
    for k, field in enumerate(fields):
        column = values[k :: len(fields)]
        arrays[field] = [value for value in column if isinstance(value, np.ndarray)]
    return arrays


def _numbers(element: Element) -> np.ndarray:
    """Return the numbers (n,) in an element; raise ValueError if it holds none."""
    kind, data = element
    if kind not in STORED:
        raise ValueError(f"element of type {kind} where numbers belong")
    return np.frombuffer(data, dtype=f"<{STORED[kind]}")

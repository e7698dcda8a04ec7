"""Numbers out of .csv, .tsv, .txt and .1D text, in the spellings toolboxes write."""

import csv

import numpy as np

from fcforge.errors import DataError

MISSING = {"", "nan", "na", "n/a", "null", "none", "-nan"}


Rows = list[tuple[int, list[str]]]  # line number and cells


def parse_text(text: str, delimiter: str | None, where: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Matrix of a text: comment lines (``#``, ``%``), header row and row names are left out.

    Parameters
    ----------
    text : str
    delimiter : str or None
        The customary one of the file type; when it does not occur, tab, comma, semicolon and
        white space are tried.
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
    delimiter = _delimiter(numbers[0][1], delimiter)
    rows = [(i, _cells(line, delimiter)) for i, line in numbers]
    if all(len(cells) > 1 and not cells[-1] for _, cells in rows):
        rows = [(i, cells[:-1]) for i, cells in rows]  # AFNI and DPABI end lines with a tab
    header, rows = _without_header(rows)
    if not all(cells for _, cells in rows):  # a line of row names alone
        raise DataError("has a row without numbers.", where=where, do="Make the file again.")
    if not header:
        comments = [line for i, line in lines if i < numbers[0][0]]
        header = _cells(comments[-1].strip().lstrip("#% "), delimiter) if comments else []
    if rows and all(_number(cells[0]) is None for _, cells in rows):
        rows = [(i, cells[1:]) for i, cells in rows]  # row names
        header = header[1:]
    values = _numbers(rows, where)
    names = tuple(cell.lstrip("#").strip() for cell in header)
    return values, names if len(names) == values.shape[1] else ()


def _delimiter(line: str, wanted: str | None) -> str | None:
    """Delimiter of a line: the suffix's own, else the first that occurs, else white space."""
    if wanted is not None and wanted in line:
        return wanted
    return next((d for d in ("\t", ",", ";") if d in line), None)


def _cells(line: str, delimiter: str | None) -> list[str]:
    if delimiter is None:
        return line.split()
    if '"' in line:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter))]
    return [cell.strip() for cell in line.split(delimiter)]


def _without_header(rows: Rows) -> tuple[list[str], Rows]:
    """Header row, and the rest: words, or the column numbers that pandas writes (0, 1, 2, ...).

    Column numbers are not names: the header is empty then.
    """
    header = rows[0][1]
    first = [_number(cell) for cell in header]
    words = all(value is None for value in first)
    inner = first[1:] if first[0] is None or np.isnan(first[0]) else first
    counted = len(inner) > 2 and inner in (list(range(len(inner))), list(range(1, len(inner) + 1)))
    whole = all(value is None or value.is_integer() for value in inner if value == value)
    blank = header[0] in ("", "Unnamed: 0") and whole
    counted = counted and len(rows) > 1 and len(rows[1][1]) == len(first)
    if not (words or counted or blank) or len(rows) == 1:
        return [], rows
    if blank:  # pandas index column
        return [] if counted else header[1:], [(i, cells[1:]) for i, cells in rows[1:]]
    return [] if counted else header, rows[1:]


def _number(cell: str) -> float | None:
    """Value of a cell, NaN when missing, None when it is not a number."""
    if cell.lower() in MISSING:
        return float("nan")
    try:
        return float(cell)
    except ValueError:
        return None


def _numbers(rows: Rows, where: str) -> np.ndarray:
    width = len(rows[0][1]) if rows else 0
    out = np.empty((len(rows), width))
    for k, (line, cells) in enumerate(rows):
        if len(cells) != width:
            what = f"line {line} has {len(cells)} values, the lines before it {width}."
            do = "The file is cut off or mixed; make it again."
            raise DataError(what, where=where, do=do)
        out[k] = _row(cells, line, where)
    return out


def _row(cells: list[str], line: int, where: str) -> list[float]:
    try:
        return [float(cell) for cell in cells]
    except ValueError:  # a missing value, or text
        values = [(_number(cell), cell) for cell in cells]
    for value, cell in values:
        if value is None:
            what = f"line {line} holds '{cell}', which is not a number."
            do = "Remove the text, or put # before comment lines."
            raise DataError(what, where=where, do=do)
    return [value for value, _ in values if value is not None]

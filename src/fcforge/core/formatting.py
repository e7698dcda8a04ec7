"""Formatting of numbers, lists and untrusted text for people."""

import math
import re
import unicodedata
from collections.abc import Iterable

MINUS = "\N{MINUS SIGN}"
NONE = "n/a"


def printable(text: str, *, keep: str = "") -> str:
    r"""Return text without characters that control a terminal or are invisible in a page.

    Escapes, direction marks, zero-width characters, lone surrogates and line breaks become a
    question mark. Special spaces become a plain one.

    Parameters
    ----------
    text : str
    keep : str
        Characters that stay, e.g. line breaks.

    Examples
    --------
    >>> printable("NYU\x1b[2J"), printable("a\u202eb\u200bc"), printable("a\u00a0b")
    ('NYU?[2J', 'a?b?c', 'a b')
    """
    shown = []
    for c in text:
        if not c.isprintable() and c not in keep:
            c = " " if unicodedata.category(c) == "Zs" else "?"
        shown.append(c)
    return "".join(shown)


def no_formula(cell: str) -> str:
    """Return a CSV cell that no spreadsheet executes as a formula.

    Wide forms of the signs count, too: some spreadsheets read them as the plain ones.

    Examples
    --------
    >>> no_formula("=1+1"), no_formula("NYU")
    ("'=1+1", 'NYU')
    """
    first = unicodedata.normalize("NFKC", cell[:1])
    return f"'{cell}" if first in ("=", "+", "-", "@", "\t", "\r") else cell


def whole(cell: str) -> str:
    """Return a cell of a table, without the zero fraction that a spreadsheet gave a whole number.

    Examples
    --------
    >>> whole("50952.0"), whole("1,0"), whole("v1.0"), whole("0.05")
    ('50952', '1', 'v1.0', '0.05')
    """
    return re.sub(r"^(-?\d+)[.,]0+$", r"\1", cell)


def rounded(value: float, digits: int) -> float:
    """Return a value rounded to `digits` digits after the point, alike on every machine.

    A value halfway between two results differs between machines in its last bits, which would
    decide the direction. It is therefore rounded to ten digits first.

    Examples
    --------
    >>> rounded(0.6434375 + 1e-15, 6) == rounded(0.6434375 - 1e-15, 6)
    True
    """
    return round(round(value, 10), digits) + 0.0  # turns -0.0 into 0.0


def number(value: float, digits: int = 3, *, sign: bool = False) -> str:
    """Return a number as text, with a fixed number of digits and a typographic minus sign.

    NaN and infinity give "n/a", and there is no negative zero.

    Parameters
    ----------
    value : float
    digits : int
        Digits after the point.
    sign : bool
        Whether positive numbers have a plus sign.
    """
    if not math.isfinite(value):
        return NONE
    value = rounded(value, digits)
    text = f"{value:+.{digits}f}" if sign and value else f"{value:.{digits}f}"
    return text.replace("-", MINUS)


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share, 0 to 1, as text in percent; "n/a" for None.

    Examples
    --------
    >>> percent(0.627), percent(0.5, 0), percent(None)
    ('62.7 %', '50 %', 'n/a')
    """
    return NONE if share is None else f"{100 * share:.{digits}f} %"


def bracket(low: float, high: float, *, digits: int = 3, sign: bool = False) -> str:
    """Return an interval as the text ``[low, high]``; "" if an end is NaN.

    Parameters
    ----------
    low, high : float
    digits, sign
        As in `number`.
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    first = number(low, digits, sign=sign)
    last = number(high, digits, sign=sign)
    return f"[{first}, {last}]"


def p_value(p: float, at_floor: bool = False) -> str:
    """Return a p value as text with three digits.

    Parameters
    ----------
    p : float
        The p value, 0 to 1.
    at_floor : bool
        Whether `p` is the smallest value that a permutation test can give, hence an upper bound, which is
        rounded up.

    Examples
    --------
    >>> p_value(0.0312), p_value(0.0312, at_floor=True), p_value(0.0004)
    ('0.031', '≤ 0.032', '≤ 0.001')
    """
    if p <= 0.001:
        return "≤ 0.001"
    rounded_up = math.ceil(1000 * p) / 1000
    return f"≤ {number(rounded_up)}" if at_floor else number(p)


def with_interval(mean: float, low: float, high: float) -> str:
    """Return a mean and its interval as text, e.g. ``0.605 [0.590, 0.620]``."""
    return f"{number(mean)} {bracket(low, high)}".strip()


def counted(n: int, noun: str) -> str:
    """Return a count with its noun in singular or plural.

    Examples
    --------
    >>> counted(1, "site"), counted(0, "site")
    ('1 site', '0 sites')
    """
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def listed(text: str) -> list[str]:
    """Return the names in a text that lists them separated by commas.

    Examples
    --------
    >>> listed("NYU, UM,")
    ['NYU', 'UM']
    """
    return [name.strip() for name in text.split(",") if name.strip()]


def abbreviated(names: Iterable[object], most: int = 5) -> str:
    """Return the first `most` names as text, and how many more there are.

    Examples
    --------
    >>> abbreviated(["a", "b", "c"], most=2), abbreviated([7, 8])
    ('a, b and 1 more', '7, 8')
    """
    texts = [str(name) for name in names]
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def people(n: int) -> str:
    """Return a count of people: "1 person", "2 people"."""
    return "1 person" if n == 1 else f"{n} people"


def memory(n_bytes: float) -> str:
    """Return a size in bytes in a readable unit; 1 kB is 1,000 bytes.

    Examples
    --------
    >>> memory(0), memory(178_000), memory(2e9)
    ('0', '178 kB', '2 GB')
    """
    if not n_bytes:
        return "0"
    for unit in ("B", "kB", "MB"):
        if n_bytes < 1000:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} GB"


def duration(seconds: float) -> str:
    """Return a duration in seconds in a readable unit.

    Examples
    --------
    >>> duration(4), duration(600), duration(9000)
    ('4 s', '10 min', '2.5 h')
    """
    if seconds < 0.01:
        return "< 0.01 s" if seconds else "0"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"

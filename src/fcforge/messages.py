"""Words for people: errors that say what happened, where, and what to do; numbers and foreign text.

One way to write them for pages, terminals, files and errors.
"""

import contextlib
import difflib
import importlib
import math
import re
import sys
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
MOST_NAMES = 40  # listed in an error; of subjects there are hundreds
MINUS = "\N{MINUS SIGN}"
NONE = "n/a"


class FCForgeError(Exception):
    """Base of every error fcforge raises on purpose.

    Parameters
    ----------
    what : str
        What happened, with the offending value.
    where : str or Path, optional
        File, subject, site or setting it happened in.
    do : str, optional
        What the user can do about it.
    """

    def __init__(self, what: str, *, where: str | Path = "", do: str = "") -> None:
        self.what = what
        self.where = str(where)
        self.do = do
        super().__init__(self.__str__())

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return printable(f"{text} {self.do}" if self.do else text, keep="\n")


class DataError(FCForgeError):
    """A scan, matrix, table or dataset that cannot be used as it is."""


class ConfigError(FCForgeError):
    """A setting with an unknown name, or with a value that it cannot have."""


class SealedError(FCForgeError):
    """Code asked for data it must not see: a past site's subjects or a test split."""


class StoreError(FCForgeError):
    """A run folder that is damaged, foreign or in use."""


class ExchangeError(FCForgeError):
    """A file, record or key of an exchange that is damaged, forged, or may not be used."""


@contextlib.contextmanager
def at(
    where: object = "", do: str = "", kind: type[FCForgeError] | None = None
) -> Iterator[None]:
    """Name a place in every error of the block, and give advice to those that have none.

    With `kind` all of them are of one kind.

    Examples
    --------
    >>> with at("a.exchange", do="Ask for it again."):
    ...     raise ExchangeError("is damaged.")
    Traceback (most recent call last):
    fcforge.messages.ExchangeError: a.exchange: is damaged. Ask for it again.
    """
    try:
        yield
    except FCForgeError as error:
        places = [place for place in (str(where), error.where) if place]
        whole = ": ".join(dict.fromkeys(places))
        raised = kind or type(error)
        raise raised(error.what, where=whole, do=error.do or do) from error


def refuse(faults: Mapping[str, bool]) -> None:
    """Raise `ExchangeError` for the first of these faults that is there."""
    for what, is_there in faults.items():
        if is_there:
            raise ExchangeError(f"{what}.")


def needs(
    package: str, extra: str, error: type[FCForgeError] = FCForgeError
) -> FCForgeError:
    """Error for a package that not everybody installs; it names the extra that brings it.

    Examples
    --------
    >>> print(needs("torch", "train"))
    this needs the package 'torch'. Install fcforge with its extra: pip install '.[train]' ...
    """
    do = f"Install fcforge with its extra: pip install '.[{extra}]' (or 'FILE.whl[{extra}]')."
    return error(f"this needs the package '{package}'.", do=do)


def optional(module: str, extra: str, error: type[FCForgeError] = FCForgeError) -> Any:
    """A module of a package that not everybody installs; else `needs`."""
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        raise needs(module.split(".")[0], extra, error) from missing


def unknown_name(
    kind: str, name: str, known: Iterable[str], *, where: str = ""
) -> ConfigError:
    """Error for a name that is not in a table: lists the known ones and the nearest.

    Examples
    --------
    >>> print(unknown_name("model", "gnc", ["gcn", "gat"]))
    unknown model 'gnc'. Did you mean 'gcn'? Known: gat, gcn.
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"Did you mean '{near[0]}'? " if near else ""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    do = f"{hint}Known: {', '.join(names[:MOST_NAMES]) or 'none'}{more}."
    return ConfigError(f"unknown {kind} '{name}'.", where=where, do=do)


def look_up(kind: str, name: str, table: Mapping[str, T], *, where: str = "") -> T:
    """Entry of a table, or a `ConfigError` with the nearest name and all known ones."""
    if name not in table:
        raise unknown_name(kind, name, table, where=where)
    return table[name]


def check_names(
    kind: str, names: Iterable[str], known: Collection[str], *, where: str = ""
) -> None:
    """Raise `ConfigError` for the first name that is not known."""
    for name in names:
        if name not in known:
            raise unknown_name(kind, name, known, where=where)


# -- how numbers and foreign text look -------------------------------------------------------------
def say(text: str) -> None:
    """Print a message to stderr."""
    print(printable(text), file=sys.stderr)


def printable(text: str, *, keep: str = "") -> str:
    r"""Text that cannot drive a terminal or hide in a page.

    Escapes, direction marks, zero-width characters, lone surrogates and line breaks become a
    question mark, odd spaces a plain one; characters of `keep` stay.

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
    """A CSV cell that no spreadsheet will run.

    Examples
    --------
    >>> no_formula("=1+1"), no_formula("NYU")
    ("'=1+1", 'NYU')
    """
    return f"'{cell}" if cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell


def whole(cell: str) -> str:
    """A whole number that a spreadsheet made a fraction as it was; anything else as it is.

    Examples
    --------
    >>> whole("50952.0"), whole("1,0"), whole("v1.0"), whole("0.05")
    ('50952', '1', 'v1.0', '0.05')
    """
    return re.sub(r"^(-?\d+)[.,]0+$", r"\1", cell)


def rounded(value: float, digits: int) -> float:
    """Rounded alike on every machine: a tie is seen as one although its last bit is noise.

    Examples
    --------
    >>> rounded(0.6434375 + 1e-15, 6) == rounded(0.6434375 - 1e-15, 6)
    True
    """
    return round(round(value, 10), digits) + 0.0


def number(value: float, digits: int = 3, *, sign: bool = False) -> str:
    """Fixed digits with a real minus sign; n/a for NaN, and never a negative zero."""
    if not math.isfinite(value):
        return NONE
    value = rounded(value, digits)
    text = f"{value:+.{digits}f}" if sign and value else f"{value:.{digits}f}"
    return text.replace("-", MINUS)


def percent(share: float | None, digits: int = 1) -> str:
    """Share of 1 in hundredths; n/a where there is none.

    Examples
    --------
    >>> percent(0.627), percent(0.5, 0), percent(None)
    ('62.7 %', '50 %', 'n/a')
    """
    return NONE if share is None else f"{100 * share:.{digits}f} %"


def bracket(low: float, high: float, *, digits: int = 3, sign: bool = False) -> str:
    """Interval as ``[low, high]``, empty for NaN."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    first = number(low, digits, sign=sign)
    last = number(high, digits, sign=sign)
    return f"[{first}, {last}]"


def p_value(p: float, at_floor: bool = False) -> str:
    """Three digits; the smallest that the permutations can give is a bound, not a value."""
    if p <= 0.001:
        return "≤ 0.001"
    return f"≤ {number(math.ceil(1000 * p) / 1000)}" if at_floor else number(p)


def with_interval(mean: float, low: float, high: float) -> str:
    """Mean and interval on one line."""
    return f"{number(mean)} {bracket(low, high)}".strip()


def counted(n: int, noun: str) -> str:
    """A number of things.

    Examples
    --------
    >>> counted(1, "site"), counted(0, "site")
    ('1 site', '0 sites')
    """
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def listed(text: str) -> list[str]:
    """Names separated by commas.

    Examples
    --------
    >>> listed("NYU, UM,")
    ['NYU', 'UM']
    """
    return [name.strip() for name in text.split(",") if name.strip()]


def two_spellings(names: Iterable[str]) -> str:
    """The first two names that are one but for case and spaces at the ends, in words; or none.

    Examples
    --------
    >>> two_spellings(["NYU", "UM", "nyu"]), two_spellings(["NYU", "UM"])
    ("'NYU' and 'nyu'", '')
    """
    seen: dict[str, str] = {}
    for name in names:
        first = seen.setdefault(name.strip().casefold(), name)
        if first != name:
            return f"'{first}' and '{name}'"
    return ""


def some(names: Iterable[object], most: int = 5) -> str:
    """The first names of a list, and how many more there are.

    Examples
    --------
    >>> some(["a", "b", "c"], most=2), some([7, 8])
    ('a, b and 1 more', '7, 8')
    """
    every = [str(name) for name in names]
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def people(n: int) -> str:
    """1 person, 2 people."""
    return "1 person" if n == 1 else f"{n} people"


def memory(n_bytes: float) -> str:
    """Bytes in the unit a person would say, by thousands as disks are sold.

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
    """Seconds in the unit a person would say.

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

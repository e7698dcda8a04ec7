"""Look-ups by name; a wrong name is answered with the nearest known one."""

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from fcforge.core.errors import ConfigError

T = TypeVar("T")
MOST_NAMES = 40  # listed in an error; of subjects there are hundreds


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
